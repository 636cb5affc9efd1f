//! What the operator wants done at a change: one hook each, parsed and checked.

use super::pod::{self, PodLabel};
use super::{span, token_in};
use crate::files::{self, Size};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use recipes::election::ChangeKind;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

/// A hook as it is written in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookKeys {
    pub on: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub url: Option<String>,
    pub signal: Option<String>,
    pub file: Option<String>,
    pub pod_label: Option<String>,
    pub timeout: Option<String>,
    pub retries: Option<u32>,
    pub secret_file: Option<String>,
    pub pid_file: Option<String>,
    pub mode: Option<String>,
    pub unknown: Option<String>,
    pub service_account: Option<String>,
    pub acknowledges: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Every change, if none is named.
    on: Option<Vec<ChangeKind>>,
    pub deed: Deed,
    /// Whether the application has taken up its work as leader when this hook has succeeded.
    pub acknowledges: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    Run { command: Vec<String>, timeout: Duration },
    Post(Post),
    Signal { signal: Signal, pid_file: PathBuf },
    Keep { file: PathBuf, mode: u32, unknown: Unknown },
    Label(PodLabel),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// As in an URL: an address of version 6 is in brackets.
    pub host: String,
    pub port: u16,
    /// With the query.
    pub path: String,
    /// Of each try.
    pub timeout: Duration,
    pub retries: u32,
    /// Where the secret is that it is signed with.
    pub secret_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Hup,
    Int,
    Quit,
    Kill,
    Usr1,
    Usr2,
    Term,
    Cont,
    Stop,
    Winch,
}

/// What becomes of a file while no leader is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It says so.
    Keep,
    Remove,
}

impl Hook {
    pub(super) fn all(written: &[HookKeys], pod: &pod::Written) -> Result<Vec<Self>, String> {
        let hook = |(n, keys): (usize, &HookKeys)| {
            Self::new(keys, pod).map_err(|(key, wrong)| match key {
                "" => format!("hook[{n}] {wrong}"),
                key => format!("hook[{n}].{key} {wrong}"),
            })
        };
        written.iter().enumerate().map(hook).collect()
    }

    /// What is wrong is said behind the key that it is said of.
    fn new(keys: &HookKeys, pod: &pod::Written) -> Result<Self, (&'static str, String)> {
        let on = keys.on.as_deref().map(changes).transpose().map_err(|wrong| ("on", wrong))?;
        let deed = keys.deed(pod)?;
        match deed {
            Deed::Run { .. } | Deed::Post(_) | Deed::Signal { .. } if on.is_none() => {
                return Err(("on", format!("is missing: name the changes, {EXAMPLE}")));
            }
            // One that is set at some changes only would tell what is not so at the others.
            Deed::Label(_) if on.is_some() => {
                return Err((
                    "on",
                    "is not for a pod_label, which is kept true: leave it out".into(),
                ));
            }
            _ => {}
        }
        let hook = Self { on, deed, acknowledges: keys.acknowledges.unwrap_or_default() };
        let can = matches!(hook.deed, Deed::Run { .. } | Deed::Post(_));
        if hook.acknowledges && !(can && hook.hears(ChangeKind::BecameLeader)) {
            let wrong = "is only for a hook with command or url on \"became-leader\": leave it out";
            return Err(("acknowledges", wrong.into()));
        }
        Ok(hook)
    }

    pub fn hears(&self, kind: ChangeKind) -> bool {
        self.on.as_ref().is_none_or(|on| on.contains(&kind))
    }

    /// Whether it is to be true at every moment, and not only at certain changes.
    pub fn is_state(&self) -> bool {
        self.on.is_none()
    }

    pub fn on(&self) -> impl Iterator<Item = ChangeKind> {
        ChangeKind::ALL.into_iter().filter(|kind| self.hears(*kind))
    }
}

impl HookKeys {
    fn deed(&self, pod: &pod::Written) -> Result<Deed, (&'static str, String)> {
        let timeout = || match &self.timeout {
            Some(written) => span("timeout", written).map_err(|wrong| {
                // The key is said by whoever knows which hook this is.
                ("timeout", wrong.trim_start_matches("timeout ").to_owned())
            }),
            None => Ok(TIMEOUT),
        };
        let deed = match (&self.command, &self.url, &self.signal, &self.file, &self.pod_label) {
            (Some(command), None, None, None, None) => {
                command_of(command).map_err(|wrong| ("command", wrong))?;
                Deed::Run { command: command.clone(), timeout: timeout()? }
            }
            (None, Some(url), None, None, None) => {
                let (host, port, path) = place(url).map_err(|wrong| ("url", wrong))?;
                let retries = self.retries.unwrap_or(RETRIES);
                if retries > MOST_RETRIES {
                    let wrong = format!("= {retries} is too many: at most {MOST_RETRIES}");
                    return Err(("retries", wrong));
                }
                let secret_file = self.secret_file.as_deref();
                let secret_file = secret_file.map(|file| absolute("secret_file", file));
                let secret_file = secret_file.transpose()?;
                Deed::Post(Post { host, port, path, timeout: timeout()?, retries, secret_file })
            }
            (None, None, Some(signal), None, None) => {
                let signal = Signal::named(signal).map_err(|wrong| ("signal", wrong))?;
                let Some(pid_file) = &self.pid_file else {
                    let wrong = "is missing: name the file with the number of the process to send \
                                 the signal to";
                    return Err(("pid_file", wrong.into()));
                };
                Deed::Signal { signal, pid_file: absolute("pid_file", pid_file)? }
            }
            (None, None, None, Some(file), None) => Deed::Keep {
                file: absolute("file", file)?,
                mode: self.mode.as_deref().map_or(Ok(0o644), mode)?,
                unknown: self.unknown.as_deref().map_or(Ok(Unknown::Keep), unknown)?,
            },
            (None, None, None, None, Some(key)) => {
                let account = self.service_account.as_deref().unwrap_or(pod::ACCOUNT);
                let account = absolute("service_account", account)?;
                let label = PodLabel::new(key, pod, account, timeout()?);
                Deed::Label(label.map_err(|wrong| ("pod_label", wrong))?)
            }
            _ => {
                let wrong = "must have exactly one of command, url, signal, file and pod_label";
                return Err(("", wrong.into()));
            }
        };
        let written: [(&'static str, bool, &[&str]); 7] = [
            ("timeout", self.timeout.is_some(), &["command", "url", "pod_label"]),
            ("retries", self.retries.is_some(), &["url"]),
            ("secret_file", self.secret_file.is_some(), &["url"]),
            ("pid_file", self.pid_file.is_some(), &["signal"]),
            ("mode", self.mode.is_some(), &["file"]),
            ("unknown", self.unknown.is_some(), &["file"]),
            ("service_account", self.service_account.is_some(), &["pod_label"]),
        ];
        for (key, is_written, kinds) in written {
            if is_written && !kinds.contains(&deed.key()) {
                let kinds = kinds.join(" or ");
                return Err((key, format!("is only for a hook with {kinds}: leave it out")));
            }
        }
        Ok(deed)
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
const RETRIES: u32 = 3;
const MOST_RETRIES: u32 = 100;
const EXAMPLE: &str = "such as on = [\"became-leader\", \"lost-leadership\"]";

fn changes(written: &[String]) -> Result<Vec<ChangeKind>, String> {
    if written.is_empty() {
        return Err(format!("is empty: name the changes, {EXAMPLE}"));
    }
    let kind = |name: &String| {
        ChangeKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!(
                "has {name:?}, which is no change: write \"became-leader\", \"lost-leadership\", \
                 \"leader-changed\" or \"leader-lost\""
            )
        })
    };
    written.iter().map(kind).collect()
}

fn command_of(written: &[String]) -> Result<(), String> {
    let example = "write [\"/app/promote\", \"--fast\"]";
    let Some(program) = written.first().filter(|program| !program.is_empty()) else {
        return Err(format!("names no program: {example}"));
    };
    if program.contains('/') && !program.starts_with('/') {
        return Err(format!("{program:?} must be an absolute path, or a name in PATH: {example}"));
    }
    if written.iter().any(|word| word.contains('\0')) {
        return Err("has a word with a NUL character, which no process can be given".into());
    }
    Ok(())
}

/// Host, port and path.
pub(super) fn place(written: &str) -> Result<(String, u16, String), String> {
    // Neither a user's name nor his password is said.
    let wrong = |why: &str| {
        Err(format!("{why}: write http://HOST:PORT/PATH, such as http://127.0.0.1:8080/leadership"))
    };
    let Some((scheme, _)) = written.split_once("://") else { return wrong("is no URL") };
    if scheme.eq_ignore_ascii_case("https") {
        return wrong("is https, which is not spoken, as the application is on this machine");
    }
    let Ok(uri) = written.parse::<hyper::Uri>() else { return wrong("is no URL") };
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return wrong("is no URL of HTTP");
    };
    let host = authority.host();
    let (whole, port) = match uri.port_u16() {
        Some(port) => (format!("{host}:{port}"), port),
        None => (host.to_owned(), 80),
    };
    if authority.as_str() != whole || host.is_empty() || port == 0 || written.contains('#') {
        return wrong("has more, or less, than a host, a port, a path and a query");
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((host.to_owned(), port, path.to_owned()))
}

fn absolute(key: &'static str, written: &str) -> Result<PathBuf, (&'static str, String)> {
    let path = Path::new(written);
    if path.is_absolute() && path.file_name().is_some() && !written.ends_with('/') {
        return Ok(path.to_owned());
    }
    // It may be the secret itself.
    let shown = if key == "secret_file" { String::new() } else { format!("= {written:?} ") };
    Err((key, format!("{shown}must be the absolute path of a file, such as /run/app/name")))
}

fn mode(written: &str) -> Result<u32, (&'static str, String)> {
    let digits = (3..=4).contains(&written.len()) && written.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(written, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| {
        (
            "mode",
            format!("= {written:?} is no mode of a file: write octal digits, such as \"0644\""),
        )
    })
}

fn unknown(written: &str) -> Result<Unknown, (&'static str, String)> {
    match written {
        "keep" => Ok(Unknown::Keep),
        "remove" => Ok(Unknown::Remove),
        other => Err(("unknown", format!("= {other:?} must be \"keep\" or \"remove\""))),
    }
}

impl Signal {
    const ALL: [Self; 10] = [
        Self::Hup,
        Self::Int,
        Self::Quit,
        Self::Kill,
        Self::Usr1,
        Self::Usr2,
        Self::Term,
        Self::Cont,
        Self::Stop,
        Self::Winch,
    ];

    fn named(written: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|signal| signal.name() == written).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!(
                "= {written:?} is no signal that can be sent: write one of {}",
                names.join(", ")
            )
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Kill => "SIGKILL",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Term => "SIGTERM",
            Self::Cont => "SIGCONT",
            Self::Stop => "SIGSTOP",
            Self::Winch => "SIGWINCH",
        }
    }
}

impl Deed {
    /// The key that makes it what it is.
    fn key(&self) -> &'static str {
        match self {
            Self::Run { .. } => "command",
            Self::Post(_) => "url",
            Self::Signal { .. } => "signal",
            Self::Keep { .. } => "file",
            Self::Label(_) => "pod_label",
        }
    }
}

/// For the log and for whoever asks: without what may be secret, arguments and a query.
impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { command, .. } => write!(f, "command {}", command[0]),
            Self::Post(Post { host, port, path, .. }) => {
                let path = path.split('?').next().unwrap_or_default();
                write!(f, "url http://{host}:{port}{path}")
            }
            Self::Signal { signal, pid_file } => {
                write!(f, "{} to {}", signal.name(), pid_file.display())
            }
            Self::Keep { file, .. } => write!(f, "file {}", file.display()),
            Self::Label(PodLabel { key, .. }) => write!(f, "pod label {key}"),
        }
    }
}

/// For whoever checks what was written.
impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.deed)?;
        match &self.deed {
            Deed::Run { command, timeout } => {
                match command.len() - 1 {
                    0 => {}
                    1 => f.write_str(" (1 argument)")?,
                    more => write!(f, " ({more} arguments)")?,
                }
                write!(f, ", timeout {timeout:?}")?;
            }
            Deed::Post(Post { timeout, retries, secret_file, .. }) => {
                write!(f, ", timeout {timeout:?}, retries {retries}")?;
                if let Some(file) = secret_file {
                    write!(f, ", signed with {}", file.display())?;
                }
            }
            Deed::Signal { .. } => {}
            Deed::Keep { mode, unknown, .. } => {
                write!(f, ", mode {mode:04o}")?;
                if *unknown == Unknown::Remove {
                    f.write_str(", removed when no leader is known")?;
                }
            }
            Deed::Label(PodLabel { pod, account, timeout, .. }) => {
                write!(f, " of {pod}, timeout {timeout:?}, with {}", account.display())?;
            }
        }
        let on: Vec<_> = self.on().map(ChangeKind::name).collect();
        write!(f, ", on {}", if self.is_state() { "every change".into() } else { on.join(", ") })?;
        f.write_str(if self.acknowledges { ", acknowledges" } else { "" })
    }
}

/// Whether the files that hooks name can be used: a secret is one, and what is to be kept replaces no
/// more than a file.
///
/// # Errors
/// One sentence that names the hook and the file, and says how to mend it.
pub fn can_use_files(hooks: &[Hook]) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    for (n, hook) in hooks.iter().enumerate() {
        match &hook.deed {
            Deed::Post(Post { secret_file: Some(file), .. }) => {
                secret(file).map_err(|wrong| format!("hook[{n}].secret_file: {wrong}"))?;
            }
            Deed::Keep { file, .. } => {
                replaceable(file).map_err(|wrong| format!("hook[{n}].file: {wrong}"))?;
                if !kept.insert(file) {
                    return Err(format!(
                        "hook[{n}].file: {} is another hook's file already: give each its own",
                        file.display()
                    ));
                }
            }
            Deed::Run { .. } | Deed::Post(_) | Deed::Signal { .. } | Deed::Label(_) => {}
        }
    }
    Ok(())
}

/// A directory cannot be replaced by a file, and a device must not be.
///
/// # Errors
/// What is there.
pub fn replaceable(file: &Path) -> Result<(), String> {
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() && !found.is_symlink() => Err(format!(
            "{} is there and no regular file: name one that may be replaced",
            file.display()
        )),
        // Whether it can be written is seen when it is.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The secret that a message is signed with, from its file.
///
/// # Errors
/// What is wrong with it. It tells nothing of what is in the file.
pub fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let text = files::read(file, Size::Line);
    text.and_then(|text| secret_in(&text)).map_err(|wrong| format!("{} {wrong}", file.display()))
}

fn secret_in(text: &[u8]) -> Result<Vec<u8>, String> {
    let written = token_in(text)
        .ok_or("holds no secret: write one line of visible ASCII characters, such as whsec_...")?;
    let Some(encoded) = written.strip_prefix(b"whsec_") else { return Ok(written.to_vec()) };
    let secret = BASE64_STANDARD.decode(encoded).ok().filter(|secret| !secret.is_empty());
    secret.ok_or_else(|| "holds a secret that is no Base64 behind whsec_".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::File;

    fn parsed(text: &str) -> Result<Vec<Hook>, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let pod = pod::Written { host: "fd00::1".into(), port: "443".into(), name: "app-0".into() };
        Hook::all(&file.hook, &pod)
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
            acknowledges = true
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
                "command /app/promote (1 argument), timeout 30s, on became-leader, lost-leadership, \
                 acknowledges",
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
            (&format!("{on}command = []"), "hook[1].command names no program"),
            (&format!("{on}command = [\"bin/a\"]"), "hook[1].command \"bin/a\" must be"),
            (&format!("{on}command = [\"a\"]\ntimeout = \"x\""), "hook[1].timeout = \"x\""),
            (&format!("{on}command = [\"a\"]\nretries = 1"), "hook[1].retries is only for"),
            (&format!("{on}command = [\"a\"]\nretries = -1"), "invalid value"),
            (&format!("{on}url = \"https://h/\""), "hook[1].url is https"),
            (&format!("{on}url = \"http://u:pw@h/\""), "hook[1].url has more"),
            (&format!("{on}url = \"http://h:0/\""), "hook[1].url has more"),
            (&format!("{on}url = \"/leadership\""), "hook[1].url is no URL"),
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
            ("file = \"/a\"\nacknowledges = true", "hook[1].acknowledges is only for"),
            ("on = [\"leader-lost\"]\ncommand = [\"a\"]\nacknowledges = true", "hook[1].ackno"),
            ("file = \"/a\"\nurls = 1", "unknown field"),
            ("pod_label = \"a b\"", "hook[1].pod_label = \"a b\" must"),
            ("pod_label = \"a\"\nfile = \"/a\"", "hook[1] must have exactly one"),
            ("pod_label = \"a\"\non = [\"leader-lost\"]", "hook[1].on is not for a pod_label"),
            ("pod_label = \"a\"\nservice_account = \"x\"", "hook[1].service_account = "),
            ("file = \"/a\"\nservice_account = \"/x\"", "hook[1].service_account is only for"),
        ] {
            let error = parsed(&format!("[[hook]]\nfile = \"/x\"\n[[hook]]\n{text}")).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_base64_behind_its_prefix_or_as_it_stands() {
        assert_eq!(secret_in(b"whsec_c2VjcmV0\n").unwrap(), b"secret");
        assert_eq!(secret_in(b" plain ").unwrap(), b"plain");
        for wrong in ["", " \n", "whsec_", "hunter 2", "whsec_hunter2!", "hunter\n2"] {
            let error = secret_in(wrong.as_bytes()).unwrap_err();
            assert!(!error.contains("hunter"), "{error}");
        }
    }
}
