//! Asks the application one thing over HTTP, or Kubernetes' API over HTTPS.

use crate::files::{self, Size};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// Returns when the answer begins, if it is 2xx. Nothing is sent any more when this is dropped. An
/// IPv6 address is in brackets, as in an URL.
///
/// # Errors
/// Why it is no such answer, or none.
pub async fn ask(host: &str, port: u16, request: Request<Full<Bytes>>) -> Result<(), String> {
    let stream = connect(host, port).await?;
    let (status, _) = exchange(Box::new(stream), request, 0).await?;
    if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
}

/// The same by TLS, with a server whose certificate an authority in this file has signed. Returns
/// also what the answer says if it is not 2xx, or nothing if it says too much.
///
/// # Errors
/// Why there is no answer: for people, and without anything of the request.
pub async fn ask_securely(
    host: &str,
    port: u16,
    ca: &Path,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    let config = trusting(ca).map_err(|wrong| format!("{} {wrong}", ca.display()))?;
    let name = ServerName::try_from(bare(host).to_owned())
        .map_err(|_| format!("no certificate can be for {host:?}"))?;
    let stream = connect(host, port).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| untrusted(&error, ca))?;
    exchange(Box::new(stream), request, LONGEST_COMPLAINT).await
}

const LONGEST_COMPLAINT: usize = 64 * 1024;

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((bare(host), port)).await;
    stream.map_err(|error| format!("no connection: {error}"))
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// With TLS or without: behind a pointer, so that HTTP is in the binary once.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Reads no more than so much of what is said with a refusal, and nothing if that is nothing.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<(StatusCode, Bytes), String> {
    let unanswered = |error: hyper::Error| format!("no answer: {error}");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(unanswered)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(unanswered)?;
        let status = answer.status();
        if status.is_success() || most == 0 {
            return Ok((status, Bytes::new()));
        }
        let said = Limited::new(answer.into_body(), most).collect().await;
        Ok((status, said.map(|said| said.to_bytes()).unwrap_or_default()))
    };
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    }
}

/// Read anew each time, so that it can be replaced while we run.
fn trusting(ca: &Path) -> Result<ClientConfig, String> {
    let text = files::read(ca, Size::Certificates)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| "is no PEM")?;
        roots.add(certificate).map_err(|error| format!("holds no certificate: {error}"))?;
    }
    if roots.is_empty() {
        return Err("holds no certificate in PEM (BEGIN CERTIFICATE)".into());
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Why there is no TLS with this server.
fn untrusted(error: &io::Error, ca: &Path) -> String {
    let ca = ca.display();
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the server shows a certificate that no CA in {ca} has signed")
            }
            // It says for whom it is, and who it was expected to be for; or how long it was valid.
            wrong => format!("the server shows a certificate that is not acceptable: {wrong}"),
        },
        Some(Error::InvalidMessage(_)) => "the server speaks no TLS on this port".into(),
        Some(_) | None => format!("no TLS: {error}"),
    }
}
