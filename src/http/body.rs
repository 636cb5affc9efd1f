//! Reads the bodies of commands: JSON objects, within limits.

use super::problem::Problem;
use axum::Json;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;

/// For the whole of a body to come.
const TO_SEND: Duration = Duration::from_secs(10);

/// A body is shorter than this.
const MAX_BYTES: usize = 16 * 1024;

/// Reads the object that is the body of this request; the example is told to whom sends another.
pub(super) async fn object<T: DeserializeOwned>(
    request: Request,
    example: &str,
) -> Result<T, Problem> {
    serde_json::from_value(any_object(request).await?)
        .map_err(|error| Problem::unprocessable(format!("{error}: write {example}")))
}

/// Returns an object and nothing else: serde would take an array for one.
async fn any_object(mut request: Request) -> Result<Value, Problem> {
    DefaultBodyLimit::max(MAX_BYTES).apply(&mut request);
    let body = Json::<Map<String, Value>>::from_request(request, &());
    let late = |_| Problem::bad_body(StatusCode::REQUEST_TIMEOUT, "its end did not come in time");
    match tokio::time::timeout(TO_SEND, body).await.map_err(late)? {
        Ok(Json(object)) => Ok(Value::Object(object)),
        Err(error) => Err(Problem::bad_body(error.status(), error.body_text())),
    }
}
