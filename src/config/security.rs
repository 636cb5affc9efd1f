//! What the operator wrote about who may talk to whom: certificates, identity and access.

use secrecy::SecretString;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsKeys {
    pub ca: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
}

/// Where a secret may also stand, for those who have no file to put it into.
pub const CREDENTIALS_VARIABLE: &str = "BELLWETHER_CREDENTIALS";

/// The values as they were written. Nothing written is an empty text.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub ca: String,
    pub cert: String,
    pub key: String,
    pub auth: String,
    pub credentials_file: String,
    /// From the environment.
    pub credentials: Option<SecretString>,
    pub acl: String,
}

/// How members and servers know each other, and who else may change what is ours.
#[derive(Clone, Debug)]
pub struct Security {
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub acl: Acl,
    /// Whether it was written that anyone may do anything: whoever wrote that needs no warning.
    pub is_open_by_choice: bool,
}

/// TLS is spoken. All are files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    pub ca: PathBuf,
    pub own: Option<OwnCertificate>,
}

/// What we show to servers that ask for it.
#[derive(Clone, Debug)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Login {
    pub scheme: Scheme,
    pub credentials: Credentials,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// ZooKeeper's own: whoever knows name and password is who made the znode.
    Digest,
    /// SASL DIGEST-MD5: the servers know names and passwords themselves.
    Sasl,
}

/// `user:password`.
#[derive(Clone, Debug)]
pub enum Credentials {
    In(PathBuf),
    Given(SecretString),
}

/// Who may do what with the znodes that members create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acl {
    Open,
    /// Nobody but members.
    Creator,
    /// Others may read.
    CreatorReadable,
}

impl Security {
    pub(super) fn new(written: &Written) -> Result<Self, String> {
        let tls = Tls::new(written)?;
        let login = Login::new(written)?;
        let has_identity =
            login.is_some() || tls.as_ref().is_some_and(|tls: &Tls| tls.own.is_some());
        let acl = match &*written.acl {
            "" if has_identity => Acl::CreatorReadable,
            "" | "open" => Acl::Open,
            "creator" => Acl::Creator,
            "creator-readable" => Acl::CreatorReadable,
            other => {
                return Err(format!(
                    "zookeeper.acl {other:?} must be \"open\", \"creator\" or \"creator-readable\""
                ));
            }
        };
        if acl != Acl::Open && !has_identity {
            return Err(format!(
                "zookeeper.acl = \"{acl}\" is for who has an identity: set zookeeper.auth, or \
                 zookeeper.tls.cert and zookeeper.tls.key"
            ));
        }
        Ok(Self { tls, login, acl, is_open_by_choice: written.acl == "open" })
    }

    /// Whether there is anything in our memory that nobody else may see.
    pub fn has_secrets(&self) -> bool {
        self.login.is_some() || self.tls.as_ref().is_some_and(|tls| tls.own.is_some())
    }
}

impl Tls {
    fn new(written: &Written) -> Result<Option<Self>, String> {
        let Written { ca, cert, key, .. } = written;
        let own = match (&**cert, &**key) {
            ("", "") => None,
            (_, "") => {
                return Err("zookeeper.tls.cert is of no use without its private key: set \
                            zookeeper.tls.key"
                    .into());
            }
            // Not repeated: it may be the key itself.
            ("", _) => {
                return Err("zookeeper.tls.key is of no use without its certificate: set \
                            zookeeper.tls.cert"
                    .into());
            }
            (cert, key) => Some(OwnCertificate { cert: cert.into(), key: key.into() }),
        };
        match (&**ca, own) {
            ("", None) => Ok(None),
            ("", Some(_)) => {
                Err("zookeeper.tls.cert is set and zookeeper.tls.ca is not: name the \
                                  file with the CA of the servers' certificates"
                    .into())
            }
            (ca, own) => Ok(Some(Self { ca: ca.into(), own })),
        }
    }
}

impl Login {
    fn new(written: &Written) -> Result<Option<Self>, String> {
        let credentials = match (&written.credentials, &*written.credentials_file) {
            (Some(secret), _) => Some(Credentials::Given(secret.clone())),
            (None, "") => None,
            (None, file) => Some(Credentials::In(file.into())),
        };
        let scheme = match &*written.auth {
            "" => None,
            "digest" => Some(Scheme::Digest),
            "sasl" => Some(Scheme::Sasl),
            // Not repeated: it may be the secret itself.
            _ => {
                return Err("zookeeper.auth must be \"digest\" or \"sasl\"; user and password \
                            belong into zookeeper.credentials_file"
                    .into());
            }
        };
        match (scheme, credentials) {
            (None, None) => Ok(None),
            (Some(scheme), Some(credentials)) => Ok(Some(Self { scheme, credentials })),
            (Some(_), None) => Err(format!(
                "zookeeper.auth needs a user and a password: set zookeeper.credentials_file to a \
                 file with one line, user:password (or {CREDENTIALS_VARIABLE} in the environment)"
            )),
            (None, Some(_)) => Err("zookeeper.credentials_file is set and zookeeper.auth is not: \
                                    say how to use them, \"digest\" or \"sasl\""
                .into()),
        }
    }
}

impl fmt::Display for Acl {
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

    fn written(values: &[(&str, &str)]) -> Written {
        let mut written = Written::default();
        for (key, value) in values {
            let value = (*value).to_owned();
            match *key {
                "ca" => written.ca = value,
                "cert" => written.cert = value,
                "key" => written.key = value,
                "auth" => written.auth = value,
                "file" => written.credentials_file = value,
                "secret" => written.credentials = Some(value.into()),
                "acl" => written.acl = value,
                other => unreachable!("{other}"),
            }
        }
        written
    }

    #[test]
    fn whoever_has_an_identity_keeps_its_znodes_to_itself() {
        let acl = |values: &[_]| Security::new(&written(values)).unwrap().acl;
        assert_eq!(acl(&[]), Acl::Open);
        assert_eq!(acl(&[("ca", "ca.pem")]), Acl::Open);
        assert_eq!(acl(&[("auth", "digest"), ("file", "f")]), Acl::CreatorReadable);
        assert_eq!(acl(&[("auth", "sasl"), ("secret", "a:b")]), Acl::CreatorReadable);
        let own = [("ca", "ca.pem"), ("cert", "c.pem"), ("key", "k.pem")];
        assert_eq!(acl(&own), Acl::CreatorReadable);
        assert_eq!(acl(&[&own[..], &[("acl", "open")]].concat()), Acl::Open);
    }

    #[test]
    fn what_does_not_fit_together_is_said_with_its_keys() {
        for (values, named) in [
            (vec![("cert", "c")], "zookeeper.tls.key"),
            (vec![("key", "k")], "zookeeper.tls.cert"),
            (vec![("cert", "c"), ("key", "k")], "zookeeper.tls.ca"),
            (vec![("auth", "digest")], "zookeeper.credentials_file"),
            (vec![("file", "f")], "zookeeper.auth"),
            (vec![("auth", "user:secret"), ("file", "f")], "zookeeper.auth"),
            (vec![("acl", "creator")], "zookeeper.auth"),
            (vec![("acl", "closed")], "zookeeper.acl"),
        ] {
            let error = Security::new(&written(&values)).unwrap_err();
            assert!(error.contains(named), "{values:?}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let security = Security::new(&written(&[("auth", "sasl"), ("secret", "a:hush")])).unwrap();
        assert!(!format!("{security:?}").contains("hush"));
    }
}
