//! Carries out writes to our own znode, claims and renewals, in the order in which they were requested.

use super::context::{Context, leave_server_if_shown};
use super::znode::is_ours;
use super::{OtherClaim, QueueEvent, claim};
use crate::zookeeper::client::{Connection, TransactionResult, is_server_answer};
use ::zookeeper::{Error, Stat};
use recipes::{Moment, Sequence, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tracing::warn;

/// A write to our own znode, or a check of it, as [`super::QueueSession`] requests it.
pub(super) enum QueueWrite {
    /// We now own the znode with this ticket, so all later writes are for that znode.
    Joined(Ticket),
    /// Writes the data to our znode. The moment is the time of the member's request: once the write is committed, the lease
    /// may be counted from that moment. Without a moment, the commit is not reported.
    Data(Vec<u8>, Option<Moment>),
    /// Writes the data to our znode and creates the claim. The moment is the time of the member's request.
    Claim(Vec<u8>, Moment),
    /// Confirms with a quorum that our znode exists, and finds out whether this znode ahead is gone. The moment is the time
    /// of the member's request.
    Renew(Option<Sequence>, Moment),
}

/// The data that we last wrote to our own znode, and the version that the znode got. If a renewal finds another version,
/// another client has overwritten the data.
struct LastWrite {
    data: Vec<u8>,
    version: i32,
}

/// Our znode is gone, or the znode at its path is not ours, so this member has lost its place in the queue.
pub(super) struct ZnodeLost;

/// Our znode, and the state of our writes to it.
struct OwnZnode {
    ticket: Ticket,
    /// Our last write; `None` before the first.
    last: Option<LastWrite>,
    /// True once a quorum has acknowledged our claim, until a renewal finds that the claim is gone.
    is_claimed: bool,
    /// The version of the znode's data at the last renewal, in an election that is shared with another client. There,
    /// members do not write to their znodes, so a different version means that another client did.
    known_version: i32,
}

/// The znode that a renewal checks in the same transaction as our own.
#[derive(Clone, Copy)]
enum RenewalCheck {
    Nothing,
    Claim,
    /// A znode ahead of ours.
    Ahead(Sequence),
}

/// The servers' answer to a renewal. A transaction that fails because of the other znode proves nothing about our own.
enum RenewalAnswer {
    /// Our znode exists, with this version of its data, and so does the other znode, if one was checked.
    Committed { version: i32 },
    /// The transaction failed, because the other znode is gone.
    OtherGone,
    /// The transaction failed, because the servers refused to check the other znode.
    OtherRefused,
}

/// Carries out the writes one after the other: no write is sent before the outcome of the previous one is known.
pub(super) async fn write_in_order(
    context: Arc<Context>,
    mut writes: mpsc::UnboundedReceiver<QueueWrite>,
) {
    let mut own_znode: Option<OwnZnode> = None;
    while let Some(write) = writes.recv().await {
        if let QueueWrite::Joined(ticket) = write {
            own_znode = Some(OwnZnode { ticket, last: None, is_claimed: false, known_version: 0 });
            continue;
        }
        // We have no znode: an earlier write has found that it is lost, and has reported that. So drop this write.
        let Some(ours) = &mut own_znode else { continue };
        match ours.carry_out(&context, write).await {
            Ok(Some(event)) => context.send_event(event),
            Ok(None) => {}
            Err(ZnodeLost) => {
                context.send_event(QueueEvent::TicketLost(ours.ticket));
                own_znode = None;
            }
        }
    }
}

impl OwnZnode {
    /// Carries out a write, and repeats it until the servers have answered. Returns the event that reports the answer;
    /// `None` for a write from which no lease is counted.
    async fn carry_out(
        &mut self,
        context: &Context,
        write: QueueWrite,
    ) -> Result<Option<QueueEvent>, ZnodeLost> {
        let (stat, data, sent_at) = match write {
            QueueWrite::Joined(_) => unreachable!("handled by write_in_order"),
            QueueWrite::Renew(ahead, sent_at) => {
                return self.renew(context, ahead, sent_at).await.map(Some);
            }
            QueueWrite::Data(data, sent_at) => {
                (set_data(context, self.ticket, &data).await?, data, sent_at)
            }
            QueueWrite::Claim(data, sent_at) => {
                match claim::claim(context, self.ticket, &data).await? {
                    claim::ClaimOutcome::Ours(stat) => {
                        self.is_claimed = true;
                        (stat, data, Some(sent_at))
                    }
                    claim::ClaimOutcome::OwnedByOther(claim) => {
                        return Ok(Some(QueueEvent::ClaimRefused { claim, sent_at }));
                    }
                }
            }
        };
        self.last = Some(LastWrite { data, version: stat.version });
        Ok(sent_at.map(|sent_at| QueueEvent::Committed { sent_at }))
    }

    /// Confirms with a quorum that our znode exists, and writes our data again if another client has overwritten it.
    async fn renew(
        &mut self,
        context: &Context,
        ahead: Option<Sequence>,
        sent_at: Moment,
    ) -> Result<QueueEvent, ZnodeLost> {
        let also_checked = match ahead {
            // After a claim this member leads, so no znode ahead is to be checked.
            _ if self.is_claimed => RenewalCheck::Claim,
            Some(ahead) => RenewalCheck::Ahead(ahead),
            None => RenewalCheck::Nothing,
        };
        let mut answer = check(context, self.ticket, also_checked).await?;
        let is_other_gone = matches!(answer, RenewalAnswer::OtherGone);
        if is_other_gone && self.is_claimed {
            // Without our claim, a quorum would commit the claim of another member, so this member must not lead.
            self.is_claimed = false;
            warn!("{} is gone: a client has deleted it", context.claim_path());
            return Ok(QueueEvent::ClaimRefused { claim: OtherClaim::OursDeleted, sent_at });
        }
        if !matches!(answer, RenewalAnswer::Committed { .. }) {
            answer = check(context, self.ticket, RenewalCheck::Nothing).await?;
        }
        let RenewalAnswer::Committed { version } = answer else {
            unreachable!("only our own znode was checked")
        };
        if context.settings.is_shared() {
            self.note_version(context, version);
        } else if let Some(last) = &mut self.last
            && last.version != version
        {
            warn!("another client wrote into our znode: writing our announcement again");
            last.version = set_data(context, self.ticket, &last.data).await?.version;
        }
        let committed = QueueEvent::Committed { sent_at };
        match ahead {
            Some(member) if is_other_gone => {
                // The commit comes first, because it is the answer to the heartbeat.
                context.send_event(committed);
                Ok(QueueEvent::MemberGone { member, sent_at })
            }
            _ => Ok(committed),
        }
    }

    /// Warns if another client has written to our znode since the last renewal. The data of that client stays, because each
    /// write uses up the one-shot watch of the contender behind us.
    fn note_version(&mut self, context: &Context, version: i32) {
        let previous = std::mem::replace(&mut self.known_version, version);
        if previous != version {
            warn!("another client wrote into our znode, {}", context.path(self.ticket.sequence));
        }
    }
}

/// Writes the data to our znode, and repeats that until the servers have answered. Returns the znode's stat after the write.
async fn set_data(context: &Context, ticket: Ticket, data: &[u8]) -> Result<Stat, ZnodeLost> {
    let path = context.path(ticket.sequence);
    let is_retry = AtomicBool::new(false);
    let written = context.retry_until_answered(async |connection| {
        if is_retry.swap(true, Ordering::Relaxed) {
            still_ours(context, &connection, ticket).await?;
        }
        let written = connection.request(connection.client.set_data(&path, data, None)).await;
        let stat = match written {
            // The answer may come from a server that has lost the znode, so a quorum must confirm it.
            Err(Error::NoNode) => {
                return Err(context.confirm_own_znode_missing(&connection, &path).await);
            }
            written => give_up_if_no_auth(context, &path, written).await?,
        };
        if is_ours(&stat, ticket, &connection) { Ok(stat) } else { Err(Error::NoNode) }
    });
    written.await.map_err(|_| ZnodeLost)
}

/// Returns the stat of our znode; fails with [`Error::NoNode`] if the path has no znode, or one that is not ours. Call this
/// before a write is repeated: since the first attempt, another member's znode may have replaced ours at this path.
pub(in crate::zookeeper) async fn still_ours(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
) -> Result<Stat, Error> {
    let path = context.path(ticket.sequence);
    match connection.request(connection.client.check_stat(&path)).await? {
        Some(stat) if is_ours(&stat, ticket, connection) => Ok(stat),
        Some(_) => Err(Error::NoNode),
        None => Err(context.confirm_own_znode_missing(connection, &path).await),
    }
}

/// Checks through a quorum, in one transaction, that our znode and the one in `also_checked` exist. A stat that is sent
/// right behind the transaction confirms that the znode at our path is still ours.
async fn check(
    context: &Context,
    ticket: Ticket,
    also_checked: RenewalCheck,
) -> Result<RenewalAnswer, ZnodeLost> {
    let path = context.path(ticket.sequence);
    let other_path = match also_checked {
        RenewalCheck::Nothing => None,
        RenewalCheck::Claim => Some(context.claim_path()),
        RenewalCheck::Ahead(ahead) => Some(context.path(ahead)),
    };
    let checked = context.retry_until_answered(async |connection| {
        let renewal = async {
            let operations = 1 + usize::from(other_path.is_some());
            let checked = connection.transact(operations, |writer| {
                writer.add_check_version(&path, -1)?;
                match &other_path {
                    Some(other_path) => writer.add_check_version(other_path, -1),
                    None => Ok(()),
                }
            });
            let stat = connection.client.check_stat(&path);
            let (checked, stat) = tokio::join!(checked, connection.request(stat));
            match (checked?, also_checked) {
                (TransactionResult::Done(_), _) => {}
                // The check of our own path failed.
                (TransactionResult::Failed { at: 0, error }, _) => return Err(error),
                (TransactionResult::Failed { error: Error::NoNode, .. }, also_checked) => {
                    // A server that shows the znode, although a quorum says that it is gone, has lost a transaction.
                    if let RenewalCheck::Ahead(ahead) = also_checked {
                        leave_server_if_shown(&connection, &context.path(ahead)).await?;
                    }
                    return Ok(RenewalAnswer::OtherGone);
                }
                // Not the check of our own znode, but that of the znode ahead was refused.
                (TransactionResult::Failed { .. }, RenewalCheck::Ahead(_)) => {
                    return Ok(RenewalAnswer::OtherRefused);
                }
                // The claim was checked, and this error does not prove that it is gone: a client may have revoked our
                // permission to read it.
                (TransactionResult::Failed { error, .. }, _) => return Err(error),
            }
            match stat? {
                Some(stat) if is_ours(&stat, ticket, &connection) => {
                    Ok(RenewalAnswer::Committed { version: stat.version })
                }
                // The znode at our path is another member's, so ours is gone.
                Some(_) => Err(Error::NoNode),
                None => Err(context.confirm_own_znode_missing(&connection, &path).await),
            }
        };
        give_up_if_no_auth(context, &path, count_renewal(context, renewal).await).await
    });
    checked.await.map_err(|_| ZnodeLost)
}

/// Gives up the session, and never returns, if `answer` says that the servers deny us access to our own znode, because our
/// identity or the znode's ACL has changed. Only the end of the session can remove the znode then. Otherwise, returns
/// `answer`.
pub(in crate::zookeeper) async fn give_up_if_no_auth<T>(
    context: &Context,
    path: &str,
    answer: Result<T, Error>,
) -> Result<T, Error> {
    if let Err(Error::NoAuth) = answer {
        warn!("access to our own znode {path} is denied: starting over with another session");
        return context.give_session_up().await;
    }
    answer
}

/// Awaits one attempt to renew, and records its outcome in the metrics.
async fn count_renewal<T>(
    context: &Context,
    renewal: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let meter = &context.reports.meter;
    let sent_at = context.clock.now();
    let answer = renewal.await;
    let result = match &answer {
        Ok(_) => {
            meter.renewal_duration.observe(context.clock.now().since(sent_at).as_secs_f64());
            "committed"
        }
        Err(error) if is_server_answer(error) => "refused",
        Err(_) => "unanswered",
    };
    meter.renewals.with_label_values(&[result]).inc();
    answer
}
