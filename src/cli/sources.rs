//! Reads the settings from the command line, the environment and the file.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::config::table::ALL;
use crate::config::{
    ConfigError, ConfigErrors, File, Given, Origin, PodEnvironment, Row, Scope, Sources, ValueKind,
    Values, file_text,
};
use clap::{Arg, ArgAction, ArgMatches, Command};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::path::PathBuf;

/// Adds the flags of all settings that this scope accepts.
pub(super) fn with_flags(command: Command, scope: Scope) -> Command {
    command.args(settings(scope).filter_map(flag))
}

/// Returns all settings that this scope accepts.
pub(super) fn settings(scope: Scope) -> impl Iterator<Item = &'static Row> {
    ALL.iter().copied().filter(move |row| scope.takes(row.scope))
}

/// Returns the command-line flag of a setting, if it has one.
fn flag(row: &'static Row) -> Option<Arg> {
    let flag = row.flag.as_ref()?;
    let default = Some(row.default.text()).filter(|words| !words.is_empty()).unwrap_or("none");
    // The help names the variable, but `given` reads it, and not clap: the flag for labels sets one label at a time,
    // and the variable sets all labels at once.
    let variable = row.variable.map(|name| format!(" [env: {name}=]")).unwrap_or_default();
    let help = format!("{} [default: {default}] [key: {}]{variable}", row.help, row.key);
    let arg = Arg::new(row.key)
        .allow_negative_numbers(true)
        .long(flag.name)
        .short(flag.short)
        .value_name(flag.value)
        .help(help);
    // The flag for labels may be repeated. `given` joins its values with commas, as in the variable.
    Some(if row.kind == ValueKind::Labels { arg.action(ArgAction::Append) } else { arg })
}

/// Reads the file, if one is named, and combines the sources.
pub(super) fn values(file: Option<PathBuf>, matches: &ArgMatches) -> Result<Values, ConfigErrors> {
    // An empty path names no file: an empty variable BELLWETHER_CONFIG counts as not set.
    let path = file.unwrap_or_default();
    let file = if path.as_os_str().is_empty() {
        File::default()
    } else {
        File::parse(&file_text("--config", &path)?, &path.display().to_string())?
    };
    Ok(values_with_file((path, file), matches)?)
}

/// Combines the file, which was read before, with the command line and the environment.
pub(super) fn values_with_file(
    (file_name, file): (PathBuf, File),
    matches: &ArgMatches,
) -> Result<Values, ConfigError> {
    let mut given_values = BTreeMap::new();
    for row in ALL {
        given_values.extend(given(row, matches)?.map(|given| (row.key, given)));
    }
    Values::new(Sources {
        given: given_values,
        file,
        file_name,
        credentials: variable(CREDENTIALS_VARIABLE)?.map(SecretString::from),
        pod: pod(),
    })
}

/// Returns the value of a setting from its flag, or else from its environment variable.
fn given(row: &'static Row, matches: &ArgMatches) -> Result<Option<Given>, ConfigError> {
    if let Some(flag) = &row.flag {
        // A command that does not accept this setting ignores its variable as well.
        if matches.try_contains_id(row.key).is_err() {
            return Ok(None);
        }
        if let Some(written) = matches.get_many::<String>(row.key) {
            let text = written.cloned().collect::<Vec<_>>().join(",");
            return Ok(Some(Given { text, origin: Origin::Flag(flag.name) }));
        }
    }
    let Some(name) = row.variable else { return Ok(None) };
    Ok(variable(name)?.map(|text| Given { text, origin: Origin::Environment(name) }))
}

/// Returns the value of a setting from its environment variable.
pub(super) fn in_environment(row: &Row) -> Result<Option<String>, ConfigError> {
    row.variable.map_or(Ok(None), variable)
}

/// Returns the value of an environment variable. An empty variable counts as not set.
fn variable(name: &str) -> Result<Option<String>, ConfigError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8 text")),
    }
}

/// Reads the variables that describe a pod. Kubernetes sets the address of its API server, and a manifest sets `POD_IP`
/// and `POD_NAME`. Outside of a pod, the values are empty, except for the name, which is then the host's.
fn pod() -> PodEnvironment {
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
