//! Finds foreign contenders in the queue's path: znodes of other clients, which elect a leader of their own in that path.

use super::context::Context;
use super::read::{LONGEST_DATA, stats};
use super::znode::owner;
use crate::status::ForeignQueue;
use crate::znode_names::ZnodeNames;
use crate::zookeeper::client::Connection;
use ::zookeeper::Error;
use recipes::ForeignClient;
use std::collections::BTreeMap;

/// The largest number of foreign contenders that are read in one go, beginning with the lowest sequence numbers. In an
/// election that is not shared with another client, no more than these are read, so that a client that creates many znodes
/// does not slow members down.
const MAX_READ_AT_ONCE: usize = 100;

/// Returns the client and the sequence number of the foreign contender with this name; `None` if the name is not a foreign
/// contender's. Several elections that are not shared with other clients may use one path, each with its own prefix for
/// members' znodes, so for them members of another such election are not foreign.
pub(crate) fn foreign_name(name: &str, znodes: &ZnodeNames) -> Option<(ForeignClient, i32)> {
    let (family, number) = ForeignClient::of_name(name)?;
    let is_of_other_election = family == ForeignClient::Bellwether && znodes.family().is_none();
    let is_in_our_queue = znodes.sequence(name).is_some();
    if is_in_our_queue || is_of_other_election { None } else { Some((family, number)) }
}

/// Returns the foreign contenders among `names`, ordered by sequence number.
fn contenders(names: &[String], znodes: &ZnodeNames) -> Vec<String> {
    let mut numbered = vec![];
    for name in names {
        if let Some((_, number)) = foreign_name(name, znodes) {
            numbered.push((number, name));
        }
    }
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Checks a listing of the path's children for foreign contenders, and publishes their clients as a problem. In an election
/// that is shared with another client, foreign contenders keep us out of the queue: the event that says so is sent before
/// this returns, so that the member gets it before any other result of the same listing.
pub(super) async fn check_names(context: &Context, names: &[String]) {
    let mut listed = contenders(names, &context.settings.znodes);
    if !context.settings.is_shared() {
        listed.truncate(MAX_READ_AT_ONCE);
    }
    let has_changed = context.state().foreign != listed;
    if listed.is_empty() {
        context.report_foreign(vec![]);
        context.send_keep_out(false);
    } else if context.settings.is_shared() || has_changed {
        // In a shared election, read them even if their names are the same as before: a listing that was refused since may
        // have kept us out of the queue, although none of these znodes does.
        read_contenders(context, &listed).await;
    }
    context.state().foreign = listed;
}

/// Reads the znodes with these names, and publishes the clients of the ephemeral ones. A znode that is not ephemeral is a
/// left-over, whose client no longer takes part.
async fn read_contenders(context: &Context, names: &[String]) {
    let mut found = vec![];
    let mut keep_out = false;
    // A chunk may contain only znodes that are not ephemeral, so continue until one with a contender is found.
    for chunk in names.chunks(MAX_READ_AT_ONCE) {
        let read = context
            .retry_until_answered(async |connection| queues_of(context, &connection, chunk).await);
        let Ok(queues) = read.await else {
            // The znodes could not be read, so stay out of the queue, to be safe.
            keep_out = true;
            break;
        };
        if !queues.is_empty() {
            found = queues;
            keep_out = true;
            break;
        }
    }
    context.report_foreign(found);
    context.send_keep_out(keep_out);
}

/// Returns the queue of each client that has ephemeral znodes among these names.
async fn queues_of(
    context: &Context,
    connection: &Connection,
    names: &[String],
) -> Result<Vec<ForeignQueue>, Error> {
    let path = |name: &str| format!("{}/{name}", context.settings.root);
    let paths: Vec<_> = names.iter().map(|name| path(name)).collect();
    let mut queues = BTreeMap::new();
    for (name, stat) in names.iter().zip(stats(connection, &paths).await?) {
        let Some(stat) = stat else { continue };
        let Some((family, _)) = ForeignClient::of_name(name) else { continue };
        if owner(&stat).is_none() {
            continue;
        }
        let is_short = stat.data_length <= LONGEST_DATA;
        // For each client: the number of its contenders, the name of the first, which has the lowest number, and whether the
        // first one's data is short enough to be read.
        let (contenders, _, _) = queues.entry(family).or_insert((0, name, is_short));
        *contenders += 1;
    }
    let mut found = vec![];
    for (family, (contenders, first, is_short)) in queues {
        let id = match is_short {
            true => read_id(connection, &path(first)).await?,
            false => None,
        };
        found.push(ForeignQueue {
            family,
            contenders,
            first: first.clone(),
            id,
            compatible_with: context.settings.znodes.family(),
        });
    }
    Ok(found)
}

/// Returns the id in the data of a contender's znode; `None` if the data has no id, we may not read it, or the znode is
/// gone.
async fn read_id(connection: &Connection, path: &str) -> Result<Option<String>, Error> {
    match connection.request(connection.client.get_data(path)).await {
        Ok((data, _)) => Ok(ForeignClient::id(&data)),
        Err(Error::NoNode | Error::NoAuth) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_contenders_are_found_by_name_and_ordered_by_number() {
        let kazoo = |number: &str| format!("6f1d2c3e8a7b4c5d9e0f112233445566__lock__{number}");
        let names = ["n_0000000009", "leader_0000000001", "claim-leader_", "", "ä"];
        let mut names: Vec<_> = names.map(str::to_owned).into();
        names.extend([kazoo("0000000012"), kazoo("0000000002")]);
        let expected = [kazoo("0000000002"), names[0].clone(), kazoo("0000000012")];
        assert_eq!(contenders(&names, &"leader_".into()), expected);
        // An operator may have chosen names for members' znodes that another client uses too.
        assert_eq!(contenders(&names, &"n_".into()), [expected[0].clone(), expected[2].clone()]);
        let many: Vec<_> = (0..=MAX_READ_AT_ONCE).rev().map(|n| format!("n_{n:010}")).collect();
        assert!(contenders(&many, &"leader_".into()).is_sorted(), "the lowest are read first");
    }
}
