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
    pub flag: Option<Flag>,
    /// The environment variable that sets it.
    pub variable: Option<&'static str>,
    pub default: DefaultValue,
    /// The text that sets an optional setting to nothing.
    pub unset_by: Option<&'static str>,
    /// A sentence for `--help` and the manual page, without a full stop.
    pub help: &'static str,
    pub scope: Scope,
    pub kind: ValueKind,
    /// Whether SIGHUP applies a change while the member runs.
    pub changes_in_flight: bool,
    /// Whether the value may be a secret, even by mistake. Then errors do not show it.
    pub may_be_secret: bool,
    /// Converts the value to the text that `check-config` and the log show.
    pub(super) show: fn(&str) -> String,
    /// Returns the error of this setting's value.
    pub(super) error: fn(&Values) -> Option<ConfigError>,
}

/// A command-line flag, and the placeholder for its value in the help.
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub value: &'static str,
}

/// The value of a setting that was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    Text(&'static str),
    /// There is none.
    Nothing,
    /// Derived from other values or from the machine, as this text describes.
    Derived(&'static str),
}

/// The commands that accept a setting's flag and variable. Each scope includes those before it, but `Lease` does not
/// include `Election`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Settings of every command that connects to ZooKeeper: `run`, `exec`, `check-config`, `inspect`, `lock` and
    /// `barrier`.
    Zookeeper,
    /// Settings of commands with an election: all of these except `lock` and `barrier`.
    Election,
    /// Settings of commands with a lease: all of these except `inspect`.
    Lease,
    /// Settings of commands with a member: `run`, `exec` and `check-config`.
    Member,
    /// Settings of commands that run a program while a member leads: `exec` and `check-config`.
    Exec,
}

impl Scope {
    /// Returns whether commands of this scope accept a setting of the scope `setting`.
    pub fn takes(self, setting: Self) -> bool {
        setting <= self && (self, setting) != (Self::Lease, Self::Election)
    }
}

/// The type of a value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Text,
    Number,
    /// A table of texts. Its flag may be repeated, once for each label.
    Labels,
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
        (self.parser)(text).map_err(|flaw| {
            let flaw = if self.row.may_be_secret { flaw.hiding_value() } else { flaw };
            flaw.with_value(self.row.key, text)
        })
    }
}

impl Row {
    /// The defaults of a row: a text that every member may set, but only in the file.
    pub(super) const TEXT: Self = Self {
        key: "",
        flag: None,
        variable: None,
        default: DefaultValue::Nothing,
        unset_by: None,
        help: "",
        scope: Scope::Member,
        kind: ValueKind::Text,
        changes_in_flight: false,
        may_be_secret: false,
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
            Self::Text(words) | Self::Derived(words) => words,
            Self::Nothing => "",
        }
    }
}
