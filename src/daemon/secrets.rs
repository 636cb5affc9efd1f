//! Checks the credentials for ZooKeeper before the daemon starts, and protects this process's memory from other processes.

use crate::config::Settings;
use crate::zookeeper;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Checks the credentials in `settings` before the daemon binds a port. If the configuration has secrets, also hides this
/// process's memory. Returns warnings for the operator.
///
/// # Errors
/// A sentence that names the setting's key, the file, the problem and the remedy.
pub fn check(settings: &Settings, has_secrets: bool) -> Result<Vec<String>, String> {
    let mut warnings: Vec<_> = has_secrets.then(hide).flatten().into_iter().collect();
    warnings.extend(zookeeper::check(settings)?);
    Ok(warnings)
}

/// Forbids core dumps of this process, and lets only root debug it and read its environment, because its memory contains
/// secrets, and the ZooKeeper client library never wipes its copies of them. Returns a warning if the kernel refuses.
pub fn hide() -> Option<String> {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hidden.err().map(|error| format!("a core dump of this process may hold secrets: {error}"))
}
