//! The security settings: certificates, identity, and access to the znodes.

use super::error::{ConfigError, ValueError};
use super::parse::{one_of, or_none};
use super::sources::Values;
use super::table;
use secrecy::SecretString;
use std::fmt;
use std::path::PathBuf;

/// The environment variable that may hold the login itself, instead of a file.
pub const CREDENTIALS_VARIABLE: &str = "BELLWETHER_CREDENTIALS";

/// How members and servers authenticate each other, and which other clients may change the members' znodes.
#[derive(Clone, Debug)]
pub struct Security {
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub acl: AclPolicy,
    /// Whether the operator has opened the znodes to all, and needs no warning of it.
    pub is_open_by_choice: bool,
}

/// TLS is spoken. All are files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    pub ca: PathBuf,
    pub own: Option<OwnCertificate>,
}

/// The member's own certificate, for servers that ask for one.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Login {
    pub scheme: Scheme,
    pub credentials: CredentialsSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// ZooKeeper's own: name and password make the identity that owns a znode.
    Digest,
    /// SASL DIGEST-MD5: the servers know names and passwords themselves.
    Sasl,
}

/// `user:password`.
#[derive(Clone, Debug)]
pub enum CredentialsSource {
    In(PathBuf),
    Given(SecretString),
}

/// The access that clients have to the znodes that members create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclPolicy {
    Open,
    /// Members alone.
    Creator,
    /// Others may read.
    CreatorReadable,
}

impl Security {
    pub(super) fn new(values: &Values) -> Result<Self, ConfigError> {
        let tls = Tls::new(values)?;
        let login = Login::new(values)?;
        let has_identity =
            login.is_some() || tls.as_ref().is_some_and(|tls: &Tls| tls.own.is_some());
        let written = values.written(&table::ACL)?.flatten();
        let by_default = if has_identity { AclPolicy::CreatorReadable } else { AclPolicy::Open };
        let acl = written.unwrap_or(by_default);
        if acl != AclPolicy::Open && !has_identity {
            return Err(ConfigError::new(table::ACL.key(), "needs members to have an identity")
                .found(acl.to_string())
                .remedy("set zookeeper.auth, or zookeeper.tls.cert and zookeeper.tls.key"));
        }
        Ok(Self { tls, login, acl, is_open_by_choice: written == Some(AclPolicy::Open) })
    }

    /// Tells whether this process holds secrets, so that no other may look into its memory.
    pub fn has_secrets(&self) -> bool {
        self.login.is_some() || self.tls.as_ref().is_some_and(|tls| tls.own.is_some())
    }
}

impl Tls {
    fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let [ca, cert, key] = [&table::TLS_CA, &table::TLS_CERT, &table::TLS_KEY];
        // A value is not repeated: it may be the key itself.
        fn useless(key: &str, without: &str, missing: &str) -> ConfigError {
            ConfigError::new(key, format!("is of no use without its {without}"))
                .remedy(format!("set {missing}"))
        }
        let own = match (values.written(cert)?, values.written(key)?) {
            (None, None) => None,
            (Some(_), None) => return Err(useless(cert.key(), "private key", key.key())),
            (None, Some(_)) => return Err(useless(key.key(), "certificate", cert.key())),
            (Some(cert), Some(key)) => Some(OwnCertificate { cert, key }),
        };
        match (values.written(ca)?, own) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let problem = format!("is set and {} is not", ca.key());
                Err(ConfigError::new(cert.key(), problem)
                    .remedy("name the file with the CA of the servers' certificates"))
            }
            (Some(ca), own) => Ok(Some(Self { ca, own })),
        }
    }
}

impl Login {
    fn new(values: &Values) -> Result<Option<Self>, ConfigError> {
        let [auth, file] = [table::AUTH.key(), table::CREDENTIALS_FILE.key()];
        let credentials = match values.credentials() {
            Some(secret) => Some(CredentialsSource::Given(secret.clone())),
            None => values.written(&table::CREDENTIALS_FILE)?.map(CredentialsSource::In),
        };
        match (values.get(&table::AUTH)?, credentials) {
            (None, None) => Ok(None),
            (Some(scheme), Some(credentials)) => Ok(Some(Self { scheme, credentials })),
            (Some(_), None) => {
                Err(ConfigError::new(auth, "needs a user and a password").remedy(format!(
                    "set {file} to a file with one line, user:password (or \
                     {CREDENTIALS_VARIABLE} in the environment)"
                )))
            }
            (None, Some(credentials)) => {
                let set = match credentials {
                    CredentialsSource::Given(_) => CREDENTIALS_VARIABLE,
                    CredentialsSource::In(_) => file,
                };
                Err(ConfigError::new(set, format!("is set and {auth} is not"))
                    .remedy("say how to use them, \"digest\" or \"sasl\""))
            }
        }
    }
}

impl Scheme {
    const WORDS: [(&'static str, Self); 2] = [("digest", Self::Digest), ("sasl", Self::Sasl)];

    pub(super) fn parse(text: &str) -> Result<Option<Self>, ValueError> {
        let scheme = or_none(text, |text| one_of(text, &Self::WORDS));
        scheme.map_err(|flaw| {
            let file = table::CREDENTIALS_FILE.key();
            flaw.remedy(format!("user and password belong into {file}"))
        })
    }
}

impl AclPolicy {
    const WORDS: [(&'static str, Self); 3] = [
        ("open", Self::Open),
        ("creator", Self::Creator),
        ("creator-readable", Self::CreatorReadable),
    ];

    pub(super) fn parse(text: &str) -> Result<Option<Self>, ValueError> {
        or_none(text, |text| one_of(text, &Self::WORDS))
    }
}

impl fmt::Display for AclPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Creator => "creator",
            Self::CreatorReadable => "creator-readable",
        })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digest => "digest",
            Self::Sasl => "sasl",
        })
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
            (vec![("zookeeper.acl", "closed")], "zookeeper.acl"),
        ] {
            let error = security(&values).unwrap_err().to_string();
            assert!(error.contains(named), "{values:?}: {error}");
            assert!(!error.contains("secret"), "{error}");
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
