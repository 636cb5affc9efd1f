//! Why no connection comes about: one handshake of our own with each server, as the client library
//! knows and does not tell.

use super::flaw;
use super::passport::{Shown, Trust, date, own_is_outdated, server_name};
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

/// What one server suffers from.
struct Finding {
    kind: Kind,
    what: String,
}

/// Of what several servers suffer from, the first of these is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Nobody but an operator can mend it.
    Wrong,
    /// It runs, and has no quorum.
    Idle,
    /// It may come back.
    Unreachable,
}

/// What is wrong with the servers, or with what we show them; `None` if nothing can be seen.
///
/// Returns within the given time, and writes nothing but a question that each server may answer
/// to anybody.
pub(super) async fn diagnose(
    settings: &Zookeeper,
    shown: Option<Arc<Shown>>,
    patience: Duration,
) -> Option<String> {
    let mut examined = JoinSet::new();
    for (place, server) in settings.hosts.split(',').enumerate() {
        let (server, shown) = (server.to_owned(), shown.clone());
        let tls = settings.security.tls.clone();
        examined.spawn(async move {
            let examination = examine(&server, tls.as_ref(), shown.as_deref(), patience);
            let found = match timeout(patience, examination).await {
                Ok(found) => found,
                Err(_) => Kind::Unreachable.is("does not answer".into()),
            };
            found.map(|Finding { kind, what }| (kind, place, format!("{server} {what}")))
        });
    }
    let findings = examined.join_all().await.into_iter().flatten();
    findings.min().map(|(_, _, what)| what)
}

async fn examine(
    server: &str,
    tls: Option<&Tls>,
    shown: Option<&Shown>,
    patience: Duration,
) -> Option<Finding> {
    let tcp = match TcpStream::connect(server).await {
        Ok(tcp) => tcp,
        Err(error) => return Kind::Unreachable.is(format!("cannot be reached: {error}")),
    };
    match (tls, shown.and_then(|shown| shown.tls.as_ref())) {
        (Some(tls), Some(trust)) => greet(server, tcp, tls, trust, patience).await,
        (Some(_), None) | (None, _) => talk(server, tcp).await,
    }
}

/// Without TLS.
async fn talk(server: &str, mut tcp: TcpStream) -> Option<Finding> {
    if let Ok(answer) = ask(&mut tcp).await
        && is_text(&answer)
    {
        return serves(&answer);
    }
    drop(tcp);
    let again = TcpStream::connect(server).await.ok()?;
    if speaks_tls(server, again).await {
        let mend = "set zookeeper.tls.ca, or write the servers' port without TLS into \
                    zookeeper.servers";
        return Kind::Wrong.is(format!("speaks TLS on this port, and we do not: {mend}"));
    }
    Kind::Unreachable.is("answers, but not as ZooKeeper does".into())
}

fn serves(answer: &[u8]) -> Option<Finding> {
    if !String::from_utf8_lossy(answer).contains("not currently serving") {
        return None;
    }
    Kind::Idle
        .is("runs and serves nobody: do too few of the servers run, or see each other?".into())
}

/// Whether there is anybody who understands the first word of TLS. Whoever it is, is not trusted.
async fn speaks_tls(server: &str, tcp: TcpStream) -> bool {
    let nobody = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let Ok(name) = server_name(server) else { return false };
    match TlsConnector::from(Arc::new(nobody)).connect(name, tcp).await {
        Ok(_) => true,
        Err(error) => matches!(
            reason(&error),
            Some(
                Error::InvalidCertificate(_) | Error::AlertReceived(_) | Error::PeerIncompatible(_)
            )
        ),
    }
}

/// The handshake, and a question behind it: by TLS 1.3, a server that misses a certificate of ours
/// says so only then.
async fn greet(
    server: &str,
    tcp: TcpStream,
    tls: &Tls,
    trust: &Trust,
    patience: Duration,
) -> Option<Finding> {
    let name = server_name(server).ok()?;
    let connected = TlsConnector::from(trust.config.clone()).connect(name, tcp).await;
    let error = match connected {
        Ok(mut stream) => match ask(&mut stream).await {
            Ok(answer) => return serves(&answer),
            Err(error) => error,
        },
        Err(error) => error,
    };
    if let Some(why) = reason(&error).and_then(|error| explain(error, tls)) {
        return Kind::Wrong.is(why);
    }
    if let Ok(Ok(mut tcp)) = timeout(patience / 2, TcpStream::connect(server)).await
        && ask(&mut tcp).await.is_ok_and(|answer| is_text(&answer))
    {
        let mend = "write the servers' secureClientPort into zookeeper.servers, or leave \
                    zookeeper.tls out";
        return Kind::Wrong.is(format!("speaks no TLS on this port: {mend}"));
    }
    Kind::Unreachable.is(format!("breaks the TLS handshake off: {error}"))
}

/// A question of four letters, which ZooKeeper answers with text, be it that it is not allowed. With
/// the end of the line it is long enough for TLS to see that it is none.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Vec<u8>> {
    stream.write_all(b"srvr\n").await?;
    stream.flush().await?;
    let mut answer = vec![0; 64];
    let length = match stream.read(&mut answer).await {
        // Some close without a word, which is no fault of TLS.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
        length => length?,
    };
    answer.truncate(length);
    Ok(answer)
}

fn is_text(answer: &[u8]) -> bool {
    answer.first().is_some_and(u8::is_ascii_alphabetic)
}

fn reason(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn explain(error: &Error, tls: &Tls) -> Option<String> {
    match error {
        Error::InvalidCertificate(wrong) => Some(refused(wrong, tls)),
        Error::InvalidCertRevocationList(wrong) => Some(format!(
            "shows a certificate of a CA whose revocation list in zookeeper.tls.ca, {}, is one that {}",
            tls.ca.display(),
            flaw::of_list(wrong)
        )),
        Error::AlertReceived(alert) => Some(alerted(*alert, tls)),
        Error::PeerIncompatible(_) => {
            Some(format!("has no version or cipher of TLS in common with us: {error}"))
        }
        // Not TLS, or not what we expect of it: another look will tell.
        _ => None,
    }
}

/// What we do not accept of the server's.
fn refused(wrong: &CertificateError, tls: &Tls) -> String {
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
            format!("shows a certificate that was revoked, says zookeeper.tls.ca, {ca}")
        }
        other => format!("shows a certificate that {}", flaw::of_certificate(other)),
    }
}

/// `DnsName("zk-0.zk")` is for those who write programs.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// What the server does not accept of ours.
fn alerted(alert: AlertDescription, tls: &Tls) -> String {
    use AlertDescription as A;
    let about_ours = matches!(
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
        None if about_ours => "demands a certificate of ours: set zookeeper.tls.cert and \
                               zookeeper.tls.key"
            .into(),
        Some(own) if about_ours => match own_is_outdated(tls) {
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

impl Kind {
    #[expect(clippy::unnecessary_wraps, reason = "whoever looks may find nothing")]
    fn is(self, what: String) -> Option<Finding> {
        Some(Finding { kind: self, what })
    }
}
