//! Reports why connecting fails, in the log and in `/status`.

use super::connection::Failure;
use super::session::SessionSettings;
use recipes::Moment;
use std::collections::BTreeSet;
use std::time::Duration;
use tracing::{debug, warn};

/// The time after which a known reason is logged again, if nothing was logged meanwhile and attempts still fail.
const SILENCE: Duration = Duration::from_secs(600);

/// Reports why attempts to connect fail.
pub(super) struct FailureReporter<'a> {
    settings: &'a SessionSettings,
    /// The session's name in the log.
    name: String,
    /// The text in front of the reason, such as "no session with ZooKeeper at zk-0:2181".
    what: String,
    /// True if the last reported cause is [explained](Failure::Explained). Then the library's errors are not reported, because
    /// they say less.
    is_explained: bool,
    /// When the attempts began.
    begun_at: Moment,
    /// The reasons that were logged, so that the same one is not logged at each attempt.
    logged: BTreeSet<String>,
    /// When a reason was last logged.
    logged_at: Moment,
}

impl<'a> FailureReporter<'a> {
    pub(super) fn new(settings: &'a SessionSettings, name: String, what: String) -> Self {
        let now = settings.clock.now();
        let logged = BTreeSet::new();
        Self { settings, name, what, is_explained: false, begun_at: now, logged, logged_at: now }
    }

    /// Publishes why the last attempt failed, and logs it if it is new or if no reason was logged for long.
    pub(super) fn report(&mut self, failure: Failure) {
        let is_explained = matches!(failure, Failure::Explained(_));
        let is_unexplained = matches!(failure, Failure::Unexplained(_));
        let why = failure.reason();
        if self.is_explained && is_unexplained {
            return debug!("{}: {why}", self.name);
        }
        self.is_explained = is_explained;
        let problem = format!("{}: {why}", self.what);
        if let Some(tries) = self.log_line_end(&why, self.settings.clock.now()) {
            warn!("{}: {problem}; {tries}", self.name);
        }
        self.settings.link.send_modify(|link| {
            link.connected = false;
            link.problem = Some(problem);
        });
    }

    /// Returns the end of the log line for this reason, or `None` if the reason must not be logged: it is not new, and
    /// some reason was logged less than [`SILENCE`] ago.
    fn log_line_end(&mut self, why: &str, now: Moment) -> Option<String> {
        let is_new = self.logged.insert(why.to_owned());
        if !is_new && now.since(self.logged_at) < SILENCE {
            return None;
        }
        self.logged_at = now;
        let minutes = now.since(self.begun_at).as_secs() / 60;
        Some(match is_new {
            true => "trying again".into(),
            false => format!("still trying, for {minutes} minutes by now"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::config::Zookeeper;
    use crate::config::security::{AclPolicy, Security};
    use crate::status::ConnectionState;
    use crate::zookeeper::client::Credentials;
    use tokio::sync::watch;

    #[test]
    fn a_reason_is_logged_once_and_again_now_and_then() {
        let (settings, _published) = settings();
        let mut reporter = FailureReporter::new(&settings, String::new(), String::new());
        let begun_at = reporter.begun_at;
        let mut end =
            |why, seconds| reporter.log_line_end(why, begun_at.after(Duration::from_secs(seconds)));
        assert!(end("refused", 0).is_some());
        assert!(end("refused", 599).is_none());
        assert_eq!(end("refused", 600).unwrap(), "still trying, for 10 minutes by now");
        assert!(end("frozen", 700).is_some(), "it is new");
        assert!(end("refused", 1299).is_none());
        assert!(end("refused", 1300).is_some());
    }

    #[test]
    fn words_of_the_library_do_not_replace_a_known_cause() {
        let (settings, published) = settings();
        let problem = || published.borrow().problem.clone().unwrap_or_default();
        let mut reporter =
            FailureReporter::new(&settings, "election session".into(), "no session".into());

        reporter.report(Failure::Unexplained("no available hosts".into()));
        assert_eq!(problem(), "no session: no available hosts");
        reporter.report(Failure::Explained("a wrong password".into()));
        reporter.report(Failure::Unexplained("the connection is lost".into()));
        assert_eq!(problem(), "no session: a wrong password");
        reporter.report(Failure::Diagnosed("zk-0:2181 cannot be reached".into()));
        assert_eq!(problem(), "no session: zk-0:2181 cannot be reached");
        reporter.report(Failure::Unexplained("the connection is lost".into()));
        assert_eq!(problem(), "no session: the connection is lost", "the server is back");
    }

    fn settings() -> (SessionSettings, watch::Receiver<ConnectionState>) {
        let security =
            Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: false };
        let session_timeout = Duration::from_secs(4);
        let zookeeper = Zookeeper { hosts: "zk-0:2181".into(), session_timeout, security };
        let (link, published) = watch::channel(ConnectionState::default());
        let settings = SessionSettings {
            credentials: Credentials::of(&zookeeper),
            zookeeper,
            clock: Clock::system(),
            link,
            purpose: "election",
            delay: Duration::ZERO,
            connections: watch::Sender::new(None),
            file: None,
            former: None,
        };
        (settings, published)
    }
}
