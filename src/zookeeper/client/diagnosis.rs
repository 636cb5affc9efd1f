//! Finds out why a server cannot be used, by a question that it answers for any client (`srvr`), because the client library
//! does not report the cause.

use super::credentials::{Trust, date};
use super::server_version::ask_srvr;
use super::tls_errors;
use crate::config::security::Tls;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore,
};

/// Returns why the server at this address cannot be used, after its name; `None` if nothing is found. Returns within the
/// limit.
pub(super) async fn explain(
    name: &str,
    address: &str,
    trust: Option<&Trust>,
    limit: Duration,
) -> Option<String> {
    match timeout(limit, examine(address, trust)).await {
        Ok(found) => found.map(|what| format!("{name} {what}")),
        Err(_) => Some(format!("{name} does not answer")),
    }
}

/// Returns what is wrong with the server, as far as that can be seen from outside, in words that follow its name.
async fn examine(server: &str, trust: Option<&Trust>) -> Option<String> {
    let tcp = match TcpStream::connect(server).await {
        Ok(tcp) => tcp,
        Err(error) => return Some(format!("cannot be reached: {error}")),
    };
    // With TLS 1.3, a server refuses a missing or wrong certificate of ours only after the handshake, at the question.
    let asked = ask_srvr(server, tcp, trust.map(|trust| &trust.config)).await;
    if let Ok(answer) = &asked {
        if answer.starts_with(b"HTTP/") {
            let remedy = "write the servers' clientPort into zookeeper.servers";
            return Some(format!("speaks HTTP on this port: {remedy}"));
        }
        if is_text(answer) {
            let serves = !String::from_utf8_lossy(answer).contains("not currently serving");
            let what =
                "runs and serves no client: do too few of the servers run, or see each other?";
            return if serves { None } else { Some(what.into()) };
        }
    }
    match (trust, asked) {
        (Some(trust), Err(error)) => {
            if let Some(why) = tls_error(&error).and_then(|error| explain_tls_error(error, trust)) {
                return Some(why);
            }
            if speaks_plain(server).await {
                let remedy = "write the servers' secureClientPort into zookeeper.servers, or leave \
                              zookeeper.tls out";
                return Some(format!("speaks no TLS on this port: {remedy}"));
            }
            Some(format!("breaks the TLS handshake off: {error}"))
        }
        (None, _) if speaks_tls(server).await => {
            let remedy = "set zookeeper.tls.ca, or write the servers' port without TLS into \
                          zookeeper.servers";
            Some(format!("speaks TLS on this port, and we do not: {remedy}"))
        }
        (_, Ok(answer)) if !answer.is_empty() => Some("answers, but not as ZooKeeper does".into()),
        _ => Some(
            "accepts the connection and closes it without an answer: is maxClientCnxns reached (the servers' log: \
             \"Too many connections\"), or is this not the clientPort?"
                .into(),
        ),
    }
}

/// Returns true if the server answers a TLS handshake. No certificate is trusted here, so a handshake with a TLS server
/// fails, but with an error that shows that the server speaks TLS.
async fn speaks_tls(server: &str) -> bool {
    let trusts_none = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let Ok(tcp) = TcpStream::connect(server).await else { return false };
    match ask_srvr(server, tcp, Some(&Arc::new(trusts_none))).await {
        Ok(_) => true,
        Err(error) => matches!(
            tls_error(&error),
            Some(
                Error::InvalidCertificate(_) | Error::AlertReceived(_) | Error::PeerIncompatible(_)
            )
        ),
    }
}

/// Returns true if the server answers as ZooKeeper does without TLS.
async fn speaks_plain(server: &str) -> bool {
    let Ok(tcp) = TcpStream::connect(server).await else { return false };
    ask_srvr(server, tcp, None).await.is_ok_and(|answer| is_text(&answer))
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
fn explain_tls_error(error: &Error, trust: &Trust) -> Option<String> {
    let tls = &trust.settings;
    match error {
        Error::InvalidCertificate(wrong) => Some(explain_server_certificate(wrong, tls)),
        Error::InvalidCertRevocationList(wrong) => Some(format!(
            "shows a certificate of a CA whose revocation list in zookeeper.tls.ca, {}, {}",
            tls.ca.display(),
            tls_errors::of_list(wrong)
        )),
        Error::AlertReceived(alert) => Some(explain_alert(*alert, trust)),
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
fn explain_alert(alert: AlertDescription, trust: &Trust) -> String {
    use AlertDescription as A;
    match (alert, &trust.settings.own, &trust.own_problem) {
        (
            A::ProtocolVersion | A::InsufficientSecurity | A::UnrecognisedName | A::InternalError,
            ..,
        ) => {
            format!("ends the TLS handshake: {alert:?}")
        }
        (_, None, _) => {
            "demands a certificate of ours: set zookeeper.tls.cert and zookeeper.tls.key".into()
        }
        (_, Some(_), Some(why)) => format!("does not accept our certificate: {why}"),
        (_, Some(own), None) => format!(
            "does not accept our certificate, zookeeper.tls.cert, {}: is it signed by a CA that the servers trust? (TLS alert \
             {alert:?})",
            own.cert.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
            let found = examine(&at, None).await.unwrap();
            assert!(found.contains(expected), "{found}");
            serving.abort();
        }
    }
}
