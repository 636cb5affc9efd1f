//! The description of a setting: everything about a single key.

use super::error::ConfigError;
use super::sources::Values;

/// A setting with a value of type `T`.
pub struct Setting<T> {
    pub row: Row,
    pub(super) parser: fn(&str) -> Result<T, ConfigError>,
}

/// The description of a key, independent of the type of its value.
pub struct Row {
    /// The key in the file: `table.name`.
    pub key: &'static str,
    /// The name of the command-line flag.
    pub flag: &'static str,
    /// The letter of the flag's short form.
    pub letter: Option<char>,
    /// The placeholder for the flag's value in the help.
    pub placeholder: &'static str,
    /// The environment variable that sets the value.
    pub variable: &'static str,
    pub default: DefaultValue,
    /// A sentence for `--help` and the manual page, without a full stop.
    pub help: &'static str,
    pub scope: Scope,
    /// Whether SIGHUP applies a change of the value in the file while the member runs, without a restart.
    pub changes_without_restart: bool,
    /// Converts the value to the text that `check-config` and the log show.
    pub(super) show: fn(&str) -> String,
    /// Parses the value of this setting, and returns the error if the value is not valid.
    pub(super) error: fn(&Values) -> Option<ConfigError>,
}

/// The value of a setting that was not given. Writing its text is the same as writing nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text, as the file or a flag would contain it.
    Text(&'static str),
    /// The setting has no value.
    Nothing,
    /// Derived from other values or from the machine, as this text describes.
    Derived(&'static str),
}

/// A group of settings, whose flags and variables the same commands accept. A command accepts several groups. The scope of
/// the command is the last of them, in the order below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Settings of the connection to ZooKeeper, for `run`, `exec`, `check-config`, `inspect`, `lock` and `barrier`.
    Zookeeper,
    /// Settings of the election, for `run`, `exec`, `check-config` and `inspect`.
    Election,
    /// Settings of a lease, for `run`, `exec`, `check-config`, `lock` and `barrier`.
    Lease,
    /// Settings of a member, for `run`, `exec` and `check-config`.
    Member,
    /// Settings of the program that runs while a member leads, for `exec` and `check-config`.
    Exec,
}

impl Scope {
    /// Returns whether a command of the scope `self` accepts settings of the scope `setting`. It accepts its own scope and
    /// the ones listed before it, but `lock` and `barrier`, of the scope `Lease`, do not accept the settings of the
    /// election.
    pub fn takes(self, setting: Self) -> bool {
        setting <= self && (self, setting) != (Self::Lease, Self::Election)
    }
}

impl<T> Setting<T> {
    pub fn key(&self) -> &'static str {
        self.row.key
    }

    /// Parses a value that was written under this key.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn parse(&self, text: &str) -> Result<T, ConfigError> {
        (self.parser)(text).map_err(|flaw| flaw.with_value(self.row.key, text))
    }
}

impl Row {
    /// The values of the fields that a row need not set: those of an optional setting of a member.
    pub(super) const DEFAULTS: Self = Self {
        key: "",
        flag: "",
        letter: None,
        placeholder: "",
        variable: "",
        default: DefaultValue::Nothing,
        help: "",
        scope: Scope::Member,
        changes_without_restart: false,
        show: str::to_owned,
        error: |_| None,
    };

    /// Returns the value as `check-config` and the log may show it.
    pub fn shown(&self, text: &str) -> String {
        (self.show)(text)
    }
}

impl DefaultValue {
    /// Returns the default as `--help` and `check-config` show it; empty if there is none.
    pub fn text(self) -> &'static str {
        match self {
            Self::Text(text) | Self::Derived(text) => text,
            Self::Nothing => "",
        }
    }
}
