//! The claim: the one znode of a queue that excludes a second leader, even if a server shows a wrong queue.
//!
//! The claim is created together with the write to our own znode that announces the new leader, and it is ephemeral. So a
//! quorum commits no second claim while the session of the first claim lives. A member whose server has lost a transaction
//! may consider itself the head of the queue, but it cannot claim.

use super::acl;
use super::context::{Context, REFUSED_DELAY, leave_server_if_missing};
use super::write::{ZnodeLost, give_up_if_no_auth, still_ours};
use super::znode::{is_of_session, is_ours, owner};
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::{Connection, TransactionResult, is_server_answer};
use ::zookeeper::{CreateMode, Error, MultiWriteResult, Stat};
use recipes::Ticket;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// Returns the path of a queue's claim. A claim is never mistaken for a member's znode, whose name ends in ten digits. In an
/// election that is shared with another client, the claim is beside the election's path and not below it: that client may
/// take every child of the path for a contender.
pub(crate) fn claim_path(root: &str, znodes: &ZnodeNames) -> String {
    match znodes.family() {
        None => format!("{root}/claim-{}", znodes.kind()),
        Some(_) => format!("{root}-bellwether-claim"),
    }
}

/// The outcome of a claim.
pub(super) enum ClaimOutcome {
    /// A quorum committed our claim. Contains the stat of our own znode.
    Ours(Stat),
    /// Another session owns the claim, so this member cannot lead yet.
    OwnedByOther(OtherClaim),
}

/// Why a member must not lead: another session owns the claim, or may own it by now.
#[derive(Clone, Debug)]
pub(crate) enum OtherClaim {
    /// Another session owns the claim, which has this data.
    Read(Vec<u8>),
    /// A quorum says that another session owns the claim, but no server that we reach shows it.
    NotShown,
    /// Our own claim was deleted, so another session may own one by now.
    OursDeleted,
}

/// Creates the claim and, in the same transaction, writes `data` to our own znode and to the claim. Repeats this until the
/// servers answer.
pub(super) async fn claim(
    context: &Context,
    ticket: Ticket,
    data: &[u8],
) -> Result<ClaimOutcome, ZnodeLost> {
    let is_retry = AtomicBool::new(false);
    let earlier = EarlierAttempts::default();
    let claimed = context.retry_until_answered(async |connection| {
        // Before a retry, our znode may have been replaced: see `still_ours`.
        if is_retry.swap(true, Ordering::Relaxed) {
            still_ours(context, &connection, ticket).await?;
        }
        let attempt = write_with_claim(context, &connection, ticket, data, Claim::Create).await;
        if attempt.is_err() {
            // Perhaps no answer came, and the claim was created.
            earlier.may_have_claimed.store(true, Ordering::Relaxed);
        }
        match attempt? {
            ClaimWrite::Done(stat) => Ok(ClaimOutcome::Ours(stat)),
            ClaimWrite::Refused(Error::NodeExists) => {
                on_claim_exists(context, &connection, ticket, data, &earlier).await
            }
            // In a shared election, the claim is a child of the path's parent, in which we may not be allowed to create
            // znodes. The problem names that remedy; the `Timeout` makes the claim be tried again.
            ClaimWrite::Refused(error) if context.settings.is_shared() && is_server_answer(&error) => {
                context.set_problem(format!(
                    "ZooKeeper refuses the claim of a leader at {} ({error}), and no member leads without it: let \
                     members create znodes in its parent (setAcl)",
                    context.claim_path()
                ));
                tokio::time::sleep(REFUSED_DELAY).await;
                Err(Error::Timeout)
            }
            ClaimWrite::Refused(error) => Err(error),
        }
    });
    let claimed = claimed.await;
    context.clear_problem();
    claimed.map_err(|_| ZnodeLost)
}

/// The operation on the claim znode that is part of the transaction.
enum Claim {
    /// Creates the claim.
    Create,
    /// Checks that our claim still exists. It was created by an attempt without an answer, or by the previous process.
    Check,
}

/// The servers' answer to a transaction that writes to our own znode, and creates or checks the claim.
enum ClaimWrite {
    /// Both were committed. Contains the stat of our znode.
    Done(Stat),
    /// Neither was committed, because the operation on the claim failed with this error.
    Refused(Error),
}

/// Writes to our own znode and creates or checks the claim, in one transaction. In an election that is shared with another
/// client, a contender's znode never changes after its creation, so there the transaction only checks that our znode exists.
async fn write_with_claim(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
    data: &[u8],
    claim: Claim,
) -> Result<ClaimWrite, Error> {
    let path = context.path(ticket.sequence);
    let claim_path = context.claim_path();
    let mode = CreateMode::Ephemeral.with_acls(acl::of_queue(context.settings.acl));
    let is_shared = context.settings.is_shared();
    let answer = connection.transact(2, |writer| {
        match is_shared {
            false => writer.add_set_data(&path, data, None)?,
            true => writer.add_check_version(&path, -1)?,
        }
        match claim {
            Claim::Create => writer.add_create(&claim_path, data, &mode),
            Claim::Check => writer.add_check_version(&claim_path, -1),
        }
    });
    // A check of our path has no stat as its result, so a read right behind the transaction confirms that the znode there
    // is ours.
    let read = async {
        match is_shared {
            false => Ok(None),
            true => connection.request(connection.client.check_stat(&path)).await,
        }
    };
    let (answer, read) = tokio::join!(answer, read);
    let results = match answer? {
        TransactionResult::Done(results) => results,
        // The operation on our own znode failed.
        TransactionResult::Failed { at: 0, error } => {
            return give_up_if_no_auth(context, &path, Err(error)).await;
        }
        TransactionResult::Failed { error, .. } => return Ok(ClaimWrite::Refused(error)),
    };
    let stat = match results.into_iter().next() {
        Some(MultiWriteResult::SetData { stat }) => Some(stat),
        _ => read?,
    };
    match stat {
        Some(stat) if is_ours(&stat, ticket, connection) => Ok(ClaimWrite::Done(stat)),
        // The path now has a znode that is not ours, or none, so our own znode is lost. The claim was committed, but it ends
        // with the session, which the member closes now.
        _ => Err(Error::NoNode),
    }
}

/// The findings of earlier attempts in one call of [`claim`].
#[derive(Default)]
struct EarlierAttempts {
    /// True once an attempt has failed: unless the servers refused it, it may have created our claim.
    may_have_claimed: AtomicBool,
    /// True if, in the last attempt, the create failed because a claim exists, but the server did not show that claim.
    was_claim_missing: AtomicBool,
}

/// Finds out which session owns the claim that exists already. If it is ours, from an earlier attempt or from the previous
/// process, the claim has succeeded. [`Error::Timeout`] makes the caller try the claim again.
async fn on_claim_exists(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
    own_data: &[u8],
    earlier: &EarlierAttempts,
) -> Result<ClaimOutcome, Error> {
    let claim_path = context.claim_path();
    let read = connection.request(connection.client.get_data(&claim_path)).await;
    let (data, stat) = match read {
        // The claim was deleted meanwhile, or the current server has lost the transaction that created it. The first time,
        // only try the claim again, as the caller does after a `Timeout`; the second time in a row, ask a quorum.
        Err(Error::NoNode) => {
            if !earlier.was_claim_missing.swap(true, Ordering::Relaxed) {
                return Err(Error::Timeout);
            }
            return match leave_server_if_missing(connection, &claim_path).await {
                // The claim is gone, or another server will be asked about it.
                Err(Error::NoNode) | Ok(true) => Err(Error::Timeout),
                Err(error) => Err(error),
                // A quorum says that the claim exists, and no other server can be asked whose it is.
                Ok(false) => Ok(ClaimOutcome::OwnedByOther(OtherClaim::NotShown)),
            };
        }
        read => read?,
    };
    earlier.was_claim_missing.store(false, Ordering::Relaxed);
    if is_of_session(&stat, connection) {
        // Our claim may have been deleted although this server still shows it. So confirm through a quorum that it exists,
        // and write our data in the same transaction.
        let confirmed = write_with_claim(context, connection, ticket, own_data, Claim::Check);
        return match confirmed.await? {
            ClaimWrite::Done(stat) => Ok(ClaimOutcome::Ours(stat)),
            // The claim was deleted meanwhile, so create it again.
            ClaimWrite::Refused(Error::NoNode) => Err(Error::Timeout),
            ClaimWrite::Refused(error) => Err(error),
        };
    }
    if earlier.may_have_claimed.load(Ordering::Relaxed) {
        // This server shows another session's claim, but it may lag: that claim may be deleted, and the one that exists may
        // be ours, from an attempt without an answer. Then we would wait for our own claim to end. It ends with our session,
        // so give the session up.
        warn!("it is unknown whether our claim was created: starting over with another session");
        return context.give_session_up().await;
    }
    if owner(&stat).is_none() {
        warn!("{claim_path} is not ephemeral, so no member made it: deleting it");
        match connection.request(connection.client.delete(&claim_path, Some(stat.version))).await {
            // The claim is gone or has changed, so try our claim again.
            Ok(()) | Err(Error::NoNode | Error::BadVersion) => return Err(Error::Timeout),
            // The member must not lead. It reports the claim as an unknown client's.
            Err(error) if is_server_answer(&error) => {
                warn!(
                    "{claim_path} cannot be deleted ({error}), and no member leads while it exists: delete it"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ClaimOutcome::OwnedByOther(OtherClaim::Read(data)))
}
