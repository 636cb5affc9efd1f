//! The claim: the single znode of a queue that excludes a second holder, whatever individual servers show.
//!
//! It is created together with the write to our own znode that announces the new holder, and it ends with the session. So a
//! quorum commits no second claim while the session of the first lives. A member whose server has lost a transaction may
//! consider itself the head of the queue, but it cannot claim.

use super::acl;
use super::context::{Context, REFUSED_DELAY, leave_if_znode_missing};
use super::write::{ZnodeLost, give_up_if_no_auth, still_ours};
use super::znode::{is_of_session, is_ours, owner};
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::{
    Connection, LeaveServerOutcome, TransactionResult, is_server_answer,
};
use ::zookeeper::{CreateMode, Error, MultiWriteResult, Stat};
use recipes::Ticket;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// Returns the path of a queue's claim. Its name cannot be a member's, because a member's name ends in ten digits. In an
/// election that is shared with another client, the claim is beside the path and not below it: such clients take every child
/// for a contender.
pub(crate) fn claim_path(root: &str, znodes: &ZnodeNames) -> String {
    match znodes.family() {
        None => format!("{root}/claim-{}", znodes.kind()),
        Some(_) => format!("{root}-bellwether-claim"),
    }
}

/// The outcome of a claim.
pub(super) enum ClaimOutcome {
    /// A quorum committed the claim. Contains the stat of our own znode.
    Ours(Stat),
    /// Another session owns the claim, which has this data.
    Anothers(Vec<u8>),
}

/// Creates the claim and, in the same transaction, writes to our own znode. In an election that is shared with another
/// client, whose contenders write their znodes only once, it only checks that our znode exists. Repeats the request until the
/// servers answer.
pub(super) async fn claim(
    context: &Context,
    ticket: Ticket,
    data: &[u8],
) -> Result<ClaimOutcome, ZnodeLost> {
    let path = context.path(ticket.sequence);
    let claim_path = context.claim_path();
    let mode = CreateMode::Ephemeral.with_acls(acl::of_queue(context.settings.acl));
    let is_retry = AtomicBool::new(false);
    let unknown = UnansweredRequests::default();
    let writes_own = context.settings.znodes.family().is_none();
    let claimed = context.retry_until_answered(async |connection| {
        if is_retry.swap(true, Ordering::Relaxed) {
            still_ours(context, &connection, ticket).await?;
        }
        let answer = connection.transact(2, |writer| {
            match writes_own {
                true => writer.add_set_data(&path, data, None)?,
                false => writer.add_check_version(&path, -1)?,
            }
            writer.add_create(&claim_path, data, &mode)
        });
        let (answer, stat) = tokio::join!(answer, stat_of(&connection, &path, !writes_own));
        unknown.outcome.fetch_or(answer.is_err(), Ordering::Relaxed);
        match answer? {
            TransactionResult::Done(results) => ours(results, stat, ticket, &connection),
            TransactionResult::Failed { at: 0, error } => {
                give_up_if_no_auth(context, &path, Err(error)).await
            }
            TransactionResult::Failed { error: Error::NodeExists, .. } => {
                holder(context, &connection, ticket, data, &unknown).await
            }
            TransactionResult::Failed { error, .. } => {
                if !writes_own && is_server_answer(&error) {
                    context.set_problem(format!(
                        "ZooKeeper refuses the claim of a leader at {claim_path} ({error}), and no member leads without \
                         it: let members create znodes in its parent (setAcl)"
                    ));
                    tokio::time::sleep(REFUSED_DELAY).await;
                    return Err(Error::Timeout);
                }
                Err(error)
            }
        }
    });
    let claimed = claimed.await;
    context.clear_problem();
    claimed.map_err(|_| ZnodeLost)
}

/// The uncertainties about one claim.
#[derive(Default)]
struct UnansweredRequests {
    /// An attempt was not answered, so it may have created the claim.
    outcome: AtomicBool,
    /// The servers said that a claim exists, and then did not show it.
    holder: AtomicBool,
}

/// Finds out which session owns the claim that prevents ours.
async fn holder(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
    announced: &[u8],
    unknown: &UnansweredRequests,
) -> Result<ClaimOutcome, Error> {
    let claim_path = context.claim_path();
    let read = connection.request(connection.client.get_data(&claim_path)).await;
    let (data, stat) = match read {
        // The claim was deleted meanwhile, or the current server has lost the transaction that created it.
        Err(Error::NoNode) => {
            if !unknown.holder.swap(true, Ordering::Relaxed) {
                return Err(Error::Timeout);
            }
            return match leave_if_znode_missing(connection, &claim_path).await {
                Err(Error::NoNode) | Ok(LeaveServerOutcome::First | LeaveServerOutcome::Again) => {
                    Err(Error::Timeout)
                }
                Err(error) => Err(error),
                Ok(LeaveServerOutcome::NotYet) => Ok(ClaimOutcome::Anothers(vec![])),
            };
        }
        read => read?,
    };
    unknown.holder.store(false, Ordering::Relaxed);
    if is_of_session(&stat, connection) {
        return confirm(context, connection, ticket, announced).await;
    }
    if unknown.outcome.load(Ordering::Relaxed) {
        // The claim may still be ours: this server may show an earlier claim that is gone. Our claim ends with our session,
        // on that server too.
        warn!("what became of our claim is unknown: starting over with another session");
        return context.give_session_up().await;
    }
    if owner(&stat).is_none() {
        warn!("{claim_path} is not ephemeral, so no member made it: deleting it");
        match connection.request(connection.client.delete(&claim_path, Some(stat.version))).await {
            Ok(()) | Err(Error::NoNode | Error::BadVersion) => return Err(Error::Timeout),
            Err(error) if is_server_answer(&error) => {
                context.set_problem(format!(
                    "{claim_path} is not ephemeral, so no member made it, and none can lead while it stands; it cannot \
                     be deleted ({error}). Delete it"
                ));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ClaimOutcome::Anothers(data))
}

/// Writes to our own znode when our claim already exists: an attempt without an answer was carried out, or the previous
/// process created the claim.
async fn confirm(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
    data: &[u8],
) -> Result<ClaimOutcome, Error> {
    let path = context.path(ticket.sequence);
    let claim_path = context.claim_path();
    let writes_own = context.settings.znodes.family().is_none();
    let answer = connection.transact(2, |writer| {
        match writes_own {
            true => writer.add_set_data(&path, data, None)?,
            false => writer.add_check_version(&path, -1)?,
        }
        writer.add_check_version(&claim_path, -1)
    });
    let (answer, stat) = tokio::join!(answer, stat_of(connection, &path, !writes_own));
    match answer? {
        TransactionResult::Done(results) => ours(results, stat, ticket, connection),
        TransactionResult::Failed { at: 0, error } => {
            give_up_if_no_auth(context, &path, Err(error)).await
        }
        // The claim was deleted meanwhile, so create it again.
        TransactionResult::Failed { error: Error::NoNode, .. } => Err(Error::Timeout),
        TransactionResult::Failed { error, .. } => Err(error),
    }
}

/// Returns the stat of a znode if `is_wanted`. Pipelined behind a claim that does not write to the znode, the stat confirms
/// that the znode is ours.
async fn stat_of(
    connection: &Connection,
    path: &str,
    is_wanted: bool,
) -> Result<Option<Stat>, Error> {
    match is_wanted {
        true => connection.request(connection.client.check_stat(path)).await,
        false => Ok(None),
    }
}

fn ours(
    results: Vec<MultiWriteResult>,
    read: Result<Option<Stat>, Error>,
    ticket: Ticket,
    connection: &Connection,
) -> Result<ClaimOutcome, Error> {
    match results.into_iter().next() {
        Some(MultiWriteResult::SetData { stat }) if is_ours(&stat, ticket, connection) => {
            Ok(ClaimOutcome::Ours(stat))
        }
        Some(MultiWriteResult::Check) => match read? {
            Some(stat) if is_ours(&stat, ticket, connection) => Ok(ClaimOutcome::Ours(stat)),
            // The server has just committed a check of the znode, so it shows the znode unless that was deleted since.
            Some(_) | None => Err(Error::NoNode),
        },
        // We wrote to a znode that is not ours, so our own is lost. The claim is ours, and ends with the session.
        _ => Err(Error::NoNode),
    }
}
