//! Checks the credentials before anything is begun, and hides them from other processes.

use crate::config::Settings;
use crate::zookeeper;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Checks what is needed to log in, before a port is bound. Returns warnings for the operator.
///
/// # Errors
/// One sentence that names the key and the file, what is wrong, and how to mend it.
pub fn check(settings: &Settings, has_secrets: bool) -> Result<Vec<String>, String> {
    let mut warnings: Vec<_> = has_secrets.then(hide).flatten().into_iter().collect();
    warnings.extend(zookeeper::check(settings)?);
    Ok(warnings)
}

/// Forbids core dumps of this process, and keeps all but root from debugging it and from reading its environment: our
/// memory has secrets, and the client library never wipes its copies. Returns a warning if the kernel refuses.
pub fn hide() -> Option<String> {
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    hidden.err().map(|error| format!("a core dump of this process may hold secrets: {error}"))
}
