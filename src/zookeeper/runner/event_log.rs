//! The log lines of the election: one for each event, and one for each change of the leader. The messages are for
//! people; their fields are a stable interface, documented in docs/reference/log-messages.md.

use crate::config::Settings;
use crate::znode_names::ZnodeNames;
use humantime::format_rfc3339_millis;
use recipes::election::{Action, Change, ChangeKind, Event, Member, Standing, View};
use recipes::{FencingToken, Moment, SessionEvent, SessionId, Ticket};
use std::time::SystemTime;
use tracing::{Level, debug, enabled, error, info, trace, warn};

/// The target of the trace lines from which `scripts/check-log` replays the core: each event of the member, and its
/// actions.
const PROTOCOL: &str = "bellwether::protocol";

/// Whether this build can trace the protocol.
const HAS_TRACE: bool = cfg!(feature = "protocol-trace");

pub(super) struct EventLog {
    election: String,
    znodes: ZnodeNames,
    session: Option<SessionId>,
    recorded: Option<LoggedEvent>,
}

/// An event that is still to be logged: its actions are performed first.
struct LoggedEvent {
    event: &'static str,
    /// The message; `None` if the log level hides it.
    words: Option<String>,
    severity: Severity,
    at: Moment,
    /// True if later events belong to another session, or to no session.
    ends_session: bool,
    /// An error to log in addition.
    alarm: Option<&'static str>,
    /// The changes of the leader, and when the lease ended if it had expired before the event.
    changes: (Vec<Change>, Option<SystemTime>),
    /// `None` unless the protocol is traced.
    step: Option<ProtocolStep>,
}

/// A step of the member, complete, as `Debug` texts.
struct ProtocolStep {
    heard: String,
    actions: String,
}

/// How important an event is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// The event is frequent and changes nothing. Logged at `debug`.
    Routine,
    Notable,
    /// An operator should look tomorrow. Logged at `warn`.
    Alarming,
}

/// The state of the member after an event: the fields of each line.
#[derive(Clone, Copy)]
struct Fields<'a> {
    id: &'a str,
    role: &'static str,
    ticket: Option<Ticket>,
    session: Option<SessionId>,
    leader: Option<&'a str>,
    token: Option<FencingToken>,
}

// Arguments are evaluated only if the log's level shows the line.
macro_rules! line {
    ($level:ident, $event:expr, $log:expr, $fields:expr, $words:expr) => {
        $level!(
            event = $event,
            id = $fields.id,
            election = $log.election,
            role = $fields.role,
            znode = $fields.ticket.map(|ticket| $log.znodes.name(ticket.sequence)),
            session = $fields.session.map(display),
            leader = $fields.leader,
            token = $fields.token.map(|token| token.0),
            "{}",
            $words
        )
    };
}

impl EventLog {
    pub(super) fn of(settings: &Settings) -> Self {
        let election = settings.root.clone();
        let znodes = settings.znodes.clone();
        Self { election, znodes, session: None, recorded: None }
    }

    /// Traces the start of the member.
    pub(super) fn begin(&self, member: &Member, actions: &[Action]) {
        if !HAS_TRACE {
            return;
        }
        let standing = member.standing();
        trace!(
            target: PROTOCOL,
            election = self.election,
            profile = ?standing.profile(),
            priority = ?standing.priority(),
            policy = ?member.policy(),
            reserve = ?member.reserve(),
            relays = ?self.znodes.family().is_none(),
            unhealthy = ?standing.is_unhealthy(),
            ?actions,
            "start"
        );
    }

    /// Notes the session that an event begins, before the member handles the event.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::Session(SessionEvent::Opened { session, .. }) => self.session = Some(*session),
            Event::Session(SessionEvent::TakenOver { record, .. }) => {
                self.session = Some(record.session);
            }
            _ => {}
        }
    }

    /// Keeps an event and the member's actions until [`Self::write`] logs them.
    pub(super) fn record(
        &mut self,
        event: &Event,
        describe: impl FnOnce() -> String,
        wanted: &[Action],
        changes: (Vec<Change>, Option<SystemTime>),
        severity: Severity,
        at: Moment,
    ) {
        let is_read = severity != Severity::Routine || enabled!(Level::DEBUG);
        let words = is_read.then(|| {
            let wants: Vec<_> = wanted.iter().map(Action::to_string).collect();
            let wants = wants.join(", ");
            if wants.is_empty() { describe() } else { format!("{}  ->  {wants}", describe()) }
        });
        let ends_session = wanted.iter().any(Action::ends_session);
        let is_traced = HAS_TRACE && enabled!(target: PROTOCOL, Level::TRACE);
        let step = is_traced
            .then(|| ProtocolStep { heard: format!("{event:?}"), actions: format!("{wanted:?}") });
        let event = event.name();
        let alarm = None;
        self.recorded =
            Some(LoggedEvent { event, words, severity, at, ends_session, alarm, changes, step });
    }

    /// Adds an error to the event: an operator should act now.
    pub(super) fn alarm(&mut self, words: &'static str) {
        if let Some(record) = &mut self.recorded {
            record.alarm = Some(words);
        }
    }

    /// Logs the event, and the changes of the leader that follow from it.
    pub(super) fn write(&mut self, standing: &Standing) {
        let Some(record) = self.recorded.take() else { return };
        let LoggedEvent { event, words, severity, at, ends_session, alarm, changes, step } = record;
        let role = standing.at(at);
        if HAS_TRACE && let Some(ProtocolStep { heard, actions }) = step {
            let index = standing.index_at(at);
            trace!(target: PROTOCOL, ?at, heard, actions, standing = ?role, ?index, "step");
        }
        let name = role.name();
        let view = View::of(&role);
        let leader = view.leader();
        let fields = Fields {
            id: standing.profile().id.as_str(),
            role: name,
            ticket: standing.ticket(),
            session: self.session,
            leader: leader.map(|announcement| announcement.leader.id.as_str()),
            token: leader.map(|announcement| announcement.ticket.token),
        };
        if let Some(words) = words {
            match severity {
                Severity::Routine => line!(debug, event, self, fields, words),
                Severity::Notable => line!(info, event, self, fields, words),
                Severity::Alarming => line!(warn, event, self, fields, words),
            }
        }
        let (changes, lapsed_at) = changes;
        for change in &changes {
            let event = change.kind.name();
            let token = change.token;
            line!(info, event, self, Fields { token, ..fields }, self::words(change, lapsed_at));
        }
        if let Some(alarm) = alarm {
            error!("{alarm}");
        }
        if ends_session {
            self.session = None;
        }
    }
}

/// Describes a change of the leader.
fn words(change: &Change, lapsed_at: Option<SystemTime>) -> String {
    match (change.kind, &change.view()) {
        (ChangeKind::LostLeadership, _) => {
            let over = change.token.map(|token| format!(", token {token}")).unwrap_or_default();
            let since = lapsed_at.map(|at| format!(", since {}", format_rfc3339_millis(at)));
            format!("no longer leads{over}{}", since.unwrap_or_default())
        }
        (ChangeKind::BecameLeader, View::This(leader) | View::Other(leader)) => {
            format!("became leader: {leader}")
        }
        (ChangeKind::LeaderChanged, View::This(leader)) => format!("leads on: {leader}"),
        (ChangeKind::LeaderChanged, View::Other(leader)) => format!("follows: {leader}"),
        (ChangeKind::LeaderLost, _) | (_, View::NoLeader) => "knows no leader".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{Announcement, Profile, Role, changes};
    use recipes::{MemberId, Sequence};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn each_change_is_a_sentence() {
        let this = |token, revision| Role::Leader {
            announcement: announcement("a", token, revision),
            left: Duration::from_secs(1),
        };
        let other = |token| Role::Follower { leader: Some(announcement("b", token, 0)) };
        for (before, now, expected) in [
            (Role::Absent, this(4, 0), "became leader: «a leads, token 4»"),
            (this(4, 0), this(4, 1), "leads on: «a leads, token 4, revision 1»"),
            (this(4, 0), Role::Absent, "no longer leads, token 4"),
            (this(4, 0), other(5), "no longer leads, token 4; follows: «b leads, token 5»"),
            (Role::Absent, other(5), "follows: «b leads, token 5»"),
            (other(5), Role::Absent, "knows no leader"),
        ] {
            let changes = changes(&View::of(&before), &now);
            let sentences: Vec<_> = changes.iter().map(|change| words(change, None)).collect();
            assert_eq!(sentences.join("; "), expected, "{before:?}, then {now:?}");
        }
        let lapsed = changes(&View::of(&this(4, 0)), &Role::Candidate);
        let since = words(&lapsed[0], Some(SystemTime::UNIX_EPOCH));
        assert_eq!(since, "no longer leads, token 4, since 1970-01-01T00:00:00.000Z");
    }

    fn announcement(id: &str, token: u64, revision: u64) -> Announcement {
        let id = MemberId::new(id).unwrap();
        let leader = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision });
        let ticket = Ticket { sequence: Sequence::new(1).unwrap(), token: FencingToken(token) };
        Announcement { leader, ticket }
    }
}
