//! Reads the settings from the command line, the environment and the file.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::config::table::{ALL, ID, LABELS};
use crate::config::{
    ConfigError, ConfigErrors, File, Given, Origin, PodEnvironment, Row, Scope, Sources, ValueKind,
    Values, file_text, labels_as_text,
};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use secrecy::SecretString;
use std::collections::{BTreeMap, BTreeSet};
use std::env::VarError;
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
    let default = Some(row.default.words()).filter(|words| !words.is_empty()).unwrap_or("none");
    let help = format!("{} [default: {default}] [key: {}]", row.help, row.key);
    let arg = Arg::new(row.key)
        .allow_negative_numbers(true)
        .long(flag.name)
        .short(flag.short)
        .value_name(flag.value);
    Some(match (row.kind, row.variable) {
        (ValueKind::Text | ValueKind::Number, Some(variable)) => arg.help(help).env(variable),
        (ValueKind::Text | ValueKind::Number, None) => arg.help(help),
        // The flag sets a single label, but the variable sets all of them. So the variable is not bound to the flag.
        (ValueKind::Labels, variable) => {
            let variable = variable.map(|name| format!(" [env: {name}=]")).unwrap_or_default();
            let arg = arg.help(format!("{help}{variable}"));
            arg.action(ArgAction::Append).value_parser(label)
        }
    })
}

fn label(written: &str) -> Result<(String, String), String> {
    match written.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is KEY=VALUE, such as zone=eu-1".into()),
    }
}

/// Reads the file, if one is named, and combines the sources.
pub(super) fn values(file: Option<PathBuf>, matches: &ArgMatches) -> Result<Values, ConfigErrors> {
    // Treat an empty variable like an unset one.
    let Some(path) = file.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(values_beside((PathBuf::new(), File::default()), matches)?);
    };
    let name = path.display().to_string();
    let text = file_text("--config", &path)?;
    let file = File::parse(&text, &name)?;
    Ok(values_beside((path, file), matches)?)
}

/// Combines the file with the command line and the environment.
pub(super) fn values_beside(
    (file_name, file): (PathBuf, File),
    matches: &ArgMatches,
) -> Result<Values, ConfigError> {
    if let Some(key) = repeated_label(matches) {
        let twice = ConfigError::new("--label", format!("has the key {key:?} twice"));
        return Err(twice.remedy("write each key once"));
    }
    let given = ALL.iter().copied().filter_map(|row| Some((row.key, given(row, matches)?)));
    Values::new(Sources {
        given: given.collect(),
        file,
        file_name,
        defaults: BTreeMap::from([(ID.key(), host_name())]),
        credentials: credentials()?,
        pod: pod(),
    })
}

/// Returns the value of a setting's variable, unless it is empty.
fn in_environment(row: &Row) -> Option<Given> {
    let variable = row.variable?;
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(Given { text, origin: Origin::Environment(variable) })
}

/// Returns the value of a flag or a variable. An empty variable counts as not set.
fn given(row: &'static Row, matches: &ArgMatches) -> Option<Given> {
    let Some(flag) = &row.flag else { return in_environment(row) };
    // Some commands do not have this flag.
    if matches.try_contains_id(row.key).is_err() {
        return None;
    }
    let text = match row.kind {
        ValueKind::Text | ValueKind::Number => matches.get_one::<String>(row.key)?.clone(),
        ValueKind::Labels => match matches.get_many::<(String, String)>(row.key) {
            Some(labels) => labels_as_text(&labels.cloned().collect()),
            None => return in_environment(row),
        },
    };
    let origin = match (matches.value_source(row.key), row.variable) {
        (Some(ValueSource::EnvVariable), Some(_)) if text.is_empty() => return None,
        (Some(ValueSource::EnvVariable), Some(variable)) => Origin::Environment(variable),
        _ => Origin::Flag(flag.name),
    };
    Some(Given { text, origin })
}

/// Returns a key that two flags set, because one of the two values would be ignored.
fn repeated_label(matches: &ArgMatches) -> Option<&str> {
    let labels = matches.try_get_many::<(String, String)>(LABELS.key()).ok().flatten()?;
    let mut seen = BTreeSet::new();
    labels.map(|(key, _)| &**key).find(|key| !seen.insert(*key))
}

/// Reads the login from the environment, if it is there.
fn credentials() -> Result<Option<SecretString>, ConfigError> {
    match std::env::var(CREDENTIALS_VARIABLE) {
        Ok(secret) if !secret.is_empty() => Ok(Some(SecretString::from(secret))),
        Ok(_) | Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(ConfigError::new(CREDENTIALS_VARIABLE, "is not UTF-8 text"))
        }
    }
}

/// Reads the variables that Kubernetes sets in a pod. Outside of a pod, they are empty.
fn pod() -> PodEnvironment {
    fn variable(name: &str) -> String {
        std::env::var(name).unwrap_or_default()
    }
    let host = variable("KUBERNETES_SERVICE_HOST");
    let port = variable("KUBERNETES_SERVICE_PORT");
    PodEnvironment { host, port, name: host_name(), ip: variable("POD_IP") }
}

/// Returns the default member id: the pod's name, or else the host's name.
fn host_name() -> String {
    match std::env::var("POD_NAME") {
        Ok(pod) if !pod.is_empty() => pod,
        _ => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
