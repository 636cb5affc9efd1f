//! Warns of environment variables that begin with `BELLWETHER_` but are not read, because they may be misspelled.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::config::table::ALL;
use clap::Command;
use std::collections::BTreeSet;

const OURS: &str = "BELLWETHER_";
/// Variables, without the prefix, that are set for hooks and for the command of `exec`, `lock`, `barrier` or `config
/// watch`. A member that such a command starts inherits them.
const INHERITED: [&str; 11] = [
    "CHANGE",
    "LEADER_ADDRESS",
    "LEADER_ID",
    "LEADER_TOKEN",
    "LOCK",
    "BARRIER",
    "TOKEN",
    "VALID_UNTIL_BOOTTIME_NS",
    "VALUE_FILE",
    "VALUE_NAME",
    "VALUE_VERSION",
];

/// Returns a warning for each unknown variable.
pub(super) fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    warnings(names, &known(&super::command()))
}

/// Returns a warning for each unknown name. The value is omitted, because it may be a secret.
fn warnings(names: impl Iterator<Item = String>, known: &BTreeSet<String>) -> Vec<String> {
    let unknown_variables = names.filter(|name| {
        let rest = name.strip_prefix(OURS);
        rest.is_some_and(|rest| {
            !known.contains(name) && !INHERITED.contains(&rest) && !is_service(rest)
        })
    });
    unknown_variables
        .map(|name| format!("{} is set, but is not a known variable", name.escape_debug()))
        .collect()
}

/// Returns the names of all variables that are read.
fn known(command: &Command) -> BTreeSet<String> {
    let all = command.get_subcommands().flat_map(Command::get_arguments);
    let variables = all.filter_map(|argument| argument.get_env()?.to_str()).map(str::to_owned);
    let of_settings =
        ALL.iter().filter_map(|row| row.variable).filter(|name| name.starts_with(OURS));
    let others = of_settings.chain([CREDENTIALS_VARIABLE]).map(str::to_owned);
    variables.chain(others).collect()
}

/// Returns whether Kubernetes sets this variable for a Service whose name begins with `bellwether`, such as
/// `BELLWETHER_SERVICE_HOST` or `BELLWETHER_PROBES_PORT_4040_TCP_ADDR`.
fn is_service(rest: &str) -> bool {
    let mut parts = rest.split('_').skip_while(|part| !["SERVICE", "PORT"].contains(part));
    match (parts.next(), parts.next()) {
        (Some("SERVICE"), Some("HOST" | "PORT")) | (Some("PORT"), None) => true,
        (Some("PORT"), Some(number)) => number.bytes().all(|digit| digit.is_ascii_digit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_named_and_what_others_set_is_ignored() {
        let known = known(&super::super::command());
        let warned = |name: &str| warnings([name.to_owned()].into_iter(), &known).join("; ");
        let unknown = "BELLWETHER_SESION_TIMEOUT is set, but is not a known variable";
        assert_eq!(warned("BELLWETHER_SESION_TIMEOUT"), unknown);
        let ours = known.iter().map(String::as_str);
        let others = [
            "BELLWETHER",
            "BELLWETHERS_ID",
            "BELLWETHER_TOKEN",
            "BELLWETHER_LOCK",
            "BELLWETHER_BARRIER",
            "BELLWETHER_SERVICE_HOST",
            "BELLWETHER_SERVICE_PORT",
            "BELLWETHER_SERVICE_PORT_API",
            "BELLWETHER_PORT",
            "BELLWETHER_PORT_4040_TCP",
            "BELLWETHER_PORT_4040_TCP_PROTO",
            "BELLWETHER_PROBES_SERVICE_HOST",
            "BELLWETHER_PROBES_PORT_4040_TCP_ADDR",
        ];
        for name in ours.chain(others) {
            assert_eq!(warned(name), "", "{name}");
        }
    }
}
