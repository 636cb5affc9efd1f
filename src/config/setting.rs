//! The description of a setting: everything about one key.

use super::error::{ConfigError, ValueError};

/// A key whose value is a `T`.
pub struct Setting<T> {
    pub row: Row,
    pub(super) parser: fn(&str) -> Result<T, ValueError>,
}

/// The description of a key, independent of the type of its value.
pub struct Row {
    /// Its place in the file: `table.name`.
    pub key: &'static str,
    pub flag: Option<Flag>,
    /// The environment variable that stands for it.
    pub variable: Option<&'static str>,
    pub default: DefaultValue,
    /// One sentence for `--help` and the manual page, without a full stop.
    pub help: &'static str,
    pub scope: Scope,
    pub kind: ValueKind,
    /// Whether SIGHUP changes it while the member runs.
    pub changes_in_flight: bool,
    /// Whether the value may be a secret, also by mistake: no error repeats it.
    pub may_be_secret: bool,
    /// The value as `check-config` and the log show it.
    pub(super) show: fn(&str) -> String,
}

/// A flag of the command line, and what its help calls the value.
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub value: &'static str,
}

/// The value of a setting that is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    Text(&'static str),
    Nothing,
    /// Derived from other values or from the machine, as this text says.
    Derived(&'static str),
}

/// Which commands take the flag and the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All that go to ZooKeeper: `run`, `exec`, `check-config`, `inspect`, `lock` and
    /// `barrier`.
    Zookeeper,
    /// Of these, all that know an election: all but `lock` and `barrier`.
    Election,
    /// All that hold a lease: all but `inspect`.
    Lease,
    /// All that make a member: `run`, `exec` and `check-config`.
    Member,
    /// All that are for a command of a member's: `exec` and `check-config`.
    Exec,
}

impl Scope {
    /// Whether commands of this scope take a setting of that one: a scope has those before it too.
    pub fn takes(self, setting: Self) -> bool {
        setting <= self && (self, setting) != (Self::Lease, Self::Election)
    }
}

/// How a value is written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Text,
    Number,
    /// A table of texts; its flag may be given again, once for each label.
    Labels,
}

impl<T> Setting<T> {
    pub fn key(&self) -> &'static str {
        self.row.key
    }

    /// Parses a value that was written under this key.
    ///
    /// # Errors
    /// What is wrong with it, and how to mend it.
    pub fn parse(&self, text: &str) -> Result<T, ConfigError> {
        (self.parser)(text).map_err(|flaw| {
            let flaw = if self.row.may_be_secret { flaw.hiding_value() } else { flaw };
            flaw.at(self.row.key, text)
        })
    }
}

impl Row {
    /// A text that every member may set by the file alone.
    pub(super) const TEXT: Self = Self {
        key: "",
        flag: None,
        variable: None,
        default: DefaultValue::Nothing,
        help: "",
        scope: Scope::Member,
        kind: ValueKind::Text,
        changes_in_flight: false,
        may_be_secret: false,
        show: str::to_owned,
    };

    /// Returns what may be shown of a value.
    pub fn shown(&self, text: &str) -> String {
        (self.show)(text)
    }
}

impl DefaultValue {
    /// Returns the default as `--help` and `check-config` tell it; empty if there is none.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text(words) | Self::Derived(words) => words,
            Self::Nothing => "",
        }
    }
}
