//! Writes a file with the leader, or with a value of the shared configuration. A reader finds either the whole old
//! content or the whole new content.

use crate::config;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The time limit for a write, so that a file system that hangs does not hold up the hooks.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The lock of one file, so that only one write of it runs at a time. Otherwise a write that hung could finish after a
/// later write, and replace the new content by the old.
#[derive(Clone, Default)]
pub(super) struct WriteLock(Arc<Mutex<()>>);

/// Replaces the file by one with this content and this mode, or removes the file if `content` is `None`.
pub(super) async fn update(
    lock: &WriteLock,
    file: &Path,
    mode: u32,
    content: Option<Vec<u8>>,
) -> Result<(), String> {
    let lock = lock.clone();
    let file = file.to_owned();
    let writing = spawn_blocking(move || {
        let _alone = match lock.0.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            // An earlier write of this file hangs.
            Err(TryLockError::WouldBlock) => return Err("is still being written to".into()),
        };
        let done = match content {
            Some(content) => write(&file, mode, &content),
            None => remove(&file),
        };
        done.map_err(|error| error.to_string())
    });
    match timeout(WRITE_TIMEOUT, writing).await {
        Ok(Ok(done)) => done,
        // The write panicked, or the runtime is shutting down.
        Ok(Err(_)) => Err("writing it was given up".into()),
        Err(_) => Err(format!("not written within {WRITE_TIMEOUT:?}")),
    }
}

/// Writes a temporary file, and then renames it to `file`.
fn write(file: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    config::check_replaceable(file).map_err(io::Error::other)?;
    let new = temporary_path(file);
    // A killed process may have left its temporary file here, or another user may have put a link here.
    remove(&new)?;
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = open
        .write_all(content)
        .and_then(|()| open.set_permissions(Permissions::from_mode(mode)))
        // Without this, the file may be empty after a power failure.
        .and_then(|()| open.sync_data())
        .and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ignored = fs::remove_file(&new);
    }
    written
}

/// Removes the file, if it exists.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Returns a path in the same directory, because a file can be renamed only within its file system. The name is hidden.
fn temporary_path(file: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".new");
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_mode_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("leader.json");
        let elsewhere = home.path().join("elsewhere");
        fs::write(&elsewhere, "untouched").unwrap();
        std::os::unix::fs::symlink(&elsewhere, temporary_path(&file)).unwrap();
        for (mode, text) in [(0o640, "one"), (0o604, "two")] {
            write(&file, mode, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
        assert!(fs::symlink_metadata(temporary_path(&file)).is_err());
        remove(&file).unwrap();
        remove(&file).expect("gone is gone");
        let nowhere = home.path().join("no");
        let error = write(&nowhere.join("file"), 0o644, b"").unwrap_err().to_string();
        assert!(
            error.contains(&format!("directory {} does not exist", nowhere.display())),
            "{error}"
        );
        assert!(write(Path::new("/dev/null"), 0o644, b"").is_err(), "a device is not replaced");
    }

    #[tokio::test]
    #[expect(clippy::await_holding_lock, reason = "the other only tries to take it")]
    async fn only_one_writer_at_a_time_writes_a_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("leader.json");
        let lock = WriteLock::default();
        let write = async || update(&lock, &file, 0o644, Some(b"new".to_vec())).await;
        {
            let _hangs = lock.0.lock().unwrap();
            assert!(write().await.unwrap_err().contains("still being written"));
        }
        write().await.unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }
}
