//! Lists the members of the queue.

use super::QueueEvent;
use super::context::Context;
use super::znode::owner;
use crate::zookeeper::client::Connection;
use ::zookeeper::Error;
use recipes::Sequence;
use std::collections::BTreeSet;

/// Tells which members stand in the queue.
pub(super) async fn list(context: &Context, number: u64) {
    let read = context.until_judged(async |connection| {
        let members = members(context, &connection).await?;
        match context.own().filter(|own| !members.contains(&own.sequence)) {
            None => Ok(members),
            Some(own) => {
                let path = context.path(own.sequence);
                match context.own_is_not_shown(&connection, &path).await {
                    Error::NoNode => Ok(members),
                    error => Err(error),
                }
            }
        }
    });
    let read = read.await;
    context.tell(QueueEvent::Listed { number, members: read.unwrap_or_default() });
}

/// Returns all that are named like members and are not known to be none.
pub(super) async fn sequences(
    context: &Context,
    connection: &Connection,
) -> Result<BTreeSet<Sequence>, Error> {
    let settings = &context.settings;
    let children = connection.request(connection.client.list_children(&settings.root)).await?;
    let (non_ephemeral, denied) = (context.non_ephemeral(), context.denied());
    Ok(children
        .iter()
        .filter_map(|name| Sequence::of_name(name, &settings.prefix))
        .filter(|sequence| !non_ephemeral.contains(sequence) && !denied.contains(sequence))
        .collect())
}

/// Returns the members. Once one znode was found to be named like a member's and not ephemeral, more may
/// be: then the stat of all of them is read, in one go.
async fn members(context: &Context, connection: &Connection) -> Result<BTreeSet<Sequence>, Error> {
    let mut members = sequences(context, connection).await?;
    if context.non_ephemeral().is_empty() {
        return Ok(members);
    }
    let paths: Vec<_> = members.iter().map(|sequence| context.path(*sequence)).collect();
    let asked: Vec<_> = paths.iter().map(|path| connection.client.check_stat(path)).collect();
    let mut found = vec![];
    for (sequence, asked) in members.iter().zip(asked) {
        if connection.request(asked).await?.is_some_and(|stat| owner(&stat).is_none()) {
            found.push(*sequence);
        }
    }
    context.pass_over(&found);
    members.retain(|sequence| !found.contains(sequence));
    Ok(members)
}
