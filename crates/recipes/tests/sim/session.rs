//! The sessions of a simulated ensemble: its leader learns only from its followers' reports which of them are alive.

use bellwether_recipes::{Moment, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    pub member: usize,
    pub timeout: Duration,
    /// When the ensemble's leader last learned that it is alive.
    pub touched_at: Moment,
    /// Whether a request came in it since the last report.
    pub touched: bool,
    /// Whether a request came in it at a server that lags behind, and will report it when it has caught up.
    pub late: bool,
    /// Whether the next report leaves it out, and whether the last one did.
    pub missing: bool,
    pub missed: bool,
    /// A next process has taken it over: of what came over the connections before, only its end counts.
    pub taken_over: bool,
    /// Its time is up: the server still answers it at this moment, and no heartbeat saves it.
    pub doomed: bool,
}

impl Session {
    pub fn opened(member: usize, timeout: Duration, now: Moment) -> Self {
        Self {
            member,
            timeout,
            touched_at: now,
            touched: false,
            late: false,
            missing: false,
            missed: false,
            taken_over: false,
            doomed: false,
        }
    }
}

impl Session {
    /// The server has caught up, and reported what came before anything else: the same stream carries both.
    pub fn catch_up(&mut self, now: Moment) {
        if std::mem::take(&mut self.late) {
            self.touched_at = now;
        }
    }
}

/// When a session may end, unless a request comes in it.
pub fn expires_at(session: &Session) -> Moment {
    // As early as the ensemble's clock may run fast and its timer be early.
    let early = session.timeout / 1000 + Duration::from_millis(100);
    session.touched_at.after(session.timeout.saturating_sub(early))
}

/// The followers report the sessions in which requests came.
pub fn report(sessions: &mut BTreeMap<SessionId, Session>, now: Moment) {
    for session in sessions.values_mut().filter(|session| session.touched) {
        if !session.missing {
            session.touched_at = now;
        }
        session.missed = session.missing;
        session.missing = false;
        session.touched = false;
    }
}
