//! Reads the settings from the command line, the environment and the file.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::config::table::{ALL, LABELS};
use crate::config::{ConfigError, Origin, PodEnvironment, Row, Scope, Values, file_text};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::env::{self, VarError};
use std::path::PathBuf;

/// Adds the flags and variables of all settings that this scope accepts.
pub(super) fn with_flags(command: Command, scope: Scope) -> Command {
    command.args(settings(scope).map(flag))
}

/// Returns all settings that this scope accepts.
pub(super) fn settings(scope: Scope) -> impl Iterator<Item = &'static Row> {
    ALL.iter().copied().filter(move |row| scope.takes(row.scope))
}

/// Returns the command-line flag of a setting.
fn flag(row: &'static Row) -> Arg {
    let default = Some(row.default.text()).filter(|words| !words.is_empty()).unwrap_or("none");
    // The flag for labels may be repeated. `values` joins its values with commas, as in the variable.
    let is_repeated = row.key == LABELS.key();
    Arg::new(row.key)
        .allow_negative_numbers(true)
        .long(row.flag)
        .short(row.letter)
        .value_name(row.placeholder)
        .env(row.variable)
        .hide_env_values(true)
        .action(if is_repeated { ArgAction::Append } else { ArgAction::Set })
        .help(format!("{} [default: {default}] [key: {}]", row.help, row.key))
}

/// Reads the file, if one is named, and adds the values of the environment and of the command line.
pub(super) fn values(file: Option<PathBuf>, matches: &ArgMatches) -> Result<Values, String> {
    let mut values = Values::new(pod());
    // An empty path names no file: an empty variable BELLWETHER_CONFIG counts as not set.
    if let Some(path) = file.filter(|path| !path.as_os_str().is_empty()) {
        values.read_file(&file_text(&path)?, &path)?;
    }
    if let Some(secret) = variable(CREDENTIALS_VARIABLE)? {
        values.set_credentials(secret.into());
    }
    // A command that does not accept a setting ignores its variable as well.
    for row in ALL.iter().filter(|row| matches.try_contains_id(row.key).is_ok()) {
        let Some(written) = matches.get_many::<String>(row.key) else { continue };
        let text = written.cloned().collect::<Vec<_>>().join(",");
        if matches.value_source(row.key) == Some(ValueSource::CommandLine) {
            values.set(row.key, text, Origin::Flag(row.flag));
        } else if !text.is_empty() {
            values.set(row.key, text, Origin::Environment(row.variable));
        }
    }
    Ok(values)
}

/// Returns the value of an environment variable. An empty variable counts as not set.
pub(super) fn variable(name: &str) -> Result<Option<String>, ConfigError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8 text")),
    }
}

/// Reads the variables that describe a pod. Kubernetes sets the address of its API server, and a manifest sets `POD_IP`
/// and `POD_NAME`. Outside of a pod, the values are empty, except for the name, which is then the host's.
pub(super) fn pod() -> PodEnvironment {
    let [host, port, ip] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_IP"]
        .map(|name| env::var(name).unwrap_or_default());
    PodEnvironment { host, port, name: host_name(), ip }
}

/// Returns the name that is the default member id: the pod's name, or else the host's name.
fn host_name() -> String {
    match env::var("POD_NAME") {
        Ok(pod) if !pod.is_empty() => pod,
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
