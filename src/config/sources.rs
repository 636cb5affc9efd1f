//! Determines the value of each setting: a flag overrides the environment, the environment overrides the file, and the file
//! overrides the default.

use super::error::ConfigError;
use super::file::File;
use super::hook::HookKeys;
use super::pod::PodEnvironment;
use super::security::CREDENTIALS_VARIABLE;
use super::setting::{DefaultValue, Row, Setting};
use super::synced_file::SyncedFileKeys;
use super::table::{ALL, CREDENTIALS_FILE, ID};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// All values as written, before it is decided which source of a setting is used.
#[derive(Default)]
pub struct Sources {
    /// The values of flags and variables, by key.
    pub given: BTreeMap<&'static str, Given>,
    pub file: File,
    pub file_name: PathBuf,
    /// The credentials themselves, from the variable `BELLWETHER_CREDENTIALS`, which is not a setting.
    pub credentials: Option<SecretString>,
    pub pod: PodEnvironment,
}

/// A value from the command line or the environment.
pub struct Given {
    pub text: String,
    pub origin: Origin,
}

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
    pub(super) credentials: Option<SecretString>,
    pub(super) hooks: Vec<HookKeys>,
    pub(super) synced_files: Vec<SyncedFileKeys>,
    pub(super) pod: PodEnvironment,
}

/// The value of a single setting, as written.
pub struct SettingValue {
    pub row: &'static Row,
    pub text: String,
    pub origin: Origin,
}

impl Values {
    /// Takes each value from the source with the highest precedence.
    ///
    /// # Errors
    /// Both `BELLWETHER_CREDENTIALS` and `BELLWETHER_CREDENTIALS_FILE` are set, or the former is set while the
    /// configuration file has an invalid `credentials_file`.
    pub fn new(sources: Sources) -> Result<Self, ConfigError> {
        let Sources { mut given, file, file_name, credentials, pod } = sources;
        let File { values: mut in_file, hook: hooks, config: synced_files } = file;
        let values = ALL
            .iter()
            .copied()
            .map(|row| {
                let (text, origin) = match (given.remove(row.key), in_file.remove(row.key)) {
                    (Some(Given { text, origin }), _) => (text, origin),
                    (None, Some(text)) => (text, Origin::File(file_name.clone())),
                    (None, None) if row.key == ID.key() => (pod.name.clone(), Origin::Default),
                    (None, None) => (row.default.text().to_owned(), Origin::Default),
                };
                SettingValue { row, text, origin }
            })
            .collect();
        let values = Self { values, credentials: None, hooks, synced_files, pod };
        match credentials {
            Some(secret) => values.with_environment_credentials(secret),
            None => Ok(values),
        }
    }

    /// Uses the credentials from the environment instead of `credentials_file` in the configuration file. If a flag names a
    /// file with credentials, that file is used instead.
    fn with_environment_credentials(mut self, secret: SecretString) -> Result<Self, ConfigError> {
        let key = CREDENTIALS_FILE.key();
        let file = self.values.iter_mut().find(|value| value.row.key == key);
        let file = file.expect("the table has it");
        match &file.origin {
            Origin::Flag(_) => return Ok(self),
            Origin::Environment(variable) => {
                let both = format!("both {variable} and {CREDENTIALS_VARIABLE}");
                return Err(ConfigError::new(both, "are set").remedy("leave one of them out"));
            }
            // An invalid file name is an error even if the file is not read.
            Origin::File(_) => drop(CREDENTIALS_FILE.parse(&file.text)?),
            Origin::Default => {}
        }
        // `check-config` shows this setting's source, and this text in place of a file name.
        file.origin = Origin::Environment(CREDENTIALS_VARIABLE);
        file.text = "(not shown)".into();
        self.credentials = Some(secret);
        Ok(self)
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
        let value = self.value(&setting.row);
        setting.parse(&value.text).map_err(|error| match value.origin {
            // Users who set `RUST_LOG` may not know that its key is `log.level`.
            Origin::Environment(variable) if setting.row.flag.is_none() => {
                ConfigError { key: variable.into(), ..error }
            }
            _ => error,
        })
    }

    /// Parses the value of an optional setting. Returns `None` if the value is the text of `Row::unset_by`, or the text that
    /// describes a derived default, or if no value was given and the setting has no default of its own.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn get_optional<T>(&self, setting: &Setting<T>) -> Result<Option<T>, ConfigError> {
        let value = self.value(&setting.row);
        let is_default = value.origin == Origin::Default;
        match setting.row.default {
            _ if setting.row.unset_by == Some(&*value.text) => Ok(None),
            DefaultValue::Nothing if is_default => Ok(None),
            // Users may copy the text that `check-config` shows for a derived default.
            DefaultValue::Derived(text) if is_default || value.text == text => Ok(None),
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
        let mut sources = Sources::default();
        sources.pod.name = "a".into();
        for (key, text) in flags {
            let row = ALL.iter().find(|row| row.key == *key).expect("the table has it");
            let flag = row.flag.as_ref().map_or("", |flag| flag.name);
            let given = Given { text: (*text).into(), origin: Origin::Flag(flag) };
            sources.given.insert(row.key, given);
        }
        Self::new(sources).expect("there is no login")
    }

    pub(super) fn with_credentials(self, secret: &str) -> Self {
        self.with_environment_credentials(secret.into()).expect("there is no other")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(key: &'static str, text: &str, origin: Origin) -> Sources {
        let given = Given { text: text.into(), origin };
        Sources { given: [(key, given)].into(), ..Sources::default() }
    }

    #[test]
    fn a_login_in_the_environment_beats_the_file_and_no_flag() {
        let secret = || Some(SecretString::from("a:hush"));
        let key = CREDENTIALS_FILE.key();
        let variable = "BELLWETHER_CREDENTIALS_FILE";
        let flag = given(key, "/f", Origin::Flag("credentials-file"));
        let flag = Values::new(Sources { credentials: secret(), ..flag }).unwrap();
        assert!(flag.credentials.is_none());
        let twice = given(key, "/f", Origin::Environment(variable));
        let twice = Values::new(Sources { credentials: secret(), ..twice }).err().unwrap();
        assert!(twice.to_string().contains("leave one of them out"), "{twice}");
        let file = File::parse("[zookeeper]\ncredentials_file = \"/f\"", "f").unwrap();
        let values = Sources { file, credentials: secret(), ..Sources::default() };
        let values = Values::new(values).unwrap();
        assert!(values.credentials.is_some());
        assert_eq!(values.value(&CREDENTIALS_FILE.row).shown(), "(not shown)");
    }

    #[test]
    fn a_login_in_the_environment_hides_no_empty_name_of_a_file() {
        let named_by_nothing = |credentials: Option<SecretString>| {
            let file = File::parse("[zookeeper]\ncredentials_file = \"\"", "f").unwrap();
            let values = Values::new(Sources { file, credentials, ..Sources::default() });
            values
                .and_then(|values| values.get_optional(&CREDENTIALS_FILE))
                .unwrap_err()
                .to_string()
        };
        for credentials in [None, Some("a:hush".into())] {
            let error = named_by_nothing(credentials);
            let said = "zookeeper.credentials_file is empty: name a file, or leave it out";
            assert_eq!(error, said);
        }
    }

    #[test]
    fn a_setting_without_a_flag_is_named_by_its_variable() {
        let level = given("log.level", "loud", Origin::Environment("RUST_LOG"));
        let error = Values::new(level).unwrap().get(&super::super::table::LOG_LEVEL).unwrap_err();
        assert!(error.to_string().starts_with("RUST_LOG = \"loud\" is not a level"), "{error}");
    }
}
