//! Asks the application one thing over HTTP.

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::pin::pin;
use tokio::net::TcpStream;

/// Returns when the answer begins, if it is 2xx. Nothing is sent any more when this is dropped. An
/// IPv6 address is in brackets, as in an URL.
///
/// # Errors
/// Why it is no such answer, or none.
pub async fn ask(host: &str, port: u16, request: Request<Full<Bytes>>) -> Result<(), String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await;
    let stream = stream.map_err(|error| format!("no connection: {error}"))?;
    let unanswered = |error: hyper::Error| format!("no answer: {error}");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(unanswered)?;
    let (mut answer, mut connection) = (pin!(sender.send_request(request)), pin!(connection));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    };
    let status = answer.map_err(unanswered)?.status();
    if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
}
