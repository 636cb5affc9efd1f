//! Runs a single health check.

use crate::config::{Check, Health};
use crate::http_client;
use crate::process::{self, command_for};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use std::io;
use std::process::Stdio;
use tokio::signal::unix::Signal;
use tokio::time::timeout;

/// Checks the application once: sends an HTTP request, or runs a command. Returns the reason if the check fails. While a
/// command runs, reaps dead children at each SIGCHLD, which `deaths` receives.
pub(super) async fn probe(
    health: &Health,
    file_limit: Option<u64>,
    deaths: &mut Signal,
) -> Result<(), String> {
    let result = match &health.check {
        Check::Get { host, port, path } => {
            let request = Request::get(path).header(HOST, format!("{host}:{port}"));
            let request = request.body(Full::<Bytes>::default()).map_err(|e| e.to_string())?;
            timeout(health.timeout, http_client::ask(host, *port, request)).await
        }
        Check::Run(command) => {
            let mut start = command_for(command, file_limit);
            start.stdin(Stdio::null()).stdout(io::stderr()).stderr(io::stderr());
            let mut child = process::spawn(&mut start)
                .map_err(|error| format!("cannot be started: {error}"))?;
            let ended = timeout(health.timeout, child.wait(deaths)).await;
            if ended.is_err() {
                child.kill(deaths).await;
            }
            ended
        }
    };
    result.unwrap_or_else(|_| Err(format!("not done within {:?}", health.timeout)))
}
