//! The only HTTP client. Sends one request to an application, Kubernetes' API or a sidecar, over its own connection.

mod tls;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use tls::TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// Sends a request, and returns when the response begins, if its status is 2xx. Dropping the future stops sending. An IPv6
/// address is in brackets, as in a URL.
///
/// # Errors
/// Fails if no response comes, or its status is not 2xx.
pub async fn ask(host: &str, port: u16, request: Request<Full<Bytes>>) -> Result<(), String> {
    let connection = HttpConnection::to_port(host, port).await.map_err(unconnected)?;
    let (status, _) = connection.exchange(request, 0).await?;
    if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
}

/// Sends a request over TLS to a server whose certificate a CA in this file has signed. Returns the status and the body,
/// which is empty if it is longer than 64 KiB.
///
/// # Errors
/// The reason for a missing response, for people. Contains nothing of the request.
pub async fn ask_securely(
    host: &str,
    port: u16,
    ca: &Path,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    let tls = TlsClient::trusting(ca, host)?;
    let stream = connect(host, port).await.map_err(unconnected)?;
    let connection = HttpConnection(Box::new(tls.over(stream).await?));
    connection.exchange(request, LONGEST_BODY).await
}

const LONGEST_BODY: usize = 64 * 1024;

/// A connection for one request, with or without TLS. The stream is boxed, so that the binary contains the HTTP code only
/// once.
pub struct HttpConnection(Box<dyn ByteStream>);

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {
    fn socket(&self) -> BorrowedFd<'_>;
}

impl ByteStream for TcpStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl ByteStream for UnixStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl ByteStream for TlsStream<TcpStream> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.get_ref().0.as_fd()
    }
}

impl HttpConnection {
    /// Connects to a port. An IPv6 address may be in brackets, as in a URL.
    ///
    /// # Errors
    /// Fails if the connection cannot be opened.
    pub async fn to_port(host: &str, port: u16) -> io::Result<Self> {
        Ok(Self(Box::new(connect(host, port).await?)))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// Fails if the connection cannot be opened.
    pub async fn to_socket(path: &Path) -> io::Result<Self> {
        Ok(Self(Box::new(UnixStream::connect(path).await?)))
    }

    /// Duplicates the socket. The other side sees the connection open until both descriptors are closed.
    ///
    /// # Errors
    /// Fails if the process has too many open files.
    pub fn second_hold(&self) -> io::Result<OwnedFd> {
        self.0.socket().try_clone_to_owned()
    }

    /// Sends the request, and returns when the response begins. The caller reads the body as it arrives.
    ///
    /// # Errors
    /// Fails if the server does not answer.
    pub async fn send(self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.0)).await?;
        // The task ends when the response has been read or is dropped.
        tokio::spawn(connection);
        sender.send_request(request).await
    }

    /// Sends the request, and reads the body if it has at most `most` bytes; a longer body is returned as empty. Dropping
    /// the future stops sending.
    async fn exchange(
        self,
        request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<(StatusCode, Bytes), String> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(self.0)).await.map_err(no_answer)?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(no_answer)?;
            let status = answer.status();
            if most == 0 {
                return Ok((status, Bytes::new()));
            }
            let said = Limited::new(answer.into_body(), most).collect().await;
            Ok((status, said.map(|said| said.to_bytes()).unwrap_or_default()))
        };
        let mut answer = pin!(answer);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }
}

fn no_answer(error: hyper::Error) -> String {
    format!("no answer: {error}")
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((bare(host), port)).await
}

fn unconnected(error: io::Error) -> String {
    format!("no connection: {error}")
}

/// Removes the brackets around an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
