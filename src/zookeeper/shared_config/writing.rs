//! Writes a value. A write is sent once, and never again before its outcome is known.

use super::ConfigContext;
use crate::config::security::AclPolicy;
use crate::shared_config::{Condition, ValueWrite, WriteAction, WriteError, WriteOutcome};
use crate::zookeeper::client::{Connection, is_server_answer};
use crate::zookeeper::queue::{acl_of_ancestors, of_queue, paths_down_to};
use ::zookeeper::{Acls, CreateMode, Error, Stat};
use tracing::info;

/// The number of attempts while others create and delete the value.
const ATTEMPTS: usize = 8;

impl ConfigContext {
    /// Writes a value if its condition is met.
    pub(super) async fn write(&self, write: &ValueWrite) -> Result<WriteOutcome, WriteError> {
        let connection = self.connection().await.ok_or(WriteError::NotSent)?;
        let path = self.path_of(&write.name);
        let writing = Writing { connection: &connection, acl: self.acl, path: &path };
        let written = match &write.action {
            WriteAction::Put { data, is_ephemeral: false } => {
                writing.put(data, write.condition).await
            }
            WriteAction::Put { data, is_ephemeral: true } => {
                writing.put_ephemeral(data, write.condition).await
            }
            WriteAction::Delete => writing.delete(write.condition).await,
        };
        // Count the change before the answer, so that a client that knows of this write never gets an older list of names.
        self.listed.changes.note_change();
        match written {
            Ok(written) => written,
            Err(error) if is_server_answer(&error) => {
                Err(WriteError::Refused(self.explain(&connection, &path, &error).await))
            }
            Err(_) => Err(WriteError::Unknown),
        }
    }
}

/// The outcome of a write. The inner result is the answer to the client: the write was carried out, or was not because its
/// condition was not met, for example. The outer error means that the servers refused a request, or did not answer it.
type Outcome = Result<Result<WriteOutcome, WriteError>, Error>;

/// One write, over one connection.
struct Writing<'a> {
    connection: &'a Connection,
    acl: AclPolicy,
    path: &'a str,
}

impl Writing<'_> {
    /// Changes a value, or creates it if the condition allows that. A created value outlives the session.
    async fn put(&self, data: &[u8], condition: Condition) -> Outcome {
        let version = match condition {
            Condition::Absent => return self.create(data, CreateMode::Persistent).await,
            Condition::Version(version) => Some(version),
            Condition::None | Condition::Exists => None,
        };
        for _ in 0..ATTEMPTS {
            let set = self.connection.client.set_data(self.path, data, version);
            match self.connection.request(set).await {
                Ok(stat) => return Ok(Ok(changed(&stat))),
                // The value does not exist yet, which this condition allows.
                Err(Error::NoNode) if condition == Condition::None => {
                    match self.create(data, CreateMode::Persistent).await? {
                        // Another client has created the value meanwhile.
                        Err(WriteError::Differs { .. }) => {}
                        created => return Ok(created),
                    }
                }
                Err(Error::NoNode) => return Ok(Err(WriteError::Differs { found: None })),
                Err(Error::BadVersion) => return self.differs().await,
                Err(error) => return Err(error),
            }
        }
        Ok(Err(busy()))
    }

    /// Writes a value that ends with the session: creates it, or changes it if this session has created it.
    async fn put_ephemeral(&self, data: &[u8], condition: Condition) -> Outcome {
        for _ in 0..ATTEMPTS {
            let stat =
                self.connection.request(self.connection.client.check_stat(self.path)).await?;
            let Some(stat) = stat else {
                // The value does not exist.
                if matches!(condition, Condition::Exists | Condition::Version(_)) {
                    return Ok(Err(WriteError::Differs { found: None }));
                }
                match self.create(data, CreateMode::Ephemeral).await? {
                    // Another client has created the value meanwhile.
                    Err(WriteError::Differs { .. }) if condition == Condition::None => continue,
                    created => return Ok(created),
                }
            };
            let found = Some(stat.version);
            if condition == Condition::Absent {
                return Ok(Err(WriteError::Differs { found }));
            }
            if stat.ephemeral_owner != self.connection.client.session_id().0 {
                return Ok(Err(WriteError::NotOurs));
            }
            // `put` must not create the value, because such a value would outlive the session.
            let condition =
                if condition == Condition::None { Condition::Exists } else { condition };
            match self.put(data, condition).await? {
                // The value was deleted meanwhile.
                Err(WriteError::Differs { found: None }) => {}
                put => return Ok(put),
            }
        }
        Ok(Err(busy()))
    }

    /// Deletes the value. The stat is read first, because the answer needs the index of the last change, and ZooKeeper's
    /// reply to a deletion does not contain it.
    async fn delete(&self, condition: Condition) -> Outcome {
        let version = match condition {
            Condition::Version(version) => Some(version),
            _ => None,
        };
        let stat = self.connection.request(self.connection.client.check_stat(self.path)).await?;
        let delete = self.connection.client.delete(self.path, version);
        match self.connection.request(delete).await {
            Ok(()) => {
                // Without a stat, the value was created after the stat was read, and its index is not known.
                let index = stat.map_or(0, |stat| stat.mzxid.cast_unsigned());
                Ok(Ok(WriteOutcome::Deleted { index }))
            }
            Err(Error::NoNode) => Ok(Err(WriteError::NotThere)),
            Err(Error::BadVersion) => self.differs().await,
            Err(error) => Err(error),
        }
    }

    /// Creates the value, and its parent path if that does not exist.
    async fn create(&self, data: &[u8], mode: CreateMode) -> Outcome {
        for _ in 0..ATTEMPTS {
            let options = mode.with_acls(of_queue(self.acl));
            let create = self.connection.client.create(self.path, data, &options);
            match self.connection.request(create).await {
                Ok((stat, _)) => {
                    let version = stat.version;
                    let index = stat.mzxid.cast_unsigned();
                    return Ok(Ok(WriteOutcome::Created { version, index }));
                }
                Err(Error::NodeExists) => return self.differs().await,
                Err(Error::NoNode) => self.make_root().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(Err(busy()))
    }

    /// Creates the parent path. Its znodes are persistent, and not containers, which the servers delete when they are empty:
    /// the index of a value that does not exist is that of the last change in the value's parent.
    async fn make_root(&self) -> Result<(), Error> {
        let Some((root, _)) = self.path.rsplit_once('/') else { return Ok(()) };
        for path in paths_down_to(root) {
            let acls: Acls<'_> = match path == root {
                true => of_queue(self.acl),
                false => acl_of_ancestors(self.acl),
            };
            let mode = CreateMode::Persistent.with_acls(acls);
            let create = self.connection.client.create(path, b"", &mode);
            match self.connection.request(create).await {
                Ok(_) => info!("created {path}"),
                Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the error that the condition is not met, with the version that the value has.
    async fn differs(&self) -> Outcome {
        let stat = self.connection.request(self.connection.client.check_stat(self.path)).await?;
        Ok(Err(WriteError::Differs { found: stat.map(|stat| stat.version) }))
    }
}

fn changed(stat: &Stat) -> WriteOutcome {
    WriteOutcome::Changed { version: stat.version, index: stat.mzxid.cast_unsigned() }
}

/// Returns the error after [`ATTEMPTS`] attempts.
fn busy() -> WriteError {
    WriteError::Refused("other clients keep creating and deleting it: try again".into())
}
