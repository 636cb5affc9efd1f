//! Explains Kerberos errors to operators: what is wrong, and what to do.

use super::renewal::TicketError;
use super::{Tickets, code};
use crate::config::shown_path;
use crate::config::table::{KERBEROS_KEYTAB, KERBEROS_PRINCIPAL, KERBEROS_SERVICE, SERVERS};
use ::zookeeper::{GssapiCredentials, GssapiError};
use std::path::Path;
use std::time::Duration;

impl Tickets {
    /// Explains that the KDC has not answered within `limit`, and what to do about it.
    pub(super) fn explain_no_answer(&self, host: &str, limit: Duration) -> String {
        format!(
            "no Kerberos ticket for {}/{host} as {} within {limit:?}: the KDC of {} does not answer. {}",
            self.settings.service,
            self.who(),
            self.settings.realm(),
            unreachable_kdc_remedy()
        )
    }

    /// Explains why there is no ticket for the server with the name `host`, and what to do about it.
    pub(super) fn explain_no_ticket(&self, host: &str, error: &TicketError) -> String {
        let who = self.who();
        let server = format!("{}/{host}", self.settings.service);
        let mut why = self.explain(error);
        let mut kdc = String::new();
        if let TicketError::Kerberos(error) = error {
            why = about_server(error, &server).unwrap_or(why);
            // The error names the requested principal. If DNS has another name for the host, that is not `server`.
            if error.code() == code::SERVER_UNKNOWN && !error.to_string().contains(&server) {
                let remedy = dns_name_remedy();
                why += &format!(". By DNS, Kerberos took another name for {host}: {remedy}");
            }
            // All other errors come from the Kerberos library, before it asks a KDC.
            if code::ANSWERS.contains(&error.code()) || error.code() == code::KDC_UNREACHABLE {
                kdc = format!(" from the KDC of {}", self.settings.realm());
            }
        }
        format!("no Kerberos ticket for {server} as {who}{kdc}: {why}")
    }

    /// Explains why tickets cannot be obtained, and what to do about it.
    pub(super) fn explain(&self, error: &TicketError) -> String {
        let error = match error {
            TicketError::Keytab(flaw) => return flaw.clone(),
            TicketError::Kerberos(error) => error,
        };
        let who = self.who();
        match error.code() {
            code::KDC_UNREACHABLE => format!("{error}. {}", unreachable_kdc_remedy()),
            code::REALM_UNKNOWN
            | code::CONFIG_UNREADABLE
            | code::CONFIG_INVALID
            | code::NO_DEFAULT_REALM => format!(
                "{error}. The file that counts is {}: does it name the realm's KDC ([realms], or dns_lookup_kdc), and the \
                 realm of a principal without one (default_realm)?",
                krb5_conf()
            ),
            code::SERVER_UNKNOWN => format!(
                "{error}. Write the server into {} by the name in its principal, have the KDC given that principal, or \
                 set {} to the first part of the servers' principals",
                SERVERS.key(),
                KERBEROS_SERVICE.key()
            ),
            code::CLIENT_UNKNOWN => format!("{error}. Is {} right?", KERBEROS_PRINCIPAL.key()),
            code::CLIENT_REVOKED => format!(
                "{error}: the KDC has locked {who} after failed logins (kadmin: modprinc -unlock), or is to give it no \
                 tickets (modprinc +allow_tix)"
            ),
            code::CLIENT_EXPIRED => {
                format!("{error}: the principal {who} has expired (kadmin: modprinc -expire never)")
            }
            code::KEY_EXPIRED => format!(
                "{error}: the key of {who} has expired (kadmin: modprinc -pwexpire never, \
                 modprinc -needchange, or a new key with ktadd)"
            ),
            code::CLOCK_SKEW => format!("{error}: set this machine's clock, or the KDC's"),
            _ => match &self.settings.keytab {
                Some(file) => self.explain_with_keytab(error, file),
                None => self.explain_with_default_cache(error),
            },
        }
    }

    /// Explains an error of a login with the keytab in this file.
    fn explain_with_keytab(&self, error: &GssapiError, file: &Path) -> String {
        let who = self.who();
        let keytab = format!("{}, {}", KERBEROS_KEYTAB.key(), shown_path(file));
        match error.code() {
            code::NO_KEY | code::NO_CACHE => format!(
                "{keytab}, has no key of {who} of a type that the KDC uses: klist -ke shows its keys. Have it exported again"
            ),
            code::WRONG_KEY | code::PREAUTHENTICATION_FAILED => format!(
                "{error}: the key of {who} in {keytab}, is not the one that the KDC has. Have it exported again. The KDC \
                 is asked again as soon as the file has changed, and otherwise seldom, since failed logins may lock the \
                 principal"
            ),
            _ => format!("{error} (with {keytab})"),
        }
    }

    /// Explains an error of a login with the tickets of the default cache, which another program renews.
    fn explain_with_default_cache(&self, error: &GssapiError) -> String {
        let cache = default_cache();
        if error.is_expired() || error.code() == code::TICKET_EXPIRED {
            return format!(
                "{cache} has no valid tickets: kinit, or the program that is to renew them, has to fetch new ones"
            );
        }
        if error.code() == code::CACHE_OF_ANOTHER_USER {
            return format!(
                "{error}: {cache} belongs to another user. Run as that user, or name another cache in KRB5CCNAME"
            );
        }
        format!("{error}. klist shows what {cache} has, and kinit fills it")
    }
}

/// Explains an error that is about the server's principal; `None` for other errors.
fn about_server(error: &GssapiError, server: &str) -> Option<String> {
    let remedy = match error.code() {
        code::SERVER_EXPIRED => "modprinc -expire never",
        code::POLICY | code::USER_TO_USER_ONLY => "modprinc +allow_svr +allow_tgs_req +allow_tix",
        _ => return None,
    };
    Some(format!(
        "{error}: that is about the server's principal (kadmin: getprinc {server}, {remedy} {server})"
    ))
}

/// Describes the cache that another program renews, with its name if that is known.
pub(super) fn default_cache() -> String {
    match GssapiCredentials::default_cache() {
        Some(name) => format!("the default credential cache {name}"),
        None => "the default credential cache".into(),
    }
}

/// Returns the remedy if Kerberos replaces the configured name of a server by another name from DNS.
pub(super) fn dns_name_remedy() -> String {
    format!("set rdns = false and dns_canonicalize_hostname = false in {}", krb5_conf())
}

/// Returns the remedy if the KDC does not answer.
fn unreachable_kdc_remedy() -> String {
    format!("Is it up, and does {} name the right one?", krb5_conf())
}

/// Returns the names of the configuration files that Kerberos reads.
fn krb5_conf() -> String {
    match GssapiCredentials::other_config_files() {
        Some(files) => format!("{files} (KRB5_CONFIG)"),
        None => "/etc/krb5.conf".into(),
    }
}
