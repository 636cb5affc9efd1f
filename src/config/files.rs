//! Reads small files whose paths are values of settings, such as the token's file, and decides whether an error shows the
//! path.

use super::error::ConfigError;
use super::security::CredentialsSource::In;
use super::security::{Kerberos, Login};
use super::table;
use crate::files::{self, Size};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Reads the command token from a file. `key` is the setting or flag that names the file, for the error.
///
/// # Errors
/// A sentence that names the file, the problem and the remedy. It does not reveal the file's content.
pub fn token(key: &str, file: &Path) -> Result<Vec<u8>, ConfigError> {
    let remedy = "write one line of visible ASCII characters into a file, and name that";
    let text =
        files::read(file, Size::Line).map_err(|why| ConfigError::without_key(why).remedy(remedy));
    let token = text.and_then(|text| {
        parse_token(&text)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| ConfigError::without_key("holds no command token").remedy(remedy))
    });
    token.map_err(|flaw| flaw.in_file(key, file))
}

/// A command token with fewer characters may be guessed.
const SHORT_TOKEN: usize = 16;

/// Returns a warning for the file of the command token, and for that of the login, if other users may write to it: they
/// could replace the secret. Also returns a warning for a command token that may be guessed.
pub fn weak_secrets(config: &super::Config) -> Vec<String> {
    let token_file = config.token_file.as_ref().map(|file| (table::TOKEN_FILE.key(), file));
    let login_file = match &config.settings.zookeeper.security.login {
        Some(Login::Digest(In(file)) | Login::Sasl(In(file))) => {
            Some((table::CREDENTIALS_FILE.key(), file))
        }
        Some(Login::Kerberos(Kerberos { keytab: Some(file), .. })) => {
            Some((table::KERBEROS_KEYTAB.key(), file))
        }
        _ => None,
    };
    let mut warnings = vec![];
    for (key, file) in token_file.into_iter().chain(login_file) {
        if fs::metadata(file).is_ok_and(|found| found.mode() & 0o022 != 0) {
            let file = shown_path(file);
            warnings.push(format!("{key} {file} can be written by others: run chmod go-w"));
        }
    }
    if let Some((key, file)) = token_file
        && token(key, file).is_ok_and(|token| token.len() < SHORT_TOKEN)
    {
        warnings.push(format!(
            "{key} {} holds a command token of fewer than {SHORT_TOKEN} characters, which may be guessed: write a longer one",
            shown_path(file)
        ));
    }
    warnings
}

/// Reads the configuration file. `key` is the flag that names the file, for the error.
///
/// # Errors
/// A sentence that names the file, the problem and the remedy.
pub fn file_text(key: &str, file: &Path) -> Result<String, ConfigError> {
    let remedy = "name a TOML file; config/bellwether.toml is one with every key";
    // The larger limit, 1 MiB, although the file holds no certificates.
    let text = files::read(file, Size::Certificates)
        .map_err(|why| ConfigError::without_key(why).remedy(remedy));
    let text = text.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_| ConfigError::without_key("is not UTF-8 text").remedy(remedy))
    });
    // Unlike `in_file`, always show the path: the name of this file is not a secret.
    let found = format!(": {}", file.display());
    text.map_err(|flaw| ConfigError { found, ..flaw.with_key(key) })
}

/// Returns the file's path for an error. If the text does not look like a path and no such file exists, an operator may have
/// written the secret itself in place of a path, so the result is a placeholder.
pub fn shown_path(file: &Path) -> String {
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

/// Returns the token in the text, or `None` if the text is not one line of visible ASCII characters.
pub fn parse_token(text: &[u8]) -> Option<&[u8]> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    visible.then_some(token)
}

/// Returns the number of a group that is given by number or by name. Names are looked up only in `/etc/group`, because a
/// static binary cannot use the directories of groups, such as LDAP, that the C library asks.
///
/// # Errors
/// A sentence with the name, the problem and the remedy.
pub(super) fn group_number(group: &str) -> Result<u32, ConfigError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let key = table::SOCKET_GROUP.key();
    let groups = files::read(Path::new("/etc/group"), Size::Certificates).map_err(|problem| {
        ConfigError::without_key(format!("cannot be looked up: /etc/group {problem}"))
    });
    let number = groups.and_then(|groups| {
        number_in(&String::from_utf8_lossy(&groups), group).ok_or_else(|| {
            ConfigError::without_key("is not in /etc/group").remedy("write the group's number")
        })
    });
    number.map_err(|flaw| flaw.with_value(key, group))
}

/// Returns the number of the group with this name in the text of `/etc/group`.
fn number_in(groups: &str, group: &str) -> Option<u32> {
    // A line is `name:password:number:members`.
    groups.lines().find_map(|line| match line.split(':').collect::<Vec<_>>()[..] {
        [name, _, number, ..] if name == group => number.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nshop:x:1001:a,b\n+broken\nshop2:x:y:\n";
        assert_eq!(number_in(groups, "shop"), Some(1001));
        for other in ["sho", "x", "1001", "+broken", "shop2", ""] {
            assert_eq!(number_in(groups, other), None, "{other}");
        }
    }
}
