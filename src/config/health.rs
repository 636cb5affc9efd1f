//! How to check the application's health, parsed and checked.

use super::error::ConfigError;
use super::hook::{arguments_shown, split_url};
use super::sources::Values;
use super::table;
use std::time::Duration;

/// The settings of the health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub check: Check,
    /// The time from the end of a check to the beginning of the next.
    pub interval: Duration,
    /// The time limit of each check.
    pub timeout: Duration,
    /// The number of failures in a row that make the application unhealthy.
    pub failures: u32,
}

/// A health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// GET this URL. The application is healthy if the status is 2xx.
    Get { host: String, port: u16, path: String },
    /// Run this command. The application is healthy if the exit code is 0.
    Run(Vec<String>),
}

impl Health {
    /// Returns `None` if no check is configured.
    pub(super) fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let interval = values.get(&table::HEALTH_INTERVAL)?;
        let timeout = values.get(&table::HEALTH_TIMEOUT)?;
        let failures = values.get(&table::HEALTH_FAILURES)?;
        let check = values.get_optional(&table::HEALTH_CHECK)?;
        Ok(check.map(|check| Self { check, interval, timeout, failures }))
    }
}

impl Check {
    /// Parses a URL, or a command: the absolute path of a program, and its arguments. White space separates the
    /// arguments, even in quotes.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.starts_with('/') {
            return Ok(Self::Run(text.split_whitespace().map(str::to_owned).collect()));
        }
        let (host, port, path) = split_url(text).map_err(|flaw| {
            flaw.remedy("a check may also be a command that begins with its absolute path")
        })?;
        Ok(Self::Get { host, port, path })
    }
}

/// Describes a check without the query of a URL or the arguments of a command, because these may be secret.
pub(super) fn shown(text: &str) -> String {
    let mut words = text.split_whitespace();
    match words.next() {
        Some(program) if program.starts_with('/') => {
            format!("{program}{}", arguments_shown(words.count()))
        }
        Some(url) => url.split('?').next().unwrap_or_default().into(),
        None => String::new(),
    }
}
