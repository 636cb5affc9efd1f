//! Finds out why no connection succeeds, by its own handshake with each server, because the client library does not report
//! the cause.

use super::connection::lookup;
use super::credentials::{PresentedCredentials, Trust, date, own_certificate_problem, server_name};
use super::tls_errors;
use crate::config::Zookeeper;
use crate::config::security::Tls;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore,
};

/// The problem of one server, in words that follow the server's name.
type Finding = (FindingKind, String);

/// The kind of a finding. Findings about several servers are reported in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FindingKind {
    /// The settings of this member do not fit the server. Only an operator can fix that.
    Misconfigured,
    /// The server runs, but has no quorum.
    NoQuorum,
    /// The server does not answer as ZooKeeper does, or not at all. Perhaps the next attempt succeeds.
    Unreachable,
}

/// Returns what is wrong with each server or with the credentials; `None` if nothing is found.
///
/// Returns within the limit, and sends only the command `srvr`, which a server answers for any client.
pub(crate) async fn diagnose(
    settings: &Zookeeper,
    presented: Option<Arc<PresentedCredentials>>,
    limit: Duration,
) -> Option<String> {
    let mut examinations = JoinSet::new();
    for (position, server) in settings.hosts.split(',').enumerate() {
        let server = server.to_owned();
        let presented = presented.clone();
        let tls = settings.security.tls.clone();
        examinations.spawn(async move {
            let examination = examine(&server, tls.as_ref(), presented.as_deref(), limit);
            let found = match timeout(limit, examination).await {
                Ok(found) => found,
                Err(_) => Some((FindingKind::Unreachable, "does not answer".into())),
            };
            found.map(|(kind, what)| (kind, position, format!("{server} {what}")))
        });
    }
    let mut findings: Vec<_> = examinations.join_all().await.into_iter().flatten().collect();
    // By kind, and then in the order of the configuration.
    findings.sort_unstable();
    if findings.is_empty() {
        return None;
    }
    let texts: Vec<_> = findings.into_iter().map(|(_, _, text)| text).collect();
    Some(texts.join("; "))
}

/// Examines one server. Returns `None` if nothing is wrong with it that can be seen from outside.
async fn examine(
    server: &str,
    tls: Option<&Tls>,
    presented: Option<&PresentedCredentials>,
    limit: Duration,
) -> Option<Finding> {
    // The lookup may take half of the limit, so that its failure can be reported before `diagnose` stops waiting.
    let addresses = match lookup(server, limit / 2).await {
        Ok(addresses) => addresses,
        Err(problem) => return Some((FindingKind::Unreachable, problem)),
    };
    let tcp = match TcpStream::connect(&*addresses).await {
        Ok(tcp) => tcp,
        Err(error) => {
            return Some((FindingKind::Unreachable, format!("cannot be reached: {error}")));
        }
    };
    // `tls` has the settings, and `trust` the content of the files that they name. An attempt to connect has read the
    // files, so both are there if TLS is configured.
    match (tls, presented.and_then(|presented| presented.tls.as_ref())) {
        (Some(tls), Some(trust)) => examine_tls(server, tcp, tls, trust, limit).await,
        (Some(_), None) | (None, _) => examine_plain(server, tcp).await,
    }
}

/// Examines a server over a connection without TLS.
async fn examine_plain(server: &str, mut tcp: TcpStream) -> Option<Finding> {
    let answer = ask_srvr(&mut tcp).await.unwrap_or_default();
    if answer.starts_with(b"HTTP/") {
        let remedy = "write the servers' clientPort into zookeeper.servers";
        return Some((FindingKind::Misconfigured, format!("speaks HTTP on this port: {remedy}")));
    }
    // Text shows that this is ZooKeeper without TLS, so only its quorum can be missing.
    if is_text(&answer) {
        return no_quorum_finding(&answer);
    }
    // Try TLS over another connection. Close this one first, because the server may limit the connections of a client.
    drop(tcp);
    let second = TcpStream::connect(server).await.ok()?;
    if speaks_tls(server, second).await {
        let remedy = "set zookeeper.tls.ca, or write the servers' port without TLS into \
                    zookeeper.servers";
        let what = format!("speaks TLS on this port, and we do not: {remedy}");
        return Some((FindingKind::Misconfigured, what));
    }
    let what = match answer.is_empty() {
        true => {
            "accepts the connection and closes it without an answer: is maxClientCnxns reached (the servers' log: \
                 \"Too many connections\"), or is this not the clientPort?"
        }
        false => "answers, but not as ZooKeeper does",
    };
    Some((FindingKind::Unreachable, what.into()))
}

/// Returns a finding if this is the answer of a server without a quorum, which serves no client; `None` for any other
/// answer.
fn no_quorum_finding(answer: &[u8]) -> Option<Finding> {
    if !String::from_utf8_lossy(answer).contains("not currently serving") {
        return None;
    }
    let what = "runs and serves no client: do too few of the servers run, or see each other?";
    Some((FindingKind::NoQuorum, what.into()))
}

/// Returns true if the server answers a TLS handshake. No certificate is trusted here, so a handshake with a TLS server
/// fails, but with an error that shows that the server speaks TLS.
async fn speaks_tls(server: &str, tcp: TcpStream) -> bool {
    let trusts_none = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let Ok(name) = server_name(server) else { return false };
    match TlsConnector::from(Arc::new(trusts_none)).connect(name, tcp).await {
        Ok(_) => true,
        Err(error) => matches!(
            tls_error(&error),
            Some(
                Error::InvalidCertificate(_) | Error::AlertReceived(_) | Error::PeerIncompatible(_)
            )
        ),
    }
}

/// Performs the TLS handshake, and sends a command after it: with TLS 1.3, a server refuses a missing or wrong certificate of
/// ours only after the handshake.
async fn examine_tls(
    server: &str,
    tcp: TcpStream,
    tls: &Tls,
    trust: &Trust,
    limit: Duration,
) -> Option<Finding> {
    let name = server_name(server).ok()?;
    let connected = TlsConnector::from(trust.config.clone()).connect(name, tcp).await;
    let error = match connected {
        Ok(mut stream) => match ask_srvr(&mut stream).await {
            Ok(answer) => return no_quorum_finding(&answer),
            Err(error) => error,
        },
        Err(error) => error,
    };
    if let Some(why) = tls_error(&error).and_then(|error| explain_tls_error(error, tls)) {
        return Some((FindingKind::Misconfigured, why));
    }
    // Perhaps this is the port without TLS, and the server took our handshake for an invalid request. Connecting again
    // may take half of the limit, so that the error above can be reported before `diagnose` stops waiting.
    if let Ok(Ok(mut tcp)) = timeout(limit / 2, TcpStream::connect(server)).await
        && ask_srvr(&mut tcp).await.is_ok_and(|answer| is_text(&answer))
    {
        let remedy = "write the servers' secureClientPort into zookeeper.servers, or leave \
                    zookeeper.tls out";
        return Some((FindingKind::Misconfigured, format!("speaks no TLS on this port: {remedy}")));
    }
    Some((FindingKind::Unreachable, format!("breaks the TLS handshake off: {error}")))
}

/// Sends the four-letter command `srvr`, and returns the beginning of the answer, or nothing if the server closes the
/// connection without one. ZooKeeper answers with text even if the command is not allowed.
///
/// The newline makes the command long enough for a TLS server to recognize that it is not TLS.
pub(super) async fn ask_srvr(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Vec<u8>> {
    stream.write_all(b"srvr\n").await?;
    stream.flush().await?;
    let mut answer = vec![0; 64];
    let length = match stream.read(&mut answer).await {
        // The TLS library's error if the server closes the connection without ending TLS: no answer.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
        length => length?,
    };
    answer.truncate(length);
    Ok(answer)
}

/// Returns true if the answer is text, as ZooKeeper's answers are. The answer of a TLS server, an alert, begins with a
/// control character.
fn is_text(answer: &[u8]) -> bool {
    answer.first().is_some_and(u8::is_ascii_alphabetic)
}

/// Returns the TLS library's error inside an IO error.
fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Explains a TLS error to operators. Returns `None` if the cause may be a different one.
fn explain_tls_error(error: &Error, tls: &Tls) -> Option<String> {
    match error {
        Error::InvalidCertificate(wrong) => Some(explain_server_certificate(wrong, tls)),
        Error::InvalidCertRevocationList(wrong) => Some(format!(
            "shows a certificate of a CA whose revocation list in zookeeper.tls.ca, {}, {}",
            tls.ca.display(),
            tls_errors::of_list(wrong)
        )),
        Error::AlertReceived(alert) => Some(explain_alert(*alert, tls)),
        Error::PeerIncompatible(_) => {
            Some(format!("has no version or cipher of TLS in common with us: {error}"))
        }
        // For example, the answer is not TLS: the caller examines whether the server speaks TLS at all.
        _ => None,
    }
}

/// Explains why the server's certificate is not accepted.
fn explain_server_certificate(wrong: &CertificateError, tls: &Tls) -> String {
    let ca = tls.ca.display();
    match wrong {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "shows a certificate that no CA in zookeeper.tls.ca, {ca}, has signed: is that the \
             CA of the servers?"
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".into() } else { names.join(", ") };
            format!(
                "shows a certificate for {names}, and not for {expected}: write the server into \
                 zookeeper.servers by a name that its certificate has, or have it issued for this \
                 one"
            )
        }
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "shows a certificate that expired on {}: have it renewed (or is this machine's clock \
             wrong?)",
            date(*not_after)
        ),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "shows a certificate that is not valid before {}: is this machine's clock right?",
            date(*not_before)
        ),
        CertificateError::Revoked => {
            format!("shows a certificate that a revocation list in zookeeper.tls.ca, {ca}, revokes")
        }
        other => format!("shows a certificate that {}", tls_errors::of_certificate(other)),
    }
}

/// Returns the name inside its debug notation: `zk-0.zk` for `DnsName("zk-0.zk")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// Explains why the server has ended the handshake with this alert: as a rule, because of our certificate.
fn explain_alert(alert: AlertDescription, tls: &Tls) -> String {
    use AlertDescription as A;
    let is_about_our_certificate = matches!(
        alert,
        A::CertificateRequired
            | A::NoCertificate
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::HandshakeFailure
    );
    match &tls.own {
        None if is_about_our_certificate => {
            "demands a certificate of ours: set zookeeper.tls.cert and \
                               zookeeper.tls.key"
                .into()
        }
        Some(own) if is_about_our_certificate => match own_certificate_problem(tls) {
            Some(why) => format!("does not accept our certificate: {why}"),
            None => format!(
                "does not accept our certificate, zookeeper.tls.cert, {}: is it signed by a CA that \
                 the servers trust? (TLS alert {alert:?})",
                own.cert.display()
            ),
        },
        _ => format!("ends the TLS handshake: {alert:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::security::{AclPolicy, Security};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_port_that_is_not_the_clientport_is_recognized_by_its_answer() {
        for (answer, expected) in [
            (&b""[..], "closes it without an answer: is maxClientCnxns reached"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP on this port"),
            (b"\0\x01", "answers, but not as ZooKeeper does"),
        ] {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = server.local_addr().unwrap().to_string();
            let serving = tokio::spawn(async move {
                while let Ok((mut client, _)) = server.accept().await {
                    let _already_gone = client.read(&mut [0; 8]).await;
                    let _already_gone = client.write_all(answer).await;
                }
            });
            let found = examine(&at, None, None, Duration::from_secs(9)).await.unwrap().1;
            assert!(found.contains(expected), "{found}");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn each_server_that_does_not_serve_is_reported() {
        let idle = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hosts = format!("127.0.0.1:1,{},127.0.0.1:2", idle.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((mut client, _)) = idle.accept().await {
                let answer = b"This ZooKeeper instance is not currently serving requests\n";
                let _already_gone = client.write_all(answer).await;
            }
        });
        let security =
            Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: false };
        let session_timeout = Duration::from_secs(9);
        let settings = Zookeeper { hosts: hosts.clone(), session_timeout, security };
        let found = diagnose(&settings, None, session_timeout).await.unwrap();
        let named: Vec<_> =
            found.split("; ").map(|what| what.split(' ').next().unwrap_or_default()).collect();
        let [first, second, third] = hosts.split(',').collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(named, [second, first, third], "{found}");
        serving.abort();
    }
}
