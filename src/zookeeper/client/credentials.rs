//! What we present to the servers, and how we know them: read from its files anew for each connection,
//! so that a replaced file takes effect without a signal.

use super::tls_errors;
use crate::config::security::{self, Login, OwnCertificate, Scheme, Tls};
use crate::config::{Settings, Zookeeper, named};
use crate::files::{self, Size};
use ::zookeeper::{Connector, SaslOptions, TlsOptions};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
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

/// Reads the credentials, and keeps the last that made sense, for when a file is half written.
pub(crate) struct Credentials {
    settings: Zookeeper,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    presented: Option<Arc<Presented>>,
    /// Why the files as they are now are not used.
    problem: Option<String>,
}

/// What is presented over one connection.
pub(crate) struct Presented {
    pub(crate) tls: Option<Trust>,
    login: Option<(Scheme, SecretString)>,
}

/// The CAs that we trust and our own certificate, twice: as the client library wants it, and for a
/// handshake of our own.
pub(crate) struct Trust {
    pub(crate) config: Arc<ClientConfig>,
    ca: Zeroizing<String>,
    /// The certificate's file, which may hold the key as well, and the key's.
    own: Option<(Zeroizing<String>, SecretString)>,
}

/// Checks the configured credentials before anything is begun. Returns warnings for the operator.
///
/// # Errors
/// One sentence that names the key and the file, what is wrong, and how to mend it.
pub fn check(settings: &Settings) -> Result<Vec<String>, String> {
    let settings = &settings.zookeeper;
    let presented = Presented::read(settings)?;
    if presented.tls.is_some() {
        settings.hosts.split(',').try_for_each(|host| server_name(host).map(drop))?;
    }
    let tls = settings.security.tls.as_ref();
    Ok(tls.and_then(own_is_outdated).into_iter().collect())
}

/// Returns the name that the certificate of the server at `host:port` has to have.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        format!(
            "zookeeper.servers: no certificate can be for {name:?}, and with zookeeper.tls.ca it \
             has to be: write a DNS name or an IP address"
        )
    })
}

impl Credentials {
    pub(crate) fn of(settings: &Zookeeper) -> Arc<Self> {
        Arc::new(Self { settings: settings.clone(), read: Mutex::default() })
    }

    /// Reads the files. If something is wrong with them, returns what was read before.
    pub(crate) fn renewed(&self) -> Result<Arc<Presented>, String> {
        let now = Presented::read(&self.settings);
        let mut read = self.read();
        match (now, read.presented.clone()) {
            (Ok(presented), _) => {
                if read.problem.take().is_some() {
                    info!("what is shown to ZooKeeper is what is in the files again");
                }
                let presented = Arc::new(presented);
                read.presented = Some(presented.clone());
                Ok(presented)
            }
            (Err(problem), Some(before)) => {
                if read.problem.as_ref() != Some(&problem) {
                    warn!("{problem}; ZooKeeper is shown what was there before");
                    read.problem = Some(problem);
                }
                Ok(before)
            }
            (Err(problem), None) => Err(problem),
        }
    }

    /// Returns what was presented for the last connection; `None` if nothing was read yet.
    pub(crate) fn last(&self) -> Option<Arc<Presented>> {
        self.read().presented.clone()
    }

    /// Says why servers may refuse the login, and what to do about it.
    pub(crate) fn refused(&self) -> String {
        let Some(Login { scheme, credentials }) = &self.settings.security.login else {
            return "the servers demand a login and none is configured: set zookeeper.auth and \
                    zookeeper.credentials_file"
                .into();
        };
        let presented = self.last();
        let user = presented.as_ref().and_then(|presented| presented.user()).unwrap_or_default();
        let place = place(credentials);
        format!(
            "the servers refuse the login of {user:?} (zookeeper.auth = \"{scheme}\"): is the \
             password in {place} right, and do the servers know this user?"
        )
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().expect("no panic while it is held")
    }
}

impl Presented {
    fn read(settings: &Zookeeper) -> Result<Self, String> {
        let tls = settings.security.tls.as_ref().map(Trust::read).transpose()?;
        let login = settings.security.login.as_ref();
        let login = login.map(|login| Ok::<_, String>((login.scheme, credentials(login)?)));
        Ok(Self { tls, login: login.transpose()? })
    }

    /// Hands the credentials to the library, which keeps copies for as long as the connection lasts.
    pub(crate) fn apply(&self, connector: Connector) -> Result<Connector, ::zookeeper::Error> {
        let connector = match &self.tls {
            Some(trust) => {
                let options = TlsOptions::new().with_pem_ca(&trust.ca)?;
                connector.with_tls(match &trust.own {
                    Some((cert, key)) => options.with_pem_identity(cert, key.expose_secret())?,
                    None => options,
                })
            }
            None => connector,
        };
        Ok(match &self.login {
            Some((Scheme::Digest, secret)) => {
                connector.with_auth("digest", secret.expose_secret().as_bytes())
            }
            Some((Scheme::Sasl, secret)) => {
                let (user, password) = secret.expose_secret().split_once(':').unwrap_or_default();
                connector.with_sasl(SaslOptions::digest_md5(user.to_owned(), password.to_owned()))
            }
            None => connector,
        })
    }

    fn user(&self) -> Option<String> {
        let (_, secret) = self.login.as_ref()?;
        secret.expose_secret().split_once(':').map(|(user, _)| user.to_owned())
    }
}

impl Trust {
    fn read(tls: &Tls) -> Result<Self, String> {
        let (roots, crls, ca) = authorities(&tls.ca)?;
        let verifier = WebPkiServerVerifier::builder(roots.into()).with_crls(crls).build();
        let verifier = verifier.map_err(|error| {
            let ca = tls.ca.display();
            match error {
                VerifierBuilderError::InvalidCrl(wrong) => {
                    let why = tls_errors::of_list(&wrong);
                    format!("zookeeper.tls.ca: {ca} holds a revocation list that {why}")
                }
                error => format!("zookeeper.tls.ca: {ca} cannot be used: {error}"),
            }
        })?;
        let builder = ClientConfig::builder().with_webpki_verifier(verifier);
        let Some(own) = &tls.own else {
            let config = builder.with_no_client_auth().into();
            return Ok(Self { config, ca, own: None });
        };
        let (chain, cert) = certificates("zookeeper.tls.cert", &own.cert)?;
        let (private, key) = private_key(&own.key)?;
        let config = builder.with_client_auth_cert(chain, private).map_err(|error| {
            let (cert, key) = (own.cert.display(), own.key.display());
            match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                    "zookeeper.tls.key: {key} is not the private key of the certificate in {cert}: \
                     take both from the same issue"
                ),
                Error::InvalidCertificate(wrong) => {
                    let why = tls_errors::of_certificate(&wrong);
                    format!("zookeeper.tls.cert: {cert} holds a certificate that {why}")
                }
                error => format!("zookeeper.tls.cert and .key: {cert}, {key}: {error}"),
            }
        })?;
        Ok(Self { config: config.into(), ca, own: Some((cert, key)) })
    }
}

type Authorities = (RootCertStore, Vec<CertificateRevocationListDer<'static>>, Zeroizing<String>);

fn authorities(file: &Path) -> Result<Authorities, String> {
    const KEY: &str = "zookeeper.tls.ca";
    let (certificates, text) = certificates(KEY, file)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            let name = file.display();
            match error {
                Error::InvalidCertificate(wrong) => {
                    let why = tls_errors::of_certificate(&wrong);
                    format!("{KEY}: {name} holds a certificate that {why}")
                }
                error => format!("{KEY}: {name} holds something that is no certificate: {error}"),
            }
        })?;
    }
    let crls =
        CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>();
    let crls = crls.map_err(|error| no_pem(KEY, file, &error))?;
    Ok((roots, crls, text))
}

type Certificates = (Vec<CertificateDer<'static>>, Zeroizing<String>);

fn certificates(key: &str, file: &Path) -> Result<Certificates, String> {
    let text = text(key, file)?;
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| no_pem(key, file, &error))?;
    if found.is_empty() {
        let name = file.display();
        return Err(format!("{key}: {name} holds no certificate in PEM (BEGIN CERTIFICATE)"));
    }
    Ok((found, text))
}

fn private_key(file: &Path) -> Result<(PrivateKeyDer<'static>, SecretString), String> {
    const KEY: &str = "zookeeper.tls.key";
    let text = text(KEY, file)?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        PemError::NoItemsFound => {
            let what = if text.contains("BEGIN ENCRYPTED PRIVATE KEY") {
                "only one behind a passphrase, which nobody could enter: decrypt it with openssl pkey"
            } else {
                "BEGIN PRIVATE KEY"
            };
            format!("{KEY}: {} holds no private key in PEM ({what})", file.display())
        }
        error => no_pem(KEY, file, &error),
    })?;
    Ok((key, text.as_str().into()))
}

fn no_pem(key: &str, file: &Path, error: &PemError) -> String {
    // What it says of the file's content may be part of a key.
    let what = match error {
        PemError::MissingSectionEnd { .. } => "ends in the middle of a section",
        _ => "is no PEM",
    };
    format!("{key}: {} {what}", file.display())
}

/// `user:password`.
fn credentials(login: &Login) -> Result<SecretString, String> {
    let place = place(&login.credentials);
    let secret = match &login.credentials {
        security::Credentials::Given(secret) => secret.clone(),
        security::Credentials::In(file) => {
            text("zookeeper.credentials_file", file)?.trim_end().into()
        }
    };
    let written = secret.expose_secret();
    let parts = written.split_once(':');
    let makes_sense = |(user, password): &(&str, &str)| !user.is_empty() && !password.is_empty();
    if parts.as_ref().is_some_and(makes_sense) && !written.contains(char::is_control) {
        return Ok(secret);
    }
    Err(format!("{place} does not hold one line, user:password"))
}

fn place(credentials: &security::Credentials) -> String {
    match credentials {
        security::Credentials::In(file) => format!("zookeeper.credentials_file, {},", named(file)),
        security::Credentials::Given(_) => security::CREDENTIALS_VARIABLE.into(),
    }
}

fn text(key: &str, file: &Path) -> Result<Zeroizing<String>, String> {
    let wrong = |why: &str| format!("{key}: {} {why}", named(file));
    let bytes = files::read(file, Size::Certificates).map_err(|why| wrong(&why))?;
    let bytes = Zeroizing::new(bytes);
    if bytes.is_empty() {
        return Err(wrong("is empty"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("is no text"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Says why our certificate is not valid now. A warning only: servers may accept it, and it may be
/// renewed soon.
pub(crate) fn own_is_outdated(tls: &Tls) -> Option<String> {
    let OwnCertificate { cert, .. } = tls.own.as_ref()?;
    let (chain, _) = certificates("zookeeper.tls.cert", cert).ok()?;
    let (first, others) = chain.split_first()?;
    let (roots, ..) = authorities(&tls.ca).ok()?;
    let verifier = WebPkiClientVerifier::builder(roots.into()).build().ok()?;
    let name = cert.display();
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
        // For the servers to judge: another CA than theirs may have signed members' certificates.
        Ok(_) | Err(_) => None,
    }
}

pub(crate) fn date(time: UnixTime) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    humantime::format_rfc3339_seconds(time).to_string()
}
