//! Checks the files in the settings of hooks: the secret that signs messages, and the files that hooks write.

use super::{HookAction, HookConfig, Webhook};
use crate::config::SyncedFileConfig;
use crate::config::error::ConfigError;
use crate::config::files::parse_token;
use crate::files::{self, Size};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Checks the files of `[[hook]]` and `[[config]]` tables: a secret must be readable and valid. A file to write must not
/// replace anything but a regular file or a link, and no two tables may write the same file.
///
/// # Errors
/// A sentence that names the table, the file, the problem and the remedy.
pub fn check_files(hooks: &[HookConfig], synced: &[SyncedFileConfig]) -> Result<(), ConfigError> {
    let mut written = BTreeSet::new();
    let mut check_written = |key: String, file: &Path| {
        check_file_type(file).map_err(|flaw| flaw.in_file(&key, file))?;
        if written.insert(file.to_owned()) {
            return Ok(());
        }
        let flaw = ConfigError::without_key("is the file of another hook or value already");
        Err(flaw.remedy("give each its own").in_file(&key, file))
    };
    for (n, hook) in hooks.iter().enumerate() {
        match &hook.action {
            HookAction::Post(Webhook { secret_file: Some(file), .. }) => {
                read_secret(file)
                    .map_err(|flaw| flaw.in_file(format!("hook[{n}].secret_file"), file))?;
            }
            HookAction::Keep { file, .. } => check_written(format!("hook[{n}].file"), file)?,
            _ => {}
        }
    }
    for (n, synced_file) in synced.iter().enumerate() {
        check_written(format!("config[{n}].file"), &synced_file.file)?;
    }
    Ok(())
}

/// Checks that a new file may be moved to this path: its directory must exist, and at the path there must be nothing, a
/// regular file or a link.
///
/// # Errors
/// A sentence that names the missing directory, or the path.
pub fn check_replaceable(file: &Path) -> Result<(), String> {
    if let Some(directory) = file.parent().filter(|directory| !directory.is_dir()) {
        let file = file.display();
        let directory = directory.display();
        return Err(format!(
            "{file} cannot be written: directory {directory} does not exist; create it"
        ));
    }
    check_file_type(file).map_err(|flaw| format!("{} {flaw}", file.display()))
}

/// Reads the secret that signs messages.
///
/// # Errors
/// The file and the problem. The error does not reveal the file's content.
pub fn signing_secret(file: &Path) -> Result<Vec<u8>, String> {
    read_secret(file).map_err(|flaw| format!("{} {flaw}", file.display()))
}

/// Checks that at the path there is nothing, a regular file or a link.
fn check_file_type(file: &Path) -> Result<(), ConfigError> {
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            Err(ConfigError::without_key("is not a regular file")
                .remedy("name one that may be replaced"))
        }
        // Missing permissions are not an error here: the first write fails, and reports them.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn read_secret(file: &Path) -> Result<Vec<u8>, ConfigError> {
    files::read(file, Size::Line)
        .map_err(|why| {
            ConfigError::without_key(why).remedy("name a file with one line, the secret")
        })
        .and_then(|text| secret_in(&text))
}

/// Parses a secret: Base64 after `whsec_`, or visible ASCII characters.
fn secret_in(text: &[u8]) -> Result<Vec<u8>, ConfigError> {
    let Some(written) = parse_token(text) else {
        return Err(ConfigError::without_key("holds no secret")
            .remedy("write one line of visible ASCII characters, such as whsec_..."));
    };
    let Some(encoded) = written.strip_prefix(b"whsec_") else { return Ok(written.to_vec()) };
    let secret = BASE64_STANDARD.decode(encoded).ok().filter(|secret| !secret.is_empty());
    let remedy = "write whsec_ and the secret in Base64, or a secret without whsec_";
    secret.ok_or_else(|| {
        ConfigError::without_key("holds a secret that is not Base64 after whsec_").remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_base64_behind_its_prefix_or_as_it_stands() {
        assert_eq!(secret_in(b"whsec_c2VjcmV0\n").unwrap(), b"secret");
        assert_eq!(secret_in(b" plain ").unwrap(), b"plain");
        for wrong in ["", " \n", "whsec_", "hunter 2", "whsec_hunter2!", "hunter\n2"] {
            let error = secret_in(wrong.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
