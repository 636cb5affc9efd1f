//! The election's lines in the log: one for each event, and one for each change of who leads. The words
//! are for people; the fields beside them are a promise, made in docs/operations.md.

use crate::config::Settings;
use recipes::election::{
    Action, Announcement, Event, FencingToken, Moment, Role, SessionId, Standing, Ticket,
};
use tracing::{Level, debug, enabled, error, info, warn};

pub(super) struct EventLog {
    election: String,
    prefix: String,
    session: Option<SessionId>,
    /// Who leads, as it was last logged.
    logged: View,
    recorded: Option<Record>,
}

/// One event, until there is time to write it: what it asks for is done first.
struct Record {
    event: &'static str,
    /// `None` if the log's level hides them.
    words: Option<String>,
    severity: Severity,
    at: Moment,
    /// What follows is of another session, or of none.
    ends_session: bool,
    alarm: Option<&'static str>,
}

/// How important an event is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// It comes again and again, and changes nothing.
    Routine,
    Notable,
    /// An operator should look tomorrow.
    Alarming,
}

/// Who leads, as far as this member may say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum View {
    Nobody,
    Other(Announcement),
    Us(Announcement),
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
            znode = $fields.ticket.map(|ticket| ticket.sequence.name(&$log.prefix)),
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
        let (election, prefix) = (settings.root.clone(), settings.prefix.clone());
        Self { election, prefix, session: None, logged: View::Nobody, recorded: None }
    }

    /// Takes note of an event before the member hears it.
    pub(super) fn hear(&mut self, event: &Event) {
        if let Event::SessionOpened { session, .. } = event {
            self.session = Some(*session);
        }
    }

    /// Keeps an event, in words, and what the member wants done.
    pub(super) fn record(
        &mut self,
        event: &'static str,
        describe: impl FnOnce() -> String,
        wanted: &[Action],
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
        self.recorded = Some(Record { event, words, severity, at, ends_session, alarm: None });
    }

    /// Adds an error to the event: an operator should look now.
    pub(super) fn alarm(&mut self, words: &'static str) {
        if let Some(record) = &mut self.recorded {
            record.alarm = Some(words);
        }
    }

    /// Writes the event, and the change of who leads that follows from it.
    pub(super) fn write(&mut self, standing: &Standing) {
        let Some(Record { event, words, severity, at, ends_session, alarm }) = self.recorded.take()
        else {
            return;
        };
        let role = standing.at(at);
        let name = role.name();
        let view = View::of(role);
        let leader = view.leader();
        let fields = Fields {
            id: standing.profile().id.as_str(),
            role: name,
            ticket: standing.ticket(),
            session: self.session,
            leader: leader.map(|says| says.leader.id.as_str()),
            token: leader.map(|says| says.ticket.token),
        };
        if let Some(words) = words {
            match severity {
                Severity::Routine => line!(debug, event, self, fields, words),
                Severity::Notable => line!(info, event, self, fields, words),
                Severity::Alarming => line!(warn, event, self, fields, words),
            }
        }
        for (event, words, token) in changes(&self.logged, &view) {
            line!(info, event, self, Fields { token, ..fields }, words);
        }
        if let Some(alarm) = alarm {
            error!("{alarm}");
        }
        self.logged = view;
        if ends_session {
            self.session = None;
        }
    }
}

impl View {
    fn of(role: Role) -> Self {
        match role {
            Role::Leader { announcement, .. } => Self::Us(announcement),
            Role::Follower { heard: Some(heard) } => Self::Other(heard),
            Role::Follower { heard: None } | Role::Candidate | Role::Absent => Self::Nobody,
        }
    }

    fn leader(&self) -> Option<&Announcement> {
        match self {
            Self::Nobody => None,
            Self::Other(leader) | Self::Us(leader) => Some(leader),
        }
    }

    /// Returns the token of the term in which this member leads.
    fn term(&self) -> Option<FencingToken> {
        match self {
            Self::Us(us) => Some(us.ticket.token),
            Self::Nobody | Self::Other(_) => None,
        }
    }
}

/// A change by the name that `GET /events` uses, in words, and with the token of its term.
type Change = (&'static str, String, Option<FencingToken>);

/// Returns the changes: two if this member's term is over and another has begun.
fn changes(before: &View, now: &View) -> Vec<Change> {
    let mut changes = vec![];
    if let Some(over) = before.term().filter(|over| now.term() != Some(*over)) {
        changes.push(("lost-leadership", format!("leads no more, token {over}"), Some(over)));
    }
    let follows = match (before, now) {
        _ if before == now => None,
        (View::Us(us), View::Us(again)) if us.ticket == again.ticket => {
            Some(("leader-changed", format!("leads on: {again}")))
        }
        (_, View::Us(us)) => Some(("became-leader", format!("became leader: {us}"))),
        (_, View::Other(leader)) => Some(("leader-changed", format!("follows: {leader}"))),
        (View::Other(_), View::Nobody) => Some(("leader-lost", "knows no leader".into())),
        // That no leader is known now is said by the end of the term.
        (View::Us(_) | View::Nobody, View::Nobody) => None,
    };
    let token = now.leader().map(|leader| leader.ticket.token);
    changes.extend(follows.map(|(name, words)| (name, words, token)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{MemberId, Profile, Sequence};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn each_change_of_who_leads_is_logged_once() {
        let nobody = || View::Nobody;
        let us = |token, revision| View::Us(says("a", token, revision));
        let other = |token| View::Other(says("b", token, 0));
        let told = |before: View, after: View| {
            let changes = changes(&before, &after).into_iter();
            let lines = changes.map(|(name, words, token)| match token {
                Some(token) => format!("{name} {token}: {words}"),
                None => format!("{name}: {words}"),
            });
            lines.collect::<Vec<_>>().join("; ")
        };
        let lost = "lost-leadership 4: leads no more, token 4";
        for (before, after, line) in [
            (nobody(), nobody(), String::new()),
            (nobody(), us(4, 0), "became-leader 4: became leader: «a leads, token 4»".into()),
            (other(3), us(4, 0), "became-leader 4: became leader: «a leads, token 4»".into()),
            (us(4, 0), us(4, 0), String::new()),
            (
                us(4, 0),
                us(4, 1),
                "leader-changed 4: leads on: «a leads, token 4, revision 1»".into(),
            ),
            (us(4, 0), nobody(), lost.into()),
            (us(4, 0), other(5), format!("{lost}; leader-changed 5: follows: «b leads, token 5»")),
            (
                us(4, 0),
                us(5, 0),
                format!("{lost}; became-leader 5: became leader: «a leads, token 5»"),
            ),
            (nobody(), other(5), "leader-changed 5: follows: «b leads, token 5»".into()),
            (other(5), other(6), "leader-changed 6: follows: «b leads, token 6»".into()),
            (other(5), other(5), String::new()),
            (other(5), nobody(), "leader-lost: knows no leader".into()),
        ] {
            let case = format!("{before:?}, then {after:?}");
            assert_eq!(told(before, after), line, "{case}");
        }
    }

    fn says(id: &str, token: u64, revision: u64) -> Announcement {
        let id = MemberId::new(id).unwrap();
        let leader = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision });
        let ticket = Ticket { sequence: Sequence::new(1).unwrap(), token: FencingToken(token) };
        Announcement { leader, ticket, active: true }
    }
}
