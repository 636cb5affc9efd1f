//! The problems that the runner knows of, described for operators.

use super::{REFUSED, Runner};
use crate::config::Settings;
use crate::problems::ProblemKind;
use crate::status::{ConnectionState, DuplicateId};
use crate::zookeeper::UNKNOWN_ZNODE_REMEDY;
use crate::zookeeper::queue::claim_path;
use recipes::Sequence;
use std::time::Duration;
use tracing::info;

/// The shortest session that a server grants, in ticks, unless it is configured otherwise.
const MIN_SESSION_TICKS: u32 = 2;
/// The longest session that a server grants, in ticks, unless it is configured otherwise.
const MAX_SESSION_TICKS: u32 = 20;

impl Runner {
    /// Returns the current problems, given this state of the connection.
    pub(super) fn current_problems(&self, link: &ConnectionState) -> Vec<(ProblemKind, String)> {
        let paused = self.standing.is_paused().then(String::new);
        let unhealthy = self.standing.is_unhealthy().then(String::new);
        let zookeeper = link.is_troubled().then(|| {
            let problem = link.problem.clone();
            problem.unwrap_or_else(|| "no connection to ZooKeeper".into())
        });
        let now = self.clock.now();
        let same_id = DuplicateId::find(&self.standing, self.same_id(), &self.counters, now);
        let text = same_id.map(|same_id| same_id.to_string());
        let (earlier_life, duplicate_id) = match same_id {
            Some(DuplicateId::MayBeEarlierLife { .. }) => (text, None),
            _ => (None, text),
        };
        let slow = self.is_slow.then(|| {
            format!(
                "the servers take longer than a heartbeat ({:?}) to answer: leases may run out. Look at their disks and \
                 their load, or raise lease.heartbeat and zookeeper.session_timeout",
                self.member.heartbeat()
            )
        });
        // The timeout of a session that has ended says nothing about the next.
        let granted = link.granted.filter(|_| link.session.is_some());
        let session_file = self.resume.file.as_ref().and_then(|file| file.problem());
        let kerberos_tickets = self.credentials.ticket_problem(self.clock.date(), link.connected);
        [
            (ProblemKind::Paused, paused),
            (ProblemKind::Unhealthy, unhealthy),
            (ProblemKind::Zookeeper, zookeeper),
            (ProblemKind::Foreign, (!link.foreign.is_empty()).then(String::new)),
            (ProblemKind::UnknownZnode, self.unknown_znode_ahead()),
            (ProblemKind::LowerTokens, self.lower_tokens()),
            (ProblemKind::EarlierLife, earlier_life),
            (ProblemKind::DuplicateId, duplicate_id),
            (ProblemKind::NewerFormat, self.newer_format_ahead()),
            (ProblemKind::LongerSession, self.longer_session(granted)),
            (ProblemKind::TickTime, self.longer_ticks(granted)),
            (ProblemKind::SlowZookeeper, slow),
            (ProblemKind::SessionFile, session_file),
            (ProblemKind::KerberosTickets, kerberos_tickets),
        ]
        .into_iter()
        .filter_map(|(kind, text)| Some((kind, text?)))
        .collect()
    }

    /// Logs the problems that have begun and ended, and the lease of a new session.
    pub(super) fn log_problems(&mut self) {
        let session = self.link.borrow().session;
        if let Some((id, timeout)) = session.filter(|_| session != self.logged_session)
            && let Some(lease) = self.member.margins().lease_duration(timeout)
        {
            info!("session {id}: timeout {timeout:?}, lease {:?}", lease.0);
            self.logged_session = session;
        }
        if self.problems != self.logged_problems {
            self.problems.log_changes(&self.logged_problems);
            self.logged_problems = self.problems.clone();
        }
    }

    /// Returns the state of the connection. A problem of the member itself replaces the connection's: it is more serious,
    /// and it is not published elsewhere.
    pub(super) fn link_with_own_problem(&self) -> ConnectionState {
        let link = self.link.borrow().clone();
        let problem = match self.standing.out_of_order() {
            _ if self.standing.is_session_too_short() => Some(REFUSED.into()),
            Some(pair) => Some(self.out_of_order(pair)),
            None => return link,
        };
        ConnectionState { problem, ..link }
    }

    /// Explains why the lease ran out.
    pub(super) fn lapse(&self) -> String {
        match &*self.link.borrow() {
            // The servers answer, but refuse requests.
            ConnectionState { connected: true, problem: Some(why), .. } => {
                format!("the lease ran out: {why}")
            }
            _ => "the lease ran out, as no answer of ZooKeeper's came in time".into(),
        }
    }

    /// Explains that a znode ahead was created later than the one behind it.
    pub(super) fn out_of_order(&self, (first, other): (Sequence, Sequence)) -> String {
        let Settings { root, znodes, .. } = &self.settings;
        let first = znodes.name(first);
        let other = znodes.name(other);
        format!(
            "{root}/{first} is ahead of {root}/{other} and was created after it: one of them was made by hand. `bellwether \
             inspect` shows which is an unknown client's: delete that one, never a member's"
        )
    }

    /// Explains that this member waits for the end of an unknown znode: the claim, or one at the head of the queue.
    fn unknown_znode_ahead(&self) -> Option<String> {
        if self.standing.predecessor().is_none() {
            let ticket =
                self.standing.ticket().filter(|_| self.standing.acquired_by().is_none())?;
            let path = claim_path(&self.settings.root, &self.settings.znodes);
            return (self.refused_by_unknown == Some(ticket)).then(|| {
                format!("no member leads while the claim {path} is not a member's: {UNKNOWN_ZNODE_REMEDY}")
            });
        }
        let is_standby = self.standing.standby_is_ready(self.clock.now()).is_some();
        let unknown_znode = self.session.as_ref()?.unknown_znode_at_head(is_standby)?;
        let Settings { root, znodes, .. } = &self.settings;
        let path = format!("{root}/{}", znodes.name(unknown_znode));
        Some(format!(
            "this member waits behind {path}, which is not a member's: {UNKNOWN_ZNODE_REMEDY}"
        ))
    }

    /// Explains that tokens have started again: this member's token is smaller than one that a leader had.
    fn lower_tokens(&self) -> Option<String> {
        let own = self.standing.ticket()?.token;
        let largest = self.counters.largest_token.filter(|largest| *largest > own)?;
        Some(format!(
            "ZooKeeper has lost all data: the token of this member is {own}, and a leader had {largest}. Reset the tokens that \
             stores have seen, or they refuse what leaders write from now on"
        ))
    }

    /// Explains that a member ahead writes its data in a newer format than this version knows.
    fn newer_format_ahead(&self) -> Option<String> {
        self.standing.predecessor()?;
        let is_standby = self.standing.standby_is_ready(self.clock.now()).is_some();
        let (sequence, format) = self.session.as_ref()?.newer_format_ahead(is_standby)?;
        let Settings { root, znodes, .. } = &self.settings;
        let path = format!("{root}/{}", znodes.name(sequence));
        Some(format!(
            "{path} has data of format {format}, which this version does not know: upgrade this member"
        ))
    }

    /// Explains that the servers grant no session as short as the requested one.
    fn longer_session(&self, granted: Option<Duration>) -> Option<String> {
        let asked = self.settings.zookeeper.session_timeout;
        let granted = granted.filter(|granted| *granted > asked)?;
        Some(format!(
            "the servers grant no session shorter than {granted:?}, and {asked:?} was asked for: a member that dies is missed \
             later, and leases are as short as asked. Raise zookeeper.session_timeout to {granted:?}"
        ))
    }

    /// Explains that the servers seem to have a longer tickTime than is configured. It is only a guess, because their
    /// limits may be configured as well, but with a longer tickTime the lease would be unsafe.
    fn longer_ticks(&self, granted: Option<Duration>) -> Option<String> {
        let asked = self.settings.zookeeper.session_timeout;
        let granted = granted?;
        let ticks = if granted > asked { MIN_SESSION_TICKS } else { MAX_SESSION_TICKS };
        let seeming = granted / ticks;
        let tick_time = 2 * self.member.margins().half_tick;
        (granted != asked && seeming > tick_time).then(|| {
            format!(
                "the servers grant {granted:?} where {asked:?} was asked for, as with a tickTime of {seeming:?}, and \
                 zookeeper.tick_time is {tick_time:?}: if their tickTime is longer than that, leases are unsafe. Compare it with \
                 tickTime in their zoo.cfg"
            )
        })
    }
}
