//! Reads other members' znodes once, without a watch.

use super::QueueEvent;
use super::context::{Context, leave_if_lacking};
use super::list::{queue_names_and_index, sequences};
use super::znode::{owner, token};
use crate::zookeeper::client::{Connection, LeaveServerOutcome, is_verdict};
use ::zookeeper::{Error, Stat};
use recipes::{Moment, Sequence, Ticket};

/// The longest data of a contender, in bytes: what has more is not read.
pub(super) const LONGEST_DATA: i32 = 1024;

/// The largest number of reads sent at once. A renewal, which goes over the same connection, waits for no more than these.
const READS_AT_ONCE: usize = 64;

/// A member's znode, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct MemberZnode {
    pub(crate) ticket: Ticket,
    pub(crate) data: Vec<u8>,
    /// When it was created, by the servers' clock, in milliseconds since 1970.
    pub(crate) created_ms: i64,
}

/// The znodes of the queue, as they were read at one moment.
#[derive(Debug, Default)]
pub(crate) struct QueueZnodes {
    /// The transaction by which a znode was last created or deleted there.
    pub(crate) index: u64,
    pub(crate) members: Vec<MemberZnode>,
}

/// Reads a member's znode, behind a sync or a check that goes through the ensemble's leader: so an answer also
/// proves that the ensemble's leader runs and has received our request.
pub(super) async fn read(context: &Context, member: Sequence, prove: bool, sent_at: Moment) {
    let path = context.path(member);
    let read = context.until_judged(async |connection| {
        if prove {
            return read_proven(context, &connection, member).await;
        }
        let synced = connection.client.sync(&context.settings.root);
        let read = connection.client.get_data(&path);
        let both = async { tokio::join!(synced, read) };
        let (synced, read) = connection.request(async { Ok(both.await) }).await?;
        if let Err(error) = synced
            && !is_verdict(&error)
        {
            return Err(error);
        }
        match read {
            // A znode that one server does not show may still exist.
            Err(Error::NoNode) => read_proven(context, &connection, member).await,
            read => read,
        }
    });
    let event = match read.await {
        Ok((_, stat)) if context.is_not_ephemeral(member, &stat) => {
            QueueEvent::MemberGone { member, sent_at }
        }
        Ok((data, stat)) => {
            let member = Ticket { sequence: member, token: token(&stat) };
            QueueEvent::MemberRead { member, data, modified_ms: stat.mtime, sent_at }
        }
        Err(_) => QueueEvent::MemberGone { member, sent_at },
    };
    context.tell(event);
}

/// Reads a znode, and has a quorum agree that it is there, or is not.
pub(super) async fn read_proven(
    context: &Context,
    connection: &Connection,
    member: Sequence,
) -> Result<(Vec<u8>, Stat), Error> {
    let path = context.path(member);
    let checked = connection.check(&path);
    let read = connection.client.get_data(&path);
    let (checked, read) = tokio::join!(checked, connection.request(read));
    match (checked, read) {
        (Err(Error::NoNode), read) => {
            if let Ok((_, stat)) = read {
                context.deny(connection, member, &stat);
            }
            Err(Error::NoNode)
        }
        (Err(error), _) if !is_verdict(&error) => Err(error),
        // Only a verdict that there is none says so.
        (Ok(()) | Err(_), Err(Error::NoNode)) => {
            // The znode may have gone between the two requests.
            match leave_if_lacking(connection, &path).await? {
                LeaveServerOutcome::First | LeaveServerOutcome::Again => Err(Error::Timeout),
                LeaveServerOutcome::NotYet => Err(Error::NoNode),
            }
        }
        (Ok(()) | Err(_), read) => read,
    }
}

/// Leaves the server at hand if it does not show this member, and a quorum says that it is there.
pub(super) async fn verify(context: &Context, member: Sequence) {
    // The answer itself is not needed: if the server was left, the next connection's reads show what is true.
    let _read = context
        .until_judged(async |connection| read_proven(context, &connection, member).await)
        .await;
}

/// Returns the znodes of all members, as of now.
pub(super) async fn read_all(context: &Context) -> Result<QueueZnodes, Error> {
    let connection = context.session.connection().await;
    let mut members = vec![];
    let (names, index) = match queue_names_and_index(context, &connection).await {
        Err(Error::NoNode) => return Ok(QueueZnodes::default()),
        read => read?,
    };
    super::foreign::judge(context, &names).await;
    let sequences = sequences(context, &names);
    let paths: Vec<_> = sequences.iter().map(|sequence| context.path(*sequence)).collect();
    let read = read_short(&connection, &paths).await?;
    let mut non_ephemeral = vec![];
    for (sequence, read) in sequences.into_iter().zip(read) {
        // The znode has gone in the meantime.
        let Some((data, stat)) = read else { continue };
        if owner(&stat).is_none() {
            non_ephemeral.push(sequence);
            continue;
        }
        members.push(MemberZnode {
            ticket: Ticket { sequence, token: token(&stat) },
            data,
            created_ms: stat.ctime,
        });
    }
    context.pass_over(&non_ephemeral);
    Ok(QueueZnodes { index, members })
}

/// Reads the stat of each of these znodes, all in one go: each request leaves with the call. `None` where there is none.
pub(in crate::zookeeper) async fn stats(
    connection: &Connection,
    paths: &[String],
) -> Result<Vec<Option<Stat>>, Error> {
    let asked: Vec<_> = paths.iter().map(|path| connection.client.check_stat(path)).collect();
    let mut stats = vec![];
    for asked in asked {
        stats.push(connection.request(asked).await?);
    }
    Ok(stats)
}

/// Reads znodes, [`READS_AT_ONCE`] at a time: the stat of each, and the data of those that have no more than members write.
/// `None` for one that is gone.
pub(in crate::zookeeper) async fn read_short(
    connection: &Connection,
    paths: &[String],
) -> Result<Vec<Option<(Vec<u8>, Stat)>>, Error> {
    let mut all = vec![];
    for paths in paths.chunks(READS_AT_ONCE) {
        let stats = stats(connection, paths).await?;
        let asked: Vec<_> = paths
            .iter()
            .zip(&stats)
            .map(|(path, stat)| {
                let is_short = stat.as_ref().is_some_and(|stat| stat.data_length <= LONGEST_DATA);
                is_short.then(|| connection.client.get_data(path))
            })
            .collect();
        for (stat, asked) in stats.into_iter().zip(asked) {
            all.push(match asked {
                None => stat.map(|stat| (vec![], stat)),
                Some(asked) => match connection.request(asked).await {
                    Err(Error::NoNode) => None,
                    read => Some(read?),
                },
            });
        }
    }
    Ok(all)
}
