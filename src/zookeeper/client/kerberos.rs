//! Logins by Kerberos: the tickets for the servers, and the threads on which the KDC is asked for them.
//!
//! A call that asks the KDC or the name server blocks, for half a minute where neither answers. So it runs on a thread of its
//! own, never on a session's: one thread for each server that is logged in to, for as long as that takes, and one that
//! renews tickets.
//!
//! With a keytab, the tickets are in a cache in memory. Well before they end, another cache is filled with tickets for all
//! servers, and only then takes its place: a KDC that is away for less than about half of a ticket's lifetime is not missed,
//! whichever server the next connection goes to. Without a keytab, another program renews the default cache, and the
//! servers' tickets are fetched into it ahead of time.

use crate::config::security::{Kerberos, Login};
use crate::config::table::{KERBEROS_KEYTAB, KERBEROS_PRINCIPAL, SERVERS};
use crate::config::{ConfigError, ValueError, Zookeeper, named};
use crate::files::{self, Size};
use ::zookeeper::{Connector, GssapiCredentials, GssapiError, GssapiSaslOptions};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// From an attempt to renew the tickets that failed to the next.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The shortest and the longest time between two looks at the default cache, which another program renews.
const LOOK_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];

/// The errors of Kerberos (krb5.h) that have words of ours.
mod code {
    pub(super) const KDC_UNREACHABLE: i32 = -1_765_328_228;
    pub(super) const SERVER_UNKNOWN: i32 = -1_765_328_377;
    pub(super) const CLIENT_UNKNOWN: i32 = -1_765_328_378;
    pub(super) const CLOCK_SKEW: i32 = -1_765_328_347;
    /// A key is not the one that the KDC has: without preauthentication, and with it.
    pub(super) const WRONG_KEY: i32 = -1_765_328_353;
    pub(super) const PREAUTHENTICATION_FAILED: i32 = -1_765_328_360;
    /// There is no such key. Where there is no cache either, only that is said.
    pub(super) const NO_KEY: i32 = -1_765_328_203;
    pub(super) const NO_CACHE: i32 = -1_765_328_189;
}

/// The two bytes with which a keytab begins, and the two versions of its format.
const KEYTAB_MAGIC: [[u8; 2]; 2] = [[5, 1], [5, 2]];

/// The tickets with which a member logs in. Dropped, it renews them no longer.
pub(crate) struct Tickets {
    source: Arc<TicketSource>,
    /// The logins that took too long. Each has a thread that still waits for the KDC.
    overdue: Mutex<BTreeMap<String, PendingLogin>>,
    renewal: OnceLock<mpsc::Sender<Infallible>>,
}

type PendingLogin = oneshot::Receiver<Result<GssapiSaslOptions, String>>;

/// A login at one server, for one connection.
pub(crate) struct BegunLogin {
    options: GssapiSaslOptions,
    /// Our principal, and the server's.
    who: String,
    target: String,
}

/// The source of the tickets. All of its methods may block.
struct TicketSource {
    settings: Kerberos,
    /// The names of all servers.
    hosts: Vec<String>,
    /// The cache that is filled from the keytab.
    cache: Mutex<Option<Arc<Cache>>>,
}

/// A credential cache in memory, forgotten with its last user.
struct Cache {
    name: String,
}

/// Checks the keytab, as far as that goes without the KDC.
pub(super) fn check(settings: &Zookeeper) -> Result<(), ConfigError> {
    let Some(Login::Kerberos(Kerberos { keytab: Some(keytab), .. })) = &settings.security.login
    else {
        return Ok(());
    };
    let flaw = match files::read(keytab, Size::Certificates) {
        Err(problem) => ValueError::new(problem),
        Ok(bytes) if bytes.first_chunk().is_some_and(|magic| KEYTAB_MAGIC.contains(magic)) => {
            return Ok(());
        }
        Ok(_) => ValueError::new("is not a keytab").remedy("have it made by ktadd or ktutil"),
    };
    Err(flaw.in_file(KERBEROS_KEYTAB.key(), keytab))
}

impl Tickets {
    pub(super) fn of(settings: &Zookeeper) -> Option<Self> {
        let Some(Login::Kerberos(kerberos)) = &settings.security.login else { return None };
        let source = TicketSource {
            settings: kerberos.clone(),
            hosts: settings
                .hosts
                .split(',')
                .map(|server| super::credentials::host(server).to_owned())
                .collect(),
            cache: Mutex::default(),
        };
        Some(Self { source: source.into(), overdue: Mutex::default(), renewal: OnceLock::new() })
    }

    /// Begins a login at the server of this name, within the limit.
    pub(super) async fn begin(&self, host: &str, limit: Duration) -> Result<BegunLogin, String> {
        let mut pending = self
            .login(host)
            .map_err(|error| format!("Kerberos needs a thread, and there is none: {error}"))?;
        let settings = &self.source.settings;
        let target = format!("{}/{host}", settings.service);
        match timeout(limit, &mut pending).await {
            Ok(Ok(begun)) => {
                let options = begun?;
                self.keep_renewed();
                Ok(BegunLogin { options, who: settings.who().to_owned(), target })
            }
            Ok(Err(_)) => Err("the thread that asks for Kerberos tickets died, see the log".into()),
            Err(_) => {
                self.overdue().insert(host.to_owned(), pending);
                Err(format!(
                    "no Kerberos ticket for {target} as {} within {limit:?}: the KDC of {} does not \
                     answer. Is it up, and does krb5.conf name the right one?",
                    settings.who(),
                    settings.realm()
                ))
            }
        }
    }

    /// Returns the login that is under way at this server, or starts one: no more than one thread waits for each.
    fn login(&self, host: &str) -> io::Result<PendingLogin> {
        if let Some(mut pending) = self.overdue().remove(host)
            // A login that has come to its end may have done so long ago, and servers refuse an old one.
            && matches!(pending.try_recv(), Err(TryRecvError::Empty))
        {
            return Ok(pending);
        }
        let (begun, pending) = oneshot::channel();
        let source = self.source.clone();
        let host = host.to_owned();
        thread::Builder::new().name("kerberos-login".into()).spawn(move || {
            let login = source.log_in(&host).map_err(|error| source.in_words(&host, &error));
            let _receiver_gone = begun.send(login);
        })?;
        Ok(pending)
    }

    /// Starts the thread that renews the tickets, once there are some.
    fn keep_renewed(&self) {
        self.renewal.get_or_init(|| {
            let (dropped, stop) = mpsc::channel();
            let source = self.source.clone();
            let started = thread::Builder::new()
                .name("kerberos-renew".into())
                .spawn(move || source.keep_renewed(&stop));
            if let Err(error) = started {
                warn!("Kerberos tickets are not renewed ahead of time: no thread: {error}");
            }
            dropped
        });
    }

    fn overdue(&self) -> MutexGuard<'_, BTreeMap<String, PendingLogin>> {
        self.overdue.lock().expect("no panic while it is held")
    }
}

impl BegunLogin {
    /// Has the library go on with the login. What is left of it asks nobody but the server.
    pub(super) fn apply(&self, connector: Connector) -> Connector {
        connector.with_sasl(self.options.clone())
    }

    /// Returns why the server's part in the login is not accepted.
    pub(super) fn failure(&self) -> Option<String> {
        let Self { options, target, .. } = self;
        let why = options.failure()?;
        Some(format!(
            "the server does not prove to be {target} (zookeeper.auth = \"kerberos\"): {why}"
        ))
    }

    /// Says why the server may refuse the login, and what to do about it.
    pub(super) fn refused(&self) -> String {
        let Self { who, target, .. } = self;
        format!(
            "the servers refuse the login of {who} (zookeeper.auth = \"kerberos\"): is the key of \
             {target} in their keytab (JAAS) the one that the KDC has, and are the clocks right? \
             The server's log has the reason"
        )
    }
}

impl TicketSource {
    fn log_in(&self, host: &str) -> Result<GssapiSaslOptions, GssapiError> {
        let service = &self.settings.service;
        let Some(keytab) = self.settings.keytab.as_deref() else {
            return self.default_credentials()?.begin(service, host);
        };
        if let Some(cache) = self.cache().clone() {
            match self
                .credentials_in(&cache)
                .and_then(|credentials| credentials.begin(service, host))
            {
                Ok(login) => return Ok(login),
                Err(error) if error.code() == code::KDC_UNREACHABLE => return Err(error),
                // The tickets have ended, or the KDC takes them no longer.
                Err(error) => debug!("new Kerberos tickets are needed: {error}"),
            }
        }
        let (cache, credentials) = self.fill_cache(&keytab.to_string_lossy())?;
        let login = credentials.begin(service, host)?;
        *self.cache() = Some(cache);
        Ok(login)
    }

    /// Renews the tickets until the other end of the channel is dropped.
    fn keep_renewed(&self, stop: &mpsc::Receiver<Infallible>) {
        let mut wait = Duration::ZERO;
        let mut are_all_there = false;
        let mut problem = None;
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(wait) {
            wait = match self.renew(are_all_there) {
                Ok(left) => {
                    if problem.take().is_some() {
                        info!("the Kerberos tickets of {} are renewed again", self.settings.who());
                    }
                    are_all_there = true;
                    self.renewal_interval(left)
                }
                Err(error) => {
                    let error = error.to_string();
                    if problem.as_ref() != Some(&error) {
                        self.warn_of(&error);
                        problem = Some(error);
                    }
                    RETRY_INTERVAL
                }
            };
        }
    }

    /// Fetches tickets for all servers, of which only the first has one yet, or renews them. Returns for how long they last.
    fn renew(&self, are_all_there: bool) -> Result<Duration, GssapiError> {
        let present = self.cache().clone();
        let (filled, credentials) = match (self.settings.keytab.as_deref(), present) {
            (None, _) => (None, self.default_credentials()?),
            (Some(_), Some(cache)) if !are_all_there => (None, self.credentials_in(&cache)?),
            (Some(keytab), _) => {
                let (cache, credentials) = self.fill_cache(&keytab.to_string_lossy())?;
                (Some(cache), credentials)
            }
        };
        for host in &self.hosts {
            match credentials.begin(&self.settings.service, host) {
                Err(error) if error.code() == code::KDC_UNREACHABLE => return Err(error),
                // Reported when a login fails for it.
                Err(error) => debug!("no Kerberos ticket for {host} ahead of time: {error}"),
                Ok(_) => {}
            }
        }
        let left = credentials.lifetime()?;
        if let Some(cache) = filled {
            debug!("renewed the Kerberos tickets of {}, for {left:?}", self.settings.who());
            *self.cache() = Some(cache);
        }
        Ok(left)
    }

    /// Members that started together do not renew in step.
    fn renewal_interval(&self, left: Duration) -> Duration {
        let part = left.mul_f64(0.4 + 0.1 * fastrand::f64());
        match self.settings.keytab {
            Some(_) => part.max(LOOK_INTERVALS[0]),
            None => part.clamp(LOOK_INTERVALS[0], LOOK_INTERVALS[1]),
        }
    }

    fn warn_of(&self, error: &str) {
        let who = self.settings.who();
        let present = self.cache().clone();
        let left = present.and_then(|cache| self.credentials_in(&cache).ok()?.lifetime().ok());
        match left {
            Some(left) => warn!(
                "the Kerberos tickets of {who} are not renewed: {error}. The session goes on, and another \
                 connection can be made with the old tickets for {left:?}; trying again"
            ),
            None => warn!(
                "the Kerberos tickets of {who} are not renewed: {error}. The session goes on, and no other \
                 connection can be made without tickets; trying again"
            ),
        }
    }

    fn default_credentials(&self) -> Result<GssapiCredentials, GssapiError> {
        GssapiCredentials::acquire(self.settings.principal.as_deref(), &[])
    }

    /// The credentials in this cache, without the keytab: so no time is lost to a KDC while they last.
    fn credentials_in(&self, cache: &Cache) -> Result<GssapiCredentials, GssapiError> {
        GssapiCredentials::acquire(self.settings.principal.as_deref(), &[("ccache", &cache.name)])
    }

    fn fill_cache(&self, keytab: &str) -> Result<(Arc<Cache>, GssapiCredentials), GssapiError> {
        static CACHES: AtomicU64 = AtomicU64::new(0);
        let name = format!("MEMORY:bellwether-{}", CACHES.fetch_add(1, Ordering::Relaxed));
        let cache = Arc::new(Cache { name });
        let store = [("client_keytab", keytab), ("ccache", &cache.name)];
        let credentials = GssapiCredentials::acquire(self.settings.principal.as_deref(), &store)?;
        // The keytab is used now, if not before.
        credentials.lifetime()?;
        Ok((cache, credentials))
    }

    fn cache(&self) -> MutexGuard<'_, Option<Arc<Cache>>> {
        self.cache.lock().expect("no panic while it is held")
    }

    /// Says why there is no ticket, and what to do about it.
    fn in_words(&self, host: &str, error: &GssapiError) -> String {
        let Kerberos { keytab, service, .. } = &self.settings;
        let who = self.settings.who();
        let keytab =
            keytab.as_deref().map(|file| format!("{}, {},", KERBEROS_KEYTAB.key(), named(file)));
        let why = match (error.code(), keytab) {
            (code::KDC_UNREACHABLE, _) => {
                format!("{error}. Is it up, and does krb5.conf name the right one?")
            }
            (code::SERVER_UNKNOWN, _) => format!(
                "{error}. Write the server into {} by the name in its principal, or have the KDC given that \
                 principal",
                SERVERS.key()
            ),
            (code::CLIENT_UNKNOWN, _) => {
                format!("{error}. Is {} right?", KERBEROS_PRINCIPAL.key())
            }
            (code::CLOCK_SKEW, _) => format!("{error}: set this machine's clock, or the KDC's"),
            (code::NO_KEY | code::NO_CACHE, Some(keytab)) => {
                format!("{keytab} has no key of {who}: klist -k shows whose keys it has")
            }
            (code::WRONG_KEY | code::PREAUTHENTICATION_FAILED, Some(keytab)) => format!(
                "{error}: the key of {who} in {keytab} is not the one that the KDC has. Have it exported again"
            ),
            (_, Some(keytab)) => format!("{error} (with {})", keytab.trim_end_matches(',')),
            (_, None) => {
                format!(
                    "{error}. klist shows what the default credential cache has, and kinit fills it"
                )
            }
        };
        format!(
            "no Kerberos ticket for {service}/{host} as {who} from the KDC of {}: {why}",
            self.settings.realm()
        )
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        GssapiCredentials::destroy_cache(&self.name);
    }
}
