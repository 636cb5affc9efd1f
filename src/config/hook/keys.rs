//! Parses the `[[hook]]` tables of the configuration file.

use super::{HookAction, HookConfig, SIGNALS, Webhook, WhenUnknown};
use crate::config::error::{ConfigError, parse_tables};
use crate::config::parse::{duration, host_and_port, mode, one_of};
use crate::config::pod::{self, KubernetesHook, KubernetesTarget};
use recipes::election::ChangeKind;
use rustix::process::Signal;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default time limit of an action.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The default number of retries of a message.
const RETRIES: u32 = 3;
const MOST_RETRIES: u32 = 100;
/// The remedy for a missing or empty `on`.
const ON_REMEDY: &str = "name the changes, such as on = [\"became-leader\", \"lost-leadership\"]";

/// A `[[hook]]` table, or `then` of a `[[config]]` table, as written in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookKeys {
    pub on: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub url: Option<String>,
    pub signal: Option<String>,
    pub file: Option<String>,
    pub pod_label: Option<String>,
    pub endpoint_slice: Option<String>,
    pub timeout: Option<String>,
    pub retries: Option<u32>,
    pub secret_file: Option<String>,
    pub pid_file: Option<String>,
    pub mode: Option<String>,
    pub unknown: Option<String>,
    pub service_account: Option<String>,
}

impl HookConfig {
    /// Parses all `[[hook]]` tables. Adds the errors of invalid ones to `errors`.
    pub(in crate::config) fn all(
        written: &[HookKeys],
        pod: &pod::PodEnvironment,
        errors: &mut Vec<ConfigError>,
    ) -> Vec<Self> {
        parse_tables("hook", written, errors, |keys| Self::new(keys, pod))
    }

    fn new(keys: &HookKeys, pod: &pod::PodEnvironment) -> Result<Self, ConfigError> {
        let on = keys.on.as_deref().map(changes).transpose().map_err(|flaw| flaw.with_key("on"))?;
        let action = keys.action(pod)?;
        match action {
            HookAction::Run { .. } | HookAction::Post(_) | HookAction::Signal { .. }
                if on.is_none() =>
            {
                return Err(ConfigError::new("on", "is missing").remedy(ON_REMEDY));
            }
            // An object that is written only at some changes would be wrong after the other changes. A file may have
            // `on`: it is then written in its turn, not before the other hooks.
            HookAction::Kubernetes(_) if on.is_some() => {
                let problem = format!("is not for {}, which is kept up to date", keys.kinds()[0]);
                return Err(ConfigError::new("on", problem).remedy("leave it out"));
            }
            _ => {}
        }
        Ok(Self { on, action })
    }
}

impl HookKeys {
    /// Returns the action of `then` in a `[[config]]` table, which runs after each write of the table's file. The
    /// action may only be a command, a URL or a signal.
    pub(in crate::config) fn then_action(
        &self,
        pod: &pod::PodEnvironment,
    ) -> Result<HookAction, ConfigError> {
        if self.on.is_some() {
            return Err(ConfigError::new("on", "is only for a [[hook]]").remedy("leave it out"));
        }
        if matches!(self.kinds()[..], ["command" | "url" | "signal"]) {
            return self.action(pod);
        }
        let problem = "must have exactly one of command, url and signal";
        Err(ConfigError::new("", problem).remedy("write one, or leave then out"))
    }

    /// Returns the keys in this table that select a kind of action, such as `command`.
    fn kinds(&self) -> Vec<&'static str> {
        let kinds = [
            self.command.as_ref().map(|_| "command"),
            self.url.as_ref().map(|_| "url"),
            self.signal.as_ref().map(|_| "signal"),
            self.file.as_ref().map(|_| "file"),
            self.pod_label.as_ref().map(|_| "pod_label"),
            self.endpoint_slice.as_ref().map(|_| "endpoint_slice"),
        ];
        kinds.into_iter().flatten().collect()
    }

    /// Returns the action. The keys must describe exactly one kind of action.
    fn action(&self, pod: &pod::PodEnvironment) -> Result<HookAction, ConfigError> {
        // From here on, exactly one of the keys that select a kind is written.
        let [kind] = self.kinds()[..] else { return Err(not_one_kind()) };
        let action = match (&self.command, &self.url, &self.signal, &self.file) {
            (Some(command), ..) => {
                check_command(command).map_err(|flaw| flaw.with_key("command"))?;
                HookAction::Run { command: command.clone(), timeout: self.timeout()? }
            }
            (_, Some(url), ..) => HookAction::Post(self.webhook(url)?),
            (_, _, Some(signal), _) => {
                let signal =
                    named_signal(signal).map_err(|flaw| flaw.with_value("signal", signal))?;
                let Some(pid_file) = &self.pid_file else {
                    let remedy =
                        "name the file with the number of the process to send the signal to";
                    return Err(ConfigError::new("pid_file", "is missing").remedy(remedy));
                };
                HookAction::Signal { signal, pid_file: absolute("pid_file", pid_file)? }
            }
            (_, _, _, Some(file)) => HookAction::Keep {
                file: absolute("file", file)?,
                mode: self.mode()?,
                unknown: self.unknown()?,
            },
            // `pod_label` or `endpoint_slice`.
            _ => HookAction::Kubernetes(self.kubernetes(pod)?),
        };
        self.check_kind(kind)?;
        Ok(action)
    }

    fn kubernetes(&self, pod: &pod::PodEnvironment) -> Result<KubernetesHook, ConfigError> {
        let account = self.service_account.as_deref().unwrap_or(pod::ACCOUNT_DIRECTORY);
        let account = absolute("service_account", account)?;
        let (key, name, target) = match (&self.pod_label, &self.endpoint_slice) {
            (Some(name), _) => ("pod_label", name, KubernetesTarget::pod_label(name, pod)),
            (_, Some(name)) => {
                ("endpoint_slice", name, KubernetesTarget::endpoint_slice(name, pod))
            }
            // Does not happen: `action` has checked that one of the keys is written.
            (None, None) => return Err(not_one_kind()),
        };
        let timeout = self.timeout()?;
        let hook = target.and_then(|target| KubernetesHook::new(target, pod, account, timeout));
        hook.map_err(|flaw| flaw.with_value(key, name))
    }

    /// Checks that each written key is allowed for this kind of action.
    fn check_kind(&self, kind: &str) -> Result<(), ConfigError> {
        // For each key: whether it is written, and the kinds of action for which it is allowed.
        let keys: [(&str, bool, &[&str]); 7] = [
            ("timeout", self.timeout.is_some(), &["command", "url", "pod_label", "endpoint_slice"]),
            ("retries", self.retries.is_some(), &["url"]),
            ("secret_file", self.secret_file.is_some(), &["url"]),
            ("pid_file", self.pid_file.is_some(), &["signal"]),
            ("mode", self.mode.is_some(), &["file"]),
            ("unknown", self.unknown.is_some(), &["file"]),
            ("service_account", self.service_account.is_some(), &["pod_label", "endpoint_slice"]),
        ];
        for (key, is_written, kinds) in keys {
            if is_written && !kinds.contains(&kind) {
                let problem = format!("is only for a hook with {}", kinds.join(" or "));
                return Err(ConfigError::new(key, problem).remedy("leave it out"));
            }
        }
        Ok(())
    }

    fn webhook(&self, url: &str) -> Result<Webhook, ConfigError> {
        let (host, port, path) = split_url(url).map_err(|flaw| flaw.with_key("url"))?;
        let retries = self.retries.unwrap_or(RETRIES);
        if retries > MOST_RETRIES {
            return Err(ConfigError::new("retries", "is too many")
                .found(retries)
                .remedy(format!("at most {MOST_RETRIES}")));
        }
        let secret_file = self.secret_file.as_deref();
        let secret_file = secret_file.map(|file| {
            // The text may be the secret itself, so do not show it.
            absolute_path(file).map_err(|flaw| flaw.with_key("secret_file"))
        });
        let timeout = self.timeout()?;
        let secret_file = secret_file.transpose()?;
        Ok(Webhook { host, port, path, timeout, retries, secret_file })
    }

    fn timeout(&self) -> Result<Duration, ConfigError> {
        match &self.timeout {
            Some(text) => duration(text).map_err(|flaw| flaw.with_value("timeout", text)),
            None => Ok(TIMEOUT),
        }
    }

    fn mode(&self) -> Result<u32, ConfigError> {
        let Some(text) = &self.mode else { return Ok(0o644) };
        mode(text).map_err(|flaw| flaw.with_value("mode", text))
    }

    fn unknown(&self) -> Result<WhenUnknown, ConfigError> {
        let Some(text) = &self.unknown else { return Ok(WhenUnknown::Keep) };
        let known = [("keep", WhenUnknown::Keep), ("remove", WhenUnknown::Remove)];
        one_of(text, &known).map_err(|flaw| flaw.with_value("unknown", text))
    }
}

/// Parses the kinds of changes in `on`.
fn changes(written: &[String]) -> Result<Vec<ChangeKind>, ConfigError> {
    if written.is_empty() {
        return Err(ConfigError::without_key("is empty").remedy(ON_REMEDY));
    }
    written.iter().map(|name| {
        ChangeKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            ConfigError::without_key(format!("has {name:?}, which is not a change")).remedy(
                "write \"became-leader\", \"lost-leadership\", \"leader-changed\" or \"leader-lost\"",
            )
        })
    }).collect()
}

/// Checks that a command begins with an absolute path, or with a name that is looked up in `PATH`, and that no word has
/// a NUL byte. Whether the program exists is not checked here.
fn check_command(written: &[String]) -> Result<(), ConfigError> {
    let is_program = |program: &String| match program.contains('/') {
        true => program.starts_with('/'),
        false => !program.is_empty(),
    };
    if written.first().is_some_and(is_program) && !written.iter().any(|word| word.contains('\0')) {
        return Ok(());
    }
    Err(ConfigError::without_key("must begin with an absolute path or a name in PATH, without NUL")
        .remedy("write [\"/app/promote\", \"--fast\"]"))
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

/// Parses the absolute path of a file. The error shows the key and the path.
pub(in crate::config) fn absolute(key: &str, text: &str) -> Result<PathBuf, ConfigError> {
    absolute_path(text).map_err(|flaw| flaw.with_value(key, text))
}

fn absolute_path(text: &str) -> Result<PathBuf, ConfigError> {
    let path = Path::new(text);
    if path.is_absolute() && path.file_name().is_some() && !text.ends_with('/') {
        return Ok(path.to_owned());
    }
    Err(ConfigError::without_key("must be the absolute path of a file")
        .remedy("write one such as /run/app/name"))
}

fn named_signal(text: &str) -> Result<Signal, ConfigError> {
    one_of(text, &SIGNALS).map_err(|_| {
        let remedy = format!("write one of {}", SIGNALS.map(|(name, _)| name).join(", "));
        ConfigError::without_key("is not a signal that can be sent").remedy(remedy)
    })
}

fn not_one_kind() -> ConfigError {
    let problem =
        "must have exactly one of command, url, signal, file, pod_label and endpoint_slice";
    ConfigError::new("", problem).remedy("write a [[hook]] for each")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    fn parsed(text: &str) -> Result<Vec<HookConfig>, String> {
        let file = File::parse(text, "f")?;
        let pod = pod::PodEnvironment {
            host: "fd00::1".into(),
            port: "443".into(),
            name: "app-0".into(),
            ip: "10.0.0.7".into(),
        };
        let mut errors = vec![];
        let hooks = HookConfig::all(&file.hook, &pod, &mut errors);
        errors.into_iter().next().map_or(Ok(hooks), |error| Err(error.into()))
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
            ("on = [\"leads\"]\ncommand = [\"/a\"]", "hook[1].on has \"leads\""),
            (on, "hook[1] must have exactly one"),
            (&format!("{on}file = \"/a\"\nurl = \"http://h\""), "hook[1] must have exactly one"),
            (&format!("{on}command = []"), "hook[1].command must begin with"),
            (&format!("{on}command = [\"bin/a\"]"), "hook[1].command must begin with"),
            (&format!("{on}command = [\"a\"]\ntimeout = \"x\""), "hook[1].timeout = \"x\""),
            (&format!("{on}command = [\"a\"]\nretries = 1"), "hook[1].retries is only for"),
            (
                &format!("{on}command = [\"a\"]\nretries = -1"),
                "expected a whole number from 0 to 4294967295",
            ),
            (&format!("{on}url = \"https://h/\""), "hook[1].url is not a URL with http"),
            (&format!("{on}url = \"http://u:pw@h/\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"http://h:0/\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"/leadership\""), "hook[1].url is not a URL"),
            (&format!("{on}url = \"http://h\"\nretries = 101"), "hook[1].retries = 101"),
            (&format!("{on}url = \"http://h\"\nsecret_file = \"x\""), "hook[1].secret_file must"),
            (&format!("{on}signal = \"HUP\"\npid_file = \"/p\""), "hook[1].signal = \"HUP\""),
            (&format!("{on}signal = \"SIGHUP\""), "hook[1].pid_file is missing"),
            (&format!("{on}signal = \"SIGHUP\"\npid_file = \"p\""), "hook[1].pid_file = \"p\""),
            ("file = \"leader.json\"", "hook[1].file = "),
            ("file = \"/run/\"", "hook[1].file = "),
            ("file = \"/a\"\ntimeout = \"1s\"", "hook[1].timeout is only for a hook with command"),
            ("file = \"/a\"\nmode = \"rw\"", "hook[1].mode = \"rw\""),
            ("file = \"/a\"\nmode = \"4755\"", "hook[1].mode = \"4755\""),
            ("file = \"/a\"\nunknown = \"?\"", "hook[1].unknown = \"?\""),
            ("file = \"/a\"\nurls = 1", "unknown key"),
            ("pod_label = \"a\"\nfile = \"/a\"", "hook[1] must have exactly one"),
            ("pod_label = \"a\"\non = [\"leader-lost\"]", "hook[1].on is not for pod_label"),
            ("pod_label = \"a\"\nservice_account = \"x\"", "hook[1].service_account = "),
            ("file = \"/a\"\nservice_account = \"/x\"", "hook[1].service_account is only for"),
        ] {
            let error = parsed(&format!("[[hook]]\nfile = \"/x\"\n[[hook]]\n{text}")).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
