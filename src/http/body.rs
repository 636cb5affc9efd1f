//! Reads the bodies of commands: JSON objects, within limits.

use super::problem::ProblemResponse;
use axum::Json;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for the arrival of a whole body.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a body.
const MAX_BYTES: usize = 16 * 1024;

/// Reads the JSON object in the body; the example is part of the error for any other body.
pub(super) async fn object<T: DeserializeOwned>(
    request: Request,
    example: &str,
) -> Result<T, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let body = match timeout(SEND_TIMEOUT, to_bytes(body, MAX_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let why = format!("the body is longer than {MAX_BYTES} bytes: write {example}");
            return Err(ProblemResponse::bad_body(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Err(_) => {
            let why = "its end did not come in time";
            return Err(ProblemResponse::bad_body(StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    // Serde would accept an array as well.
    let is_array = body.trim_ascii_start().starts_with(b"[");
    let request = Request::from_parts(parts, body.into());
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let (status, why) = match Json::from_request(request, &()).await {
        Ok(Json(object)) if !is_array => return Ok(object),
        Err(error) if !is_array || error.status() != unprocessable => {
            (error.status(), in_words_of_json(&error.body_text()))
        }
        _ => (unprocessable, "found an array, expected an object".into()),
    };
    Err(ProblemResponse::bad_body(status, format!("{why}: write {example}")))
}

/// Translates the error from the terms of Rust to the terms of JSON.
fn in_words_of_json(error: &str) -> String {
    let whole = error
        .strip_prefix("Failed to deserialize the JSON body into the target type: ")
        .map(str::to_owned)
        .or_else(|| {
            let why = error.strip_prefix("Failed to parse the request body as JSON: ")?;
            Some(format!("it is not JSON: {why}"))
        });
    let words = [
        // Only a priority is a `u8`.
        ("expected u8", "expected a whole number from 0 to 100"),
        ("expected u64", "expected a whole number"),
        ("expected a map", "expected an object"),
        ("invalid type: sequence", "found an array"),
        ("invalid type: map", "found an object"),
        ("invalid type: ", "found "),
        ("invalid value: ", "found "),
    ];
    let said = whole.unwrap_or_else(|| error.to_owned());
    words.iter().fold(said, |said, (of_rust, of_json)| said.replace(of_rust, of_json))
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
            (r#"{"to":1}"#, "to: found integer `1`, expected a string"),
            (r#"{"to":"b","to":"c"}"#, "duplicate field `to`"),
            (r#"{"x":1}"#, "unknown field `x`"),
            (r#"{"within_ms":-1}"#, "expected a whole number"),
            ("[]", "found an array, expected an object"),
            ("{", "it is not JSON: "),
        ] {
            let why = refused::<Transfer>(text).await;
            assert!(why.contains(said) && why.ends_with(": write EXAMPLE"), "{text}: {why}");
            assert!(!why.contains("deserialize"), "{text}: {why}");
        }
    }

    /// The last one would win, and no one see which.
    #[tokio::test]
    async fn a_key_that_is_there_twice_is_refused() {
        let why = refused::<Patch>(r#"{"address":"a","address":"b"}"#).await;
        assert!(why.contains("duplicate field `address`"), "{why}");
        let why = refused::<Patch>(r#"{"priority":700}"#).await;
        assert!(why.contains("expected a whole number from 0 to 100"), "{why}");
    }
}
