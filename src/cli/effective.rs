//! The configuration that results from all that was written, and what `check-config` prints of it.

use crate::config::{Config, ConfigError, LogFormat, Values, table};
use std::fmt;

/// The configuration that results from all that was written.
pub struct Effective {
    pub config: Config,
    pub log_format: LogFormat,
    pub log_level: String,
    /// As they were written, and where each came from.
    pub values: Values,
}

impl Effective {
    pub(super) fn new(values: Values) -> Result<Self, ConfigError> {
        let log_level = values.get(&table::LOG_LEVEL)?;
        let log_format = values.get(&table::LOG_FORMAT)?;
        let config = Config::new(&values)?;
        Ok(Self { config, log_format, log_level, values })
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for value in self.values.iter() {
            let (key, shown) = (value.row.key, value.shown());
            let shown =
                if shown.is_empty() { "(none)".into() } else { shown.escape_debug().to_string() };
            writeln!(f, "{key:<26} {shown:<40} {}", value.origin)?;
            if key == table::HEARTBEAT.key()
                && let Some(lease) = self.config.longest_lease()
            {
                let (key, shown) = ("(the lease)", format!("{:?}", lease.0));
                writeln!(f, "{key:<26} {shown:<40} at most, of the three above")?;
            }
        }
        for (n, hook) in self.config.hooks.iter().enumerate() {
            writeln!(f, "{:<26} {}", format!("hook[{n}]"), hook.to_string().escape_debug())?;
        }
        Ok(())
    }
}
