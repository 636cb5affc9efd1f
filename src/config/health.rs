//! How to tell whether the application is healthy, parsed and checked.

use super::hook::place;
use super::span;
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

/// The values as they were written.
#[derive(Clone, Debug)]
pub struct Written {
    pub check: String,
    pub interval: String,
    pub timeout: String,
    pub failures: String,
}

impl Health {
    /// `None` if nothing is to be checked.
    pub(super) fn new(written: &Written) -> Result<Option<Self>, String> {
        let interval = span("health.interval", &written.interval)?;
        let timeout = span("health.timeout", &written.timeout)?;
        let failures =
            written.failures.parse().ok().filter(|failures| (1..=1000).contains(failures));
        let failures = failures.ok_or_else(|| {
            format!("health.failures {:?} must be a number from 1 to 1000", written.failures)
        })?;
        let check = match &*written.check {
            "" => return Ok(None),
            command if command.starts_with('/') => {
                Check::Run(command.split_whitespace().map(str::to_owned).collect())
            }
            url => {
                let (host, port, path) = place(url).map_err(|wrong| {
                    format!("health.check {wrong}; or a command that begins with its absolute path")
                })?;
                Check::Get { host, port, path }
            }
        };
        Ok(Some(Self { check, interval, timeout, failures }))
    }
}
