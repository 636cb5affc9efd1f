//! The security settings: certificates, identity, and access to the znodes.

use super::error::ConfigError;
use super::parse::{one_of, word_for};
use super::sources::{Origin, Values};
use super::table;
use clap::ValueEnum;
use secrecy::SecretString;
use std::fmt;
use std::path::PathBuf;

/// The environment variable that may contain the credentials themselves, instead of a file.
pub const CREDENTIALS_VARIABLE: &str = "BELLWETHER_CREDENTIALS";

/// How members and servers authenticate each other, and which other clients may change the members' znodes.
#[derive(Clone, Debug)]
pub struct Security {
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub acl: AclPolicy,
    /// Whether the operator accepts that the znodes are open to all clients, as with `zookeeper.acl = "open"`. Then the
    /// log does not warn of it.
    pub is_open_by_choice: bool,
}

/// The TLS settings. All files are in PEM format.
#[derive(Clone, Debug)]
pub struct Tls {
    pub ca: PathBuf,
    pub own: Option<OwnCertificate>,
}

/// The member's own certificate, for servers that require one.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// How a member authenticates to the servers.
#[derive(Clone, Debug)]
pub enum Login {
    /// ZooKeeper's digest scheme: the user and password are the identity that owns a znode. The servers need no list of
    /// users.
    Digest(CredentialsSource),
    /// SASL DIGEST-MD5: the servers have a list of users and passwords.
    Sasl(CredentialsSource),
    /// SASL GSSAPI: a Kerberos KDC issues tickets with which the member and the servers authenticate each other.
    Kerberos(Kerberos),
}

/// The value of `zookeeper.auth`: the kind of [`Login`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    Digest,
    Sasl,
    Kerberos,
}

/// The Kerberos identities of the member and the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kerberos {
    /// The member's principal; `None` for the principal of the default credential cache.
    pub principal: Option<String>,
    /// The file with the principal's key; `None` to use the default credential cache, which another program renews.
    pub keytab: Option<PathBuf>,
    /// The first part of the servers' principals, before the host.
    pub service: String,
}

/// The source of the credentials, a text `user:password`.
#[derive(Clone, Debug)]
pub enum CredentialsSource {
    /// A file with the text.
    In(PathBuf),
    /// The text itself, from the environment.
    Given(SecretString),
}

/// The access of clients to the znodes that members create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AclPolicy {
    /// Every client may read and change the znodes.
    Open,
    /// Only clients with the identity of the creator have access.
    Creator,
    /// Other clients may read the znodes, but not change them.
    CreatorReadable,
}

impl Security {
    pub(super) fn new(values: &Values) -> Result<Self, ConfigError> {
        let tls = Tls::new(values)?;
        let login = Login::new(values)?;
        let has_identity =
            login.is_some() || tls.as_ref().is_some_and(|tls: &Tls| tls.own.is_some());
        let written = values.get_optional(&table::ACL)?;
        let default = if has_identity { AclPolicy::CreatorReadable } else { AclPolicy::Open };
        let acl = written.unwrap_or(default);
        if acl != AclPolicy::Open && !has_identity {
            return Err(ConfigError::new(table::ACL.key(), "needs members to have an identity")
                .found(acl.to_string())
                .remedy("set zookeeper.auth, or zookeeper.tls.cert and zookeeper.tls.key"));
        }
        Ok(Self { tls, login, acl, is_open_by_choice: written == Some(AclPolicy::Open) })
    }

    /// Returns whether this process holds secrets, so that other processes must not read its memory.
    pub fn has_secrets(&self) -> bool {
        self.login.is_some() || self.tls.as_ref().is_some_and(|tls| tls.own.is_some())
    }
}

impl Tls {
    fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let [ca, cert, key] = [&table::TLS_CA, &table::TLS_CERT, &table::TLS_KEY];
        match (values.get_optional(ca)?, values.get_optional(cert)?, values.get_optional(key)?) {
            (None, None, None) => Ok(None),
            (Some(ca), None, None) => Ok(Some(Self { ca, own: None })),
            (Some(ca), Some(cert), Some(key)) => {
                Ok(Some(Self { ca, own: Some(OwnCertificate { cert, key }) }))
            }
            // Do not show the values: one may be the private key itself.
            _ => {
                let [ca, cert, key] = [ca, cert, key].map(super::Setting::key);
                Err(ConfigError::new(cert, format!("needs {key} and {ca}, and {key} needs {cert}"))
                    .remedy(format!("set all three, or {ca} alone")))
            }
        }
    }
}

impl Login {
    fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let auth = table::AUTH.key();
        let scheme = values.get_optional(&table::AUTH)?;
        for row in [
            &table::CREDENTIALS_FILE.row,
            &table::KERBEROS_PRINCIPAL.row,
            &table::KERBEROS_KEYTAB.row,
        ] {
            let is_for_kerberos = row.key != table::CREDENTIALS_FILE.key();
            let is_used = scheme.is_some() && is_for_kerberos == (scheme == Some(Scheme::Kerberos));
            let value = values.value(row);
            if !is_used && value.origin != Origin::Default {
                // The variable with the credentials themselves has no key.
                let is_secret = value.origin == Origin::Environment(CREDENTIALS_VARIABLE);
                let key = if is_secret { CREDENTIALS_VARIABLE } else { row.key };
                let needed = if is_for_kerberos { "kerberos" } else { "digest or sasl" };
                let problem = format!("is set, which needs {auth} = {needed}");
                return Err(ConfigError::new(key, problem).remedy("set both or none"));
            }
        }
        let Some(scheme) = scheme else { return Ok(None) };
        if scheme == Scheme::Kerberos {
            return Kerberos::new(values).map(Self::Kerberos).map(Some);
        }
        let credentials = match values.credentials() {
            Some(secret) => Some(CredentialsSource::Given(secret.clone())),
            None => values.get_optional(&table::CREDENTIALS_FILE)?.map(CredentialsSource::In),
        };
        let Some(credentials) = credentials else {
            let file = table::CREDENTIALS_FILE.key();
            return Err(ConfigError::new(auth, "needs a user and a password").remedy(format!(
                "set {file} to a file with one line, user:password (or {CREDENTIALS_VARIABLE} in the environment)"
            )));
        };
        let is_digest = scheme == Scheme::Digest;
        Ok(Some(if is_digest { Self::Digest(credentials) } else { Self::Sasl(credentials) }))
    }

    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Digest(_) => Scheme::Digest,
            Self::Sasl(_) => Scheme::Sasl,
            Self::Kerberos(_) => Scheme::Kerberos,
        }
    }
}

impl Kerberos {
    fn new(values: &Values) -> Result<Self, ConfigError> {
        let principal = values.get_optional(&table::KERBEROS_PRINCIPAL)?;
        let keytab = values.get_optional(&table::KERBEROS_KEYTAB)?;
        let service = values.get(&table::KERBEROS_SERVICE)?;
        if cfg!(not(feature = "kerberos")) {
            let problem = "cannot be used: this build has no Kerberos";
            return Err(ConfigError::new(table::AUTH.key(), problem)
                .remedy(format!(
                    "use the Debian package or the image {}-kerberos, or build with --features kerberos",
                    env!("CARGO_PKG_VERSION")
                )));
        }
        if principal.is_none() && keytab.is_some() {
            let key = table::KERBEROS_PRINCIPAL.key();
            let problem = format!("is not set, and {} is", table::KERBEROS_KEYTAB.key());
            return Err(ConfigError::new(key, problem)
                .remedy("name the principal whose key the file holds, as klist -k shows it"));
        }
        Ok(Self { principal, keytab, service })
    }

    /// Returns the member's principal, or a description of the default one, for a message.
    pub fn who(&self) -> &str {
        self.principal.as_deref().unwrap_or("the principal of the default credential cache")
    }

    /// Returns the realm of the member's principal, or a description of the default one, for a message.
    pub fn realm(&self) -> &str {
        let written = self.principal.as_deref().and_then(|name| name.rsplit_once('@'));
        written.map_or("the default realm", |(_, realm)| realm)
    }
}

/// Parses the value of `zookeeper.auth`. The error does not show it, because the wrong text may contain credentials, as in
/// `digest:user:password`. The remedy is where they belong.
pub(super) fn scheme(text: &str) -> Result<Scheme, ConfigError> {
    let remedy = format!("user and password belong in {}", table::CREDENTIALS_FILE.key());
    one_of(text).map_err(|flaw| flaw.remedy(remedy).hiding_value())
}

impl fmt::Display for AclPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word_for(self))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word_for(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: (&str, &str) = ("zookeeper.auth", "digest");
    const FILE: (&str, &str) = ("zookeeper.credentials_file", "f");
    const CA: (&str, &str) = ("zookeeper.tls.ca", "ca.pem");
    const CERT: (&str, &str) = ("zookeeper.tls.cert", "c.pem");
    const KEY: (&str, &str) = ("zookeeper.tls.key", "k.pem");

    const PRINCIPAL: (&str, &str) = ("zookeeper.kerberos.principal", "app@EXAMPLE.ORG");

    fn security(values: &[(&'static str, &str)]) -> Result<Security, ConfigError> {
        Security::new(&Values::given(values))
    }

    #[test]
    fn a_member_with_an_identity_keeps_its_znodes_to_itself() {
        let acl = |values: &[_]| security(values).unwrap().acl;
        assert_eq!(acl(&[]), AclPolicy::Open);
        assert_eq!(acl(&[CA]), AclPolicy::Open);
        assert_eq!(acl(&[DIGEST, FILE]), AclPolicy::CreatorReadable);
        assert_eq!(acl(&[CA, CERT, KEY]), AclPolicy::CreatorReadable);
        assert_eq!(acl(&[CA, CERT, KEY, ("zookeeper.acl", "open")]), AclPolicy::Open);
        let by_choice = |values: &[_]| security(values).unwrap().is_open_by_choice;
        assert!(by_choice(&[("zookeeper.acl", "open")]) && !by_choice(&[]));
    }

    #[test]
    fn what_does_not_fit_together_is_said_with_its_keys() {
        for (values, named) in [
            (vec![CERT], "zookeeper.tls.key"),
            (vec![KEY], "zookeeper.tls.cert"),
            (vec![CERT, KEY], "zookeeper.tls.ca"),
            (vec![DIGEST], "zookeeper.credentials_file"),
            (vec![FILE], "zookeeper.auth"),
            (vec![("zookeeper.auth", "user:secret"), FILE], "zookeeper.auth"),
            (vec![("zookeeper.acl", "creator")], "zookeeper.auth"),
            (vec![PRINCIPAL], "zookeeper.auth"),
            (vec![DIGEST, FILE, ("zookeeper.kerberos.keytab", "k")], "zookeeper.kerberos.keytab"),
            (
                vec![("zookeeper.auth", "kerberos"), ("zookeeper.kerberos.principal", "a b")],
                "principal",
            ),
            (vec![("zookeeper.acl", "closed")], "zookeeper.acl"),
        ] {
            let error = security(&values).unwrap_err().to_string();
            assert!(error.contains(named), "{values:?}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[cfg(feature = "kerberos")]
    #[test]
    fn kerberos_takes_a_keytab_with_its_principal_or_the_default_cache() {
        const KERBEROS: (&str, &str) = ("zookeeper.auth", "kerberos");
        const KEYTAB: (&str, &str) = ("zookeeper.kerberos.keytab", "app.keytab");
        let login = |values: &[_]| match security(values).unwrap().login {
            Some(Login::Kerberos(kerberos)) => kerberos,
            other => panic!("{other:?}"),
        };
        let by_keytab = login(&[KERBEROS, PRINCIPAL, KEYTAB]);
        assert_eq!(by_keytab.principal.as_deref(), Some("app@EXAMPLE.ORG"));
        assert_eq!((by_keytab.service.as_str(), by_keytab.keytab.is_some()), ("zookeeper", true));
        assert_eq!(security(&[KERBEROS]).unwrap().acl, AclPolicy::CreatorReadable);
        assert_eq!(login(&[KERBEROS]).who(), "the principal of the default credential cache");
        for (values, named) in [
            (vec![KERBEROS, KEYTAB], "zookeeper.kerberos.principal"),
            (vec![KERBEROS, FILE], "zookeeper.credentials_file"),
        ] {
            let error = security(&values).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let values = Values::given(&[("zookeeper.auth", "sasl")]).with_credentials("a:hush");
        let security = Security::new(&values).unwrap();
        assert_eq!(security.acl, AclPolicy::CreatorReadable);
        assert!(!format!("{security:?}").contains("hush"));
    }
}
