//! Parses the `[[hook]]` tables of the configuration file.

use super::{HookAction, HookConfig, SIGNALS, Webhook, WhenUnknown};
use crate::config::error::ConfigError;
use crate::config::keys::Keys;
use crate::config::parse::{duration, host_and_port, mode, number, one_of, one_of_words};
use crate::config::pod::{ACCOUNT_DIRECTORY, KubernetesHook, KubernetesTarget, PodEnvironment};
use recipes::election::ChangeKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Table;

/// The default time limit of an action.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The default number of retries of a message.
const RETRIES: u32 = 3;
const MOST_RETRIES: u32 = 100;
/// The default mode of a file.
const MODE: u32 = 0o644;

/// The keys of a hook that select the kind of its action. The action in `then` of a `[[config]]` table may only be of the
/// first three kinds.
const KINDS: [&str; 6] = ["command", "url", "signal", "file", "pod_label", "endpoint_slice"];

impl HookConfig {
    /// Parses a `[[hook]]` table.
    pub(in crate::config) fn new(table: Table, pod: &PodEnvironment) -> Result<Self, ConfigError> {
        let mut keys = Keys::new(table);
        // A file may have `on`: it is then written in its turn, not before the other hooks. A Kubernetes object may not: if
        // it were written only at some changes, it would be wrong after the other changes.
        let is_kubernetes = keys.contains("pod_label") || keys.contains("endpoint_slice");
        let on = if is_kubernetes { None } else { changes(&mut keys)? };
        let action = HookAction::new(keys, &KINDS, pod)?;
        match action {
            HookAction::Run { .. } | HookAction::Post(_) | HookAction::Signal { .. }
                if on.is_none() =>
            {
                Err(ConfigError::new("on", "is missing").remedy(ON_REMEDY))
            }
            _ => Ok(Self { on, action }),
        }
    }
}

/// The remedy for a missing or empty `on`.
const ON_REMEDY: &str = "name the changes, such as on = [\"became-leader\", \"lost-leadership\"]";

/// Parses the kinds of changes in `on`.
fn changes(keys: &mut Keys) -> Result<Option<Vec<ChangeKind>>, ConfigError> {
    let Some(on) = keys.take_as::<Vec<String>>("on", "a list of changes")? else {
        return Ok(None);
    };
    if on.is_empty() {
        return Err(ConfigError::new("on", "is empty").remedy(ON_REMEDY));
    }
    let kinds = on.iter().map(|name| {
        one_of_words(name, ChangeKind::ALL.map(|kind| (kind.name(), kind)))
            .map_err(|flaw| flaw.with_value("on", name))
    });
    kinds.collect::<Result<_, _>>().map(Some)
}

impl HookAction {
    /// Parses `then` in a `[[config]]` table: the action that runs after each write of the table's file.
    pub(in crate::config) fn then(table: Table, pod: &PodEnvironment) -> Result<Self, ConfigError> {
        Self::new(Keys::new(table), &KINDS[..3], pod)
    }

    /// Parses the action, which must be of exactly one of these kinds.
    fn new(
        mut keys: Keys,
        kinds: &[&'static str],
        pod: &PodEnvironment,
    ) -> Result<Self, ConfigError> {
        let written: Vec<_> = kinds.iter().filter(|kind| keys.contains(kind)).collect();
        let [&kind] = written[..] else {
            let problem = format!("must have exactly one of {}", kinds.join(", "));
            return Err(ConfigError::new("", problem).remedy("write a table for each"));
        };
        let action = match kind {
            "command" => Self::Run { command: command(&mut keys)?, timeout: timeout(&mut keys)? },
            "url" => {
                // The path may be a secret of its own.
                let (host, port, path) =
                    keys.require("url", |text| split_url(text).map_err(ConfigError::hiding_value))?;
                let retries = keys.take("retries", number::<0, MOST_RETRIES>)?.unwrap_or(RETRIES);
                // The text may be the secret itself, so do not show it.
                let secret_file = keys.take("secret_file", |text| {
                    absolute(text).map_err(ConfigError::hiding_value)
                })?;
                let timeout = timeout(&mut keys)?;
                Self::Post(Webhook { host, port, path, timeout, retries, secret_file })
            }
            "signal" => {
                let signal = keys.require("signal", |text| one_of_words(text, SIGNALS))?;
                Self::Signal { signal, pid_file: keys.require("pid_file", absolute)? }
            }
            "file" => Self::Keep {
                file: keys.require("file", absolute)?,
                mode: file_mode(&mut keys)?,
                unknown: keys.take("unknown", one_of)?.unwrap_or(WhenUnknown::Keep),
            },
            _ => {
                let (host, port) = pod.api_server().map_err(|flaw| flaw.with_key(kind))?;
                let target = keys.require(kind, |name| KubernetesTarget::new(kind, name, pod))?;
                let account = keys.take("service_account", absolute)?;
                let account = account.unwrap_or_else(|| ACCOUNT_DIRECTORY.into());
                let timeout = timeout(&mut keys)?;
                Self::Kubernetes(KubernetesHook { target, host, port, account, timeout })
            }
        };
        keys.finish()?;
        Ok(action)
    }
}

fn timeout(keys: &mut Keys) -> Result<Duration, ConfigError> {
    Ok(keys.take("timeout", duration)?.unwrap_or(TIMEOUT))
}

/// Parses the mode of the file to write.
pub(in crate::config) fn file_mode(keys: &mut Keys) -> Result<u32, ConfigError> {
    Ok(keys.take("mode", mode)?.unwrap_or(MODE))
}

/// Parses a command, which must begin with an absolute path, or with a name that is looked up in `PATH`, and must not
/// have a NUL byte. Whether the program exists is not checked here.
fn command(keys: &mut Keys) -> Result<Vec<String>, ConfigError> {
    let command: Vec<String> = keys.take_as("command", "a list of texts")?.unwrap_or_default();
    let is_program = |program: &String| match program.contains('/') {
        true => program.starts_with('/'),
        false => !program.is_empty(),
    };
    if command.first().is_some_and(is_program) && !command.iter().any(|word| word.contains('\0')) {
        return Ok(command);
    }
    let problem = "must begin with an absolute path or a name in PATH, without NUL";
    Err(ConfigError::new("command", problem).remedy("write [\"/app/promote\", \"--fast\"]"))
}

/// Splits a URL into host, port and path.
pub(in crate::config) fn split_url(text: &str) -> Result<(String, u16, String), ConfigError> {
    url_parts(text).ok_or_else(|| {
        let error = ConfigError::without_key("is not a URL with http, a host, a port and a path")
            .remedy("write http://HOST:PORT/PATH, such as http://127.0.0.1:8080/healthz");
        // Do not show a text that may contain a user name, a password, a query or arguments.
        let may_be_secret = text.contains(|c: char| matches!(c, '@' | '?') || c.is_whitespace());
        if may_be_secret { error.hiding_value() } else { error }
    })
}

fn url_parts(text: &str) -> Option<(String, u16, String)> {
    let uri: hyper::Uri = text.parse().ok()?;
    let (host, port) = host_and_port(&uri)?;
    let port = port.unwrap_or(80);
    // `Uri` drops a fragment, so look for its `#` in the text.
    if uri.scheme_str() != Some("http") || port == 0 || text.contains('#') {
        return None;
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Some((host.to_owned(), port, path.to_owned()))
}

/// Parses the absolute path of a file.
pub(in crate::config) fn absolute(text: &str) -> Result<PathBuf, ConfigError> {
    let path = Path::new(text);
    if path.is_absolute() && path.file_name().is_some() && !text.ends_with('/') {
        return Ok(path.to_owned());
    }
    Err(ConfigError::without_key("must be the absolute path of a file")
        .remedy("write one such as /run/app/name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Values};

    fn parsed(text: &str) -> Result<Vec<HookConfig>, String> {
        let mut values = Values::new(PodEnvironment {
            host: "fd00::1".into(),
            port: "443".into(),
            name: "app-0".into(),
            ip: "10.0.0.7".into(),
        });
        values.read_file(text, Path::new("f"))?;
        Config::new(&values).map(|config| config.hooks)
    }

    #[test]
    fn each_kind_has_its_keys_and_its_defaults() {
        let hooks = parsed(
            r#"
            [[hook]]
            file = "/run/leader.json"
            [[hook]]
            on = ["became-leader", "lost-leadership"]
            command = ["/app/promote", "--password=secret"]
            timeout = "30s"
            [[hook]]
            on = ["leader-changed", "leader-lost"]
            url = "http://[::1]:8080/leadership?key=secret"
            secret_file = "/etc/secret"
            [[hook]]
            on = ["leader-changed"]
            signal = "SIGHUP"
            pid_file = "/run/app.pid"
            [[hook]]
            pod_label = "bellwether.io/role"
            "#,
        );
        let shown: Vec<_> = hooks.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "file /run/leader.json, mode 0644, on every change",
                "command /app/promote (1 argument), timeout 30s, on became-leader, lost-leadership",
                "url http://[::1]:8080/leadership, timeout 5s, retries 3, signed with /etc/secret, \
                 on leader-changed, leader-lost",
                "SIGHUP to /run/app.pid, on leader-changed",
                "pod label bellwether.io/role of app-0, timeout 5s, with \
                 /var/run/secrets/kubernetes.io/serviceaccount, on every change",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_hook_and_its_key() {
        let on = "on = [\"became-leader\"]\n";
        for (text, said) in [
            ("command = [\"/a\"]", "hook[1].on is missing"),
            ("on = []\ncommand = [\"/a\"]", "hook[1].on is empty"),
            ("on = [\"leads\"]\ncommand = [\"/a\"]", "hook[1].on = \"leads\" must be"),
            (on, "hook[1] must have exactly one"),
            (&format!("{on}file = \"/a\"\nurl = \"http://h\""), "hook[1] must have exactly one"),
            (&format!("{on}command = []"), "hook[1].command must begin with"),
            (&format!("{on}command = [\"bin/a\"]"), "hook[1].command must begin with"),
            (&format!("{on}command = [\"a\"]\ntimeout = \"x\""), "hook[1].timeout = \"x\""),
            (&format!("{on}command = [\"a\"]\nretries = 1"), "hook[1].retries is not a known key"),
            (&format!("{on}command = [\"a\"]\nretries = -1"), "hook[1].retries is not a known key"),
            (&format!("{on}url = \"https://h/\""), "hook[1].url is not a URL with http"),
            (&format!("{on}url = \"http://u:pw@h/\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"http://h:0/\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"/leadership\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"http://h\"\nretries = 101"), "hook[1].retries = \"101\""),
            (&format!("{on}url = \"http://h\"\nsecret_file = \"x\""), "hook[1].secret_file must"),
            (&format!("{on}signal = \"HUP\"\npid_file = \"/p\""), "hook[1].signal = \"HUP\""),
            (&format!("{on}signal = \"SIGHUP\""), "hook[1].pid_file is missing"),
            (&format!("{on}signal = \"SIGHUP\"\npid_file = \"p\""), "hook[1].pid_file = \"p\""),
            ("file = \"leader.json\"", "hook[1].file = "),
            ("file = \"/run/\"", "hook[1].file = "),
            (
                "file = \"/a\"\ntimeout = \"1s\"",
                "hook[1].timeout is not a known key: expected one of `on`, `file`, `mode`, `unknown`",
            ),
            ("file = \"/a\"\nmode = \"rw\"", "hook[1].mode = \"rw\""),
            ("file = \"/a\"\nmode = \"4755\"", "hook[1].mode = \"4755\""),
            ("file = \"/a\"\nmode = 0o640", "hook[1].mode must be text in quotes"),
            ("file = \"/a\"\nunknown = \"?\"", "hook[1].unknown = \"?\""),
            ("file = \"/a\"\nurls = 1", "hook[1].urls is not a known key"),
            ("pod_label = \"a\"\nfile = \"/a\"", "hook[1] must have exactly one"),
            ("pod_label = \"a\"\non = [\"leader-lost\"]", "hook[1].on is not a known key"),
            ("pod_label = \"a\"\nservice_account = \"x\"", "hook[1].service_account = "),
            (
                "file = \"/a\"\nservice_account = \"/x\"",
                "hook[1].service_account is not a known key",
            ),
        ] {
            let error = parsed(&format!("[[hook]]\nfile = \"/x\"\n[[hook]]\n{text}")).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
