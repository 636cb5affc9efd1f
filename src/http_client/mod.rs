//! The only HTTP client. Sends one request to an application, Kubernetes' API or a sidecar, over its own connection.

mod tls;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use tls::TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Sends a request, and returns when the response begins. An IPv6 address is in brackets, as in a URL.
///
/// # Errors
/// Fails if no response comes, or its status is not 2xx. The message is for people.
pub async fn ask(host: &str, port: u16, request: Request<Full<Bytes>>) -> Result<(), String> {
    let stream = connect(host, port).await.map_err(unconnected)?;
    let status = send(Box::new(stream), request).await.map_err(no_answer)?.status();
    if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
}

/// Sends a request over TLS to a server whose certificate is signed by a CA in the file `ca`. Returns the status and the
/// body. A body of more than 64 KiB, or one that breaks off, is returned as an empty one.
///
/// # Errors
/// Fails if no response comes. The message is for people, and contains nothing of the request, which may have a secret.
pub async fn ask_securely(
    host: &str,
    port: u16,
    ca: &Path,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    let tls = TlsClient::trusting(ca, host)?;
    let stream = connect(host, port).await.map_err(unconnected)?;
    let stream = tls.connect(stream).await?;
    let answer = send(Box::new(stream), request).await.map_err(no_answer)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST_BODY).collect().await;
    Ok((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
}

/// The maximum length of the body of a response, in bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// A connection, with or without TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Sends the request, and returns when the response begins. The caller reads the body as it arrives. Dropping the future
/// closes the connection. The stream is boxed, so that the binary contains the HTTP code only once.
///
/// # Errors
/// Fails if the server does not answer.
pub async fn send(
    stream: Box<dyn ByteStream>,
    request: Request<Full<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends when the response has been read or is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Connects to a port. An IPv6 address may be in brackets, as in a URL.
///
/// # Errors
/// Fails if the connection cannot be opened.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((without_brackets(host), port)).await
}

fn no_answer(error: hyper::Error) -> String {
    format!("no answer: {error}")
}

fn unconnected(error: io::Error) -> String {
    format!("no connection: {error}")
}

/// Removes the brackets around an IPv6 address.
fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
