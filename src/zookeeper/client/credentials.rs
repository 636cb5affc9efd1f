//! The member's credentials, and the CAs that it trusts. The files are read again for each connection, so that a replaced
//! file takes effect without a signal.

use super::kerberos::{self, BegunLogin, Tickets};
use super::server_version::ServerVersion;
use super::tls_errors;
use crate::clock::Clock;
use crate::config::security::{self, Login, OwnCertificate, Scheme, Security, Tls};
use crate::config::table::{CREDENTIALS_FILE, SERVERS, TLS_CA, TLS_CERT, TLS_KEY};
use crate::config::{ConfigError, Settings, Zookeeper, shown_path};
use crate::files::{self, Size};
use ::zookeeper::{Connector, SaslOptions, TlsOptions};
use recipes::Moment;
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error, InconsistentKeys, RootCertStore,
};
use tracing::{info, warn};

/// The time limit for all Kerberos logins of a command that connects once. The Kerberos library waits for a silent KDC
/// for a second before it asks the next KDC, and does so again for each ticket, so a login may take some seconds.
const COMMAND_LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Reads the credentials, and keeps the last valid ones, which are used if a file is incomplete because it is being written.
pub struct Credentials {
    settings: Zookeeper,
    loaded: Mutex<LoadedFiles>,
    /// `None` if Kerberos is not configured.
    tickets: Option<Arc<Tickets>>,
    /// The reason why the last Kerberos login could not begin; `None` if it has begun.
    login_failure: Mutex<Option<String>>,
    /// Kerberos logins of a command may take until this moment. `None` for a member: its logins have only the limit of each
    /// attempt to connect.
    login_deadline: Option<Moment>,
}

#[derive(Default)]
struct LoadedFiles {
    /// The last valid credentials; `None` before the first ones.
    presented: Option<Arc<PresentedCredentials>>,
    /// The reason why the current files cannot be used, so that older credentials are used.
    problem: Option<String>,
}

/// The credentials that are presented over one connection: a certificate, a login, both or neither. A Kerberos login is not
/// part of it: see [`Credentials::begin_login`].
pub(crate) struct PresentedCredentials {
    pub(crate) tls: Option<Trust>,
    login: Option<(Scheme, SecretString)>,
}

/// The trusted CAs and the member's own certificate.
pub(crate) struct Trust {
    pub(super) settings: Tls,
    pub(super) config: Arc<ClientConfig>,
    /// Why our certificate is not valid now; `None` if it is valid, or cannot be checked here.
    pub(super) own_problem: Option<String>,
}

/// Checks the configured credentials at the start. Returns a warning for the operator if the own certificate is not valid now.
///
/// # Errors
/// A sentence that names the key and the file, the problem, and how to fix it.
pub fn check(settings: &Settings) -> Result<Option<String>, ConfigError> {
    let settings = &settings.zookeeper;
    kerberos::check(settings)?;
    let Some(trust) = PresentedCredentials::read(settings)?.tls else { return Ok(None) };
    settings.hosts.split(',').try_for_each(|host| server_name(host).map(drop))?;
    Ok(trust.own_problem)
}

/// Returns the name that the certificate of the server at `host:port` must have.
pub(crate) fn server_name(server: &str) -> Result<ServerName<'static>, ConfigError> {
    let bare = host(server);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        let ca = TLS_CA.key();
        let problem = format!("cannot be used with {ca}, as no certificate can be for {bare:?}");
        ConfigError::new(SERVERS.key(), problem).remedy("write a DNS name or an IP address")
    })
}

/// Returns the name of the server at `host:port`, or its IP address without brackets.
pub(super) fn host(server: &str) -> &str {
    let name = server.rsplit_once(':').map_or(server, |(name, _)| name);
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

impl Credentials {
    /// Creates the credentials that all sessions of the process share: one session asks the KDC for all, and no session
    /// repeats a request that the KDC has refused to another.
    pub fn of(settings: &Zookeeper) -> Arc<Self> {
        Arc::new(Self::new(settings, None))
    }

    /// Creates the credentials of a command that connects once, and ends when that fails. Its Kerberos logins may take
    /// longer than those of a member, because a member finds the answer of a slow KDC at its next attempt.
    pub(crate) fn of_command(settings: &Zookeeper) -> Arc<Self> {
        let login_deadline = Clock::system().now().after(COMMAND_LOGIN_LIMIT);
        Arc::new(Self::new(settings, Some(login_deadline)))
    }

    fn new(settings: &Zookeeper, login_deadline: Option<Moment>) -> Self {
        Self {
            settings: settings.clone(),
            loaded: Mutex::default(),
            tickets: Tickets::of(settings),
            login_failure: Mutex::default(),
            login_deadline,
        }
    }

    /// Begins a Kerberos login at the server with this name. Returns `None` if Kerberos is not configured.
    ///
    /// # Errors
    /// The reason why the login cannot begin, which [`Self::login_failure`] returns as well.
    pub(super) async fn begin_login(
        &self,
        host: &str,
        limit: Duration,
    ) -> Result<Option<BegunLogin>, String> {
        let Some(tickets) = &self.tickets else { return Ok(None) };
        let limit = match self.login_deadline {
            // A command does not try again, so a slow KDC gets longer: whole seconds, because errors name the limit.
            Some(deadline) => {
                let left = deadline.since(Clock::system().now()).as_secs_f64();
                limit.max(Duration::from_secs(left.ceil() as u64))
            }
            None => limit,
        };
        let begun = tickets.begin(host, limit).await;
        let failure = begun.as_ref().err().cloned();
        *self.login_failure.lock().expect("no panic while it is held") = failure;
        begun.map(Some)
    }

    /// Returns why the last Kerberos login could not begin, so that its server was not tried; `None` if it has begun.
    pub fn login_failure(&self) -> Option<String> {
        self.login_failure.lock().expect("no panic while it is held").clone()
    }

    /// Returns when the Kerberos tickets end, or have ended; the epoch before the first tickets, and `None` if Kerberos
    /// is not configured.
    pub(crate) fn tickets_end_at(&self) -> Option<SystemTime> {
        Some(self.tickets.as_ref()?.end_at())
    }

    /// Describes to operators what is wrong with the Kerberos tickets; `None` if nothing is. The consequence for the member
    /// depends on whether it is connected.
    pub(crate) fn ticket_problem(&self, now: SystemTime, is_connected: bool) -> Option<String> {
        self.tickets.as_ref()?.problem(now, is_connected)
    }

    /// Reads the files. If they are not valid, or cannot be read in time, returns the last valid credentials. Fails
    /// with the problem if there are none.
    pub(crate) async fn load(&self, limit: Duration) -> Result<Arc<PresentedCredentials>, String> {
        let read = self.read_files(limit).await;
        let mut loaded = self.loaded();
        match (read, loaded.presented.clone()) {
            (Ok(presented), _) => {
                if loaded.problem.take().is_some() {
                    info!("using the current credentials for ZooKeeper again");
                }
                let presented = Arc::new(presented);
                loaded.presented = Some(presented.clone());
                Ok(presented)
            }
            (Err(problem), Some(last)) => {
                if loaded.problem.as_ref() != Some(&problem) {
                    warn!("{problem}; still using the previous credentials for ZooKeeper");
                    loaded.problem = Some(problem);
                }
                Ok(last)
            }
            (Err(problem), None) => Err(problem),
        }
    }

    /// Reads the files on another thread and with a time limit: the file system may hang, and this thread keeps the session
    /// alive.
    async fn read_files(&self, limit: Duration) -> Result<PresentedCredentials, String> {
        let settings = self.settings.clone();
        let read = move || PresentedCredentials::read(&settings).map_err(|error| error.to_string());
        let Security { login, tls, .. } = &self.settings.security;
        if login.is_none() && tls.is_none() {
            // There are no files.
            return read();
        }
        match timeout(limit, spawn_blocking(read)).await {
            Ok(read) => read.expect("it does not panic"),
            Err(_) => Err(format!(
                "the files of zookeeper.credentials_file and zookeeper.tls were not read within {limit:?}"
            )),
        }
    }

    /// Explains why servers may refuse the login, and what to do about it. `version` is the servers' version, if known.
    pub(crate) fn explain_refusal(&self, version: Option<&ServerVersion>) -> String {
        let Some(login) = &self.settings.security.login else {
            return "the servers demand a login and none is configured: set zookeeper.auth, and \
                    zookeeper.credentials_file or zookeeper.kerberos.keytab"
                .into();
        };
        let scheme = login.scheme();
        let credentials = match login {
            Login::Sasl(credentials) => credentials,
            // With the scheme `digest`, servers accept any user and password. So they demand another scheme.
            Login::Digest(_) => {
                return format!(
                    "the servers demand another login than zookeeper.auth = \"{scheme}\": SASL \
                     (sessionRequireClientSASLAuth, enforce.auth.schemes), by \"sasl\", or by \"kerberos\" where their JAAS \
                     file has Krb5LoginModule"
                );
            }
            Login::Kerberos(kerberos) => {
                return format!(
                    "the servers refuse the login of {} (zookeeper.auth = \"{scheme}\"): their logs have the reason",
                    kerberos.who()
                );
            }
        };
        let presented = self.loaded().presented.clone();
        let user = presented.as_ref().and_then(|presented| presented.user()).unwrap_or_default();
        let place = describe_source(credentials);
        let mut why = format!(
            "the servers refuse the login of {user:?} (zookeeper.auth = \"{scheme}\"): is the \
             password in {place} right, and do the servers know this user? If their JAAS file has \
             Krb5LoginModule, they take zookeeper.auth = \"kerberos\" alone."
        );
        if version.is_none_or(ServerVersion::may_refuse_digest_md5) {
            why += " Servers of 3.9.6 and newer refuse every such login in FIPS mode, which is their default: use \
                    zookeeper.auth = \"digest\" over TLS, a client certificate or Kerberos, or set zookeeper.fips-mode=false on all servers";
        }
        why
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedFiles> {
        self.loaded.lock().expect("no panic while it is held")
    }
}

impl PresentedCredentials {
    fn read(settings: &Zookeeper) -> Result<Self, ConfigError> {
        let tls = settings.security.tls.as_ref().map(Trust::read).transpose()?;
        let login = match &settings.security.login {
            Some(Login::Digest(source)) => Some((Scheme::Digest, credentials(source)?)),
            Some(Login::Sasl(source)) => Some((Scheme::Sasl, credentials(source)?)),
            Some(Login::Kerberos(_)) | None => None,
        };
        Ok(Self { tls, login })
    }

    /// Hands the credentials to the library, which keeps copies for as long as the connection lasts.
    pub(crate) fn apply(&self, connector: Connector) -> Connector {
        let connector = match &self.tls {
            Some(trust) => connector.with_tls(TlsOptions::new().with_certs(trust.config.clone())),
            None => connector,
        };
        match &self.login {
            Some((Scheme::Digest, secret)) => {
                connector.with_auth("digest", secret.expose_secret().as_bytes())
            }
            Some((Scheme::Sasl, secret)) => {
                // There is a colon: see `credentials`.
                let (user, password) = secret.expose_secret().split_once(':').unwrap_or_default();
                connector.with_sasl(SaslOptions::digest_md5(user.to_owned(), password.to_owned()))
            }
            // A Kerberos login is added by `BegunLogin::apply` instead.
            Some((Scheme::Kerberos, _)) | None => connector,
        }
    }

    /// Returns the user of the login, for a message.
    fn user(&self) -> Option<String> {
        let (_, secret) = self.login.as_ref()?;
        secret.expose_secret().split_once(':').map(|(user, _)| user.to_owned())
    }
}

impl Trust {
    /// Reads the files, and checks that they can be used together.
    fn read(tls: &Tls) -> Result<Self, ConfigError> {
        let settings = tls.clone();
        let (roots, crls) = authorities(&tls.ca)?;
        let verifier = WebPkiServerVerifier::builder(roots.clone()).with_crls(crls).build();
        let verifier = verifier.map_err(|error| {
            let problem = match error {
                VerifierBuilderError::InvalidCrl(wrong) => {
                    format!("holds a revocation list that {}", tls_errors::of_list(&wrong))
                }
                error => format!("cannot be used: {error}"),
            };
            ConfigError::without_key(problem).in_file(TLS_CA.key(), &tls.ca)
        })?;
        let builder = ClientConfig::builder().with_webpki_verifier(verifier);
        let Some(own) = &tls.own else {
            let config = builder.with_no_client_auth().into();
            return Ok(Self { settings, config, own_problem: None });
        };
        let cert = text(TLS_CERT.key(), &own.cert)?;
        let chain = certificates(TLS_CERT.key(), &own.cert, &cert)?;
        let own_problem = own_certificate_problem(&own.cert, &chain, roots);
        let config = builder.with_client_auth_cert(chain, private_key(&own.key)?);
        let config = config.map_err(|error| unusable_pair(own, error))?.into();
        Ok(Self { settings, config, own_problem })
    }
}

/// Explains why our certificate cannot be used with its private key.
fn unusable_pair(own: &OwnCertificate, error: Error) -> ConfigError {
    let cert = own.cert.display();
    let key = own.key.display();
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            ConfigError::without_key(format!("is not the private key of the certificate in {cert}"))
                .remedy("use the key for which the certificate was issued")
                .in_file(TLS_KEY.key(), &own.key)
        }
        Error::InvalidCertificate(wrong) => {
            let why = tls_errors::of_certificate(&wrong);
            ConfigError::without_key(format!("holds a certificate that {why}"))
                .in_file(TLS_CERT.key(), &own.cert)
        }
        error => ConfigError::without_key(format!("cannot be used with {key}: {error}"))
            .in_file(TLS_CERT.key(), &own.cert),
    }
}

/// Reads the trusted CAs, and their revocation lists, from `zookeeper.tls.ca`.
fn authorities(
    file: &Path,
) -> Result<(Arc<RootCertStore>, Vec<CertificateRevocationListDer<'static>>), ConfigError> {
    let text = text(TLS_CA.key(), file)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(TLS_CA.key(), file, &text)? {
        roots.add(certificate).map_err(|error| {
            let problem = match error {
                Error::InvalidCertificate(wrong) => {
                    format!("holds a certificate that {}", tls_errors::of_certificate(&wrong))
                }
                error => format!("holds something that is not a certificate: {error}"),
            };
            ConfigError::without_key(problem).in_file(TLS_CA.key(), file)
        })?;
    }
    Ok((roots.into(), pem_items(TLS_CA.key(), file, &text)?))
}

/// Returns the certificates in the text of a file, of which there must be at least one. `key` is the configuration key that
/// names the file.
fn certificates(
    key: &str,
    file: &Path,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found: Vec<_> = pem_items(key, file, text)?;
    if found.is_empty() {
        let flaw = ConfigError::without_key("holds no certificate in PEM (BEGIN CERTIFICATE)");
        return Err(flaw.in_file(key, file));
    }
    Ok(found)
}

/// Returns the sections of one type in the text of a file.
fn pem_items<T: PemObject>(key: &str, file: &Path, text: &str) -> Result<Vec<T>, ConfigError> {
    let items = T::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>();
    items.map_err(|error| invalid_pem(key, file, &error))
}

/// Reads the private key of our certificate.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let text = text(TLS_KEY.key(), file)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        PemError::NoItemsFound => {
            let what = if text.contains("BEGIN ENCRYPTED PRIVATE KEY") {
                "only one behind a passphrase, which cannot be entered: decrypt it with openssl pkey"
            } else {
                "BEGIN PRIVATE KEY"
            };
            ConfigError::without_key(format!("holds no private key in PEM ({what})")).in_file(TLS_KEY.key(), file)
        }
        error => invalid_pem(TLS_KEY.key(), file, &error),
    })
}

fn invalid_pem(key: &str, file: &Path, error: &PemError) -> ConfigError {
    // The error may quote the file's content, which may be part of a key. So it is not part of the message.
    let problem = match error {
        PemError::MissingSectionEnd { .. } => "ends in the middle of a section",
        _ => "is not valid PEM",
    };
    ConfigError::without_key(problem).in_file(key, file)
}

/// Reads the user and the password of a login, `user:password`.
fn credentials(source: &security::CredentialsSource) -> Result<SecretString, ConfigError> {
    let key = CREDENTIALS_FILE.key();
    let secret = match source {
        security::CredentialsSource::Given(secret) => secret.clone(),
        security::CredentialsSource::In(file) => text(key, file)?.trim_end().into(),
    };
    let written = secret.expose_secret();
    if let Some((user, password)) = written.split_once(':')
        && !user.is_empty()
        && !password.is_empty()
        && !written.contains(char::is_control)
    {
        return Ok(secret);
    }
    let flaw = ConfigError::without_key("does not hold one line, user:password");
    Err(match source {
        security::CredentialsSource::Given(_) => flaw.with_key(security::CREDENTIALS_VARIABLE),
        security::CredentialsSource::In(file) => flaw.in_file(key, file),
    })
}

/// Names the file, or the environment variable, that has the password, for a message.
fn describe_source(source: &security::CredentialsSource) -> String {
    match source {
        security::CredentialsSource::In(file) => {
            format!("{}, {},", CREDENTIALS_FILE.key(), shown_path(file))
        }
        security::CredentialsSource::Given(_) => security::CREDENTIALS_VARIABLE.into(),
    }
}

fn text(key: &str, file: &Path) -> Result<Zeroizing<String>, ConfigError> {
    read_text(file).map_err(|problem| ConfigError::without_key(problem).in_file(key, file))
}

fn read_text(file: &Path) -> Result<Zeroizing<String>, String> {
    let bytes = Zeroizing::new(files::read(file, Size::Certificates)?);
    match std::str::from_utf8(&bytes) {
        Ok("") => Err("is empty".into()),
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err("is not text".into()),
    }
}

/// Explains why our certificate is not valid now; `None` if it is valid, or cannot be checked here. This is only a
/// warning: servers may accept the certificate, and it may be renewed soon.
fn own_certificate_problem(
    cert: &Path,
    chain: &[CertificateDer<'static>],
    roots: Arc<RootCertStore>,
) -> Option<String> {
    let (first, others) = chain.split_first()?;
    let verifier = WebPkiClientVerifier::builder(roots).build().ok()?;
    let name = cert.display();
    // The TLS library's check of a client's certificate, as a server would perform it.
    match verifier.verify_client_cert(first, others, UnixTime::now()) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            let date = date(not_after);
            Some(format!("zookeeper.tls.cert: {name} has expired on {date}: have it renewed"))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => {
            let date = date(not_before);
            Some(format!("zookeeper.tls.cert: {name} is not valid before {date}"))
        }
        // Only the servers can judge other errors: their CA for members' certificates may not be in `tls.ca`.
        Ok(_) | Err(_) => None,
    }
}

pub(crate) fn date(time: UnixTime) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    humantime::format_rfc3339_seconds(time).to_string()
}
