//! Finds the problems that the runner knows of, and describes them for operators.

use super::{Runner, SESSION_TOO_SHORT};
use crate::config::Settings;
use crate::problems::ProblemKind;
use crate::status::{ConnectionState, DuplicateId};
use crate::zookeeper::UNKNOWN_ZNODE_REMEDY;
use crate::zookeeper::queue::claim_path;
use recipes::Sequence;
use std::time::Duration;
use tracing::info;

/// The shortest session timeout that a server grants, in ticks, unless it is configured otherwise.
const MIN_SESSION_TICKS: u32 = 2;
/// The longest session timeout that a server grants, in ticks, unless it is configured otherwise.
const MAX_SESSION_TICKS: u32 = 20;

impl Runner {
    /// Returns the current problems, given this state of the connection. A problem has an empty text if `http/problems.rs`,
    /// which shows the problems, writes that text itself.
    pub(super) fn current_problems(&self, link: &ConnectionState) -> Vec<(ProblemKind, String)> {
        let paused = self.standing.is_paused().then(String::new);
        let unhealthy = self.standing.is_unhealthy().then(String::new);
        let foreign = (!link.foreign.is_empty()).then(String::new);
        let zookeeper = match &link.problem {
            Some(problem) => Some(problem.clone()),
            None if link.is_troubled() => Some("no connection to ZooKeeper".into()),
            None => None,
        };
        let now = self.clock.now();
        let same_id = self.token_of_same_id_predecessor();
        let duplicate = DuplicateId::find(&self.standing, same_id, &self.counters, now);
        let text = duplicate.map(|duplicate| duplicate.to_string());
        let (earlier_life, duplicate_id) = match duplicate {
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
        // Only the timeout of the current session counts: the next session may be granted another one.
        let granted = if link.session.is_some() { link.granted } else { None };
        let session_file = self.resume.file.as_ref().and_then(|file| file.problem());
        let kerberos_tickets = self.credentials.ticket_problem(self.clock.date(), link.connected);
        [
            (ProblemKind::Paused, paused),
            (ProblemKind::Unhealthy, unhealthy),
            (ProblemKind::Zookeeper, zookeeper),
            (ProblemKind::Foreign, foreign),
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

    /// Logs the problems that have begun or ended since the last call, and the lease of a new session.
    pub(super) fn log_problems(&mut self) {
        let session = self.link.borrow().session;
        if session != self.logged_session
            && let Some((id, timeout)) = session
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

    /// Returns the state of the connection, for `/status`. If the session is too short or the queue is out of order, that
    /// problem replaces the connection's own: it is more serious, and it is not published elsewhere.
    pub(super) fn connection_state_with_own_problem(&self) -> ConnectionState {
        let mut link = self.link.borrow().clone();
        if self.standing.is_session_too_short() {
            link.problem = Some(SESSION_TOO_SHORT.into());
        } else if let Some(pair) = self.standing.out_of_order() {
            link.problem = Some(self.out_of_order_problem(pair));
        }
        link
    }

    /// Explains in a log line why the lease ran out.
    pub(super) fn lapse_reason(&self) -> String {
        match &*self.link.borrow() {
            // The servers answer, but refuse our requests for this reason.
            ConnectionState { connected: true, problem: Some(why), .. } => {
                format!("the lease ran out: {why}")
            }
            _ => "the lease ran out, as no answer of ZooKeeper's came in time".into(),
        }
    }

    /// Explains that the znode of `first` is ahead of that of `other` in the queue, but was created later. ZooKeeper numbers
    /// znodes in the order of creation, so a client has chosen the name of one of them.
    pub(super) fn out_of_order_problem(&self, (first, other): (Sequence, Sequence)) -> String {
        let Settings { root, znodes, .. } = &self.settings;
        let first = znodes.name(first);
        let other = znodes.name(other);
        format!(
            "{root}/{first} is ahead of {root}/{other} and was created after it: one of them was made by hand. `bellwether \
             inspect` shows which is an unknown client's: delete that one, never a member's"
        )
    }

    /// Explains that this member cannot lead until an unknown client's znode is gone: the claim, or the znode at the head of
    /// the queue. Returns `None` if there is no such znode.
    fn unknown_znode_ahead(&self) -> Option<String> {
        if self.standing.predecessor().is_none() {
            // No znode of the queue is ahead, so only the claim can be an unknown client's.
            let ticket = self.standing.ticket()?;
            let is_leader = self.standing.acquired_by().is_some();
            if is_leader || self.refused_by_unknown != Some(ticket) {
                return None;
            }
            let path = claim_path(&self.settings.root, &self.settings.znodes);
            return Some(format!(
                "no member leads while the claim {path} is not a member's: {UNKNOWN_ZNODE_REMEDY}"
            ));
        }
        // The head is the predecessor of the standby, which has read it already.
        let is_standby = self.standing.is_standby();
        let unknown_znode = self.session.as_ref()?.unknown_znode_at_head(is_standby)?;
        let Settings { root, znodes, .. } = &self.settings;
        let path = format!("{root}/{}", znodes.name(unknown_znode));
        Some(format!(
            "this member waits behind {path}, which is not a member's: {UNKNOWN_ZNODE_REMEDY}"
        ))
    }

    /// Explains that this member's token is smaller than a token that a leader has had, so ZooKeeper's transaction numbers
    /// have started again. Stores would refuse such tokens.
    fn lower_tokens(&self) -> Option<String> {
        let own = self.standing.ticket()?.token;
        let largest = self.counters.largest_token?;
        if largest <= own {
            return None;
        }
        Some(format!(
            "ZooKeeper has lost all data: the token of this member is {own}, and a leader had {largest}. Reset the tokens that \
             stores have seen, or they refuse what leaders write from now on"
        ))
    }

    /// Explains that the data of a member ahead has a newer format than this version knows.
    fn newer_format_ahead(&self) -> Option<String> {
        self.standing.predecessor()?;
        let is_standby = self.standing.is_standby();
        let (sequence, format) = self.session.as_ref()?.newer_format_ahead(is_standby)?;
        let Settings { root, znodes, .. } = &self.settings;
        let path = format!("{root}/{}", znodes.name(sequence));
        Some(format!(
            "{path} has data of format {format}, which this version does not know: upgrade this member"
        ))
    }

    /// Explains that the servers have granted a longer session timeout than the requested one.
    fn longer_session(&self, granted: Option<Duration>) -> Option<String> {
        let requested = self.settings.zookeeper.session_timeout;
        let granted = granted?;
        if granted <= requested {
            return None;
        }
        Some(format!(
            "the servers grant no session shorter than {granted:?}, and {requested:?} was asked for: a member that dies is noticed \
             later, but leases do not get longer than with the requested one. Raise zookeeper.session_timeout to {granted:?}"
        ))
    }

    /// Explains that the servers seem to have a longer tickTime than zookeeper.tick_time here. If they grant another session
    /// timeout than the requested one, it is probably their minimum or maximum, which are 2 and 20 ticks by default. This is
    /// only a guess, because these limits can be configured too, but with a longer tickTime the lease would be unsafe.
    fn longer_ticks(&self, granted: Option<Duration>) -> Option<String> {
        let requested = self.settings.zookeeper.session_timeout;
        let granted = granted?;
        if granted == requested {
            return None;
        }
        let ticks = if granted > requested { MIN_SESSION_TICKS } else { MAX_SESSION_TICKS };
        let likely_tick_time = granted / ticks;
        let tick_time = 2 * self.member.margins().half_tick;
        if likely_tick_time <= tick_time {
            return None;
        }
        Some(format!(
            "the servers grant {granted:?} where {requested:?} was asked for, as with a tickTime of {likely_tick_time:?}, and \
             zookeeper.tick_time is {tick_time:?}: if their tickTime is longer than that, leases are unsafe. Compare it with \
             tickTime in their zoo.cfg"
        ))
    }
}
