//! Writes to our own znode, in the order in which that was wanted, claims, and renews.

use super::context::Context;
use super::znode::is_ours;
use super::{ClaimHolder, QueueEvent, claim};
use crate::zookeeper::client::{Connection, TransactionResult, is_verdict};
use ::zookeeper::{Error, Stat};
use recipes::{Moment, Sequence, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tracing::warn;

pub(super) enum QueueWrite {
    /// From here on, this znode is ours.
    Joined(Ticket),
    /// Writes the data into our znode. The moment, if there is one, comes back with the commit.
    Put(Arc<[u8]>, Option<Moment>),
    /// The same, together with the claim.
    Claim(Arc<[u8]>, Moment),
    /// Finds out whether this predecessor is gone.
    Renew(Option<Sequence>, Moment),
}

/// The last write to the own znode, and the resulting version of its data.
struct LastWrite {
    data: Arc<[u8]>,
    version: i32,
}

/// The znode is gone, or it is not ours.
pub(super) struct ZnodeLost;

/// Our znode, as writes know it.
struct OwnZnodeVersion {
    ticket: Ticket,
    last: Option<LastWrite>,
    /// Whether a quorum has acknowledged our claim.
    is_claimed: bool,
    /// The version of its data that was seen last, where we write none.
    seen: i32,
}

/// The znodes that a renewal checks besides the own one.
enum RenewalCheck {
    Nothing,
    Claim,
    Predecessor(Sequence),
}

enum RenewalOutcome {
    /// The version of our znode's data.
    Ours(i32),
    /// The claim that was looked at beside our znode is gone; or the predecessor's is, or we may not read it.
    BesideGone,
}

/// Carries out one write after the other: none is sent before the outcome of the one before is known.
pub(super) async fn write_in_order(
    context: Arc<Context>,
    mut wanted: mpsc::UnboundedReceiver<QueueWrite>,
) {
    let mut own_znode: Option<OwnZnodeVersion> = None;
    while let Some(write) = wanted.recv().await {
        if let QueueWrite::Joined(ticket) = write {
            own_znode = Some(OwnZnodeVersion { ticket, last: None, is_claimed: false, seen: 0 });
            continue;
        }
        let Some(ours) = &mut own_znode else { continue };
        context.tell(match ours.carry_out(&context, write).await {
            Ok(event) => event,
            Err(ZnodeLost) => {
                let lost = QueueEvent::TicketLost(ours.ticket);
                own_znode = None;
                lost
            }
        });
    }
}

impl OwnZnodeVersion {
    async fn carry_out(
        &mut self,
        context: &Context,
        write: QueueWrite,
    ) -> Result<QueueEvent, ZnodeLost> {
        let (data, stat, sent_at) = match write {
            QueueWrite::Joined(_) => unreachable!("the loop takes it"),
            QueueWrite::Renew(predecessor, sent_at) => {
                return self.renew(context, predecessor, sent_at).await;
            }
            QueueWrite::Put(data, sent_at) => {
                let stat = put(context, self.ticket, &data).await;
                (data, stat, sent_at)
            }
            QueueWrite::Claim(data, sent_at) => {
                match claim::claim(context, self.ticket, &data).await {
                    Ok(claim::ClaimOutcome::Ours(stat)) => {
                        self.is_claimed = true;
                        (data, Ok(stat), Some(sent_at))
                    }
                    Ok(claim::ClaimOutcome::Anothers(data)) => {
                        let holder = ClaimHolder::Another(data);
                        return Ok(QueueEvent::ClaimRefused { holder, sent_at });
                    }
                    Err(lost) => (data, Err(lost), None),
                }
            }
        };
        self.last =
            stat.as_ref().ok().map(|stat| LastWrite { data: data.clone(), version: stat.version });
        let stat = stat?;
        let created_ms = stat.ctime;
        let modified_ms = stat.mtime;
        Ok(QueueEvent::Written { data, created_ms, modified_ms, sent_at })
    }

    /// Renews, and writes our data again where it was overwritten.
    async fn renew(
        &mut self,
        context: &Context,
        predecessor: Option<Sequence>,
        sent_at: Moment,
    ) -> Result<QueueEvent, ZnodeLost> {
        let beside = match predecessor {
            _ if self.is_claimed => RenewalCheck::Claim,
            Some(predecessor) => RenewalCheck::Predecessor(predecessor),
            None => RenewalCheck::Nothing,
        };
        let version = match check(context, self.ticket, &beside).await? {
            RenewalOutcome::Ours(version) => version,
            RenewalOutcome::BesideGone if self.is_claimed => {
                self.is_claimed = false;
                warn!("{} is gone: a client has deleted it", context.claim_path());
                let holder = ClaimHolder::Gone;
                return Ok(QueueEvent::ClaimRefused { holder, sent_at });
            }
            // The watch reports that the predecessor is gone. Our own lease needs a write that is committed.
            RenewalOutcome::BesideGone => {
                match check(context, self.ticket, &RenewalCheck::Nothing).await? {
                    RenewalOutcome::Ours(version) => version,
                    RenewalOutcome::BesideGone => unreachable!("nothing else was looked at"),
                }
            }
        };
        if context.settings.znodes.family().is_some() {
            self.note_version(context, version);
            return Ok(QueueEvent::Renewed { sent_at });
        }
        if let Some(last) = self.last.as_mut().filter(|last| last.version != version) {
            warn!("another client wrote into our znode: writing our announcement again");
            last.version = put(context, self.ticket, &last.data).await?.version;
        }
        Ok(QueueEvent::Renewed { sent_at })
    }
}

impl OwnZnodeVersion {
    /// Warns if another client has written into our znode since the last renewal. What it wrote stays there: another write would
    /// use up the watch of who is behind us, as theirs did.
    fn note_version(&mut self, context: &Context, version: i32) {
        if std::mem::replace(&mut self.seen, version) != version {
            warn!("another client wrote into our znode, {}", context.path(self.ticket.sequence));
        }
    }
}

async fn put(context: &Context, ticket: Ticket, data: &[u8]) -> Result<Stat, ZnodeLost> {
    let path = context.path(ticket.sequence);
    let is_retry = AtomicBool::new(false);
    let written = context.until_judged(async |connection| {
        if is_retry.swap(true, Ordering::Relaxed) {
            still_ours(context, &connection, ticket).await?;
        }
        let written = connection.request(connection.client.set_data(&path, data, None)).await;
        let stat = match written {
            // The answer may come from a server that has lost the znode.
            Err(Error::NoNode) => return Err(context.own_is_not_shown(&connection, &path).await),
            written => unless_denied(context, &path, written).await?,
        };
        if is_ours(&stat, ticket, &connection) { Ok(stat) } else { Err(Error::NoNode) }
    });
    written.await.map_err(|_| ZnodeLost)
}

/// Returns the stat of our znode if the path is still ours: while there was no connection, it may have become another
/// member's.
pub(in crate::zookeeper) async fn still_ours(
    context: &Context,
    connection: &Connection,
    ticket: Ticket,
) -> Result<Stat, Error> {
    let path = context.path(ticket.sequence);
    match connection.request(connection.client.check_stat(&path)).await? {
        Some(stat) if is_ours(&stat, ticket, connection) => Ok(stat),
        Some(_) => Err(Error::NoNode),
        None => Err(context.own_is_not_shown(connection, &path).await),
    }
}

/// Has a quorum commit a check of our path, and of what is beside it. Pipelined behind it, a stat proves that the znode
/// there is still ours: a path can be used again.
async fn check(
    context: &Context,
    ticket: Ticket,
    beside: &RenewalCheck,
) -> Result<RenewalOutcome, ZnodeLost> {
    let path = context.path(ticket.sequence);
    let beside_path = match beside {
        RenewalCheck::Nothing => None,
        RenewalCheck::Claim => Some(context.claim_path()),
        RenewalCheck::Predecessor(predecessor) => Some(context.path(*predecessor)),
    };
    let checked = context.until_judged(async |connection| {
        let asked = async {
            let operations = 1 + usize::from(beside_path.is_some());
            let checked = connection.transact(operations, |writer| {
                writer.add_check_version(&path, -1)?;
                beside_path.as_ref().map_or(Ok(()), |path| writer.add_check_version(path, -1))
            });
            let stat = connection.client.check_stat(&path);
            let (checked, stat) = tokio::join!(checked, connection.request(stat));
            match checked? {
                TransactionResult::Done(_) => {}
                TransactionResult::Failed { at: 0, error } => return Err(error),
                TransactionResult::Failed { error, .. }
                    if error == Error::NoNode || matches!(beside, RenewalCheck::Predecessor(_)) =>
                {
                    deny_ghost(context, &connection, beside, &error).await?;
                    return Ok(RenewalOutcome::BesideGone);
                }
                // Of the claim that proves nothing: a client may have taken the right to read it from us.
                TransactionResult::Failed { error, .. } => return Err(error),
            }
            match stat? {
                Some(stat) if is_ours(&stat, ticket, &connection) => {
                    Ok(RenewalOutcome::Ours(stat.version))
                }
                Some(_) => Err(Error::NoNode),
                None => Err(context.own_is_not_shown(&connection, &path).await),
            }
        };
        unless_denied(context, &path, counted(context, asked).await).await
    });
    checked.await.map_err(|_| ZnodeLost)
}

/// Takes the predecessor for gone from now on if a quorum says so and the server at hand still shows it. That
/// server has carried out, by then, all that was committed before the quorum's answer: it would go on showing it.
async fn deny_ghost(
    context: &Context,
    connection: &Connection,
    beside: &RenewalCheck,
    error: &Error,
) -> Result<(), Error> {
    let (RenewalCheck::Predecessor(predecessor), Error::NoNode) = (beside, error) else {
        return Ok(());
    };
    let path = context.path(*predecessor);
    if let Some(shown) = connection.request(connection.client.check_stat(&path)).await? {
        context.deny(connection, *predecessor, &shown);
    }
    Ok(())
}

/// Handles that the servers keep us from our own znode: our identity has changed since we created it,
/// or its ACL was changed. Only the end of the session removes it then.
pub(in crate::zookeeper) async fn unless_denied<T>(
    context: &Context,
    path: &str,
    answer: Result<T, Error>,
) -> Result<T, Error> {
    if let Err(Error::NoAuth) = answer {
        warn!("{path} is ours and we are kept from it: starting over with another session");
        return context.give_session_up().await;
    }
    answer
}

/// Counts what becomes of each attempt to renew.
async fn counted<T>(
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
        Err(error) if is_verdict(error) => "refused",
        Err(_) => "unanswered",
    };
    meter.renewals.with_label_values(&[result]).inc();
    answer
}
