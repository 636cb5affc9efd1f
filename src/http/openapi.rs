//! The description of this API for programs.
//!
//! The document is written by hand. A test compares its paths with the routes. Another test sends a member all requests
//! that the document describes, and compares the answers with it.

use axum::http::header;
use axum::response::IntoResponse;

const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
