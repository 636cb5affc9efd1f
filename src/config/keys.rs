//! Takes the values out of a TOML table. The parsers of settings parse them.

use super::error::ConfigError;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// The keys of a `[[hook]]` or `[[config]]` table that are not parsed yet.
pub(super) struct Keys {
    table: Table,
    /// The keys that were asked for.
    known: Vec<&'static str>,
}

impl Keys {
    pub(super) fn new(table: Table) -> Self {
        Self { table, known: vec![] }
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn remove(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// Takes and parses the value of a key, a text or a number. Returns `None` if there is no such key.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.remove(key) else { return Ok(None) };
        let text = text_of(key, &value).map_err(|flaw| flaw.with_key(key))?;
        parse(&text).map(Some).map_err(|flaw| flaw.with_value(key, &text))
    }

    /// Takes and parses the value of a key that must be there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        self.take(key, parse)?.ok_or_else(|| {
            let remedy = "config/bellwether.toml shows how to write it";
            ConfigError::new(key, "is missing").remedy(remedy)
        })
    }

    /// Takes a value that is not a text, such as a table. Returns `None` if there is no such key.
    pub(super) fn take_as<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        expected: &str,
    ) -> Result<Option<T>, ConfigError> {
        let value = self.remove(key).map(Value::try_into).transpose();
        value.map_err(|_| ConfigError::new(key, format!("must be {expected}")))
    }

    /// Checks that all keys were taken.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        Err(unknown_key(self.known.into_iter()).with_key(printable(key)))
    }
}

/// Returns the text that the parser of this key accepts.
pub(super) fn text_of(key: &str, value: &Value) -> Result<String, ConfigError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        // The number may have been written as 0o660, and its decimal digits are those of another mode.
        Value::Integer(_) if key.ends_with("mode") => {
            Err(ConfigError::without_key("must be text in quotes").remedy("write \"0644\""))
        }
        Value::Integer(number) => Ok(number.to_string()),
        other => {
            let problem =
                format!("must be text in quotes or a number, and is {}", other.type_str());
            Err(ConfigError::without_key(problem))
        }
    }
}

/// Returns the error for a key that is not among the known ones.
pub(super) fn unknown_key<'a>(known: impl Iterator<Item = &'a str>) -> ConfigError {
    let known: Vec<_> = known.map(|key| format!("`{key}`")).collect();
    let remedy = format!("expected one of {}", known.join(", "));
    ConfigError::without_key("is not a known key").remedy(remedy)
}

/// Escapes control characters, which a key in quotes may contain and on which a terminal would act.
pub(super) fn printable(key: &str) -> String {
    key.escape_debug().to_string()
}
