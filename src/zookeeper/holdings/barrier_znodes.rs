//! The znodes of barriers: reads all znodes of a barrier, creates `ready`, and ends a round.

use super::data;
use super::session::{Listing, NamedEntry, find_entry};
use crate::zookeeper::client::{Connection, TransactionResult};
use crate::zookeeper::queue::{
    Context, RETRY_DELAY, leave_wrong_server, of_queue, owner, stats, token,
};
use ::zookeeper::{CreateMode, Error, OneshotWatcher, Stat};
use recipes::Sequence;
use recipes::barrier::{self, Ready, Round};
use std::collections::BTreeSet;
use tokio::time::sleep;
use tracing::warn;

/// The znode below a barrier's path that marks it as open.
pub(super) const READY: &str = "ready";

/// Reads a barrier, and sets a watch that fires when `ready` is created or deleted. The watch is never
/// `None`: it is an `Option` because the function that reads a lock's queue returns the same type, and sets none.
pub(super) async fn read(
    context: &Context,
    connection: &Connection,
) -> Result<(Listing, Option<OneshotWatcher>), Error> {
    let root = &context.settings.root;
    let ready_path = path_of_ready(context);
    // Each of these calls sends its request at once. The watch is set first, so that it fires for every change that the
    // reading does not show.
    let watched = connection.client.check_and_watch_stat(&ready_path);
    let listed = connection.client.get_children(root);
    let ready_read = connection.client.get_data(&ready_path);
    let (watched, listed, ready_read) = tokio::join!(
        connection.request(watched),
        connection.request(listed),
        connection.request(ready_read)
    );
    let ((_, watcher), (names, stat)) = (watched?, listed?);
    let is_open = names.iter().any(|name| name == READY);
    let listing = Listing { round: Round(stat.mzxid), version: stat.version, ..Listing::default() };
    let listing = listing.with_entries(names.into_iter().filter_map(|name| {
        Some(NamedEntry { sequence: barrier::BarrierEntry::of_name(&name)?.sequence, name })
    }));
    if !is_open {
        return Ok((listing, Some(watcher)));
    }
    let ready = match ready_read {
        // `ready` is older than the listing, so it is the one that was listed.
        Ok((data, ready_stat)) if ready_stat.czxid <= stat.pzxid => match data::ready_of(&data) {
            Some(ready) => ready,
            None => ready_of_another_client(context, connection, &listing, &ready_stat).await?,
        },
        // The barrier changed between the requests. After a `Timeout`, the caller reads it again.
        Ok(_) | Err(Error::NoNode) => return Err(Error::Timeout),
        Err(error) => return Err(error),
    };
    Ok((Listing { ready: Some(ready), ..listing }, Some(watcher)))
}

/// Interprets a `ready` that another ZooKeeper client has created: all members that joined before are inside. Finds the last
/// of these members, which has the largest sequence number.
async fn ready_of_another_client(
    context: &Context,
    connection: &Connection,
    listing: &Listing,
    ready_stat: &Stat,
) -> Result<Ready, Error> {
    for NamedEntry { sequence, name } in listing.entries.iter().rev() {
        let path = format!("{}/{name}", context.settings.root);
        let stat = connection.request(connection.client.check_stat(&path)).await?;
        if stat.is_some_and(|stat| token(&stat) < token(ready_stat)) {
            return Ok(Ready { last: *sequence, size: None });
        }
    }
    // No listed member joined before `ready`. The sequence number 0 stands for nobody: the creation of `ready`
    // increased the path's counter, so no member that joined later has it.
    let nobody = Sequence::new(0).expect("0 is not negative");
    Ok(Ready { last: nobody, size: None })
}

/// Creates `ready`, unless the round is over, `ready` exists, or a quorum says that a member's znode is gone. If some znodes
/// are not ephemeral, and so do not belong to members, does not create `ready` and returns their sequence numbers; otherwise
/// returns an empty list. The caller reads the barrier again in any case, and so learns
/// whether it is open.
pub(super) async fn make_ready(
    context: &Context,
    listing: &Listing,
    round: Round,
    ready: Ready,
    members: &BTreeSet<Sequence>,
) -> Vec<Sequence> {
    if listing.round != round {
        return vec![];
    }
    let root = &context.settings.root;
    let ready_path = path_of_ready(context);
    let entries: Vec<&NamedEntry> =
        members.iter().filter_map(|sequence| find_entry(&listing.entries, *sequence)).collect();
    let paths: Vec<_> = entries.iter().map(|entry| format!("{root}/{}", entry.name)).collect();
    let non_ephemeral = context
        .retry_until_answered(async |connection| {
            let mut non_ephemeral = vec![];
            let stats = stats(&connection, &paths).await?;
            for ((entry, path), stat) in entries.iter().zip(&paths).zip(stats) {
                if stat.is_some_and(|stat| owner(&stat).is_none()) {
                    warn!("{path} is not ephemeral, so it does not count at the barrier: ignored. Delete it");
                    non_ephemeral.push(entry.sequence);
                }
            }
            Ok(non_ephemeral)
        })
        .await
        .unwrap_or_default();
    if !non_ephemeral.is_empty() {
        return non_ephemeral;
    }
    let data = data::encode_ready(ready);
    let mode = CreateMode::Persistent.with_acls(of_queue(context.settings.acl));
    let made = context.retry_until_answered(async |connection| {
        let answer = connection.transact(2 + paths.len(), |writer| {
            // Check that the round is still the one that was read, and that all members are present, with any version
            // (-1).
            writer.add_check_version(root, listing.version)?;
            paths.iter().try_for_each(|path| writer.add_check_version(path, -1))?;
            writer.add_create(&ready_path, &data, &mode)
        });
        // The caller reads the barrier again. If the current server does not show why the transaction failed, leave
        // that server: the caller would request the same again.
        match answer.await? {
            TransactionResult::Done(_) => Ok(()),
            // A member is gone: operation 0 checks the round, and the operations 1 to n check the n members.
            TransactionResult::Failed { at: index, error: Error::NoNode }
                if (1..=paths.len()).contains(&index) =>
            {
                leave_if_shown(&connection, &paths[index - 1]).await
            }
            // The barrier is open already.
            TransactionResult::Failed { error: Error::NodeExists, .. } => {
                leave_if_ready_is_not_shown(&connection, &ready_path).await
            }
            // The round is over.
            TransactionResult::Failed { error: Error::BadVersion, .. } => {
                leave_if_outdated(&connection, root, listing.version).await
            }
            TransactionResult::Failed { error, .. } => Err(error),
        }
    });
    let _path_is_gone = made.await;
    vec![]
}

/// Deletes `ready` and begins the next round, both or neither, unless this round is over.
pub(super) async fn end_round(context: &Context, listing: &Listing, round: Round) {
    if listing.round != round {
        return;
    }
    let root = &context.settings.root;
    let ready_path = path_of_ready(context);
    let ended = context.retry_until_answered(async |connection| {
        let answer = connection.transact(2, |writer| {
            writer.add_delete(&ready_path, None)?;
            // Each write to the barrier's path begins a round.
            writer.add_set_data(root, b"", Some(listing.version))
        });
        match answer.await? {
            TransactionResult::Done(_) => Ok(()),
            // Another member has ended the round. Wait, because the caller reads again at once. If this server still
            // shows the round, the caller would otherwise repeat both requests without a pause.
            TransactionResult::Failed { at: 0, error: Error::NoNode } => {
                sleep(RETRY_DELAY).await;
                Ok(())
            }
            TransactionResult::Failed { error: Error::BadVersion, .. } => {
                leave_if_outdated(&connection, root, listing.version).await
            }
            TransactionResult::Failed { error, .. } => Err(error),
        }
    });
    let _path_is_gone = ended.await;
}

// The functions below rely on this: when a server answers a transaction, it has applied everything that the quorum had
// committed by then. A server that still shows an older state has lost a transaction, and will never show its effect.

/// Leaves the current server if it still shows the znode of a member, after a quorum has denied that the znode exists.
async fn leave_if_shown(connection: &Connection, path: &str) -> Result<(), Error> {
    if connection.request(connection.client.check_stat(path)).await?.is_some() {
        leave_server(connection, path, "still shows", "it is gone").await;
    }
    Ok(())
}

/// Leaves the current server if it does not show `ready`, after a quorum has said that `ready` exists. First asks the
/// quorum and the server once more, because `ready` may have been deleted meanwhile.
async fn leave_if_ready_is_not_shown(connection: &Connection, path: &str) -> Result<(), Error> {
    let shows = async || connection.request(connection.client.check_stat(path)).await;
    if shows().await?.is_none() {
        match connection.check(path).await {
            // `ready` was deleted meanwhile.
            Err(Error::NoNode) => return Ok(()),
            checked => checked?,
        }
        if shows().await?.is_none() {
            leave_server(connection, path, "does not show", "it is there").await;
        }
    }
    Ok(())
}

/// Leaves the current server if it still shows this version of the path, after a quorum has denied that this is the
/// current version.
async fn leave_if_outdated(connection: &Connection, path: &str, version: i32) -> Result<(), Error> {
    let stat = connection.request(connection.client.check_stat(path)).await?;
    if stat.is_some_and(|stat| stat.version == version) {
        leave_server(connection, path, "shows an old version of", "it was written").await;
    }
    Ok(())
}

/// Leaves the current server, whose state of this path contradicts a quorum. The log describes the server's state with
/// `shows`, and the quorum's answer with `truth`.
async fn leave_server(connection: &Connection, path: &str, shows: &str, truth: &str) {
    if !leave_wrong_server(connection, path, shows, truth) {
        // There may be no other server, and this one will show the same again, so wait.
        sleep(RETRY_DELAY).await;
    }
}

fn path_of_ready(context: &Context) -> String {
    format!("{}/{READY}", context.settings.root)
}
