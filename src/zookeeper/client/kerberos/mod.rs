//! Kerberos logins: the tickets for the servers, and the threads that request them from the KDC.
//!
//! A call that asks the KDC or the name server blocks, for half a minute if neither answers. So such calls never run on
//! a session's thread: there is one thread for each server where a login is running, and one that renews tickets.
//!
//! With a keytab, the tickets are in a cache in memory. Well before they end, another cache is filled with tickets for
//! all servers, and only then replaces the first. So an outage of the KDC for less than about half of a ticket's
//! lifetime has no effect, whichever server the next connection goes to. Without a keytab, another program renews the
//! tickets in the default cache, and only the servers' tickets are fetched into it ahead of time.

mod explain;
mod keytab;
mod renewal;

use self::explain::dns_name_remedy;
use self::keytab::KeytabGate;
use self::renewal::{Cache, TicketState};
use super::credentials;
use crate::config::security::{Kerberos, Login};
use crate::config::{ConfigError, Zookeeper};
use ::zookeeper::{Connector, GssapiFailure, GssapiSaslOptions};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::timeout;
use tracing::warn;

/// The Kerberos errors (krb5.h) that get an explanation.
mod code {
    use std::ops::RangeInclusive;

    pub(super) const KDC_UNREACHABLE: i32 = -1_765_328_228;
    pub(super) const REALM_UNKNOWN: i32 = -1_765_328_230;
    pub(super) const CONFIG_UNREADABLE: i32 = -1_765_328_249;
    pub(super) const CONFIG_INVALID: i32 = -1_765_328_248;
    pub(super) const NO_DEFAULT_REALM: i32 = -1_765_328_160;
    pub(super) const SERVER_UNKNOWN: i32 = -1_765_328_377;
    /// The server's principal has expired, or its attributes forbid tickets for it.
    pub(super) const SERVER_EXPIRED: i32 = -1_765_328_382;
    pub(super) const POLICY: i32 = -1_765_328_372;
    pub(super) const USER_TO_USER_ONLY: i32 = -1_765_328_357;
    pub(super) const CLIENT_UNKNOWN: i32 = -1_765_328_378;
    pub(super) const CLIENT_REVOKED: i32 = -1_765_328_366;
    pub(super) const CLIENT_EXPIRED: i32 = -1_765_328_383;
    pub(super) const KEY_EXPIRED: i32 = -1_765_328_361;
    pub(super) const CLOCK_SKEW: i32 = -1_765_328_347;
    pub(super) const TICKET_EXPIRED: i32 = -1_765_328_352;
    /// The member's key is not the one that the KDC has: the error if the KDC demands no preauthentication.
    pub(super) const WRONG_KEY: i32 = -1_765_328_353;
    /// The same, if the KDC demands preauthentication.
    pub(super) const PREAUTHENTICATION_FAILED: i32 = -1_765_328_360;
    /// The keytab has no key of the principal. If the cache is missing as well, Kerberos reports only the missing cache.
    pub(super) const NO_KEY: i32 = -1_765_328_203;
    pub(super) const NO_CACHE: i32 = -1_765_328_189;
    pub(super) const CACHE_OF_ANOTHER_USER: i32 = -1_765_328_190;
    /// The errors with which a KDC can answer.
    pub(super) const ANSWERS: RangeInclusive<i32> = -1_765_328_384..=-1_765_328_257;
}

/// The tickets with which a member logs in. The methods that ask the KDC or the name server may block.
pub(crate) struct Tickets {
    settings: Kerberos,
    /// The principal of the tickets in the default cache, once that is known. Empty if a principal is configured.
    found_principal: OnceLock<String>,
    /// The names of all servers.
    hosts: Vec<String>,
    /// The cache that is filled with the keytab. `None` before the first tickets, and without a keytab.
    cache: Mutex<Option<Arc<Cache>>>,
    /// Held by a thread while it asks the KDC with the keytab, so that only one thread does so at a time.
    gate: Mutex<KeytabGate>,
    state: Mutex<TicketState>,
    /// The logins that took too long, by the name of the server. The thread of each may still wait for the KDC.
    overdue: Mutex<BTreeMap<String, PendingLogin>>,
    /// Requests new tickets from the thread that renews them, before that is due, because a server has refused a login.
    /// Empty until the first login has begun, which starts the thread.
    renewal: OnceLock<mpsc::SyncSender<()>>,
}

/// The result of a login that runs on a thread of its own.
type PendingLogin = oneshot::Receiver<Result<GssapiSaslOptions, String>>;

/// A login at one server, for one connection.
pub(crate) struct BegunLogin {
    tickets: Arc<Tickets>,
    options: GssapiSaslOptions,
    /// The principal of the server as this member requested it. Kerberos may have replaced it, by DNS.
    server_principal: String,
}

/// Checks the keytab, as far as possible without the KDC.
pub(super) fn check(settings: &Zookeeper) -> Result<(), ConfigError> {
    match &settings.security.login {
        Some(Login::Kerberos(kerberos)) => keytab::check(kerberos),
        _ => Ok(()),
    }
}

impl Tickets {
    pub(super) fn of(settings: &Zookeeper) -> Option<Arc<Self>> {
        let Some(Login::Kerberos(kerberos)) = &settings.security.login else { return None };
        Some(Arc::new(Self::new(kerberos.clone(), &settings.hosts)))
    }

    fn new(settings: Kerberos, servers: &str) -> Self {
        Self {
            settings,
            found_principal: OnceLock::new(),
            hosts: servers.split(',').map(|server| credentials::host(server).to_owned()).collect(),
            cache: Mutex::default(),
            gate: Mutex::default(),
            state: Mutex::default(),
            overdue: Mutex::default(),
            renewal: OnceLock::new(),
        }
    }

    /// Begins a login at the server with this name, within the limit.
    pub(super) async fn begin(
        self: &Arc<Self>,
        host: &str,
        limit: Duration,
    ) -> Result<BegunLogin, String> {
        let mut pending = self
            .start_login(host)
            .map_err(|error| format!("Kerberos needs a thread, and there is none: {error}"))?;
        let server_principal = format!("{}/{host}", self.settings.service);
        match timeout(limit, &mut pending).await {
            Ok(Ok(begun)) => {
                let options = begun?;
                self.start_renewal();
                Ok(BegunLogin { tickets: self.clone(), options, server_principal })
            }
            Ok(Err(_)) => Err("the thread that asks for Kerberos tickets died, see the log".into()),
            Err(_) => {
                // The login's thread goes on. The next attempt to connect waits for it, or finds its tickets in the
                // cache.
                self.overdue().insert(host.to_owned(), pending);
                Err(self.explain_no_answer(host, limit))
            }
        }
    }

    /// Starts a login at this server, or returns the one that still runs: at most one thread waits for each server.
    fn start_login(self: &Arc<Self>, host: &str) -> io::Result<PendingLogin> {
        if let Some(mut pending) = self.overdue().remove(host)
            // A login that has finished meanwhile may be old, and servers refuse an old login. So a new one is begun.
            && matches!(pending.try_recv(), Err(TryRecvError::Empty))
        {
            return Ok(pending);
        }
        let (finished, pending) = oneshot::channel();
        let tickets = self.clone();
        let host = host.to_owned();
        thread::Builder::new().name("kerberos-login".into()).spawn(move || {
            let login =
                tickets.log_in(&host).map_err(|error| tickets.explain_no_ticket(&host, &error));
            let _receiver_gone = finished.send(login);
        })?;
        Ok(pending)
    }

    /// Starts the thread that renews the tickets, unless it was started before.
    fn start_renewal(self: &Arc<Self>) {
        self.renewal.get_or_init(|| {
            // The queue holds one request, which is enough however many servers refuse logins before it is handled.
            let (renewal, requests) = mpsc::sync_channel(1);
            let tickets = self.clone();
            let started = thread::Builder::new()
                .name("kerberos-renew".into())
                .spawn(move || tickets.keep_renewed(&requests));
            if let Err(error) = started {
                warn!("Kerberos tickets are not renewed ahead of time: no thread: {error}");
            }
            renewal
        });
    }

    fn overdue(&self) -> MutexGuard<'_, BTreeMap<String, PendingLogin>> {
        self.overdue.lock().expect("no panic while it is held")
    }
}

impl BegunLogin {
    /// Gives the login to the library, which continues it at the server, without the KDC.
    pub(super) fn apply(&self, connector: Connector) -> Connector {
        connector.with_sasl(self.options.clone())
    }

    /// Explains why the servers may refuse this login, and what to do about it. Requests new tickets as well: a server whose
    /// key was replaced refuses tickets that were issued for the old key, if it does not have that key.
    pub(super) fn explain_refusal(&self) -> String {
        if let Some(renewal) = self.tickets.renewal.get() {
            let _already_requested = renewal.try_send(());
        }
        let remedy = match self.tickets.settings.keytab {
            Some(_) => "",
            None => ". If that key was replaced, kinit gets tickets for the new one",
        };
        format!(
            "the servers refuse the login of {} (zookeeper.auth = \"kerberos\"): is the key of {} in their keytab (JAAS) \
             the one that the KDC has, and are the clocks right? The server's log has the reason{remedy}",
            self.tickets.who(),
            self.actual_server_principal()
        )
    }

    /// Returns why this member did not accept the server, `host:port`: the server did not answer the login, or did not
    /// prove its identity. Returns `None` if neither is the case.
    pub(super) fn failure(&self, server: &str) -> Option<String> {
        let Self { options, server_principal, .. } = self;
        let auth = "zookeeper.auth = \"kerberos\"";
        Some(match options.failure()? {
            GssapiFailure::Unanswered => {
                let (_, host) = server_principal.split_once('/').unwrap_or_default();
                let (_, port) = server.rsplit_once(':').unwrap_or_default();
                format!(
                    "{host}:{port} did not answer the login by Kerberos, and takes clients without one ({auth}): is \
                     java.security.auth.login.config set there, to a JAAS file whose section Server has Krb5LoginModule?"
                )
            }
            GssapiFailure::Refused(why) => {
                let principal = self.actual_server_principal();
                format!("the server does not prove to be {principal} ({auth}): {why}")
            }
        })
    }

    /// Returns the server's principal, and how Kerberos derived it if it is not the requested one.
    fn actual_server_principal(&self) -> String {
        let Self { options, server_principal: requested, .. } = self;
        let actual = options.target();
        let without_realm = actual.rsplit_once('@').map_or(actual, |(name, _)| name);
        match without_realm == requested {
            true => requested.clone(),
            false => format!(
                "{actual} (which Kerberos made of {requested} by DNS; to avoid that, {})",
                dns_name_remedy()
            ),
        }
    }
}
