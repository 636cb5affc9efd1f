//! Fetches and renews tickets, on threads that may block.

use super::explain::default_cache;
use super::keytab::{KeytabGate, fingerprint};
use super::{Tickets, code};
use crate::clock::Clock;
use ::zookeeper::{GssapiCredentials, GssapiError, GssapiSaslOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime};
use tracing::{debug, error, info, warn};

/// Delay before the next attempt to renew the tickets after a failed attempt. Also the shortest time between two renewals
/// that are requested because a server has refused a login.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest time between two renewals, or two checks of the default cache, which another program renews.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time between two checks of the default cache.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// The tickets of the default cache are late if another program has not renewed them when a tenth of their lifetime is
/// left, or this time if it is shorter. The time is short, because some programs renew tickets only minutes before
/// their end.
const LATEST_RENEWAL: Duration = Duration::from_secs(300);

/// The consequence of the end of the tickets, for a member that has a connection, or may have one.
const CONSEQUENCE_OF_END: &str = "a session with a connection goes on, and a lost connection cannot be made again before there \
                           are new ones";

/// The state of the tickets, for `/status` and metrics.
#[derive(Default)]
pub(super) struct TicketState {
    /// `None` before the first tickets.
    end_at: Option<SystemTime>,
    /// The reason why the tickets are not renewed; `None` if they are.
    renewal_problem: Option<String>,
    /// True once the end of the tickets was logged.
    end_is_logged: bool,
}

/// The reason why there are no tickets.
#[derive(Debug)]
pub(super) enum TicketError {
    /// The keytab cannot be used. The text has the reason, and the name of the file.
    Keytab(String),
    Kerberos(GssapiError),
}

/// A credential cache in memory, destroyed when its last user drops it.
pub(super) struct Cache {
    name: String,
}

/// The tickets that another program renews, as they were first found.
struct FoundTickets {
    end_at: SystemTime,
    lifetime: Duration,
}

impl Tickets {
    /// Returns the name of the member's principal, for a message.
    pub(super) fn who(&self) -> &str {
        self.found_principal.get().map_or_else(|| self.settings.who(), String::as_str)
    }

    /// Returns when the tickets end, or have ended; the epoch before the first tickets.
    pub(crate) fn end_at(&self) -> SystemTime {
        self.state().end_at.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Describes to operators that the tickets are not renewed, or have ended; `None` if neither is the case, or there
    /// were no tickets yet. `is_connected` is true if the member has a connection, which goes on without tickets.
    pub(crate) fn problem(&self, now: SystemTime, is_connected: bool) -> Option<String> {
        let state = self.state();
        let end_at = state.end_at?;
        let who = self.who();
        let date = humantime::format_rfc3339_seconds(end_at);
        let why = state.renewal_problem.as_deref();
        if end_at > now {
            let why = why?;
            return Some(format!(
                "the Kerberos tickets of {who} end at {date} and are not renewed: {why}"
            ));
        }
        let consequence = match is_connected {
            true => CONSEQUENCE_OF_END,
            false => "no connection can be made before there are new ones",
        };
        let why = why.map(|why| format!(". They are not renewed: {why}")).unwrap_or_default();
        Some(format!("the Kerberos tickets of {who} have ended (at {date}): {consequence}{why}"))
    }

    /// Begins a login at the server with this name. Asks the KDC only if there is no valid ticket for the server.
    pub(super) fn log_in(&self, host: &str) -> Result<GssapiSaslOptions, TicketError> {
        let service = &self.settings.service;
        let Some(keytab) = self.settings.keytab.as_deref() else {
            // Another program renews the tickets in the default cache.
            let credentials = self.default_credentials()?;
            self.note_end(credentials.lifetime()?);
            if self.settings.principal.is_none()
                && let Ok(principal) = credentials.principal()
            {
                self.found_principal.get_or_init(|| principal);
            }
            return Ok(credentials.begin(service, host)?);
        };
        let current = self.cache().clone();
        if let Some(cache) = &current {
            let begun =
                self.credentials_in(cache).and_then(|credentials| credentials.begin(service, host));
            match begun {
                Ok(login) => return Ok(login),
                Err(error) if !needs_new_tickets(&error) => return Err(error.into()),
                Err(error) => debug!("new Kerberos tickets are needed: {error}"),
            }
        }
        Ok(self.replace_tickets(current.as_ref(), keytab)?.begin(service, host)?)
    }

    /// Replaces the `old` tickets, if there are any, by new ones, which are fetched with the keytab. If another thread
    /// has done so meanwhile, returns that thread's tickets.
    fn replace_tickets(
        &self,
        old: Option<&Arc<Cache>>,
        keytab: &Path,
    ) -> Result<GssapiCredentials, TicketError> {
        // This waits while another thread fetches tickets.
        let mut gate = self.gate();
        let current = self.cache().clone();
        let newer = current.filter(|current| !old.is_some_and(|old| Arc::ptr_eq(old, current)));
        if let Some(newer) = newer {
            return Ok(self.credentials_in(&newer)?);
        }
        let (cache, credentials, left) = self.fill_cache(&mut gate, keytab)?;
        *self.cache() = Some(cache);
        self.note_end(left);
        Ok(credentials)
    }

    /// Renews the tickets when that is due or requested, until the process ends.
    pub(super) fn keep_renewed(&self, requests: &mpsc::Receiver<()>) {
        let clock = Clock::system();
        let mut due_at = clock.now();
        // False until the first renewal: until then, the cache has tickets only for servers at which a login has begun.
        let mut has_all_tickets = false;
        // The tickets last seen in the default cache: `note_and_check_late` checks whether they should be newer by now.
        let mut found = None;
        loop {
            let is_requested = match requests.recv_timeout(due_at.since(clock.now())) {
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) => {
                    debug!("a server refused the login: new Kerberos tickets are needed");
                    true
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // The first renewal only adds the missing tickets, unless a server has refused those that are there.
            let with_new_cache = has_all_tickets || is_requested;
            let wait = match self.renew(with_new_cache) {
                Ok(left) => {
                    has_all_tickets = true;
                    self.note_end(left);
                    let mut problem = None;
                    if self.settings.keytab.is_none() && note_and_check_late(&mut found, left) {
                        let cache = default_cache();
                        problem = Some(format!("no program has renewed those in {cache}"));
                    }
                    self.report(problem);
                    self.renewal_interval(left)
                }
                Err(error) => {
                    self.note_loss(&error);
                    self.report(Some(self.explain(&error)));
                    RETRY_INTERVAL
                }
            };
            due_at = clock.now().after(wait);
            if is_requested {
                // If the server refuses the new tickets as well, they are not replaced at once.
                thread::sleep(RETRY_INTERVAL);
            }
        }
    }

    /// Fetches tickets for all servers. With a keytab, they go into a new cache if `with_new_cache` is true, and are
    /// otherwise added to the current one. Returns how long the tickets last.
    fn renew(&self, with_new_cache: bool) -> Result<Duration, TicketError> {
        let current = self.cache().clone();
        let (new_cache, credentials) = match (self.settings.keytab.as_deref(), current) {
            (None, _) => (None, self.default_credentials()?),
            (Some(_), Some(cache)) if !with_new_cache => (None, self.credentials_in(&cache)?),
            (Some(keytab), _) => {
                let (cache, credentials, _) = self.fill_cache(&mut self.gate(), keytab)?;
                (Some(cache), credentials)
            }
        };
        let left = credentials.lifetime()?;
        for host in &self.hosts {
            match credentials.begin(&self.settings.service, host) {
                // The current cache stays in use, and the new one is dropped.
                Err(error) if error.code() == code::KDC_UNREACHABLE => return Err(error.into()),
                // A missing ticket is reported when a login at its server fails.
                Err(error) => debug!("no Kerberos ticket for {host} ahead of time: {error}"),
                Ok(_) => {}
            }
        }
        if let Some(cache) = new_cache {
            debug!("renewed the Kerberos tickets of {}, for {left:?}", self.who());
            *self.cache() = Some(cache);
        }
        Ok(left)
    }

    /// Returns the delay before the next renewal of tickets that last for `left`: somewhat less than half of it. The
    /// delay is random, so that members that started together do not renew at the same time.
    fn renewal_interval(&self, left: Duration) -> Duration {
        let part = left.mul_f64(0.4 + 0.1 * fastrand::f64());
        match self.settings.keytab {
            Some(_) => part.max(MIN_RENEWAL_INTERVAL),
            None => part.clamp(MIN_RENEWAL_INTERVAL, MAX_CHECK_INTERVAL),
        }
    }

    /// Notes that the tickets last for `left`.
    fn note_end(&self, left: Duration) {
        self.state().end_at = Some(Clock::system().date() + left);
    }

    /// Notes after a failed renewal that the tickets have ended, if the error shows that they are gone from the default
    /// cache. Unlike tickets in memory, these may be removed before their end.
    fn note_loss(&self, error: &TicketError) {
        // Kerberos asks a KDC only with a ticket-granting ticket. So if no KDC was reached, the cache still has that ticket.
        let are_still_there =
            matches!(error, TicketError::Kerberos(error) if error.code() == code::KDC_UNREACHABLE);
        if self.settings.keytab.is_none() && !are_still_there {
            let now = Clock::system().date();
            let mut state = self.state();
            state.end_at = state.end_at.map(|end_at| end_at.min(now));
        }
    }

    /// Stores the problem of the renewal for `/status`; `None` means that the tickets are renewed. Logs the problem if it has
    /// changed, or if the tickets have just ended.
    fn report(&self, renewal_problem: Option<String>) {
        let now = Clock::system().date();
        let mut state = self.state();
        let has_ended = state.end_at.is_some_and(|end_at| end_at <= now);
        if state.renewal_problem == renewal_problem && state.end_is_logged == has_ended {
            return;
        }
        state.renewal_problem = renewal_problem;
        state.end_is_logged = has_ended;
        drop(state);
        match self.problem(now, true) {
            None => info!("the Kerberos tickets of {} are renewed again", self.who()),
            Some(problem) if has_ended => error!("{problem}"),
            Some(problem) => warn!("{problem}"),
        }
    }

    fn default_credentials(&self) -> Result<GssapiCredentials, GssapiError> {
        GssapiCredentials::acquire(self.settings.principal.as_deref(), &[])
    }

    /// Returns the credentials in this cache, without the keytab, so that no time is lost to a KDC while the tickets last.
    fn credentials_in(&self, cache: &Cache) -> Result<GssapiCredentials, GssapiError> {
        GssapiCredentials::acquire(self.settings.principal.as_deref(), &[("ccache", &cache.name)])
    }

    /// Fetches tickets with the keytab into a new cache, unless the gate forbids to ask the KDC because it has refused this
    /// keytab. Also returns how long the tickets last.
    fn fill_cache(
        &self,
        gate: &mut KeytabGate,
        keytab: &Path,
    ) -> Result<(Arc<Cache>, GssapiCredentials, Duration), TicketError> {
        static CACHES: AtomicU64 = AtomicU64::new(0);
        let content = fingerprint(keytab).map_err(TicketError::Keytab)?;
        if let Some(error) = gate.refusal(content, Clock::system().now()) {
            return Err(error.clone().into());
        }
        let name = format!("MEMORY:bellwether-{}", CACHES.fetch_add(1, Ordering::Relaxed));
        let cache = Arc::new(Cache { name });
        let keytab = keytab.to_string_lossy();
        let store = [("client_keytab", &*keytab), ("ccache", &cache.name)];
        let filled = GssapiCredentials::acquire(self.settings.principal.as_deref(), &store)
            // `lifetime` asks the KDC with the keytab, if `acquire` has not done so.
            .and_then(|credentials| Ok((credentials.lifetime()?, credentials)));
        gate.note(content, filled.as_ref().err(), Clock::system().now());
        let (left, credentials) = filled?;
        Ok((cache, credentials, left))
    }

    fn cache(&self) -> MutexGuard<'_, Option<Arc<Cache>>> {
        self.cache.lock().expect("no panic while it is held")
    }

    fn gate(&self) -> MutexGuard<'_, KeytabGate> {
        self.gate.lock().expect("no panic while it is held")
    }

    fn state(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().expect("no panic while it is held")
    }
}

/// Returns true if new tickets may help after this error, for example because the current ones have ended, or because
/// the KDC no longer accepts them. They do not help if no KDC answers, or if the server or its realm is not known.
fn needs_new_tickets(error: &GssapiError) -> bool {
    !matches!(error.code(), code::KDC_UNREACHABLE | code::SERVER_UNKNOWN | code::REALM_UNKNOWN)
}

/// Returns true if the tickets of the default cache, which last for `left`, should have been renewed by now. `found`
/// has the tickets of earlier calls, as they were first found. If the current tickets end later than those, another
/// program has renewed them, so they replace `found`.
fn note_and_check_late(found: &mut Option<FoundTickets>, left: Duration) -> bool {
    let end_at = Clock::system().date() + left;
    // Lifetimes are in whole seconds, so allow for rounding.
    let latest_end = found.as_ref().map(|found| found.end_at + Duration::from_secs(2));
    if latest_end.is_none_or(|latest_end| end_at > latest_end) {
        *found = Some(FoundTickets { end_at, lifetime: left });
    }
    let lifetime = found.as_ref().map_or(left, |found| found.lifetime);
    left < (lifetime / 10).min(LATEST_RENEWAL)
}

impl From<GssapiError> for TicketError {
    fn from(error: GssapiError) -> Self {
        Self::Kerberos(error)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        GssapiCredentials::destroy_cache(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::security::Kerberos;

    #[test]
    fn no_session_goes_on_without_a_connection() {
        let settings = Kerberos {
            principal: Some("app@R".into()),
            keytab: Some("/k".into()),
            service: "zookeeper".into(),
        };
        let tickets = Tickets::new(settings, "zk-0:2181");
        let end_at = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        assert_eq!(tickets.problem(end_at, false), None, "there were no tickets");
        *tickets.state() = TicketState {
            end_at: Some(end_at),
            renewal_problem: Some("Cannot contact any KDC".into()),
            end_is_logged: false,
        };
        let ended = "the Kerberos tickets of app@R have ended (at 1970-01-01T00:00:09Z): ";
        let why = ". They are not renewed: Cannot contact any KDC";
        for (is_connected, consequence) in [
            (true, CONSEQUENCE_OF_END),
            (false, "no connection can be made before there are new ones"),
        ] {
            let problem = tickets.problem(end_at, is_connected).unwrap();
            assert_eq!(problem, format!("{ended}{consequence}{why}"));
        }
    }

    #[test]
    fn tickets_of_the_default_cache_are_late_when_a_tenth_of_their_lifetime_is_left() {
        let seconds = Duration::from_secs;
        let mut found = None;
        assert!(!note_and_check_late(&mut found, seconds(100)));
        assert!(!note_and_check_late(&mut found, seconds(11)));
        assert!(note_and_check_late(&mut found, seconds(9)));
        assert!(!note_and_check_late(&mut found, seconds(36000)), "renewed");
        assert!(!note_and_check_late(&mut found, seconds(301)));
        assert!(note_and_check_late(&mut found, seconds(299)));
    }
}
