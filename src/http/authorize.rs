//! Checks that a client may give commands.
//!
//! If no token is configured, a command needs the header `X-Bellwether`, with any value: a page in a browser cannot send it
//! across origins without a preflight request, which is always refused. If a token is configured, a command needs this
//! token. No page has it; a person types it into this sidecar's own page.

use super::AppState;
use super::problem::ProblemResponse;
use crate::config;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tracing::warn;

/// The time limit for reading the token's file.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Limits how many threads read the token's file at once.
static READERS: Semaphore = Semaphore::const_new(4);

/// The authorization that a command needs.
#[derive(Clone)]
pub enum Authorization {
    /// The header `X-Bellwether`, with any value.
    Header,
    /// The token in this file. Each command reads the file, so that the token may be replaced at any time.
    TokenIn(Arc<Path>),
}

/// Proof that a request may give commands. It is extracted before the body of the request is read.
pub(super) struct Authorized;

impl FromRequestParts<AppState> for Authorized {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &AppState,
    ) -> Result<Self, ProblemResponse> {
        match &app.authorization {
            Authorization::Header => check_header(&parts.headers)?,
            Authorization::TokenIn(file) => check_token(&parts.headers, file).await?,
        }
        Ok(Self)
    }
}

/// Checks that the request has the header `X-Bellwether`, and that no web page sends it.
///
/// With DNS rebinding, the host name of a page resolves to this machine, so the page can send any header. But its
/// browser adds `Origin` to every request other than GET and HEAD.
fn check_header(headers: &HeaderMap) -> Result<(), ProblemResponse> {
    if headers.contains_key(header::ORIGIN) {
        let detail = "the request has the header Origin, so a web page sends it, and no web page may give commands";
        return Err(ProblemResponse::new(StatusCode::FORBIDDEN, "web-page", detail));
    }
    if !headers.contains_key("x-bellwether") {
        let detail = "a command needs the header X-Bellwether, which no web page can send: \
                      add -H 'X-Bellwether: 1' to curl";
        return Err(ProblemResponse::new(StatusCode::FORBIDDEN, "header-missing", detail));
    }
    Ok(())
}

/// Checks that the request has the token in the file.
async fn check_token(headers: &HeaderMap, file: &Arc<Path>) -> Result<(), ProblemResponse> {
    let sent_token = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let Some(sent_token) = sent_token else {
        let remedy = "a command needs the header Authorization: Bearer TOKEN, with the command token that \
                      is in the file which http.token_file names; the program bellwether sends it if \
                      --token-file names that file";
        return Err(ProblemResponse::new(StatusCode::UNAUTHORIZED, "unauthorized", remedy));
    };
    let file = file.clone();
    // Read on another thread and with a time limit, because the file system may hang. The permit limits how many threads may
    // hang.
    let reading = async {
        let permit = READERS.acquire().await.expect("it is never closed");
        let read = tokio::task::spawn_blocking(move || {
            let _held_until_read = permit;
            config::token(config::table::TOKEN_FILE.key(), &file)
        });
        read.await.expect("it does not panic")
    };
    let read = match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err(format!("http.token_file: not read within {READ_TIMEOUT:?}")),
    };
    let token = read.map_err(|error| {
        warn!("commands are refused: {error}");
        ProblemResponse::unavailable("token-unreadable", error)
    })?;
    if !bool::from(token.ct_eq(sent_token.as_bytes())) {
        let why = "the command token is not the one in http.token_file";
        return Err(ProblemResponse::new(StatusCode::UNAUTHORIZED, "unauthorized", why));
    }
    Ok(())
}
