//! Reads a name once, with a watch that fires when the reading is outdated.

use crate::shared_config::{Value, ValueReading};
use crate::zookeeper::client::Connection;
use crate::zookeeper::queue::{ignore_refusal, owner, sync};
use ::zookeeper::{Error, OneshotWatcher, Stat};

/// The number of attempts to read a name that others create and delete meanwhile.
const ATTEMPTS: usize = 8;

/// Reads a name, and watches it from just before the reading. Fails with `Timeout` if the name must be read again.
pub(super) async fn read_and_watch(
    connection: &Connection,
    path: &str,
) -> Result<(ValueReading, OneshotWatcher), Error> {
    // Each of these calls sends its request at once. The watch is set before the reading, so that no change is missed.
    let synced = connection.client.sync(path);
    let watched = connection.client.check_and_watch_stat(path);
    let read = connection.client.get_data(path);
    let all = async { Ok(tokio::join!(synced, watched, read)) };
    let (synced, watched, read) = connection.request(all).await?;
    ignore_refusal(synced)?;
    let (_, watcher) = watched?;
    match read {
        Ok((data, stat)) => Ok((present(data, &stat), watcher)),
        Err(Error::NoNode) => Ok((absent(connection, path).await?, watcher)),
        Err(error) => Err(error),
    }
}

/// Asks the current server, after a sync, whether `reading` is still current. Returns the index up to which the reading is
/// known to be current. Returns `None`, or fails with `Timeout`, if it is outdated. This is cheaper than to read the value
/// again for each question.
pub(super) async fn current_as_of(
    connection: &Connection,
    path: &str,
    reading: &ValueReading,
) -> Result<Option<u64>, Error> {
    if reading.value.is_none() {
        sync(connection, path).await?;
        return absent(connection, path).await.map(|absent| Some(absent.index));
    }
    let synced = connection.client.sync(path);
    let stat = connection.client.check_stat(path);
    let both = async { Ok(tokio::join!(synced, stat)) };
    let (synced, stat) = connection.request(both).await?;
    ignore_refusal(synced)?;
    let index = stat?.map(|stat| stat.mzxid.cast_unsigned());
    // Another index: the value was changed, or deleted and created again.
    Ok(index.filter(|index| *index == reading.index))
}

fn present(data: Vec<u8>, stat: &Stat) -> ValueReading {
    let value = Value { data: data.into(), version: stat.version, owner: owner(stat) };
    ValueReading { index: stat.mzxid.cast_unsigned(), value: Some(value) }
}

/// Returns the reading of a name that does not exist. Its index is the zxid of the last creation or deletion in the parent.
/// That index must not be smaller than the zxid of the name's deletion, and must be smaller than that of the name's next
/// creation. So reads the index before and after a check that the name does not exist: the two must be the same.
async fn absent(connection: &Connection, path: &str) -> Result<ValueReading, Error> {
    for _ in 0..ATTEMPTS {
        let index = last_change_above(connection, path).await?;
        if connection.request(connection.client.check_stat(path)).await?.is_some() {
            // The name was created meanwhile.
            break;
        }
        if last_change_above(connection, path).await? == index {
            return Ok(ValueReading { index, value: None });
        }
    }
    // The name exists again, or the parent changes too often. After a `Timeout`, the caller reads the name again.
    Err(Error::Timeout)
}

/// Returns the zxid of the transaction that last created or deleted a child of the path's nearest existing ancestor.
async fn last_change_above(connection: &Connection, path: &str) -> Result<u64, Error> {
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
