//! Reads the bodies of commands, within limits.

use super::problem::ProblemResponse;
use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for the arrival of a whole body.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a JSON object.
const MAX_BYTES: usize = 16 * 1024;

/// Reads a whole body of at most `longest` bytes.
pub(super) async fn bytes(body: Body, longest: usize) -> Result<Bytes, ProblemResponse> {
    match timeout(ARRIVAL_TIMEOUT, to_bytes(body, longest)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let why = format!("the body is longer than {longest} bytes, or was cut off");
            Err(ProblemResponse::bad_body(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Err(_) => {
            let why = "its end did not come in time";
            Err(ProblemResponse::bad_body(StatusCode::REQUEST_TIMEOUT, why))
        }
    }
}

/// Reads the JSON object in the body. An error for any other body shows `example`.
pub(super) async fn object<T: DeserializeOwned>(
    request: Request,
    example: &str,
) -> Result<T, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let body = bytes(body, MAX_BYTES).await?;
    // Serde would accept an array too, and take its elements as the fields in order.
    if body.trim_ascii_start().starts_with(b"[") {
        let why = format!("found an array, expected an object: write {example}");
        return Err(ProblemResponse::unprocessable(why));
    }
    match Json::from_request(Request::from_parts(parts, body.into()), &()).await {
        Ok(Json(object)) => Ok(object),
        Err(error) => {
            let why = format!("{}: write {example}", error.body_text());
            Err(ProblemResponse::bad_body(error.status(), why))
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
                use http_body_util::BodyExt;
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
            (r#"{"within_ms":-1}"#, "within_ms: invalid value: integer `-1`"),
            ("[]", "found an array, expected an object"),
            ("{", "Failed to parse the request body as JSON"),
        ] {
            let why = refused::<Transfer>(text).await;
            assert!(why.contains(said) && why.ends_with(": write EXAMPLE"), "{text}: {why}");
        }
    }

    /// The last one would win, and no one see which.
    #[tokio::test]
    async fn a_key_that_is_there_twice_is_refused() {
        let why = refused::<Patch>(r#"{"address":"a","address":"b"}"#).await;
        assert!(why.contains("duplicate field `address`"), "{why}");
    }
}
