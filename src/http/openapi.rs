//! The description of this API for programs.
//!
//! The document is kept by hand. A test compares its paths with the routes, and another asks a member all that it
//! describes and compares the answers.

use axum::http::header;
use axum::response::IntoResponse;

const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}
