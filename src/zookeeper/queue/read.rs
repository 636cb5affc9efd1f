//! Reads other members' znodes once, without a watch.

use super::QueueEvent;
use super::context::{Context, leave_server_if_missing};
use super::list::{queue_names_and_index, sequences};
use super::znode::{owner, token};
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::{Error, Stat};
use recipes::{Moment, Sequence, SessionId, Ticket};

/// The maximum length of data that is read from a znode of a foreign contender or of a member, in bytes. Members never write
/// longer data.
pub(super) const LONGEST_DATA: i32 = 1024;

/// The largest number of reads sent at once. A renewal on the same connection waits behind at most this many reads, so a
/// long queue cannot delay it until the lease ends.
const READS_AT_ONCE: usize = 64;

/// A member's znode, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct MemberZnode {
    pub(crate) ticket: Ticket,
    pub(crate) session: SessionId,
    pub(crate) data: Vec<u8>,
    /// The creation time, by the servers' clock, in milliseconds since 1970.
    pub(crate) created_ms: i64,
}

/// The znodes of all members of the queue, from one reading.
#[derive(Debug, Default)]
pub(crate) struct QueueZnodes {
    /// The transaction that last created or deleted a znode in the queue.
    pub(crate) index: u64,
    pub(crate) members: Vec<MemberZnode>,
}

/// Reads a member's znode, and sends it as an event. If the current server does not show the znode, asks a quorum whether it
/// exists. The event repeats `sent_at`, the time of the member's request.
pub(super) async fn read(context: &Context, member: Sequence, sent_at: Moment) {
    let path = context.path(member);
    let read = context.retry_until_answered(async |connection| {
        let read = connection.request(connection.client.get_data(&path)).await;
        if !matches!(read, Err(Error::NoNode)) {
            return read;
        }
        match leave_server_if_missing(&connection, &path).await {
            Err(error) if !is_server_answer(&error) => Err(error),
            Err(_) => Err(Error::NoNode),
            // No other server can be asked, so the answer of this one has to do.
            Ok(false) if context.all_leaders_claim() => Err(Error::NoNode),
            Ok(_) => Err(Error::Timeout),
        }
    });
    let event = match read.await {
        // A znode that is not ephemeral is not a member's, so that member does not exist.
        Ok((_, stat)) if owner(&stat).is_none() => {
            context.ignore_non_ephemeral(&[member]);
            QueueEvent::MemberGone { member, sent_at }
        }
        Ok((data, stat)) => {
            let member = Ticket { sequence: member, token: token(&stat) };
            QueueEvent::MemberRead { member, data, sent_at }
        }
        Err(_) => QueueEvent::MemberGone { member, sent_at },
    };
    context.send_event(event);
}

/// Reads the current znodes of all members, once: if a request is not answered, the whole reading fails.
pub(super) async fn read_all(context: &Context) -> Result<QueueZnodes, Error> {
    let connection = context.session.connection().await;
    let mut members = vec![];
    let (names, index) = match queue_names_and_index(context, &connection).await {
        Err(Error::NoNode) => return Ok(QueueZnodes::default()),
        read => read?,
    };
    super::foreign::check_names(context, &names).await;
    let sequences = sequences(context, &names);
    let paths: Vec<_> = sequences.iter().map(|sequence| context.path(*sequence)).collect();
    let read = read_short(&connection, &paths).await?;
    let mut non_ephemeral = vec![];
    for (sequence, read) in sequences.into_iter().zip(read) {
        // `None`: the znode was deleted after the listing.
        let Some((data, stat)) = read else { continue };
        let Some(session) = owner(&stat) else {
            non_ephemeral.push(sequence);
            continue;
        };
        let ticket = Ticket { sequence, token: token(&stat) };
        members.push(MemberZnode { ticket, session, data, created_ms: stat.ctime });
    }
    context.ignore_non_ephemeral(&non_ephemeral);
    Ok(QueueZnodes { index, members })
}

/// Reads the stats of these znodes, all in one go: `check_stat` sends a request when it is called, so all are sent before
/// the first answer is awaited. A stat is `None` if the znode does not exist.
pub(in crate::zookeeper) async fn stats(
    connection: &Connection,
    paths: &[String],
) -> Result<Vec<Option<Stat>>, Error> {
    let requests: Vec<_> = paths.iter().map(|path| connection.client.check_stat(path)).collect();
    let mut stats = vec![];
    for request in requests {
        stats.push(connection.request(request).await?);
    }
    Ok(stats)
}

/// Reads the stats of these znodes, and then requests the data of each that exists, unless the data is longer than members
/// write. All these requests for data are sent before this returns; the caller awaits their answers.
async fn stats_and_short_data(
    connection: &Connection,
    paths: &[String],
) -> Result<Vec<(Option<Stat>, Option<impl Future<Output = Result<(Vec<u8>, Stat), Error>>>)>, Error>
{
    let stats = stats(connection, paths).await?;
    let requested = stats.into_iter().zip(paths).map(|(stat, path)| {
        let is_short = stat.as_ref().is_some_and(|stat| stat.data_length <= LONGEST_DATA);
        let data = is_short.then(|| connection.client.get_data(path));
        (stat, data)
    });
    Ok(requested.collect())
}

/// Reads the stat and the data of each of these znodes, [`READS_AT_ONCE`] at a time. Data that is longer than members write
/// is not read, and is empty in the result. An entry is `None` if the znode does not exist.
pub(in crate::zookeeper) async fn read_short(
    connection: &Connection,
    paths: &[String],
) -> Result<Vec<Option<(Vec<u8>, Stat)>>, Error> {
    let mut all = vec![];
    for paths in paths.chunks(READS_AT_ONCE) {
        for (stat, data) in stats_and_short_data(connection, paths).await? {
            all.push(match data {
                None => stat.map(|stat| (vec![], stat)),
                Some(request) => match connection.request(request).await {
                    Err(Error::NoNode) => None,
                    read => Some(read?),
                },
            });
        }
    }
    Ok(all)
}
