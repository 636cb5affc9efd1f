//! The problems of a member, or of the election as the member sees it, each with its start time, for `/status`, the page and
//! the log.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::SystemTime;
use tracing::{info, warn};

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A command has paused this member, so it stays out of the queue.
    Paused,
    /// The application is unhealthy, so this member stays out of the queue.
    Unhealthy,
    /// The session with ZooKeeper cannot be opened or used, or has lost its connection.
    Zookeeper,
    /// Other clients' contenders are in the election's path.
    Foreign,
    /// This member waits behind an unknown znode.
    UnknownZnode,
    /// This member knows of no leader.
    NoLeader,
    /// Tokens are smaller than those of earlier leaders: ZooKeeper has lost all data.
    LowerTokens,
    /// Another member has the id of this one.
    DuplicateId,
    /// This member waits behind the znode of its own previous process, whose session has not ended.
    EarlierLife,
    /// A member ahead writes its data in a newer format.
    NewerFormat,
    /// The servers grant longer sessions than requested.
    LongerSession,
    /// The servers' tickTime seems to be larger than `zookeeper.tick_time`.
    TickTime,
    /// The servers answer a heartbeat only after the next one is due.
    SlowZookeeper,
    /// The session cannot be saved for the next process.
    SessionFile,
    /// The Kerberos tickets are not renewed, or have ended.
    KerberosTickets,
    /// A hook failed, and has not succeeded since.
    Hook,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

impl ProblemKind {
    /// Returns true for the kinds that only [`Problems::log_changes`] logs. Other kinds are logged where they are detected.
    fn is_logged_here(self) -> bool {
        matches!(
            self,
            Self::UnknownZnode
                | Self::LowerTokens
                | Self::DuplicateId
                | Self::EarlierLife
                | Self::NewerFormat
                | Self::LongerSession
                | Self::TickTime
                | Self::SlowZookeeper
        )
    }
}

/// A problem, described for operators, and its start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub text: String,
    pub since: SystemTime,
}

/// The current problems, at most one of each kind. `None` means that there are no problems, and needs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Option<Arc<[Problem]>>);

impl Problems {
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().flat_map(|problems| problems.iter())
    }

    pub fn get(&self, kind: ProblemKind) -> Option<&Problem> {
        self.iter().find(|problem| problem.kind == kind)
    }

    /// Replaces the problems with the given ones. A problem that continues keeps its start time, even if its text has
    /// changed.
    pub fn update(&mut self, found: Vec<(ProblemKind, String)>, date: impl Fn() -> SystemTime) {
        let found: Vec<_> = found
            .into_iter()
            .map(|(kind, text)| {
                let since = self.get(kind).map_or_else(&date, |known| known.since);
                Problem { kind, text, since }
            })
            .collect();
        if !self.iter().eq(&found) {
            *self = Self::from(found);
        }
    }

    /// Compares these problems with those of the last call, `before`. Logs each problem that has begun or whose text has
    /// changed, and each problem that has ended.
    pub fn log_changes(&self, before: &Self) {
        for Problem { kind, text, .. } in
            self.iter().filter(|problem| problem.kind.is_logged_here())
        {
            if before.get(*kind).is_some_and(|before| before.text == *text) {
                continue;
            }
            match kind {
                ProblemKind::EarlierLife => info!("{text}"),
                _ => warn!("{text}"),
            }
        }
        for Problem { kind, text, .. } in
            before.iter().filter(|problem| problem.kind.is_logged_here())
        {
            if self.get(*kind).is_none() {
                info!("no longer: {text}");
            }
        }
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(problems: Vec<Problem>) -> Self {
        Self((!problems.is_empty()).then(|| problems.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_problem_that_lasts_keeps_its_start_and_one_that_returns_has_another() {
        let date = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let mut problems = Problems::default();
        let mut since = |text: Option<&str>, second| {
            let found = text.map(|text| (ProblemKind::Zookeeper, text.to_owned()));
            problems.update(found.into_iter().collect(), || date(second));
            problems.get(ProblemKind::Zookeeper).map(|problem| problem.since)
        };
        assert_eq!(since(None, 1), None);
        assert_eq!(since(Some("refused"), 2), Some(date(2)));
        assert_eq!(since(Some("no answer"), 3), Some(date(2)), "the same outage");
        assert_eq!(since(None, 4), None);
        assert_eq!(since(Some("refused"), 5), Some(date(5)));
    }
}
