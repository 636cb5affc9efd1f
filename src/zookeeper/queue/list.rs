//! Lists the members of the queue.

use super::context::Context;
use super::read::stats;
use super::znode::owner;
use super::{QueueEvent, foreign};
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::Error;
use recipes::Sequence;
use std::collections::BTreeSet;

/// The largest number of znodes below the path that are listed. A listing takes about 100 bytes of memory for each, so at
/// most about 10 MB.
pub(in crate::zookeeper) const CHILDREN_MAX: i32 = 100_000;

/// Lists the members in the queue, and sends them as an event, which repeats `number`. If another listing has begun since,
/// its number is larger, and this event is ignored.
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
        // The listing does not contain our znode, or the server does not show the path.
        (Some(own), _) => {
            let path = context.path(own.sequence);
            match context.confirm_own_znode_missing(connection, &path).await {
                // Our znode is gone, so the listing is right. The watch of our znode reports the loss.
                Error::NoNode => {}
                error => return Err(error),
            }
        }
        (None, _) => {}
    }
    listed.ok_or(Error::NoNode)
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

/// Returns a problem for operators if a path has too many children to list them; `None` if it has few enough.
async fn crowded_problem(connection: &Connection, root: &str) -> Result<Option<String>, Error> {
    let stat =
        connection.request(connection.client.check_stat(root)).await?.ok_or(Error::NoNode)?;
    if stat.num_children <= CHILDREN_MAX {
        return Ok(None);
    }
    Ok(Some(format!(
        "there are {} znodes below {root}, more than the {CHILDREN_MAX} that are listed: delete those that are not \
         members', and keep unknown clients out",
        stat.num_children
    )))
}

/// Publishes a problem and fails if the path has too many children to list them. The error makes the caller try again, after
/// a delay.
pub(in crate::zookeeper) async fn fail_if_crowded(
    context: &Context,
    connection: &Connection,
) -> Result<(), Error> {
    let problem = crowded_problem(connection, &context.settings.root).await?;
    context.set_crowded(problem.clone());
    match problem {
        None => Ok(()),
        Some(problem) => Err(Error::UnexpectedError(problem)),
    }
}

/// Syncs the current server, so that later reads are at least as new as the data that the servers' leader had at that time.
pub(in crate::zookeeper) async fn sync(connection: &Connection, path: &str) -> Result<(), Error> {
    ignore_refusal(connection.request(connection.client.sync(path)).await)
}

/// Returns the error of a sync, unless the server refused to sync: it still answers reads, so read from it as it is.
pub(in crate::zookeeper) fn ignore_refusal(synced: Result<(), Error>) -> Result<(), Error> {
    match synced {
        Err(error) if !is_server_answer(&error) => Err(error),
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

/// Lists the path once to find foreign contenders. If no answer comes, does nothing, as the next call lists again. If the
/// servers refuse the listing, or it would be too long, there may be foreign contenders that we cannot see: in an election
/// that is shared with another client, we then stay out of the queue.
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

/// Returns the names of all children of the path, as the current server shows them. Fails, after a delay, if there are too
/// many.
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

/// Returns the numbers of all names that are like a member's, except the znodes that are known not to be ephemeral. Also
/// remembers the names, from which paths are made later.
pub(super) fn sequences(context: &Context, names: &[String]) -> BTreeSet<Sequence> {
    let settings = &context.settings;
    settings.znodes.remember_all(names);
    let non_ephemeral = &context.state().non_ephemeral;
    names
        .iter()
        .filter_map(|name| settings.znodes.sequence(name))
        .filter(|sequence| !non_ephemeral.contains(sequence))
        .collect()
}

/// Returns the members as the current server shows them. Also checks the listing for foreign contenders.
///
/// A znode that is not ephemeral is left out even if its name is like a member's. To save requests, no stats are read for
/// that until a read or a watch has found the first such znode. From then on there may be more, so the stats of all znodes
/// that were not checked before are read, in one go.
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
