//! Who may give orders.
//!
//! Without a token configured, an order needs the header `X-Bellwether`, whatever it says: a page in
//! a browser cannot send it across origins without asking first, and is never allowed to. With one,
//! it needs that token, which no page has.

use super::problem::{self, Problem};
use axum::http::{HeaderMap, header};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use utoipa::{IntoParams, IntoResponses};

/// What an order has to show.
#[derive(Clone)]
pub enum Gate {
    Header,
    /// The token that is in this file at the moment of the order: it may be replaced at any time.
    TokenIn(Arc<Path>),
}

/// What an order shows where no token is configured.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a schema")]
pub(super) struct Permit {
    /// Whatever it says: needed where no token is configured.
    #[param(rename = "X-Bellwether")]
    header: Option<String>,
}

/// An order that is not let in.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "they are schemas")]
pub(super) enum Refused {
    /// A token is configured, and the order does not show it.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(problem::Body),
    /// The header is missing.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(problem::Body),
}

impl Gate {
    pub(super) fn let_in(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let file = match self {
            Self::Header if headers.contains_key("x-bellwether") => return Ok(()),
            Self::Header => return Err(Problem::header_missing()),
            Self::TokenIn(file) => file,
        };
        let shown = headers.get(header::AUTHORIZATION).and_then(|shown| {
            let (scheme, token) = shown.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let Some(shown) = shown else {
            return Err(Problem::unauthorized(
                "an order needs the header Authorization: Bearer TOKEN",
            ));
        };
        let Ok(token) = std::fs::read(&**file) else {
            let detail = "the file that http.token_file names cannot be read any more";
            return Err(Problem::unavailable("token-unreadable", "no order can be taken", detail));
        };
        let token = token.trim_ascii();
        if token.is_empty() || !bool::from(token.ct_eq(shown.as_bytes())) {
            return Err(Problem::unauthorized("the token is not the one in http.token_file"));
        }
        Ok(())
    }
}
