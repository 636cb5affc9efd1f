//! The log lines of the election: one for each event, and one for each change of the leader. The messages are for
//! people; the fields of the lines are a stable interface, documented in docs/reference/log-messages.md.

use crate::config::Settings;
use crate::znode_names::ZnodeNames;
use humantime::format_rfc3339_millis;
use recipes::election::{Action, Change, ChangeKind, Event, Member, Standing};
use recipes::{FencingToken, Moment, SessionEvent, SessionId, Ticket};
use std::time::SystemTime;
use tracing::{Level, debug, error, info, trace, warn};

/// The log target of the trace lines from which `scripts/check-log` replays the core: each event of the member, and its
/// actions.
const PROTOCOL: &str = "bellwether::protocol";

/// True if this build can write the trace lines of [`PROTOCOL`].
const HAS_TRACE: bool = cfg!(feature = "protocol-trace");

/// Writes the log lines of one election. A line is recorded when the member handles an event, and written after the actions
/// that followed, so that logging does not delay them.
pub(super) struct EventLog {
    /// The path of the election.
    election: String,
    znodes: ZnodeNames,
    /// The current session, for the `session` field of log lines.
    session: Option<SessionId>,
    /// The last event, until it is logged.
    recorded: Option<LoggedEvent>,
}

/// An event of the member that is still to be logged.
pub(super) struct LoggedEvent {
    pub(super) event: Event,
    /// The actions of the member that followed.
    pub(super) actions: Vec<Action>,
    /// When the member handled the event.
    pub(super) handled_at: Moment,
    pub(super) level: Level,
    /// The reason why this member's lease ran out, if that happened before the event; otherwise `None`.
    pub(super) lapse: Option<String>,
    /// The changes of the leader that followed.
    pub(super) changes: Vec<Change>,
    /// When this member's lease ended, if that happened before the event; otherwise `None`.
    pub(super) lapsed_at: Option<SystemTime>,
    /// An additional line at the error level, about a problem on which an operator should act now.
    pub(super) error: Option<&'static str>,
}

/// The fields that all lines of an event have: the state of the member after it.
#[derive(Clone, Copy)]
struct Fields<'a> {
    id: &'a str,
    role: &'static str,
    ticket: Option<Ticket>,
    session: Option<SessionId>,
    leader: Option<&'a str>,
    token: Option<FencingToken>,
}

// Logs one line at this level. A macro and not a function, so that the arguments are evaluated only if the log's level shows
// the line.
macro_rules! log_line {
    ($level:ident, $event:expr, $log:expr, $fields:expr, $message:expr) => {
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
            $message
        )
    };
}

impl EventLog {
    pub(super) fn of(settings: &Settings) -> Self {
        let election = settings.root.clone();
        let znodes = settings.znodes.clone();
        Self { election, znodes, session: None, recorded: None }
    }

    /// Traces the start of the member, with the settings that a replay needs.
    pub(super) fn trace_start(&self, member: &Member, actions: &[Action]) {
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

    /// Notes the session that `event` begins, if it begins one, for the `session` field of its own and later lines.
    pub(super) fn note_session(&mut self, event: &Event) {
        match event {
            Event::Session(SessionEvent::Opened { session, .. }) => self.session = Some(*session),
            Event::Session(SessionEvent::TakenOver { record, .. }) => {
                self.session = Some(record.session);
            }
            _ => {}
        }
    }

    /// Keeps an event until [`Self::write`] logs it, after the actions that followed are performed.
    pub(super) fn record(&mut self, event: LoggedEvent) {
        self.recorded = Some(event);
    }

    /// Logs the event, and the changes of the leader that follow from it.
    pub(super) fn write(&mut self, standing: &Standing) {
        let Some(record) = self.recorded.take() else { return };
        let LoggedEvent { event, actions, handled_at, level, changes, lapsed_at, error, .. } =
            &record;
        let role = standing.at(*handled_at);
        if HAS_TRACE {
            trace!(
                target: PROTOCOL,
                at = ?handled_at,
                heard = format!("{event:?}"),
                actions = format!("{actions:?}"),
                standing = ?role,
                index = ?standing.index_at(*handled_at),
                "step"
            );
        }
        let leader = role.leader();
        let fields = Fields {
            id: standing.profile().id.as_str(),
            role: role.name(),
            ticket: standing.ticket(),
            session: self.session,
            leader: leader.map(|announcement| announcement.leader.id.as_str()),
            token: leader.map(|announcement| announcement.ticket.token),
        };
        let name = event.name();
        match *level {
            Level::DEBUG => log_line!(debug, name, self, fields, record.message()),
            Level::WARN => log_line!(warn, name, self, fields, record.message()),
            _ => log_line!(info, name, self, fields, record.message()),
        }
        for change in changes {
            let name = change.kind.name();
            let token = change.token;
            log_line!(
                info,
                name,
                self,
                Fields { token, ..fields },
                change_message(change, *lapsed_at)
            );
        }
        if let Some(error) = error {
            error!("{error}");
        }
        if actions.iter().any(Action::ends_session) {
            self.session = None;
        }
    }
}

impl LoggedEvent {
    /// Returns the message of the event's line: it describes the event and the actions that followed.
    fn message(&self) -> String {
        let mut message = self.event.to_string();
        if let Some(lapse) = &self.lapse {
            message = format!("{lapse}; {message}");
        }
        if self.event == Event::Stop {
            message += ": leaving the queue";
        }
        let actions: Vec<_> = self.actions.iter().map(Action::to_string).collect();
        if actions.is_empty() { message } else { format!("{message}  ->  {}", actions.join(", ")) }
    }
}

/// Describes a change of the leader, as this member sees it. `lapsed_at` is when this member's own lease ran out, if that
/// ended its leadership.
fn change_message(change: &Change, lapsed_at: Option<SystemTime>) -> String {
    match (change.kind, change.role.leader()) {
        (ChangeKind::LostLeadership, _) => {
            let mut message = "no longer leads".to_owned();
            if let Some(token) = change.token {
                message += &format!(", token {token}");
            }
            if let Some(lapsed_at) = lapsed_at {
                message += &format!(", since {}", format_rfc3339_millis(lapsed_at));
            }
            message
        }
        (ChangeKind::BecameLeader, Some(leader)) => format!("became leader: {leader}"),
        // This member still leads, and its address or labels have changed.
        (ChangeKind::LeaderChanged, Some(leader)) if change.role.own_term().is_some() => {
            format!("leads on: {leader}")
        }
        (ChangeKind::LeaderChanged, Some(leader)) => format!("follows: {leader}"),
        // Only `LeaderLost` comes without a leader: the second alternative never happens.
        (ChangeKind::LeaderLost, _) | (_, None) => "knows no leader".into(),
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
            let changes = changes(&before, &now);
            let sentences: Vec<_> =
                changes.iter().map(|change| change_message(change, None)).collect();
            assert_eq!(sentences.join("; "), expected, "{before:?}, then {now:?}");
        }
        let lapsed = changes(&this(4, 0), &Role::Candidate);
        let since = change_message(&lapsed[0], Some(SystemTime::UNIX_EPOCH));
        assert_eq!(since, "no longer leads, token 4, since 1970-01-01T00:00:00.000Z");
    }

    fn announcement(id: &str, token: u64, revision: u64) -> Announcement {
        let id = MemberId::new(id).unwrap();
        let leader = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision });
        let ticket = Ticket { sequence: Sequence::new(1).unwrap(), token: FencingToken(token) };
        Announcement { leader, ticket }
    }
}
