//! Hooks: the actions that operators configure for a change of the leader.
//!
//! - `parse`: parses a hook's table in the file.
//! - `files`: the files that hooks name.

mod files;
mod parse;

pub use self::files::{check_files, check_replaceable, signing_secret};
pub(super) use self::parse::{absolute, file_mode, split_url};
use super::pod::{KubernetesHook, KubernetesTarget};
use clap::ValueEnum;
use recipes::election::ChangeKind;
use rustix::process::Signal;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A hook: an action, and the kinds of changes of the leader for which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    /// The kinds of changes for which the hook runs. `None` for a hook that keeps a file or object up to date at every
    /// change.
    on: Option<Vec<ChangeKind>>,
    pub action: HookAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// Run a command at a change.
    Run { command: Vec<String>, timeout: Duration },
    /// Send a message with an HTTP POST at a change.
    Post(Webhook),
    /// Send a signal at a change, to the process whose id is in a file.
    Signal { signal: Signal, pid_file: PathBuf },
    /// Write a file that names the leader: at every change, or, with `on`, only at certain kinds of changes.
    Keep { file: PathBuf, mode: u32, unknown: WhenUnknown },
    /// Keep a Kubernetes object up to date.
    Kubernetes(KubernetesHook),
}

/// A message to post, and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The host as written in a URL: an IPv6 address is in brackets.
    pub host: String,
    pub port: u16,
    /// The path with its query.
    pub path: String,
    /// The time limit of each attempt.
    pub timeout: Duration,
    pub retries: u32,
    /// The file with the secret for the signature.
    pub secret_file: Option<PathBuf>,
}

/// The treatment of the hook's file while no leader is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenUnknown {
    /// The file says that no leader is known.
    Keep,
    /// The file is removed.
    Remove,
}

impl HookConfig {
    /// Returns whether the hook runs for changes of this kind.
    pub fn runs_for(&self, kind: ChangeKind) -> bool {
        self.on.as_ref().is_none_or(|on| on.contains(&kind))
    }

    /// Returns true if the hook keeps a file or object up to date at every change, instead of acting at certain kinds of
    /// changes.
    pub fn keeps_up_to_date(&self) -> bool {
        self.on.is_none()
    }

    /// Returns the kinds of changes for which the hook runs.
    pub fn change_kinds(&self) -> impl Iterator<Item = ChangeKind> {
        ChangeKind::ALL.into_iter().filter(|kind| self.runs_for(*kind))
    }
}

/// The signals that a hook may send, by their names.
const SIGNALS: [(&str, Signal); 10] = [
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGKILL", Signal::KILL),
    ("SIGUSR1", Signal::USR1),
    ("SIGUSR2", Signal::USR2),
    ("SIGTERM", Signal::TERM),
    ("SIGCONT", Signal::CONT),
    ("SIGSTOP", Signal::STOP),
    ("SIGWINCH", Signal::WINCH),
];

/// Names the action in the log and in answers of the HTTP API, without a command's arguments or a URL's query, because these
/// may be secret.
impl fmt::Display for HookAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { command, .. } => write!(f, "command {}", command[0]),
            Self::Post(Webhook { host, port, path, .. }) => {
                let path = path.split('?').next().unwrap_or_default();
                write!(f, "url http://{host}:{port}{path}")
            }
            Self::Signal { signal, pid_file } => {
                let name = SIGNALS.iter().find(|(_, known)| known == signal).map(|(name, _)| *name);
                write!(f, "{} to {}", name.unwrap_or_default(), pid_file.display())
            }
            Self::Keep { file, .. } => write!(f, "file {}", file.display()),
            Self::Kubernetes(hook) => match &hook.target {
                KubernetesTarget::PodLabel { key, .. } => write!(f, "pod label {key}"),
                KubernetesTarget::EndpointSlice { name, .. } => write!(f, "EndpointSlice {name}"),
            },
        }
    }
}

/// Describes the arguments of a command only by their number, because they may be secret.
pub(super) fn arguments_shown(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (1 argument)".into(),
        more => format!(" ({more} arguments)"),
    }
}

/// Describes the hook for `check-config`.
impl fmt::Display for HookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        match &self.action {
            HookAction::Run { command, timeout } => {
                write!(f, "{}, timeout {timeout:?}", arguments_shown(command.len() - 1))?;
            }
            HookAction::Post(Webhook { timeout, retries, secret_file, .. }) => {
                write!(f, ", timeout {timeout:?}, retries {retries}")?;
                if let Some(file) = secret_file {
                    write!(f, ", signed with {}", file.display())?;
                }
            }
            HookAction::Signal { .. } => {}
            HookAction::Keep { mode, unknown, .. } => {
                write!(f, ", mode {mode:04o}")?;
                if *unknown == WhenUnknown::Remove {
                    f.write_str(", removed when no leader is known")?;
                }
            }
            HookAction::Kubernetes(KubernetesHook { target, account, timeout, .. }) => {
                match target {
                    KubernetesTarget::PodLabel { pod, .. } => write!(f, " of {pod}")?,
                    KubernetesTarget::EndpointSlice { address, .. } => {
                        write!(f, " with {address}")?
                    }
                }
                write!(f, ", timeout {timeout:?}, with {}", account.display())?;
            }
        }
        if self.keeps_up_to_date() {
            return f.write_str(", on every change");
        }
        let on: Vec<_> = self.change_kinds().map(ChangeKind::name).collect();
        write!(f, ", on {}", on.join(", "))
    }
}
