//! Reads the bodies of commands, within limits.

use super::problem::ProblemResponse;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for the arrival of a whole body.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a JSON object in bytes. The memory for it is reserved before it is read.
const MAX_BYTES: usize = super::BODY_RESERVATION;

/// Reads a whole body of at most `longest` bytes. Calls `reserve` with the length of each piece that arrives, so that
/// its memory is reserved from then on, even if the client never sends the end.
pub(super) async fn bytes(
    mut body: Body,
    longest: usize,
    mut reserve: impl FnMut(usize) -> Result<(), ProblemResponse>,
) -> Result<Bytes, ProblemResponse> {
    let collecting = async {
        let mut data = vec![];
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let why = format!("the body cannot be read: {error}");
                ProblemResponse::bad_body(StatusCode::BAD_REQUEST, why)
            })?;
            let Ok(piece) = frame.into_data() else { continue };
            // The bytes are counted as they arrive. A large Content-Length is not refused at once, because a client that is
            // answered while it sends the body may not read the answer.
            if data.len() + piece.len() > longest {
                let why = format!("the body is longer than {longest} bytes");
                return Err(ProblemResponse::bad_body(StatusCode::PAYLOAD_TOO_LARGE, why));
            }
            reserve(piece.len())?;
            data.extend_from_slice(&piece);
        }
        Ok(data.into())
    };
    timeout(ARRIVAL_TIMEOUT, collecting).await.unwrap_or_else(|_| {
        let why = "the body did not arrive completely in time";
        Err(ProblemResponse::bad_body(StatusCode::REQUEST_TIMEOUT, why))
    })
}

/// Reads the JSON object in the body. An error for any other body shows `example`.
pub(super) async fn object<T: DeserializeOwned>(
    request: Request,
    example: &str,
) -> Result<T, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let body = bytes(body, MAX_BYTES, |_| Ok(())).await?;
    // Serde would accept an array too, and take its elements as the fields in order.
    if body.trim_ascii_start().starts_with(b"[") {
        let why = format!("found an array, expected an object: write {example}");
        return Err(ProblemResponse::unprocessable(why));
    }
    match Json::from_request(Request::from_parts(parts, body.into()), &()).await {
        Ok(Json(object)) => Ok(object),
        Err(error) => {
            let why = error.body_text().replace("expected u64", "expected a whole number");
            Err(ProblemResponse::bad_body(error.status(), format!("{why}: write {example}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Patch, Transfer};

    async fn refused<T: DeserializeOwned>(text: &'static str) -> String {
        let request = Request::post("/").header("content-type", "application/json");
        let request = request.body(text.into()).unwrap();
        match object::<T>(request, "EXAMPLE").await {
            Ok(_) => panic!("{text} is accepted"),
            Err(problem) => {
                use axum::response::IntoResponse;
                let answer = problem.into_response();
                assert!(answer.status().is_client_error(), "{text}");
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                body["detail"].as_str().unwrap().to_owned()
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_is_refused_names_the_field_and_what_to_write() {
        for (text, said) in [
            (r#"{"to":1}"#, "to: invalid type: integer `1`, expected a string"),
            (r#"{"to":"b","to":"c"}"#, "duplicate field `to`"),
            (r#"{"x":1}"#, "unknown field `x`"),
            (
                r#"{"within_ms":-1}"#,
                "within_ms: invalid value: integer `-1`, expected a whole number at",
            ),
            ("[]", "found an array, expected an object"),
            ("{", "Failed to parse the request body as JSON"),
        ] {
            let why = refused::<Transfer>(text).await;
            assert!(why.contains(said) && why.ends_with(": write EXAMPLE"), "{text}: {why}");
        }
    }

    /// Otherwise the last value would count, and nobody would notice.
    #[tokio::test]
    async fn a_key_that_is_there_twice_is_refused() {
        let why = refused::<Patch>(r#"{"address":"a","address":"b"}"#).await;
        assert!(why.contains("duplicate field `address`"), "{why}");
    }
}
