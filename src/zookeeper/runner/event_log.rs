//! The election's lines in the log: one for each event, and one for each change of who leads. The words
//! are for people; the fields beside them are a promise, made in docs/reference/log-messages.md.

use crate::config::Settings;
use crate::znode_names::ZnodeNames;
use humantime::format_rfc3339_millis;
use recipes::election::{Action, Change, ChangeKind, Event, Standing, View};
use recipes::{FencingToken, Moment, SessionId, Ticket};
use std::time::SystemTime;
use tracing::{Level, debug, enabled, error, info, warn};

pub(super) struct EventLog {
    election: String,
    znodes: ZnodeNames,
    session: Option<SessionId>,
    recorded: Option<LoggedEvent>,
}

/// One event, until there is time to write it: what it asks for is done first.
struct LoggedEvent {
    event: &'static str,
    /// `None` if the log's level hides them.
    words: Option<String>,
    severity: Severity,
    at: Moment,
    /// The following events belong to another session, or to none.
    ends_session: bool,
    alarm: Option<&'static str>,
    /// The changes of the leader, and the end of an expired lease.
    changes: (Vec<Change>, Option<SystemTime>),
}

/// How important an event is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// The event is frequent, and changes nothing.
    Routine,
    Notable,
    /// An operator should look tomorrow.
    Alarming,
}

/// How the member stands after an event: the fields of each line.
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

    /// Takes note of an event before the member hears it.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::SessionOpened { session, .. } => self.session = Some(*session),
            Event::SessionTakenOver { record, .. } => self.session = Some(record.session),
            _ => {}
        }
    }

    /// Keeps an event, in words, and what the member wants done, until [`Self::write`].
    pub(super) fn record(
        &mut self,
        event: &'static str,
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
        let alarm = None;
        self.recorded =
            Some(LoggedEvent { event, words, severity, at, ends_session, alarm, changes });
    }

    /// Adds an error to the event: an operator should look now.
    pub(super) fn alarm(&mut self, words: &'static str) {
        if let Some(record) = &mut self.recorded {
            record.alarm = Some(words);
        }
    }

    /// Writes the event, and the change of who leads that follows from it.
    pub(super) fn write(&mut self, standing: &Standing) {
        let Some(record) = self.recorded.take() else { return };
        let LoggedEvent { event, words, severity, at, ends_session, alarm, changes } = record;
        let role = standing.at(at);
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

/// Puts a change in words.
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
