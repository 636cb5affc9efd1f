//! The configuration that results from all sources, and how `check-config` prints it.

use crate::config::{Config, Values, table};
use serde::Serialize;
use serde_json::{Map, json};
use std::fmt;

/// The configuration that results from all sources.
pub struct Effective {
    pub config: Config,
    /// The values as they were written, each with its origin.
    pub values: Values,
}

impl Effective {
    pub(super) fn new(values: Values) -> Result<Self, String> {
        Ok(Self { config: Config::new(&values)?, values })
    }

    /// Returns the configuration as one line of JSON, with the warnings. `servers` has the result for each ZooKeeper
    /// server, if `check-config --connect` has tried the servers.
    pub fn json(&self, warnings: &[String], servers: Option<&[impl Serialize]>) -> String {
        let settings: Map<_, _> = self
            .values
            .iter()
            .map(|value| {
                let origin = value.origin.to_string();
                (value.row.key.to_owned(), json!({"value": value.shown(), "origin": origin}))
            })
            .collect();
        let lease = self.config.longest_lease().map(|lease| lease.0.as_millis() as u64);
        let hooks: Vec<_> = self.config.hooks.iter().map(ToString::to_string).collect();
        let synced_files: Vec<_> =
            self.config.synced_files.iter().map(ToString::to_string).collect();
        let mut json = json!({
            "settings": settings, "lease_ms": lease, "hooks": hooks, "config": synced_files, "warnings": warnings,
        });
        if let Some(servers) = servers {
            json["servers"] = json!(servers);
        }
        format!("{json}\n")
    }
}

/// The width of the first column. Every key fits into it.
const KEY_WIDTH: usize = 28;

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for value in self.values.iter() {
            let key = value.row.key;
            let shown = value.shown();
            let shown =
                if shown.is_empty() { "(none)".into() } else { shown.escape_debug().to_string() };
            writeln!(f, "{key:<KEY_WIDTH$} {shown:<40}  {}", value.origin)?;
            // The lease follows from three settings, and is shown below the last of them.
            if key == table::HEARTBEAT.key()
                && let Some(lease) = self.config.longest_lease()
            {
                let key = "(the lease)";
                let shown = format!("{:?}", lease.0);
                writeln!(
                    f,
                    "{key:<KEY_WIDTH$} {shown:<40}  at most, by session_timeout, tick_time and heartbeat"
                )?;
            }
        }
        for (n, hook) in self.config.hooks.iter().enumerate() {
            let key = format!("hook[{n}]");
            writeln!(f, "{key:<KEY_WIDTH$} {}", hook.to_string().escape_debug())?;
        }
        for (n, synced_file) in self.config.synced_files.iter().enumerate() {
            let key = format!("config[{n}]");
            writeln!(f, "{key:<KEY_WIDTH$} {}", synced_file.to_string().escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_fits_into_its_column() {
        let longest = table::ALL.iter().map(|row| row.key.len()).max();
        assert_eq!(longest, Some(KEY_WIDTH));
    }
}
