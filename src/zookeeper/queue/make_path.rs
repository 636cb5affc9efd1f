//! Creates the path of a queue.

use super::acl;
use super::context::{Context, RETRY_DELAY};
use super::znode::paths_down_to;
use crate::zookeeper::client::{Connection, is_server_answer};
use ::zookeeper::{CreateMode, Error};
use recipes::ForeignClient;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::info;

/// Delay before the next attempt to create the path.
const NEXT_ATTEMPT_DELAY: Duration = RETRY_DELAY.saturating_mul(5);

/// Creates the path of the queue, with its ancestors. The path itself is a container if the servers support containers:
/// servers delete a container after its last child, here the last member, has gone. In an election that is shared with
/// Curator, kazoo or ZooKeeper's recipe, each znode is a container or persistent as that client would create it. If the path
/// cannot be created, publishes why, and the error is the delay before the next attempt.
pub(super) async fn make_path(context: &Context, connection: &Connection) -> Result<(), Duration> {
    let acl = context.settings.acl;
    let root = &context.settings.root;
    for path in paths_down_to(root) {
        let is_queue = path == root;
        let acls = if is_queue { acl::of_queue(acl) } else { acl::of_ancestors(acl) };
        let container = CreateMode::Container.with_acls(acls);
        let persistent = CreateMode::Persistent.with_acls(acls);
        let should_be_container = match context.settings.znodes.family() {
            None
            | Some(
                ForeignClient::GoZookeeper
                | ForeignClient::DocumentedRecipe
                | ForeignClient::Bellwether,
            ) => is_queue,
            // Curator creates the ancestors as containers too; kazoo and ZooKeeper's recipe create no containers.
            Some(ForeignClient::CuratorLatch | ForeignClient::CuratorSelector) => true,
            Some(ForeignClient::Kazoo | ForeignClient::ZookeeperRecipe) => false,
        };
        let unanswered = &context.reports.container_unanswered;
        let is_container = should_be_container
            && !unanswered.load(Ordering::Relaxed)
            && connection.has_containers().await;
        let mode = if is_container { &container } else { &persistent };
        let mut created = connection.request(connection.client.create(path, b"", mode)).await;
        if is_container && matches!(created, Err(Error::Unimplemented | Error::BadArguments(_))) {
            // The server does not know containers.
            created = connection.request(connection.client.create(path, b"", &persistent)).await;
        }
        match created {
            Ok(_) => info!("created {path}"),
            Err(Error::NodeExists) => {}
            Err(error) if is_server_answer(&error) => {
                context.report_refusal(connection, path, &error).await;
                return Err(NEXT_ATTEMPT_DELAY);
            }
            Err(error) => {
                // The server may have closed the connection because of the container, so do not ask for one again. Once set,
                // this flag stays set.
                unanswered.fetch_or(is_container, Ordering::Relaxed);
                context.set_problem(format!("cannot create {path}: {error}"));
                return Err(NEXT_ATTEMPT_DELAY);
            }
        }
    }
    Ok(())
}
