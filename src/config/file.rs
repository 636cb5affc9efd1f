//! Reads the configuration file according to the table of settings. An unknown key is an error.

use super::error::ConfigError;
use super::keys::{printable, text_of, unknown_key};
use super::parse::labels_as_text;
use super::sources::{Origin, Values};
use super::table::{ALL, LABELS};
use std::path::Path;
use toml::{Table, Value};

/// The key of the list of hooks.
const HOOKS: &str = "hook";
/// The key of the list of values of the shared configuration that are written to files.
const SYNCED_FILES: &str = "config";

impl Values {
    /// Adds the values in the text of the configuration file.
    ///
    /// # Errors
    /// A line for each error.
    pub fn read_file(&mut self, text: &str, file: &Path) -> Result<(), String> {
        let name = file.display();
        let table: Table = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            format!("{name}, line {line}: {}", error.message().replace(char::is_control, " "))
        })?;
        let errors: Vec<_> = leaves("", table)
            .into_iter()
            .filter_map(|(key, value)| {
                let flaw = self.read_value(&key, value, file).err()?;
                Some(format!("{name}: {}", flaw.with_key(printable(&key))))
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }

    /// Reads the value of a setting, or a list of tables.
    fn read_value(&mut self, key: &str, value: Value, file: &Path) -> Result<(), ConfigError> {
        if ALL.iter().any(|row| row.key == key) {
            let is_labels = key == LABELS.key();
            let text = if is_labels { labels_as_text(value)? } else { text_of(key, &value)? };
            self.set(key, text, Origin::File(file.to_owned()));
        } else if key == HOOKS {
            self.hooks = tables(value)?;
        } else if key == SYNCED_FILES {
            self.synced_files = tables(value)?;
        } else {
            let table = key.rsplit_once('.').map_or("", |(table, _)| table);
            let known = ALL.iter().map(|row| row.key).chain([HOOKS, SYNCED_FILES]);
            return Err(unknown_key(known.filter(|known| known.starts_with(table))));
        }
        Ok(())
    }
}

/// Returns the values in a table and in the tables of settings in it, each with its whole key, such as `zookeeper.auth`.
fn leaves(prefix: &str, table: Table) -> Vec<(String, Value)> {
    let values = table.into_iter().flat_map(|(key, value)| {
        let key = format!("{prefix}{key}");
        let inner_prefix = format!("{key}.");
        match value {
            Value::Table(inner) if ALL.iter().any(|row| row.key.starts_with(&inner_prefix)) => {
                leaves(&inner_prefix, inner)
            }
            value => vec![(key, value)],
        }
    });
    values.collect()
}

/// Returns the tables of a list such as `[[hook]]`.
fn tables(value: Value) -> Result<Vec<Table>, ConfigError> {
    value.try_into().map_err(|_| {
        ConfigError::without_key("must be a list of tables")
            .remedy("write each in two brackets, as [[hook]]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Values, String> {
        let mut values = Values::given(&[]);
        values.read_file(text, Path::new("f")).map(|()| values)
    }

    fn error(text: &str) -> String {
        read(text).err().expect("this is no configuration file")
    }

    #[test]
    fn each_kind_of_value_is_read_as_one_text() {
        let text = "zookeeper.tls.ca = \"ca\"\n[health]\nfailures = 4\n\
                    [member]\nlabels = { a = \"1\", b = \"2\" }\n[[hook]]\nfile = \"/x\"\n";
        let values = read(text).unwrap();
        let given = values.iter().filter(|value| value.origin != Origin::Default);
        let given: Vec<_> = given.map(|value| (value.row.key, &*value.text)).collect();
        let expected =
            [("zookeeper.tls.ca", "ca"), ("member.labels", "a=1,b=2"), ("health.failures", "4")];
        assert_eq!(given, expected);
        assert_eq!(values.hooks.len(), 1);
    }

    #[test]
    fn an_unknown_key_is_refused_with_those_that_are_known() {
        let tls = error("[zookeeper.tls]\ncas = \"x\"");
        let said = "f: zookeeper.tls.cas is not a known key: expected one of `zookeeper.tls.ca`, \
                    `zookeeper.tls.cert`, `zookeeper.tls.key`";
        assert_eq!(tls, said);
        let whole = error("hooks = 1");
        assert!(whole.starts_with("f: hooks is not") && whole.contains("`hook`"), "{whole}");
        // The names of tables are no settings.
        assert!(error("zookeeper = \"a:1\"").contains("zookeeper is not a known key"));
        assert!(error("zookeeper.tls = 1").contains("zookeeper.tls is not a known key"));
        assert!(error("lease.heartbeat.x = 1").contains("must be text in quotes"));
        assert!(error("http.socket_mode = 0o660").contains("must be text in quotes"));
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        assert!(error("[health]\ninterval = true").contains("health.interval must be text in"));
        assert!(error("[member]\nlabels = [1]").contains("member.labels must be a table"));
        assert!(error("[member]\nlabels = { a = \"1,2\" }").contains("without commas"));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once_each_with_its_key() {
        let errors = error("[lease]\nbeat = \"1s\"\n[health]\ninterval = [5]\n[hook]\nfiles = 1\n");
        let keys: Vec<_> = errors.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(keys, ["health.interval", "hook", "lease.beat"]);
    }

    #[test]
    fn an_error_of_the_syntax_has_its_line() {
        let error = error("[lease]\nheartbeat = 1s\n");
        assert!(error.starts_with("f, line 2: "), "{error}");
    }
}
