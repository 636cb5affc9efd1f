//! The errors for rejected configuration values.

use std::fmt;
use std::path::Path;

/// The problem of a value in the configuration, and its remedy, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, or a flag or variable that sets its value. Parsers do not know the key: it is empty until their caller adds
    /// it.
    pub key: String,
    /// The rejected value, as it follows the key in the error: ` = "value"`, or `: file`. Empty if it is not shown.
    pub(super) found: String,
    /// The problem, as the predicate of a sentence about the key.
    pub problem: String,
    pub remedy: Option<String>,
    /// Whether the error must not show the value, because it may contain a secret.
    pub(super) hides_value: bool,
}

impl ConfigError {
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::without_key(problem).with_key(key)
    }

    pub fn without_key(problem: impl Into<String>) -> Self {
        Self {
            key: String::new(),
            found: String::new(),
            problem: problem.into(),
            remedy: None,
            hides_value: false,
        }
    }

    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// Adds a second remedy.
    pub(super) fn or_remedy(self, other: &str) -> Self {
        let remedy = match &self.remedy {
            Some(remedy) => format!("{remedy}; or {other}"),
            None => other.to_owned(),
        };
        self.remedy(remedy)
    }

    /// Omits the value from the error, because it may contain a secret.
    pub fn hiding_value(self) -> Self {
        Self { hides_value: true, ..self }
    }

    /// Adds the key and the value. The value is not shown if it may be a secret.
    pub fn with_value(self, key: impl Into<String>, value: &str) -> Self {
        if self.hides_value { self.with_key(key) } else { self.with_key(key).found(value) }
    }

    /// Adds the key and the file that the value names. The file's name is not shown if it may be the secret itself.
    pub fn in_file(self, key: impl Into<String>, file: &Path) -> Self {
        Self { found: format!(": {}", super::shown_path(file)), ..self.with_key(key) }
    }

    /// Adds the key, without the value.
    pub fn with_key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Adds the rejected value, such as a number or a duration.
    pub fn found(self, value: impl fmt::Debug) -> Self {
        Self { found: format!(" = {value:?}"), ..self }
    }

    /// Prefixes the key with its table, such as `hook[2]`. An empty key means the table itself.
    pub(super) fn in_table(self, table: &str) -> Self {
        let key = if self.key.is_empty() { table.into() } else { format!("{table}.{}", self.key) };
        Self { key, ..self }
    }
}

/// Parses each table of a list, such as `[[hook]]`. Returns the valid ones. The errors of the others are added to
/// `errors`. Each error names its table by the list and the table's number, counted from 0, such as `hook[2]`.
pub(super) fn parse_tables<T, U>(
    list: &str,
    tables: &[T],
    errors: &mut Vec<ConfigError>,
    parse: impl Fn(&T) -> Result<U, ConfigError>,
) -> Vec<U> {
    let mut valid = vec![];
    for (n, table) in tables.iter().enumerate() {
        match parse(table) {
            Ok(parsed) => valid.push(parsed),
            Err(error) => errors.push(error.in_table(&format!("{list}[{n}]"))),
        }
    }
    valid
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, found, problem, remedy, .. } = self;
        if !key.is_empty() {
            write!(f, "{key}{found} ")?;
        }
        f.write_str(problem)?;
        remedy.iter().try_for_each(|remedy| write!(f, ": {remedy}"))
    }
}

/// All errors of a configuration, one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigErrors> for String {
    fn from(errors: ConfigErrors) -> Self {
        errors.to_string()
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
