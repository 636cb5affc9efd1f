//! The configuration file, read by the table of settings. An unknown key is an error.

use super::hook::HookKeys;
use super::kept::SyncedFileKeys;
use super::parse::labels_as_text;
use super::setting::{Row, ValueKind};
use super::table::ALL;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// The content of the configuration file.
#[derive(Debug, Default)]
pub struct File {
    /// Each value as one text, by key.
    pub(super) values: BTreeMap<&'static str, String>,
    pub hook: Vec<HookKeys>,
    pub config: Vec<SyncedFileKeys>,
}

/// The key of the hooks, of which each is a table.
const HOOK: &str = "hook";
/// The key of the values that are kept as files, of which each is a table.
const KEPT: &str = "config";

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut file = Self::default();
        Table { name: String::new(), file: &mut file }.deserialize(deserializer)?;
        Ok(file)
    }
}

/// Reads one table of the file; the empty name is the whole file.
struct Table<'a> {
    name: String,
    file: &'a mut File,
}

impl<'de> DeserializeSeed<'de> for Table<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Table<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(KeyIn { table: &self.name })? {
            match key {
                FileKey::Hooks => self.file.hook = map.next_value()?,
                FileKey::Kept => self.file.config = map.next_value()?,
                FileKey::Table(name) => {
                    map.next_value_seed(Table { name, file: &mut *self.file })?
                }
                FileKey::Setting(row) => {
                    let text = match row.kind {
                        ValueKind::Text => map.next_value::<String>()?,
                        ValueKind::Number => map.next_value::<u32>()?.to_string(),
                        ValueKind::Labels => labels_as_text(&map.next_value::<BTreeMap<_, _>>()?),
                    };
                    self.file.values.insert(row.key, text);
                }
            }
        }
        Ok(())
    }
}

/// The meaning of a key.
enum FileKey {
    Setting(&'static Row),
    /// Its full name.
    Table(String),
    Hooks,
    Kept,
}

/// Knows the keys of one table.
struct KeyIn<'a> {
    table: &'a str,
}

impl<'de> DeserializeSeed<'de> for KeyIn<'_> {
    type Value = FileKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FileKey, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeyIn<'_> {
    type Value = FileKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<FileKey, E> {
        if self.table.is_empty() && key == HOOK {
            return Ok(FileKey::Hooks);
        }
        if self.table.is_empty() && key == KEPT {
            return Ok(FileKey::Kept);
        }
        let names = self.names();
        if !names.contains(&key) {
            return Err(E::custom(format!("unknown field `{key}`, expected {}", listed(&names))));
        }
        let name =
            if self.table.is_empty() { key.to_owned() } else { format!("{}.{key}", self.table) };
        let setting = ALL.iter().copied().find(|row| row.key == name);
        Ok(setting.map_or(FileKey::Table(name), FileKey::Setting))
    }
}

impl KeyIn<'_> {
    /// Returns what the table may hold: settings and further tables.
    fn names(&self) -> Vec<&'static str> {
        let mut names = vec![];
        for row in ALL {
            let rest = match row.key.strip_prefix(self.table) {
                Some(rest) if self.table.is_empty() => rest,
                Some(rest) if rest.starts_with('.') => &rest[1..],
                Some(_) | None => continue,
            };
            let name = rest.split('.').next().unwrap_or(rest);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if self.table.is_empty() {
            names.extend([HOOK, KEPT]);
        }
        names
    }
}

/// Writes names as serde does.
fn listed(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        all => format!("one of {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        toml::from_str::<File>(text).unwrap_err().message().to_owned()
    }

    #[test]
    fn each_kind_of_value_is_read_as_one_text() {
        let text = "zookeeper.tls.ca = \"ca\"\n[health]\nfailures = 4\n\
                    [member]\nlabels = { a = \"1\" }\n[[hook]]\nfile = \"/x\"\n";
        let file: File = toml::from_str(text).unwrap();
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
        let said = "unknown field `cas`, expected one of `ca`, `cert`, `key`";
        assert!(tls.starts_with(said), "{tls}");
        assert_eq!(listed(&["a"]), "`a`");
        assert_eq!(listed(&["a", "b"]), "`a` or `b`");
        let whole = error("hooks = 1");
        assert!(whole.contains("`hooks`") && whole.contains("`zookeeper`"), "{whole}");
        // The names of tables are no settings.
        assert!(error("zookeeper = \"a:1\"").contains("expected a table"));
        assert!(error("zookeeper.tls = 1").contains("expected a table"));
        assert!(error("lease.heartbeat.x = 1").contains("expected a string"));
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        assert!(error("[health]\ninterval = 5").contains("expected a string"));
        assert!(error("[health]\nfailures = \"3\"").contains("expected u32"));
        assert!(error("[member]\nlabels = [1]").contains("expected a map"));
    }
}
