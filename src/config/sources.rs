//! Determines the value of each setting: a flag overrides the environment, the environment overrides the file, and the file
//! overrides the default.

use super::error::ConfigError;
use super::pod::PodEnvironment;
use super::security::CREDENTIALS_VARIABLE;
use super::setting::{DefaultValue, Row, Setting};
use super::table::{ALL, CREDENTIALS_FILE, ID};
use secrecy::SecretString;
use std::fmt;
use std::path::PathBuf;
use toml::Table;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    File(PathBuf),
    Default,
}

/// The values that are used, one for each setting, before parsing.
pub struct Values {
    /// The values, in the order of [`ALL`].
    values: Vec<SettingValue>,
    /// The credentials themselves, from the variable `BELLWETHER_CREDENTIALS`, which is not a setting.
    credentials: Option<SecretString>,
    pub(super) hooks: Vec<Table>,
    pub(super) synced_files: Vec<Table>,
    pub(super) pod: PodEnvironment,
}

/// The value of a single setting, as written.
pub struct SettingValue {
    pub row: &'static Row,
    pub text: String,
    pub origin: Origin,
}

impl Values {
    /// Returns the defaults for this pod. The other sources are added in the order of their precedence, the lowest first.
    pub fn new(pod: PodEnvironment) -> Self {
        let values = ALL.iter().map(|row| {
            let text = if row.key == ID.key() { &pod.name } else { row.default.text() };
            SettingValue { row, text: text.to_owned(), origin: Origin::Default }
        });
        let values = values.collect();
        Self { values, credentials: None, hooks: vec![], synced_files: vec![], pod }
    }

    /// Sets the value of a setting, instead of the value from another source.
    pub fn set(&mut self, key: &str, text: String, origin: Origin) {
        let value = self.values.iter_mut().find(|value| value.row.key == key);
        let value = value.expect("the table has every setting");
        (value.text, value.origin) = (text, origin);
    }

    /// Sets the credentials from the environment, instead of a file with them.
    pub fn set_credentials(&mut self, secret: SecretString) {
        // `check-config` shows this text in place of a file name.
        let origin = Origin::Environment(CREDENTIALS_VARIABLE);
        self.set(CREDENTIALS_FILE.key(), "(not shown)".into(), origin);
        self.credentials = Some(secret);
    }

    /// Returns the credentials from the environment, unless a source of higher precedence names a file.
    pub(super) fn credentials(&self) -> Option<&SecretString> {
        let origin = &self.value(&CREDENTIALS_FILE.row).origin;
        let is_used = *origin == Origin::Environment(CREDENTIALS_VARIABLE);
        self.credentials.as_ref().filter(|_| is_used)
    }

    /// Returns the values, in the order of [`ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &SettingValue> {
        self.values.iter()
    }

    /// Parses the value of each setting, and returns all errors.
    pub(super) fn errors(&self) -> Vec<ConfigError> {
        ALL.iter().filter_map(|row| (row.error)(self)).collect()
    }

    /// Parses the value of a setting, or its default if it was not given.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn get<T>(&self, setting: &Setting<T>) -> Result<T, ConfigError> {
        setting.parse(&self.value(&setting.row).text)
    }

    /// Parses the value of an optional setting. Returns `None` if no value was given, or the text of the default: users may
    /// copy what `check-config` shows.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn get_optional<T>(&self, setting: &Setting<T>) -> Result<Option<T>, ConfigError> {
        let value = self.value(&setting.row);
        match setting.row.default {
            DefaultValue::Nothing if value.origin == Origin::Default => Ok(None),
            DefaultValue::Text(text) | DefaultValue::Derived(text) if value.text == text => {
                Ok(None)
            }
            _ => self.get(setting).map(Some),
        }
    }

    /// Returns the value of a setting as written, with its source.
    pub(super) fn value(&self, row: &Row) -> &SettingValue {
        let value = self.values.iter().find(|value| value.row.key == row.key);
        value.expect("the table has every setting")
    }
}

impl SettingValue {
    /// Returns the value as `check-config` and the log may show it.
    pub fn shown(&self) -> String {
        self.row.shown(&self.text)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag --{flag}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

#[cfg(test)]
impl Values {
    /// The defaults, for a member `a`, and these flags on top.
    pub(crate) fn given(flags: &[(&'static str, &str)]) -> Self {
        let mut values =
            Self::new(PodEnvironment { name: "a".into(), ..PodEnvironment::default() });
        for (key, text) in flags {
            values.set(key, (*text).into(), Origin::Flag("test"));
        }
        values
    }

    pub(super) fn with_credentials(mut self, secret: &str) -> Self {
        self.set_credentials(secret.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_login_in_the_environment_beats_the_file_and_no_flag() {
        let file = "[zookeeper]\ncredentials_file = \"/f\"";
        let mut values = Values::given(&[]);
        values.read_file(file, Path::new("f")).unwrap();
        let mut values = values.with_credentials("a:hush");
        assert!(values.credentials().is_some());
        assert_eq!(values.value(&CREDENTIALS_FILE.row).shown(), "(not shown)");
        values.set(CREDENTIALS_FILE.key(), "/f".into(), Origin::Flag("credentials-file"));
        assert!(values.credentials().is_none());
    }

    #[test]
    fn an_empty_name_of_a_file_is_an_error() {
        let file = "[zookeeper]\ncredentials_file = \"\"";
        let mut values = Values::given(&[]);
        values.read_file(file, Path::new("f")).unwrap();
        let error = values.get_optional(&CREDENTIALS_FILE).unwrap_err().to_string();
        let said = "zookeeper.credentials_file = \"\" is empty: name a file, or leave it out";
        assert_eq!(error, said);
    }
}
