//! The bid: the one znode by which a member asks the one that leads to hand over.
//!
//! It is ephemeral, so it goes with its member. A bid of a higher priority takes the place of a lower one.

use super::acl;
use super::context::Context;
use super::znode::{is_of_session, owner};
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::{Connection, TransactionResult, is_verdict};
use ::zookeeper::{CreateMode, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tracing::{debug, warn};

/// Returns where the bid of a queue stands. Its name is no member's: that would end in ten digits.
pub(crate) fn bid_path(root: &str, znodes: &ZnodeNames) -> String {
    match znodes.family() {
        None => format!("{root}/bid-{}", znodes.kind()),
        Some(_) => format!("{root}-bellwether-bid"),
    }
}

/// What the bid is to say.
#[derive(Clone)]
pub(crate) struct WantedBid {
    pub(crate) data: Arc<[u8]>,
    pub(crate) priority: u8,
    /// Returns the priority that another's data claims; `None` if it is no member's.
    pub(crate) priority_of: fn(&[u8]) -> Option<u8>,
}

/// Makes or withdraws the bid, as was wanted last, and once more each time that it is wanted again.
pub(super) async fn keep(context: Arc<Context>, mut wanted: watch::Receiver<Option<WantedBid>>) {
    // A process before may have made one in this session.
    let may_be_ours = AtomicBool::new(true);
    while wanted.changed().await.is_ok() {
        loop {
            let bid = wanted.borrow_and_update().clone();
            let done = context.until_judged(async |connection| match &bid {
                Some(bid) => make(&context, &connection, bid, &may_be_ours).await,
                None => withdraw(&context, &connection, &may_be_ours).await,
            });
            tokio::select! {
                _ = done => break,
                Ok(()) = wanted.changed() => {}
            }
        }
    }
}

async fn make(
    context: &Context,
    connection: &Connection,
    bid: &WantedBid,
    may_be_ours: &AtomicBool,
) -> Result<(), Error> {
    let path = context.bid_path();
    let mode = CreateMode::Ephemeral.with_acls(acl::of_queue(context.settings.acl));
    let answer = match connection.request(connection.client.get_data(&path)).await {
        Err(Error::NoNode) => {
            may_be_ours.store(true, Ordering::Relaxed);
            let created = connection.client.create(&path, &bid.data, &mode);
            connection.request(created).await.map(drop)
        }
        Ok((data, stat)) if is_of_session(&stat, connection) => {
            if *data == *bid.data {
                return Ok(());
            }
            let written = connection.client.set_data(&path, &bid.data, Some(stat.version));
            connection.request(written).await.map(drop)
        }
        Ok((data, stat)) => {
            may_be_ours.store(false, Ordering::Relaxed);
            if owner(&stat).is_none() {
                warn!("{path} is not ephemeral, so no member made it: replacing it");
            } else if (bid.priority_of)(&data).is_some_and(|theirs| theirs >= bid.priority) {
                return Ok(());
            }
            may_be_ours.store(true, Ordering::Relaxed);
            let replaced = connection.transact(2, |writer| {
                writer.add_delete(&path, Some(stat.version))?;
                writer.add_create(&path, &bid.data, &mode)
            });
            replaced.await.and_then(TransactionResult::all_or_none)
        }
        Err(error) => Err(error),
    };
    unless_kept_from(&path, answer)
}

async fn withdraw(
    context: &Context,
    connection: &Connection,
    may_be_ours: &AtomicBool,
) -> Result<(), Error> {
    if !may_be_ours.load(Ordering::Relaxed) {
        return Ok(());
    }
    let path = context.bid_path();
    let answer = match connection.request(connection.client.get_data(&path)).await {
        Ok((_, stat)) if is_of_session(&stat, connection) => {
            connection.request(connection.client.delete(&path, Some(stat.version))).await
        }
        Ok(_) | Err(Error::NoNode) => Ok(()),
        Err(error) => Err(error),
    };
    unless_kept_from(&path, answer)?;
    may_be_ours.store(false, Ordering::Relaxed);
    Ok(())
}

/// Has what another changed meanwhile looked at again. What the servers refuse is left: a bid is no member's place, and is
/// tried again when it is wanted again.
fn unless_kept_from(path: &str, answer: Result<(), Error>) -> Result<(), Error> {
    match answer {
        Err(Error::NodeExists | Error::NoNode | Error::BadVersion) => Err(Error::Timeout),
        Err(error) if is_verdict(&error) => {
            debug!(%error, "the servers refuse what is wanted of {path}");
            Ok(())
        }
        answer => answer,
    }
}

/// Reads what the bid says. What is not ephemeral is no member's.
pub(super) async fn read(context: &Context) -> Option<Vec<u8>> {
    let path = context.bid_path();
    let read = context.until_judged(async |connection| {
        match connection.request(connection.client.get_data(&path)).await {
            Err(error) if is_verdict(&error) => Err(Error::NoNode),
            read => read,
        }
    });
    let (data, stat) = read.await.ok()?;
    owner(&stat).map(|_| data)
}
