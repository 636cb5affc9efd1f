//! The errors for rejected configuration values.

use std::fmt;
use std::path::Path;

/// The problem of a value in the configuration, and its remedy, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, or a flag or variable that sets its value. The rejected value may follow, as in `key = "value"`. Parsers do
    /// not know the key: it is empty until their caller adds it.
    key: String,
    /// The problem, as the predicate of a sentence about the key, and the remedy.
    text: String,
    /// Whether the error must not show the value, because it may contain a secret.
    hides_value: bool,
}

impl ConfigError {
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::without_key(problem).with_key(key)
    }

    pub fn without_key(problem: impl Into<String>) -> Self {
        Self { key: String::new(), text: problem.into(), hides_value: false }
    }

    pub fn remedy(self, remedy: impl fmt::Display) -> Self {
        Self { text: format!("{}: {remedy}", self.text), ..self }
    }

    /// Omits the value from the error, because it may contain a secret.
    pub fn hiding_value(self) -> Self {
        Self { hides_value: true, ..self }
    }

    /// Adds the key and the value. The value is not shown if it may be a secret.
    pub fn with_value(self, key: &str, value: &str) -> Self {
        if self.hides_value { self.with_key(key) } else { self.with_key(key).found(value) }
    }

    /// Adds the key and the file that the value names. The file's name is not shown if it may be the secret itself.
    pub fn in_file(self, key: &str, file: &Path) -> Self {
        self.with_key(format!("{key}: {}", super::shown_path(file)))
    }

    /// Adds the key, without the value.
    pub fn with_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Adds the rejected value, such as a number or a duration, to the key.
    pub fn found(self, value: impl fmt::Debug) -> Self {
        Self { key: format!("{} = {value:?}", self.key), ..self }
    }

    /// Prefixes the key with its table, such as `hook[2]`. An empty key means the table itself.
    pub(super) fn in_table(self, table: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { key: format!("{table}{dot}{}", self.key), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, text, .. } = self;
        if key.is_empty() { f.write_str(text) } else { write!(f, "{key} {text}") }
    }
}

impl std::error::Error for ConfigError {}

/// Commands report errors of several types as texts.
impl From<ConfigError> for String {
    fn from(error: ConfigError) -> Self {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_key_value_problem_and_remedy() {
        let flaw = || ConfigError::without_key("is no duration").remedy("write 10s");
        let value = flaw().with_value("lease.heartbeat", "so\non");
        assert_eq!(value.to_string(), r#"lease.heartbeat = "so\non" is no duration: write 10s"#);
        let hidden = flaw().hiding_value().with_value("zookeeper.auth", "hush");
        assert_eq!(hidden.to_string(), "zookeeper.auth is no duration: write 10s");
        let file = flaw().in_file("http.token_file", Path::new("/a"));
        assert_eq!(file.to_string(), "http.token_file: /a is no duration: write 10s");
        let within = ConfigError::new("url", "is no URL").in_table("hook[0]");
        assert_eq!(within.to_string(), "hook[0].url is no URL");
        let whole = ConfigError::new("", "has no url").in_table("hook[0]");
        assert_eq!(whole.to_string(), "hook[0] has no url");
    }
}
