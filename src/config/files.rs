//! Reads small files whose paths are values of settings, such as the token's file, and decides whether an error shows the
//! path.

use super::error::ConfigError;
use crate::files::{self, Size};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A command token with fewer characters may be guessed.
const SHORT_TOKEN: usize = 16;

/// Reads the command token from a file. `key` is the setting or flag that names the file, for the error.
///
/// # Errors
/// A sentence that names the file, the problem and the remedy. It does not reveal the file's content.
pub fn token(key: &str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    one_line(file).map_err(|flaw| flaw.in_file(key, file))
}

/// Reads a secret from a file, which must be one line of visible ASCII characters.
///
/// # Errors
/// The problem and the remedy. The error does not reveal the file's content.
pub(super) fn one_line(file: &Path) -> Result<Vec<u8>, ConfigError> {
    let text = files::read(file, Size::Line);
    let line = text.and_then(|text| match parse_token(&text) {
        Some(line) => Ok(line.to_vec()),
        None => Err("does not hold one line of visible ASCII characters".into()),
    });
    line.map_err(|why| ConfigError::without_key(why).remedy("name a file with that one line"))
}

/// Returns a warning for each file with a secret to which other users may write: they could replace the secret. Also
/// returns a warning for a command token that may be guessed.
pub fn weak_secrets(config: &super::Config) -> Vec<String> {
    let mut warnings = vec![];
    for file in config.secret_files() {
        if fs::metadata(file).is_ok_and(|found| found.mode() & 0o022 != 0) {
            let file = shown_path(file);
            warnings.push(format!(
                "{file} holds a secret and can be written by others: run chmod go-w"
            ));
        }
    }
    if let Some(file) = &config.token_file
        && one_line(file).is_ok_and(|token| token.len() < SHORT_TOKEN)
    {
        warnings.push(format!(
            "{} holds a command token of fewer than {SHORT_TOKEN} characters, which may be guessed: write a longer one",
            shown_path(file)
        ));
    }
    warnings
}

/// Reads the configuration file.
///
/// # Errors
/// A sentence that names the file, the problem and the remedy.
pub fn file_text(file: &Path) -> Result<String, String> {
    // The larger limit, 1 MiB, although the file holds no certificates.
    let text = files::read(file, Size::Certificates)
        .and_then(|text| String::from_utf8(text).map_err(|_| "is not UTF-8 text".into()));
    text.map_err(|why| {
        let file = file.display();
        format!(
            "--config: {file} {why}: name a TOML file; config/bellwether.toml is one with every key"
        )
    })
}

/// Returns the file's path for an error. If the text does not look like a path and no such file exists, an operator may have
/// written the secret itself in place of a path, so the result is a placeholder.
pub fn shown_path(file: &Path) -> String {
    if file.is_absolute() || file.starts_with(".") || file.starts_with("..") || file.exists() {
        return file.display().to_string();
    }
    "what is written there, and not shown as it may be the secret itself rather than a file's path,"
        .into()
}

/// Returns the token in the text, or `None` if the text is not one line of visible ASCII characters.
pub fn parse_token(text: &[u8]) -> Option<&[u8]> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    visible.then_some(token)
}
