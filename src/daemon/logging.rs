//! Starts the log, and changes its level at run time.

use super::log_line::TextFields;
use crate::config::LogFormat;
use crate::process;
use std::io;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// A handle to change the level of the running log.
pub(super) struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Sets the level to `log_level`, for example `info` or `info,bellwether=debug`.
    pub(super) fn set(&self, log_level: &str) -> Result<(), String> {
        let targets = targets(log_level)?;
        self.0.reload(targets).map_err(|error| error.to_string())
    }
}

/// Starts the log, which writes to stderr.
pub(super) fn start(format: LogFormat, level: &str) -> Result<Level, String> {
    let (targets, handle) = reload::Layer::new(targets(level)?);
    let registry = tracing_subscriber::registry().with(targets);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.fmt_fields(TextFields).with_ansi(process::log_has_colours());
            registry.with(lines).init();
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
    Ok(Level(handle))
}

/// Parses the value of `log.level`: a level for the whole program, with optional exceptions for its modules.
fn targets(level: &str) -> Result<Targets, String> {
    let wanted: Targets =
        level.parse().map_err(|error| format!("log.level {level:?} is not valid: {error}"))?;
    // The ZooKeeper client library logs events that this program logs too. Show more than the library's errors only if
    // the level is debug or trace.
    let quiet = wanted.default_level().unwrap_or(LevelFilter::OFF) <= LevelFilter::INFO;
    Ok(if quiet { wanted.with_target("zookeeper_client", LevelFilter::ERROR) } else { wanted })
}
