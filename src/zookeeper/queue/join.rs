//! Joins the queue: creates our znode, and never sends a second create before the outcome of the first is known.

use super::context::{Context, REFUSED_DELAY, RETRY_DELAY, leave_server_if_missing, retry_delay};
use super::list::{queue_names, sequences};
use super::read::stats;
use super::znode::{is_of_session, is_ours, session_of, token};
use super::{acl, foreign, make_path};
use crate::random;
use crate::zookeeper::client::{Connection, TransactionResult, is_server_answer};
use ::zookeeper::{Acls, CreateMode, Error, Stat};
use recipes::{Moment, Sequence, Ticket};
use std::mem;
use std::time::Duration;
use tokio::time::sleep;
use tracing::{debug, warn};

/// Delay before the next create when the path's sequence counter has no numbers left.
const COUNTER_END_DELAY: Duration = Duration::from_secs(5);

/// How to recognize our own znode in a queue after a create with unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::zookeeper) enum OwnZnodeMatch {
    /// By the session that owns it, in an election. The session may have only one znode in the queue, so if several are
    /// found, all but the lowest are deleted.
    OfSession,
    /// By the session and the data, for locks and barriers. The session may have several znodes in the queue, and the data
    /// of each names the holding that it belongs to.
    WithData,
}

/// Creates our znode. After a create with unknown outcome, first looks for the znode that it may have created. Returns our
/// ticket and, if the servers acknowledged the create, the time when it was sent. Returns `None` if our place is no longer
/// wanted and we have no znode.
///
/// ZooKeeper chooses the end of the name, so such a znode cannot be found by its name. `find_by` says how it is found
/// instead.
pub(in crate::zookeeper) async fn join(
    context: &Context,
    data: &[u8],
    find_by: OwnZnodeMatch,
) -> Option<(Ticket, Option<Moment>)> {
    context.forget_znodes();
    let acls = acl::of_queue(context.settings.acl);
    let mode = CreateMode::EphemeralSequential.with_acls(acls);
    let mut is_outcome_unknown = false;
    let mut has_skipped = false;
    loop {
        if !is_outcome_unknown && context.state().is_withdrawn {
            return None;
        }
        let (connection, permit) = context.connection_and_permit().await;
        if is_outcome_unknown {
            match find_own(context, &connection, data, find_by).await {
                Ok(Some(ticket)) => {
                    context.clear_problem();
                    return Some((ticket, None));
                }
                // The create was not carried out, so another one may be sent.
                Ok(None) => is_outcome_unknown = false,
                Err(error) => {
                    debug!(%error, "cannot tell whether the znode was created");
                    drop(permit);
                    sleep(retry_delay(&error)).await;
                }
            }
            continue;
        }
        if let Err(delay) = may_join(context, &connection).await {
            drop(permit);
            sleep(delay).await;
            continue;
        }
        let name_start = context.settings.znodes.name_start(session_of(&connection));
        let path_start = format!("{}/{name_start}", context.settings.root);
        let sent_at = context.clock.now();
        let delay =
            match connection.request(connection.client.create(&path_start, data, &mode)).await {
                Ok((stat, sequence)) => match ticket(&stat, sequence.into_i64()) {
                    Some(ticket) => {
                        context.settings.znodes.remember(&ticket.sequence.name(&name_start));
                        context.clear_problem();
                        return Some((ticket, Some(sent_at)));
                    }
                    None => refuse_sequence(context, &connection, sequence.into_i64()).await,
                },
                // The path does not exist: create it, and then try again.
                Err(Error::NoNode) => {
                    let made = make_path::make_path(context, &connection).await;
                    made.err().unwrap_or_default()
                }
                // A client has created a znode by hand, with the name that ours would get.
                Err(Error::NodeExists) => {
                    if !mem::replace(&mut has_skipped, true) {
                        warn_of_taken_number(context, &connection, &path_start).await;
                    }
                    skip_number(context, &connection).await
                }
                Err(error) if is_server_answer(&error) => {
                    context.report_refusal(&connection, &context.settings.root, &error).await;
                    REFUSED_DELAY
                }
                Err(error) => {
                    debug!(%error, "the create's outcome is unknown");
                    is_outcome_unknown = true;
                    RETRY_DELAY
                }
            };
        // Others may send requests meanwhile.
        drop(permit);
        sleep(delay).await;
    }
}

/// Fails if foreign contenders keep us out of the queue, or if it cannot be found out whether they do. The error is the delay
/// before this is checked again. It is checked before the create, because the mere existence of our znode could make their
/// client fail.
async fn may_join(context: &Context, connection: &Connection) -> Result<(), Duration> {
    if !context.settings.is_shared() {
        return Ok(());
    }
    let names = match queue_names(context, connection).await {
        Ok(names) => names,
        Err(Error::NoNode) => vec![],
        Err(error) if is_server_answer(&error) => {
            context.report_refusal(connection, &context.settings.root, &error).await;
            return Err(REFUSED_DELAY);
        }
        Err(error) => {
            debug!(%error, "cannot tell whether foreign contenders are in the path");
            return Err(retry_delay(&error));
        }
    };
    foreign::check_names(context, &names).await;
    if context.state().must_stay_out == Some(true) { Err(RETRY_DELAY) } else { Ok(()) }
}

/// Returns the znode that the previous process created in this session; `None` if this session has none, or no longer.
pub(super) async fn find(context: &Context) -> Option<OwnedZnode> {
    let found = context.retry_until_answered(async |connection| {
        let Some(ticket) = find_own(context, &connection, b"", OwnZnodeMatch::OfSession).await?
        else {
            return Ok(None);
        };
        let path = context.path(ticket.sequence);
        let (data, stat) = connection.request(connection.client.get_data(&path)).await?;
        if !is_ours(&stat, ticket, &connection) {
            return Ok(None);
        }
        let claimed = own_claim(context, &connection).await?;
        Ok(Some(OwnedZnode { ticket, data, claimed }))
    });
    let found = found.await.unwrap_or(None);
    context.clear_problem();
    found
}

/// Our znode, created by a previous process in the session that this process has resumed.
#[derive(Clone, Debug)]
pub(crate) struct OwnedZnode {
    pub(crate) ticket: Ticket,
    pub(crate) data: Vec<u8>,
    /// The data of our claim, if we have one. Read only in an election that is shared with another client.
    pub(crate) claimed: Option<Vec<u8>>,
}

/// Returns the data of our session's claim; `None` if the session has no claim. The claim is read only in an election that
/// is shared with another client: in all others, our own znode has the same data.
async fn own_claim(context: &Context, connection: &Connection) -> Result<Option<Vec<u8>>, Error> {
    if !context.settings.is_shared() {
        return Ok(None);
    }
    match connection.request(connection.client.get_data(&context.claim_path())).await {
        Ok((data, stat)) if is_of_session(&stat, connection) => Ok(Some(data)),
        Ok(_) | Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the ticket of our own znode; `None` if it does not exist. If this session has created several by mistake, returns
/// the lowest and deletes the others. First checks the path through a quorum: a listing after that check shows our znode if
/// the create was carried out.
async fn find_own(
    context: &Context,
    connection: &Connection,
    data: &[u8],
    find_by: OwnZnodeMatch,
) -> Result<Option<Ticket>, Error> {
    match connection.check(&context.settings.root).await {
        Err(Error::NoNode) => return Ok(None),
        checked => checked?,
    }
    let root = &context.settings.root;
    let names = match queue_names(context, connection).await {
        // The check has just found the path, so it exists unless it was deleted since.
        Err(Error::NoNode) => {
            leave_server_if_missing(connection, root).await?;
            // The path exists, so this server is wrong, and the caller must try again.
            return Err(Error::Timeout);
        }
        names => names?,
    };
    let mut found = None;
    let znodes = &context.settings.znodes;
    let session = session_of(connection);
    let sequences: Vec<_> = sequences(context, &names)
        .into_iter()
        .filter(|sequence| znodes.may_be_of(session, &znodes.name(*sequence)))
        .collect();
    let paths: Vec<_> = sequences.iter().map(|sequence| context.path(*sequence)).collect();
    let stats = stats(connection, &paths).await?;
    for ((sequence, path), stat) in sequences.into_iter().zip(&paths).zip(stats) {
        let Some(stat) = stat else { continue };
        if !is_of_session(&stat, connection) {
            continue;
        }
        if find_by == OwnZnodeMatch::WithData {
            match connection.request(connection.client.get_data(path)).await {
                Ok((other, _)) if other != data => continue,
                Err(Error::NoNode) => continue,
                read => drop(read?),
            }
        }
        if found.is_none() {
            found = Some(Ticket { sequence, token: token(&stat) });
        } else {
            warn!("deleting {path}: this session owns another znode");
            connection.request(connection.client.delete(path, None)).await?;
        }
    }
    Ok(found)
}

/// Returns the ticket of a created znode, or `None` if `sequence` is past the end of the path's sequence counter. Logs a
/// warning if the counter is near its end.
fn ticket(stat: &Stat, sequence: i64) -> Option<Ticket> {
    let sequence = Sequence::new(i32::try_from(sequence).ok()?)?;
    if sequence.number() > Sequence::LAST - 1_000_000 {
        warn!("the sequence counter nears its end: re-create the election's path in time");
    }
    Some(Ticket { sequence, token: token(stat) })
}

/// Warns that the name with the next number of the path is taken by a znode that a client created by hand.
async fn warn_of_taken_number(context: &Context, connection: &Connection, path_start: &str) {
    let root = &context.settings.root;
    if let Ok(Some(parent)) = connection.request(connection.client.check_stat(root)).await {
        warn!(
            "{path_start}{:010} is in the way of the next member: ZooKeeper did not name it, so a client made it by hand; \
             passed over. Delete it, and keep unknown clients out of {root}",
            next_number(&parent)
        );
    }
}

/// Uses up the next number of the path, whose name is taken. Returns the delay before the next create.
///
/// Suppose a client created `leader_0000000007`, and 7 is the next number of the path. Each create of a member then fails
/// with `NodeExists`, and ZooKeeper does not use the number up, so the next create fails in the same way. A znode that is
/// created under another name uses it up.
async fn skip_number(context: &Context, connection: &Connection) -> Duration {
    let root = &context.settings.root;
    // The name is random, so that no two clients choose the same. Other clients, which may not know such names, never see
    // the znode.
    let path = format!("{root}/pass-{:032x}-", random::id());
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let used = connection.transact(2, |writer| {
        writer.add_create(&path, b"", &mode)?;
        writer.add_delete(&path, None)
    });
    match used.await.and_then(TransactionResult::into_result) {
        Ok(_) => Duration::ZERO,
        Err(error) if is_server_answer(&error) => {
            context.set_problem(format!(
                "a znode that a client made by hand is in the way of the next member in {root}, and cannot be passed over \
                 ({error}): have it deleted"
            ));
            REFUSED_DELAY
        }
        Err(error) => {
            debug!(%error, "the taken number may or may not be used up");
            RETRY_DELAY
        }
    }
}

/// Returns the number of the next sequential znode below this parent, which is the number of children created so far.
/// `cversion` counts creations and deletions, and the number of children is creations minus deletions, so their sum is
/// twice the answer.
fn next_number(parent: &Stat) -> i32 {
    let twice = parent.cversion.wrapping_add(parent.num_children).cast_unsigned();
    (twice / 2).cast_signed()
}

/// Reports that the sequence counter of the path has no numbers left, and deletes the znode that was created with the
/// number past its end. Returns the delay before the next create: members can join only after an operator has re-created
/// the path.
async fn refuse_sequence(context: &Context, connection: &Connection, sequence: i64) -> Duration {
    let root = &context.settings.root;
    context.set_problem(format!(
        "the sequence counter of {root} is at its end ({sequence}): cannot join. \
         Delete and re-create {root} while no member leads"
    ));
    let name_start = context.settings.znodes.name_start(session_of(connection));
    // The counter is a signed 32-bit number, which overflows to negative numbers.
    let path = format!("{root}/{name_start}{sequence:010}");
    // If this fails, the znode stays until the session ends.
    let _ignored = connection.request(connection.client.delete(&path, None)).await;
    COUNTER_END_DELAY
}
