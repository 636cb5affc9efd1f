//! The configuration file, read according to the table of settings. An unknown key is an error.

use super::error::{ConfigError, ConfigErrors};
use super::hook::HookKeys;
use super::parse::labels_as_text;
use super::setting::ValueKind;
use super::synced_file::SyncedFileKeys;
use super::table::ALL;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

/// The content of the configuration file.
#[derive(Debug, Default)]
pub struct File {
    /// The values of the settings in the file, by key, each as a text that the setting's parser accepts.
    pub(super) values: BTreeMap<&'static str, String>,
    pub hook: Vec<HookKeys>,
    pub config: Vec<SyncedFileKeys>,
}

/// The key of the list of hooks.
const HOOKS: &str = "hook";
/// The key of the list of values of the shared configuration that are written to files.
const SYNCED_FILES: &str = "config";

impl File {
    /// Parses the content of the file `name`.
    ///
    /// # Errors
    /// All errors, each with its line.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        let mut reader = Reader { text, name, file: Self::default(), errors: vec![] };
        match DeTable::parse(text) {
            Ok(table) => reader.read_table("", table.into_inner()),
            Err(error) => reader.add_error(error.span(), error.message()),
        }
        let Reader { file, mut errors, .. } = reader;
        if errors.is_empty() {
            return Ok(file);
        }
        errors.sort_by_key(|(line, _)| *line);
        Err(ConfigErrors(errors.into_iter().map(|(_, error)| error).collect()))
    }
}

/// Reads the file, and collects the errors.
struct Reader<'a> {
    text: &'a str,
    name: &'a str,
    file: File,
    /// The errors, each with the number of its line, counted from 0.
    errors: Vec<(usize, ConfigError)>,
}

impl Reader<'_> {
    /// Reads the table of this name, and the tables in it. The whole file counts as a table with an empty name.
    fn read_table(&mut self, table: &str, content: DeTable<'_>) {
        for (key, value) in content {
            let dot = if table.is_empty() { "" } else { "." };
            let name = format!("{table}{dot}{}", key.get_ref());
            let is_known_table = ALL.iter().any(|row| row.key.starts_with(&format!("{name}.")));
            if let Some(row) = ALL.iter().find(|row| row.key == name) {
                let text = match row.kind {
                    ValueKind::Text => self.read(value),
                    ValueKind::Number => self.read(value).map(|number: u32| number.to_string()),
                    ValueKind::Labels => self.read(value).map(|labels| labels_as_text(&labels)),
                };
                self.file.values.extend(text.map(|text| (row.key, text)));
            } else if name == HOOKS {
                self.file.hook = self.read(value).unwrap_or_default();
            } else if name == SYNCED_FILES {
                self.file.config = self.read(value).unwrap_or_default();
            } else if !is_known_table {
                let known = keys_of(table).join("`, `");
                let why = format!("unknown key `{}`, expected one of `{known}`", key.get_ref());
                self.add_error(Some(key.span()), &why);
            } else {
                let span = value.span();
                match value.into_inner() {
                    DeValue::Table(content) => self.read_table(&name, content),
                    other => {
                        let why = format!("found {}, expected a table", other.type_str());
                        self.add_error(Some(span), &why);
                    }
                }
            }
        }
    }

    /// Deserializes a value, or records an error and returns `None`.
    fn read<'de, T: Deserialize<'de>>(&mut self, value: Spanned<DeValue<'de>>) -> Option<T> {
        let span = value.span();
        let read = T::deserialize(ValueDeserializer::from(value));
        read.map_err(|error: Error| self.add_error(error.span().or(Some(span)), error.message()))
            .ok()
    }

    /// Records an error at this position in the file; if the parser reports no position, in the first line.
    fn add_error(&mut self, span: Option<Range<usize>>, why: &str) {
        let start = span.map_or(0, |span| span.start);
        let line = self.text.as_bytes().iter().take(start).filter(|byte| **byte == b'\n').count();
        // Do not show the value: it may be a secret that was put under a wrong key.
        let key = self.text.lines().nth(line).and_then(|line| line.split_once('='));
        let key = key.map_or("", |(key, _)| key.trim());
        let comma = if key.is_empty() { "" } else { ", " };
        let place = format!("{}, line {}{comma}{}:", self.name, line + 1, printable(key));
        let why = printable(&in_words_of_toml(why));
        // In the text of the error, the place stands where other errors have a key.
        self.errors.push((line, ConfigError::new(place, why)));
    }
}

/// Returns the keys that a table may contain: the names of its settings and of the tables inside.
fn keys_of(table: &str) -> Vec<&'static str> {
    let rest = |key: &'static str| match table {
        "" => Some(key),
        _ => key.strip_prefix(table)?.strip_prefix('.'),
    };
    let mut names: Vec<_> = ALL.iter().filter_map(|row| rest(row.key)?.split('.').next()).collect();
    // `ALL` has the settings of a table one after another, so this finds all duplicates.
    names.dedup();
    if table.is_empty() {
        names.extend([HOOKS, SYNCED_FILES]);
    }
    names
}

/// Escapes control characters: a key may contain them, and a terminal would act on them.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.into() })
        .collect()
}

/// Replaces the terms of Rust in an error of the parser, such as `map`, with the terms of TOML. A phrase comes before
/// the shorter phrases that it contains.
fn in_words_of_toml(error: &str) -> String {
    let words = [
        ("\n", " "),
        ("unknown field", "unknown key"),
        (
            "invalid type: map, expected a sequence",
            "such a table is written in two brackets, as [[hook]]",
        ),
        ("string values must be quoted, expected literal string", "text has to stand in quotes"),
        ("invalid type: sequence", "found a list"),
        ("invalid type: map", "found a table"),
        ("invalid type: ", "found "),
        ("expected a string", "expected text in quotes"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table"),
        ("invalid value: ", "found "),
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number of at least 0"),
    ];
    words.iter().fold(error.to_owned(), |error, (rust, toml)| error.replace(rust, toml))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        File::parse(text, "f").unwrap_err().to_string()
    }

    #[test]
    fn each_kind_of_value_is_read_as_one_text() {
        let text = "zookeeper.tls.ca = \"ca\"\n[health]\nfailures = 4\n\
                    [member]\nlabels = { a = \"1\" }\n[[hook]]\nfile = \"/x\"\n";
        let file = File::parse(text, "f").unwrap();
        let labels = r#"{"a":"1"}"#;
        let expected =
            [("health.failures", "4"), ("member.labels", labels), ("zookeeper.tls.ca", "ca")];
        let expected = BTreeMap::from(expected.map(|(key, text)| (key, text.to_owned())));
        assert_eq!(file.values, expected);
        assert_eq!(file.hook.len(), 1);
    }

    #[test]
    fn an_unknown_key_is_refused_with_those_that_are_known() {
        let tls = error("[zookeeper.tls]\ncas = \"x\"");
        let said = "f, line 2, cas: unknown key `cas`, expected one of `ca`, `cert`, `key`";
        assert_eq!(tls, said);
        let whole = error("hooks = 1");
        assert!(whole.contains("`hooks`") && whole.contains("`zookeeper`"), "{whole}");
        assert_eq!(whole.matches("`zookeeper`").count(), 1, "{whole}");
        // The names of tables are no settings.
        assert!(error("zookeeper = \"a:1\"").contains("expected a table"));
        assert!(error("zookeeper.tls = 1").contains("expected a table"));
        assert!(error("lease.heartbeat.x = 1").contains("expected text in quotes"));
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        assert!(error("[health]\ninterval = 5").contains("expected text in quotes"));
        assert!(error("[health]\nfailures = \"3\"").contains("from 0 to 4294967295"));
        assert!(error("[member]\nlabels = [1]").contains("expected a table"));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once_each_with_its_line() {
        let text = "[lease]\nbeat = \"1s\"\n[health]\ninterval = 5\n[[hook]]\nfiles = 1\n";
        let errors = error(text);
        let starts: Vec<_> = errors.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(starts, ["f, line 2, beat", "f, line 4, interval", "f, line 6, files"]);
    }
}
