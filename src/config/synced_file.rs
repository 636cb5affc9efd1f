//! Values of the shared configuration that are written to files.

use super::error::{ConfigError, parse_tables};
use super::hook::{HookAction, HookKeys, absolute};
use super::parse::mode;
use super::pod::PodEnvironment;
use crate::holdings::HoldingName;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// The default mode of a file.
const MODE: u32 = 0o644;

/// A `[[config]]` table as it is in the configuration file, not parsed yet: a value of the shared configuration, and the file
/// to which this value is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyncedFileKeys {
    pub name: Option<String>,
    pub file: Option<String>,
    pub mode: Option<String>,
    pub then: Option<HookKeys>,
}

/// A `[[config]]` table, parsed and checked: which value of the shared configuration to write to which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncedFileConfig {
    /// The name of the value.
    pub name: HoldingName,
    pub file: PathBuf,
    pub mode: u32,
    /// The action after each write: run a command, send a signal, or post.
    pub then: Option<HookAction>,
}

impl SyncedFileConfig {
    /// Parses all `[[config]]` tables. Adds the errors of invalid ones to `errors`.
    pub(super) fn all(
        tables: &[SyncedFileKeys],
        pod: &PodEnvironment,
        errors: &mut Vec<ConfigError>,
    ) -> Vec<Self> {
        parse_tables("config", tables, errors, |keys| Self::new(keys, pod))
    }

    fn new(keys: &SyncedFileKeys, pod: &PodEnvironment) -> Result<Self, ConfigError> {
        fn missing(key: &str, remedy: &str) -> ConfigError {
            ConfigError::new(key, "is missing").remedy(remedy)
        }
        let remedy = "write 1 to 64 of A-Z a-z 0-9 . _ -, but not . or .., such as limits.json";
        let name = keys.name.as_deref().ok_or_else(|| missing("name", remedy))?;
        let name = HoldingName::new(name).ok_or_else(|| {
            ConfigError::new("name", "is not a valid name of a value").found(name).remedy(remedy)
        })?;
        let remedy = "name the file to keep it in, such as /run/app/limits.json";
        let file = keys.file.as_deref().ok_or_else(|| missing("file", remedy))?;
        let file = absolute("file", file)?;
        let mode = match &keys.mode {
            Some(text) => mode(text).map_err(|flaw| flaw.with_value("mode", text))?,
            None => MODE,
        };
        let then = keys.then.as_ref().map(|then| then.then_action(pod)).transpose();
        Ok(Self { name, file, mode, then: then.map_err(|error| error.in_table("then"))? })
    }
}

/// Describes the file for `check-config`, without possible secrets.
impl fmt::Display for SyncedFileConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, file, mode, then } = self;
        write!(f, "{name} as file {}, mode {mode:04o}", file.display())?;
        then.as_ref().map_or(Ok(()), |then| write!(f, ", then {then}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let file = File::parse(text, "f")?;
        let pod = PodEnvironment::default();
        let mut errors = vec![];
        let kept = SyncedFileConfig::all(&file.config, &pod, &mut errors);
        match errors.into_iter().next() {
            None => Ok(kept.iter().map(ToString::to_string).collect()),
            Some(error) => Err(error.into()),
        }
    }

    #[test]
    fn a_value_is_kept_as_a_file_and_something_is_done_then() {
        let kept = parsed(
            r#"
            [[config]]
            name = "limits.json"
            file = "/run/app/limits.json"
            [[config]]
            name = "flags"
            file = "/run/app/flags"
            mode = "0600"
            then = { signal = "SIGHUP", pid_file = "/run/app.pid" }
            [[config]]
            name = "flags"
            file = "/run/app/again"
            then = { command = ["/app/reload", "--password=secret"], timeout = "3s" }
            "#,
        );
        let shown = [
            "limits.json as file /run/app/limits.json, mode 0644",
            "flags as file /run/app/flags, mode 0600, then SIGHUP to /run/app.pid",
            "flags as file /run/app/again, mode 0644, then command /app/reload",
        ];
        assert_eq!(kept.unwrap(), shown);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_number_and_its_key() {
        let both = "name = \"b\"\nfile = \"/b\"\n";
        for (text, said) in [
            ("file = \"/b\"", "config[1].name is missing"),
            ("name = \"a/b\"\nfile = \"/b\"", "config[1].name = \"a/b\""),
            ("name = \"b\"", "config[1].file is missing"),
            ("name = \"b\"\nfile = \"b\"", "config[1].file = \"b\""),
            (&format!("{both}mode = \"rw\""), "config[1].mode = \"rw\""),
            (&format!("{both}version = 3"), "unknown key"),
            (&format!("{both}then = {{}}"), "config[1].then must have exactly one"),
            (&format!("{both}then = {{ file = \"/c\" }}"), "config[1].then must have exactly one"),
            (
                &format!("{both}then = {{ command = [\"/c\"], on = [\"leader-lost\"] }}"),
                "config[1].then.on is only for a [[hook]]",
            ),
            (
                &format!("{both}then = {{ signal = \"SIGHUP\" }}"),
                "config[1].then.pid_file is missing",
            ),
        ] {
            let text = format!("[[config]]\nname = \"a\"\nfile = \"/a\"\n[[config]]\n{text}");
            let error = parsed(&text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
