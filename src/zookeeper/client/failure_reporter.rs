//! Finds out why connecting fails, in parallel with further attempts, and reports it.

use super::diagnosis::diagnose;
use super::session::SessionSettings;
use crate::runtime;
use recipes::Moment;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use tracing::warn;

/// Reports, in the log and in `/status`, why attempts to connect fail.
pub(super) struct FailureReporter<'a> {
    settings: &'a SessionSettings,
    /// The session's name in the log.
    name: String,
    /// The text in front of the reason, such as "no session with ZooKeeper at zk-0:2181".
    what: String,
    logged: ReasonLog,
    /// How the last cause was found; `None` until a cause is found.
    cause_source: Option<CauseSource>,
    /// The running diagnosis, at most one. It ends with the cause, or with the library's error (`Err`) if it finds no cause.
    diagnosis: JoinSet<Result<String, String>>,
}

/// The reasons that were logged, so that the same one is not logged at each attempt.
struct ReasonLog {
    /// When the attempts began.
    begun_at: Moment,
    reasons: BTreeSet<String>,
    /// When a reason was last logged.
    last_at: Moment,
}

/// How a cause was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CauseSource {
    /// By our own diagnosis, or by resolving the servers' names. If the next diagnosis finds nothing, the library's
    /// error is reported instead.
    Diagnosis,
    /// By an answer of the servers, or from our own files and settings. From then on, the library's error is not
    /// reported, because it says less.
    Servers,
}

impl<'a> FailureReporter<'a> {
    pub(super) fn new(settings: &'a SessionSettings, name: String, what: String) -> Self {
        let logged = ReasonLog::begun(settings.clock.now());
        Self { settings, name, what, logged, cause_source: None, diagnosis: JoinSet::new() }
    }

    /// Runs an attempt to connect, and meanwhile reports what a diagnosis finds. Attempts do not wait for a diagnosis.
    pub(super) async fn with_reports<T>(&mut self, attempt: impl Future<Output = T>) -> T {
        let mut attempt = std::pin::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                done = &mut attempt => return done,
                Some(found) = self.diagnosis.join_next() => {
                    match found {
                        Ok(Ok(cause)) => self.report_cause(&cause, CauseSource::Diagnosis),
                        // The diagnosis found nothing. The library's error must not replace a cause from the servers.
                        Ok(Err(why)) if self.cause_source != Some(CauseSource::Servers) => {
                            self.report(&why);
                        }
                        // Such a cause is kept. Nor is there anything to report if the diagnosis has panicked.
                        _ => {}
                    }
                }
            }
        }
    }

    /// Starts a diagnosis, unless one is running. `why` is the library's error. Until a cause is known, this error is
    /// published at once; it is logged only if the diagnosis finds no cause.
    pub(super) fn investigate(&mut self, why: String) {
        if self.cause_source.is_none() {
            self.publish(&why);
        }
        if self.diagnosis.is_empty() {
            let settings = self.settings.zookeeper.clone();
            let presented = self.settings.credentials.last_presented();
            let limit = settings.session_timeout / 4;
            // The diagnosis computes and reads files, so it runs on another thread, where it does not delay the session.
            self.diagnosis.spawn_blocking(move || {
                let Ok(runtime) = runtime::build() else { return Err(why) };
                runtime.block_on(diagnose(&settings, presented, limit)).ok_or(why)
            });
        }
    }

    /// Reports why the last attempt failed. [`CauseSource`] says which later reports may replace it.
    pub(super) fn report_cause(&mut self, cause: &str, source: CauseSource) {
        self.report(cause);
        self.cause_source = Some(source);
    }

    /// Publishes the reason, and logs it if it is new or if no reason was logged for long.
    fn report(&mut self, why: &str) {
        let problem = self.publish(why);
        if let Some(tries) = self.logged.due(why, self.settings.clock.now()) {
            warn!("{}: {problem}; {tries}", self.name);
        }
    }

    /// Publishes for `/status` that there is no connection, and why. Returns the sentence that was published.
    fn publish(&self, why: &str) -> String {
        let problem = format!("{}: {why}", self.what);
        self.settings.link.send_modify(|link| {
            link.connected = false;
            link.problem = Some(problem.clone());
        });
        problem
    }
}

impl ReasonLog {
    /// The time after which a known reason is logged again, if nothing was logged meanwhile and attempts still fail.
    const SILENCE: Duration = Duration::from_secs(600);

    fn begun(now: Moment) -> Self {
        Self { begun_at: now, reasons: BTreeSet::new(), last_at: now }
    }

    /// Returns the end of the log line for this reason, or `None` if the reason must not be logged: it is not new, and
    /// some reason was logged less than [`Self::SILENCE`] ago.
    fn due(&mut self, why: &str, now: Moment) -> Option<String> {
        let is_new = self.reasons.insert(why.to_owned());
        if !is_new && now.since(self.last_at) < Self::SILENCE {
            return None;
        }
        self.last_at = now;
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
    use crate::zookeeper::client::{Credentials, PreviousEnd};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    #[test]
    fn a_reason_is_logged_once_and_again_now_and_then() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let mut logged = ReasonLog::begun(at(0));
        let is_logged =
            |logged: &mut ReasonLog, why, seconds| logged.due(why, at(seconds)).is_some();
        assert!(is_logged(&mut logged, "refused", 0));
        assert!(!is_logged(&mut logged, "refused", 599));
        assert_eq!(logged.due("refused", at(600)).unwrap(), "still trying, for 10 minutes by now");
        assert!(is_logged(&mut logged, "frozen", 700), "it is new");
        assert!(!is_logged(&mut logged, "refused", 1299));
        assert!(is_logged(&mut logged, "refused", 1300));
    }

    #[tokio::test]
    async fn words_of_the_library_do_not_replace_a_known_cause() {
        // A diagnosis finds nothing wrong with this server.
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = server.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            while let Ok((mut client, _)) = server.accept().await {
                let _already_gone = client.write_all(b"Zookeeper version: 3.8.0\n").await;
            }
        });
        let security =
            Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: false };
        let zookeeper = Zookeeper { hosts, session_timeout: Duration::from_secs(4), security };
        let (link, published) = watch::channel(ConnectionState::default());
        let settings = SessionSettings {
            credentials: Credentials::of(&zookeeper),
            zookeeper,
            clock: Clock::system(),
            link,
            purpose: "election",
            previous_end: PreviousEnd::Ended,
            file: None,
            former: None,
        };
        let problem = || published.borrow().problem.clone().unwrap_or_default();
        let mut reporter =
            FailureReporter::new(&settings, "election session".into(), "no session".into());
        let investigate = async |reporter: &mut FailureReporter<'_>, why: &str| {
            reporter.investigate(why.into());
            while !reporter.diagnosis.is_empty() {
                reporter.with_reports(tokio::time::sleep(Duration::from_millis(1))).await;
            }
        };

        investigate(&mut reporter, "no available hosts").await;
        assert_eq!(problem(), "no session: no available hosts");
        reporter.report_cause("a wrong password", CauseSource::Servers);
        for vague in ["no available hosts", "the connection is lost"] {
            investigate(&mut reporter, vague).await;
            assert_eq!(problem(), "no session: a wrong password");
        }

        // A cause that a diagnosis finds is reported.
        serving.abort();
        assert!(serving.await.unwrap_err().is_cancelled());
        investigate(&mut reporter, "no available hosts").await;
        assert!(problem().contains("cannot be reached"), "{}", problem());
    }
}
