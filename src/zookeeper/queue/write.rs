//! Writes to our own znode, in the order in which that was wanted, and renews.

use super::QueueEvent;
use super::context::Context;
use super::znode::is_ours;
use crate::zookeeper::client::is_verdict;
use ::zookeeper::{Error, Stat};
use recipes::{Moment, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tracing::warn;

pub(super) enum Write {
    /// From here on, this znode is ours.
    Joined(Ticket),
    /// Its commit is told with the moment, if there is one.
    Put(Arc<[u8]>, Option<Moment>),
    Renew(Moment),
}

/// What we last wrote to our znode, and which version of its data that was.
struct LastWrite {
    data: Arc<[u8]>,
    version: i32,
}

/// The znode is gone, or it is not ours.
struct Lost;

/// Carries out one write after the other: none is sent before the outcome of the one before is known.
pub(super) async fn write_in_order(
    context: Arc<Context>,
    mut wanted: mpsc::UnboundedReceiver<Write>,
) {
    let mut ours = None;
    let mut last: Option<LastWrite> = None;
    while let Some(write) = wanted.recv().await {
        let (ticket, done) = match (write, ours) {
            (Write::Joined(ticket), _) => {
                ours = Some(ticket);
                last = None;
                continue;
            }
            (_, None) => continue,
            (Write::Put(data, sent_at), Some(ticket)) => {
                let written = put(&context, ticket, &data).await;
                last = written
                    .as_ref()
                    .ok()
                    .map(|stat| LastWrite { data: data.clone(), version: stat.version });
                let event = |stat: Stat| QueueEvent::Written {
                    data,
                    created_ms: stat.ctime,
                    modified_ms: stat.mtime,
                    sent_at,
                };
                (ticket, written.map(event))
            }
            (Write::Renew(sent_at), Some(ticket)) => {
                let renewed = renew(&context, ticket, last.as_mut()).await;
                (ticket, renewed.map(|()| QueueEvent::Renewed { sent_at }))
            }
        };
        context.tell(match done {
            Ok(event) => event,
            Err(Lost) => {
                ours = None;
                QueueEvent::TicketLost(ticket)
            }
        });
    }
}

async fn put(context: &Context, ticket: Ticket, data: &[u8]) -> Result<Stat, Lost> {
    let path = context.path(ticket.sequence);
    let is_retry = AtomicBool::new(false);
    let written = context.until_judged(async |connection| {
        // While there was no connection, the path may have become another member's.
        if is_retry.swap(true, Ordering::Relaxed) {
            let stat = connection.request(connection.client.check_stat(&path)).await?;
            if !stat.is_some_and(|stat| is_ours(&stat, ticket, &connection)) {
                return Err(Error::NoNode);
            }
        }
        let written = connection.request(connection.client.set_data(&path, data, None)).await;
        let stat = unless_denied(context, &path, written).await?;
        if is_ours(&stat, ticket, &connection) { Ok(stat) } else { Err(Error::NoNode) }
    });
    written.await.map_err(|_| Lost)
}

/// Renews, and writes our data again where it was overwritten.
async fn renew(
    context: &Context,
    ticket: Ticket,
    last: Option<&mut LastWrite>,
) -> Result<(), Lost> {
    let version = check(context, ticket).await?;
    if let Some(last) = last.filter(|last| last.version != version) {
        warn!("somebody wrote into our znode: writing anew who leads");
        last.version = put(context, ticket, &last.data).await?.version;
    }
    Ok(())
}

/// Has a quorum commit a check of our path. Pipelined behind it, a stat proves that the znode there is
/// still ours: a path can be used again.
///
/// Returns the version of the znode's data.
async fn check(context: &Context, ticket: Ticket) -> Result<i32, Lost> {
    let path = context.path(ticket.sequence);
    let checked = context.until_judged(async |connection| {
        let asked = async {
            let checked = connection.check(&path);
            let stat = connection.client.check_stat(&path);
            let (checked, stat) = tokio::join!(checked, connection.request(stat));
            checked?;
            let ours = stat?.filter(|stat| is_ours(stat, ticket, &connection));
            ours.map(|stat| stat.version).ok_or(Error::NoNode)
        };
        unless_denied(context, &path, counted(context, asked).await).await
    });
    checked.await.map_err(|_| Lost)
}

/// Handles that the servers keep us from our own znode: our identity has changed since we created it,
/// or its ACL was changed. Only the end of the session removes it then.
async fn unless_denied<T>(
    context: &Context,
    path: &str,
    answer: Result<T, Error>,
) -> Result<T, Error> {
    if let Err(Error::NoAuth) = answer {
        warn!("{path} is ours and we are kept from it: starting over with another session");
        context.tell(QueueEvent::Unusable);
        // Ends with the session.
        std::future::pending().await
    }
    answer
}

/// Counts what becomes of each attempt to renew.
async fn counted<T>(
    context: &Context,
    renewal: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (meter, sent_at) = (&context.reports.meter, context.clock.now());
    let answer = renewal.await;
    match &answer {
        Ok(_) => meter.renewals.add(context.clock.now().since(sent_at)),
        Err(error) if is_verdict(error) => meter.renewal_refused(),
        Err(_) => meter.renewal_unanswered(),
    }
    answer
}
