//! Small files that a value names: how a token is read of one, and how they are named in an error.

use super::error::{ConfigError, Flaw, Found};
use crate::files::{self, Size};
use std::path::Path;

/// Reads the token that a command has to show, of a file that this key, or flag, names.
///
/// # Errors
/// One sentence that names the file, what is wrong with it, and how to mend it. It tells nothing of
/// what is in the file.
pub fn token(key: &str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    let remedy = "write one line of visible ASCII characters into a file, and name that";
    let text = files::read(file, Size::Line).map_err(|why| Flaw::new(why).remedy(remedy));
    let token = text.and_then(|text| {
        let no_token = || Flaw::new("holds no token").remedy(remedy);
        token_in(&text).map(<[u8]>::to_vec).ok_or_else(no_token)
    });
    token.map_err(|flaw| flaw.in_file(key, file))
}

/// Reads the configuration file.
///
/// # Errors
/// One sentence that names the file, what is wrong with it, and how to mend it.
pub fn file_text(key: &str, file: &Path) -> Result<String, ConfigError> {
    let remedy = "name a TOML file; config/bellwether.toml is one with every key";
    let text = files::read(file, Size::Certificates).map_err(|why| Flaw::new(why).remedy(remedy));
    let no_text = |_| Flaw::new("is no UTF-8 text").remedy(remedy);
    let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(no_text));
    let found = Found::File(file.display().to_string());
    text.map_err(|flaw| ConfigError { found, ..flaw.of(key) })
}

/// Names a file in an error, unless it may be a secret that was written where a path belongs.
pub fn named(file: &Path) -> String {
    let starts = ["/", "./", "../"];
    let is_path = starts
        .iter()
        .any(|start| file.as_os_str().as_encoded_bytes().starts_with(start.as_bytes()));
    if is_path || file.exists() {
        return file.display().to_string();
    }
    "what is written there, and not shown as it may be the secret itself rather than a file's path,"
        .into()
}

/// Returns `None` if the text is not one line of visible ASCII characters.
pub fn token_in(text: &[u8]) -> Option<&[u8]> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    visible.then_some(token)
}
