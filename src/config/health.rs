//! How to tell whether the application is healthy, parsed and checked.

use super::error::{ConfigError, ValueError};
use super::hook::place;
use super::sources::Values;
use super::table;
use std::time::Duration;

/// Whether the application is asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub check: Check,
    /// From the end of one check to the beginning of the next.
    pub interval: Duration,
    /// Of each check.
    pub timeout: Duration,
    /// This many failures in a row make it unhealthy.
    pub failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Healthy if the answer is 2xx.
    Get { host: String, port: u16, path: String },
    /// Healthy if it ends with exit code 0.
    Run(Vec<String>),
}

impl Health {
    /// Returns `None` if nothing is to be checked.
    pub(super) fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let interval = values.get(&table::HEALTH_INTERVAL)?;
        let timeout = values.get(&table::HEALTH_TIMEOUT)?;
        let failures = values.get(&table::HEALTH_FAILURES)?;
        let check = values.get(&table::HEALTH_CHECK)?;
        Ok(check.map(|check| Self { check, interval, timeout, failures }))
    }
}

impl Check {
    pub(super) fn parse(text: &str) -> Result<Option<Self>, ValueError> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.starts_with('/') {
            return Ok(Some(Self::Run(text.split_whitespace().map(str::to_owned).collect())));
        }
        let (host, port, path) = place(text)
            .map_err(|flaw| flaw.or_remedy("a command that begins with its absolute path"))?;
        Ok(Some(Self::Get { host, port, path }))
    }
}

/// Shows a check, as hooks are shown: without an URL's query and a command's arguments.
pub(super) fn shown(text: &str) -> String {
    let mut words = text.split_whitespace();
    match words.next() {
        Some(program) if program.starts_with('/') => match words.count() {
            0 => program.into(),
            1 => format!("{program} (1 argument)"),
            more => format!("{program} ({more} arguments)"),
        },
        Some(url) => url.split('?').next().unwrap_or_default().into(),
        None => String::new(),
    }
}
