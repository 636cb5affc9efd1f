//! Values of the shared configuration that are written to files.

use super::error::ConfigError;
use super::hook::{HookAction, absolute, file_mode};
use super::keys::Keys;
use super::pod::PodEnvironment;
use crate::holdings::HoldingName;
use std::fmt;
use std::path::PathBuf;
use toml::Table;

/// A `[[config]]` table: which value of the shared configuration to write to which file.
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
    /// Parses a `[[config]]` table.
    pub(super) fn new(table: Table, pod: &PodEnvironment) -> Result<Self, ConfigError> {
        let mut keys = Keys::new(table);
        let name = keys.require("name", |text| {
            let remedy = "write 1 to 64 of A-Z a-z 0-9 . _ -, but not . or .., such as limits.json";
            let flaw = || ConfigError::without_key("is not a valid name of a value").remedy(remedy);
            HoldingName::new(text).ok_or_else(flaw)
        })?;
        let file = keys.require("file", absolute)?;
        let mode = file_mode(&mut keys)?;
        let then = keys.take_as::<Table>("then", "a table")?;
        let then = then.map(|then| HookAction::then(then, pod)).transpose();
        keys.finish()?;
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
    use crate::config::{Config, Values};
    use std::path::Path;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let mut values = Values::given(&[]);
        values.read_file(text, Path::new("f"))?;
        let config = Config::new(&values)?;
        Ok(config.synced_files.iter().map(ToString::to_string).collect())
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
            (&format!("{both}version = 3"), "config[1].version is not a known key"),
            (&format!("{both}then = {{}}"), "config[1].then must have exactly one"),
            (&format!("{both}then = {{ file = \"/c\" }}"), "config[1].then must have exactly one"),
            (
                &format!("{both}then = {{ command = [\"/c\"], on = [\"leader-lost\"] }}"),
                "config[1].then.on is not a known key",
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
