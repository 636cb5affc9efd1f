//! One reading of a name, and the watch that tells when it is outdated.

use crate::shared_config::{Value, ValueReading};
use crate::zookeeper::client::{Connection, is_verdict};
use crate::zookeeper::queue::owner;
use ::zookeeper::{Error, OneshotWatcher, Stat};

/// The number of attempts to read a name that others create and delete meanwhile.
const ATTEMPTS: usize = 8;

/// Reads a name, and watches it from before.
pub(super) async fn read_and_watch(
    connection: &Connection,
    path: &str,
) -> Result<(ValueReading, OneshotWatcher), Error> {
    // All at once: each request leaves with the call.
    let synced = connection.client.sync(path);
    let watched = connection.client.check_and_watch_stat(path);
    let read = connection.client.get_data(path);
    let all = async { Ok(tokio::join!(synced, watched, read)) };
    let (synced, watched, read) = connection.request(all).await?;
    if let Err(error) = synced
        && !is_verdict(&error)
    {
        return Err(error);
    }
    let (_, watcher) = watched?;
    match read {
        Ok((data, stat)) => Ok((present(data, &stat), watcher)),
        Err(Error::NoNode) => Ok((absent(connection, path).await?, watcher)),
        Err(error) => Err(error),
    }
}

/// Returns as of which index a reading is still true, behind a sync; `None` if it is not.
pub(super) async fn current_as_of(
    connection: &Connection,
    path: &str,
    reading: &ValueReading,
) -> Result<Option<u64>, Error> {
    let synced = connection.client.sync(path);
    let stat = connection.client.check_stat(path);
    let both = async { Ok(tokio::join!(synced, stat)) };
    let (synced, stat) = connection.request(both).await?;
    if let Err(error) = synced
        && !is_verdict(&error)
    {
        return Err(error);
    }
    match (stat?, &reading.value) {
        (Some(stat), Some(_)) => {
            let index = stat.mzxid.cast_unsigned();
            Ok((index == reading.index).then_some(index))
        }
        (None, None) => changed_above(connection, path).await.map(Some),
        (Some(_), None) | (None, Some(_)) => Ok(None),
    }
}

fn present(data: Vec<u8>, stat: &Stat) -> ValueReading {
    let value = Value { data: data.into(), version: stat.version, owner: owner(stat) };
    ValueReading { index: stat.mzxid.cast_unsigned(), value: Some(value) }
}

/// Reads when a name was last seen to come or go: its index must not be smaller than that of its deletion, nor as large as
/// that of a creation which this does not show.
async fn absent(connection: &Connection, path: &str) -> Result<ValueReading, Error> {
    for _ in 0..ATTEMPTS {
        let before = changed_above(connection, path).await?;
        if connection.request(connection.client.check_stat(path)).await?.is_some() {
            break;
        }
        if changed_above(connection, path).await? == before {
            return Ok(ValueReading { index: before, value: None });
        }
    }
    // A name that changes this often is read again soon.
    Err(Error::Timeout)
}

/// Returns when something came or went below the nearest ancestor that there is.
async fn changed_above(connection: &Connection, path: &str) -> Result<u64, Error> {
    let mut path = path;
    while let Some((above, _)) = path.rsplit_once('/') {
        let ancestor = if above.is_empty() { "/" } else { above };
        let stat = connection.request(connection.client.check_stat(ancestor)).await?;
        if let Some(stat) = stat {
            return Ok(stat.pzxid.cast_unsigned());
        }
        path = above;
    }
    Err(Error::NoNode)
}
