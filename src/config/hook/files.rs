//! Checks the files in the settings of hooks: the secret that signs messages, and the files that hooks write.

use super::{HookAction, Webhook};
use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::files::one_line;
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
pub fn check_files(config: &Config) -> Result<(), ConfigError> {
    let mut to_write = vec![];
    for (table, action) in config.actions() {
        match action {
            HookAction::Post(Webhook { secret_file: Some(file), .. }) => {
                read_secret(file)
                    .map_err(|flaw| flaw.in_file(&format!("{table}.secret_file"), file))?;
            }
            HookAction::Keep { file, .. } => to_write.push((format!("{table}.file"), file)),
            _ => {}
        }
    }
    for (n, synced_file) in config.synced_files.iter().enumerate() {
        to_write.push((format!("config[{n}].file"), &synced_file.file));
    }
    let mut seen = BTreeSet::new();
    for (key, file) in to_write {
        check_file_type(file).map_err(|flaw| flaw.in_file(&key, file))?;
        if !seen.insert(file) {
            let flaw = ConfigError::without_key("is the file of another hook or value already");
            return Err(flaw.remedy("give each its own").in_file(&key, file));
        }
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
    secret_in(one_line(file)?)
}

/// Parses a secret: Base64 after `whsec_`, or any other text.
fn secret_in(text: Vec<u8>) -> Result<Vec<u8>, ConfigError> {
    let Some(encoded) = text.strip_prefix(b"whsec_") else { return Ok(text) };
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
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = |text: &str| {
            fs::write(file.path(), text).unwrap();
            read_secret(file.path())
        };
        assert_eq!(secret("whsec_c2VjcmV0\n").unwrap(), b"secret");
        assert_eq!(secret(" plain ").unwrap(), b"plain");
        for wrong in ["", " \n", "whsec_", "hunter 2", "whsec_hunter2!", "hunter\n2"] {
            let error = secret(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
