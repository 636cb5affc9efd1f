//! Warns of environment variables that begin with `BELLWETHER_` but are not read, because they may be misspelled.

use crate::config::table::ALL;

const PREFIX: &str = "BELLWETHER_";

/// Known variables, without the prefix, that are not settings: variables of the command line, and variables that are
/// set for hooks and for the command of `exec`, `lock`, `barrier` or `config watch`. If such a command starts a member,
/// the member inherits them.
const NOT_SETTINGS: [&str; 14] = [
    "CONFIG",
    "CREDENTIALS",
    "URL",
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

/// Returns a warning for each unknown variable. The value is omitted, because it may be a secret.
pub(super) fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    names
        .filter(|name| is_unknown(name))
        .map(|name| format!("{} is set, but is not a known variable", name.escape_debug()))
        .collect()
}

fn is_unknown(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| {
        let is_setting = ALL.iter().any(|row| row.variable == name);
        !is_setting && !NOT_SETTINGS.contains(&rest) && !is_kubernetes_service(rest)
    })
}

/// Returns whether Kubernetes sets this variable for a Service whose name begins with `bellwether`, such as
/// `BELLWETHER_SERVICE_HOST` or `BELLWETHER_PROBES_PORT_4040_TCP_ADDR`.
fn is_kubernetes_service(rest: &str) -> bool {
    rest.split('_').any(|part| part == "SERVICE" || part == "PORT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::security::CREDENTIALS_VARIABLE;

    #[test]
    fn an_unknown_variable_is_named_and_what_others_set_is_ignored() {
        assert!(is_unknown("BELLWETHER_SESION_TIMEOUT"));
        let command = crate::cli::command();
        let arguments = command.get_subcommands().flat_map(clap::Command::get_arguments);
        let of_arguments = arguments.filter_map(|argument| argument.get_env()?.to_str());
        let of_settings = ALL.iter().map(|row| row.variable);
        let others = [
            CREDENTIALS_VARIABLE,
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
        for name in of_arguments.chain(of_settings).chain(others) {
            assert!(!is_unknown(name), "{name}");
        }
    }
}
