//! Warns of environment variables that begin like the program's and are none of them: they are misspelt.

use crate::config::security::CREDENTIALS_VARIABLE;
use crate::config::table::ALL;
use clap::Command;
use std::collections::BTreeSet;

const OURS: &str = "BELLWETHER_";
/// Set for hooks and for the command of `exec`, `lock`, `barrier` or `config watch`, without the prefix: a member that these
/// start inherits them.
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

/// Returns a warning for each such variable.
pub(super) fn unknown_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    warnings(names, &known(&super::command()))
}

/// Returns a warning for each unknown name, without its value, which may be a secret.
fn warnings(names: impl Iterator<Item = String>, known: &BTreeSet<String>) -> Vec<String> {
    let unknown_variables = names.filter(|name| {
        let rest = name.strip_prefix(OURS);
        rest.is_some_and(|rest| {
            !known.contains(name) && !INHERITED.contains(&rest) && !is_service(rest)
        })
    });
    let sentence = |stray: String| {
        let near = known.iter().filter(|known| is_near(known, &stray));
        let nearest = near.min_by_key(|known| strsim::damerau_levenshtein(known, &stray));
        let nearest = nearest.map(|nearest| format!(": is {nearest} meant?")).unwrap_or_default();
        format!("{} is set, but no setting is called so{nearest}", stray.escape_debug())
    };
    unknown_variables.map(sentence).collect()
}

/// Returns whether the stray name may be meant as the known one: at most a third differs, or one begins with the other.
fn is_near(known: &str, stray: &str) -> bool {
    let [known, stray] = [known, stray].map(|name| name.strip_prefix(OURS).unwrap_or(name));
    let differ = strsim::damerau_levenshtein(known, stray);
    3 * differ <= known.len() || stray.starts_with(known) || known.starts_with(stray)
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
    fn a_misspelt_variable_is_named_with_the_nearest_and_what_others_set_is_ignored() {
        let known = known(&super::super::command());
        let warned = |name: &str| warnings([name.to_owned()].into_iter(), &known).join("; ");
        for (stray, meant) in [
            ("BELLWETHER_SESION_TIMEOUT", "BELLWETHER_SESSION_TIMEOUT"),
            ("BELLWETHER_ZOOKEEPERS", "BELLWETHER_ZOOKEEPER"),
            ("BELLWETHER_CREDENTIAL", CREDENTIALS_VARIABLE),
            ("BELLWETHER_LISTEN_PORTS", "BELLWETHER_LISTEN"),
        ] {
            let line = format!("{stray} is set, but no setting is called so: is {meant} meant?");
            assert_eq!(warned(stray), line);
        }
        let far = "BELLWETHER_COLOUR is set, but no setting is called so";
        assert_eq!(warned("BELLWETHER_COLOUR"), far, "nothing like it is there");
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
