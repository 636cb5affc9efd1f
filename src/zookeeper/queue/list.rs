//! Lists the members of the queue.

use super::context::{Context, QueueState, REFUSED_DELAY};
use super::read::{read_confirmed, stats};
use super::znode::owner;
use super::{QueueEvent, foreign};
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::Error;
use recipes::Sequence;
use std::collections::BTreeSet;
use tokio::time::sleep;

/// The largest number of znodes below the path that are listed. A listing takes about 100 bytes of memory for each.
pub(in crate::zookeeper) const CHILDREN_MAX: i32 = 100_000;

/// Lists the members in the queue, and sends them as an event. The event repeats `number`, by which an outdated listing is
/// recognized.
pub(super) async fn list(context: &Context, number: u64) {
    let read =
        context.retry_until_answered(async |connection| list_once(context, &connection).await);
    let members = match read.await {
        Ok(members) => members,
        // The path does not exist, so there are no foreign contenders either.
        Err(_) => {
            foreign::check_names(context, &[]).await;
            BTreeSet::new()
        }
    };
    context.send_event(QueueEvent::Listed { number, members });
}

/// Lists the members as the current server shows them. Fails, so that the caller lists again, if the listing lacks our own
/// znode although a quorum says that it exists. Fails with [`Error::NoNode`] if the path does not exist.
async fn list_once(
    context: &Context,
    connection: &Connection,
) -> Result<BTreeSet<Sequence>, Error> {
    // Our ticket from before the listing: a znode that is created during the listing may be missing in it.
    let own = context.state().own;
    let listed = match members(context, connection).await {
        Ok(members) => Some(members),
        Err(Error::NoNode) => None,
        Err(error) => return Err(error),
    };
    match (own, &listed) {
        (Some(own), Some(members)) if members.contains(&own.sequence) => {}
        (Some(own), _) => {
            let path = context.path(own.sequence);
            match context.confirm_own_znode_missing(connection, &path).await {
                // Our znode is gone, so the listing is right. Its watch reports the loss.
                Error::NoNode => {}
                error => return Err(error),
            }
        }
        (None, Some(members)) => return without_stale_head(context, connection, members).await,
        (None, None) => {}
    }
    listed.ok_or(Error::NoNode)
}

/// Returns the members without the head if a quorum says that the head is gone. This is for a member that has no znode in
/// the queue and waits until the queue is empty. It watches none of these znodes, so no notification would correct a server
/// that still shows the head.
async fn without_stale_head(
    context: &Context,
    connection: &Connection,
    members: &BTreeSet<Sequence>,
) -> Result<BTreeSet<Sequence>, Error> {
    if let Some(head) = members.first() {
        match read_confirmed(context, connection, *head).await {
            Ok(_) | Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    let stale = &context.state().stale;
    Ok(members.iter().copied().filter(|member| !stale.contains_key(member)).collect())
}

/// The reason why the children of a path were not listed.
pub(in crate::zookeeper) enum ListError {
    /// The path has too many children. Contains the problem for operators.
    Crowded(String),
    /// The request was refused, or not answered.
    Failed(Error),
}

impl From<Error> for ListError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Lists the children of a path.
async fn children(connection: &Connection, root: &str) -> Result<Vec<String>, ListError> {
    if let Some(problem) = crowded_problem(connection, root).await? {
        return Err(ListError::Crowded(problem));
    }
    Ok(connection.request(connection.client.list_children(root)).await?)
}

/// Returns a problem for operators if a path has too many children to list them.
async fn crowded_problem(connection: &Connection, root: &str) -> Result<Option<String>, Error> {
    let stat =
        connection.request(connection.client.check_stat(root)).await?.ok_or(Error::NoNode)?;
    if stat.num_children <= CHILDREN_MAX {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} znodes stand below {root}, more than the {CHILDREN_MAX} that are listed: delete those that are not \
         members', and keep unknown clients out",
        stat.num_children
    )))
}

/// Fails, after a delay, if the path has too many children to list them. The error makes the caller try again.
pub(in crate::zookeeper) async fn fail_if_crowded(
    context: &Context,
    connection: &Connection,
) -> Result<(), Error> {
    let problem = crowded_problem(connection, &context.settings.root).await?;
    context.set_crowded(problem.clone());
    match problem {
        None => Ok(()),
        Some(problem) => {
            sleep(REFUSED_DELAY).await;
            Err(Error::UnexpectedError(problem))
        }
    }
}

/// Syncs the current server, so that later reads are at least as new as the data that the servers' leader had at that time.
pub(in crate::zookeeper) async fn sync(connection: &Connection, path: &str) -> Result<(), Error> {
    match connection.request(connection.client.sync(path)).await {
        Err(error) if !is_server_answer(&error) => Err(error),
        // A server that refuses to sync still answers reads.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the current children of a path; none if the path does not exist.
pub(in crate::zookeeper) async fn names_below(
    connection: &Connection,
    path: &str,
) -> Result<Vec<String>, ListError> {
    sync(connection, path).await?;
    match children(connection, path).await {
        Err(ListError::Failed(Error::NoNode)) => Ok(vec![]),
        read => read,
    }
}

/// Lists the path once to find foreign contenders. Without an answer nothing happens, as the next call lists again. If the
/// servers refuse the listing, there may be foreign contenders that we cannot see, so in an election that is shared with
/// another client we stay out of the queue.
pub(super) async fn check_for_foreign(context: &Context) {
    let connection = context.session.connection().await;
    let root = &context.settings.root;
    let refused = match children(&connection, root).await {
        Ok(names) => return foreign::check_names(context, &names).await,
        // Without the path, our own znode is gone as well, which its watch reports.
        Err(ListError::Failed(Error::NoNode)) => return,
        Err(ListError::Failed(error)) if !is_server_answer(&error) => return,
        Err(refused) => refused,
    };
    if !context.settings.is_shared() {
        // Foreign contenders cannot keep us out here.
        return;
    }
    match refused {
        ListError::Crowded(problem) => context.set_problem(problem),
        ListError::Failed(error) => context.report_refusal(&connection, root, &error).await,
    }
    context.send_keep_out(true);
}

/// Returns the names of all children of the path, as the current server shows them.
pub(super) async fn queue_names(
    context: &Context,
    connection: &Connection,
) -> Result<Vec<String>, Error> {
    fail_if_crowded(context, connection).await?;
    connection.request(connection.client.list_children(&context.settings.root)).await
}

/// Returns the names of all current children of the path, and the transaction that last created or deleted a child.
pub(super) async fn queue_names_and_index(
    context: &Context,
    connection: &Connection,
) -> Result<(Vec<String>, u64), Error> {
    let root = &context.settings.root;
    sync(connection, root).await?;
    fail_if_crowded(context, connection).await?;
    let (names, stat) = connection.request(connection.client.get_children(root)).await?;
    Ok((names, stat.pzxid.cast_unsigned()))
}

/// Returns the numbers of all names that are like a member's, except the znodes that are known not to be ephemeral, or to be
/// deleted although a server still shows them.
pub(super) fn sequences(context: &Context, names: &[String]) -> BTreeSet<Sequence> {
    let settings = &context.settings;
    settings.znodes.remember_all(names);
    let QueueState { non_ephemeral, stale, .. } = &*context.state();
    names
        .iter()
        .filter_map(|name| settings.znodes.sequence(name))
        .filter(|sequence| !non_ephemeral.contains(sequence) && !stale.contains_key(sequence))
        .collect()
}

/// Returns the members as the current server shows them. A znode that is not ephemeral is left out even if its name is like
/// a member's. No stats are read for that until a read or a watch has found the first such znode. From then on there may be
/// more, so the stats of all znodes that were not checked before are read, in one go.
async fn members(context: &Context, connection: &Connection) -> Result<BTreeSet<Sequence>, Error> {
    let names = queue_names(context, connection).await?;
    foreign::check_names(context, &names).await;
    let mut members = sequences(context, &names);
    if context.state().non_ephemeral.is_empty() {
        return Ok(members);
    }
    let unchecked: Vec<_> = members.difference(&context.state().ephemeral).copied().collect();
    let paths: Vec<_> = unchecked.iter().map(|sequence| context.path(*sequence)).collect();
    let mut non_ephemeral = vec![];
    for (sequence, stat) in unchecked.into_iter().zip(stats(connection, &paths).await?) {
        match stat {
            Some(stat) if owner(&stat).is_none() => non_ephemeral.push(sequence),
            Some(_) => drop(context.state().ephemeral.insert(sequence)),
            // The znode was deleted meanwhile.
            None => {}
        }
    }
    context.ignore_non_ephemeral(&non_ephemeral);
    members.retain(|sequence| !non_ephemeral.contains(sequence));
    Ok(members)
}
