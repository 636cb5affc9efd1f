//! The shared configuration for any application: values by name, which can be read, waited for, and written under
//! conditions.
//!
//! - `conditions`: the conditional headers of a request. `stream`: the changes of one value.

mod conditions;
mod stream;
#[cfg(test)]
mod tests;

use self::conditions::condition;
pub(super) use self::stream::ValueEvents;
use super::authorize::Authorized;
use super::blocking::Wait;
use super::problem::{ProblemResponse, version_tag};
use super::query::{NoQuery, Query, RecipePath, Span, accepts, flag};
use super::{AppState, INDEX, body};
use crate::api::{ConfigNames, ConfigWritten};
use crate::byte_budget::{ByteBudget, ReservedBytes};
use crate::shared_config::{
    Condition, ConfigHandle, ConfigName, ConfigRequest, NAMES_MAX, TooMany, VALUE_MAX, Value,
    ValueReading, ValueWrite, WatchedValue, WriteAction, WriteError, WriteOutcome,
};
use crate::status::{self, CommandError};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long ZooKeeper may take to return a value.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long ZooKeeper may take to write a value.
const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

/// A request with `proved` fails if a quorum has contradicted this many readings, one after the other.
const CONFIRM_ATTEMPTS: usize = 3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    index: Option<u64>,
    wait: Option<Span<0>>,
    /// True if a quorum of the servers must confirm that the returned version is the stored one.
    #[serde(default, deserialize_with = "flag")]
    proved: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteQuery {
    /// True if the value is deleted when this member leaves, or when its session for locks and values times out.
    #[serde(default, deserialize_with = "flag")]
    ephemeral: bool,
}

/// The names of all values; read from ZooKeeper at most once a second.
pub(super) async fn config_names(
    State(app): State<AppState>,
    _: Query<NoQuery>,
) -> Result<Json<ConfigNames>, ProblemResponse> {
    let names = app.ask(ConfigRequest::Names, READ_TIMEOUT).await?.map_err(unread)?;
    Ok(Json(ConfigNames { names: names.to_vec() }))
}

/// A value, at once or as soon as it has changed; with `Accept: text/event-stream`, a stream of its changes.
///
/// The events are `value` and `absent`. The latest state is always sent, but changes in between may be skipped. A comment is
/// sent every 15 s.
pub(super) async fn config(
    State(app): State<AppState>,
    RecipePath { name, .. }: RecipePath,
    Query(ReadQuery { index, wait, proved: needs_quorum }): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let query = app.blocking_query(Wait { index, wait })?;
    if accepts(&headers, "text/event-stream") {
        if query.is_some() || needs_quorum {
            let why = "a stream sends changes by itself, and unconfirmed: leave out index, wait and proved";
            return Err(ProblemResponse::bad_request(why));
        }
        let permit = app.waiting_permit()?;
        let watched = app.watch(&name).await?;
        return Ok(stream::stream(app, permit, watched));
    }
    let mut watched = app.watch(&name).await?;
    let (mut reading, as_of) = read(&mut watched).await?;
    if let Some(query) = &query
        && !reading.is_news_since(query.seen, as_of)
    {
        reading = match query.or_timeout(watched.news_since(Some(query.seen))).await {
            Some(Some(newer)) => newer,
            Some(None) => return Err(unread("this member is leaving")),
            // The time limit of the query has passed.
            None => read(&mut watched).await?.0,
        };
    }
    if needs_quorum {
        reading = app.confirmed(&name, &mut watched, reading).await?;
    }
    Ok(answer(&app, &name, &reading))
}

/// Writes a value: creates it, or replaces the current one.
///
/// With 503 and `unconfirmed`, ZooKeeper did not answer: the value may or may not have been written. Read it before trying
/// again.
pub(super) async fn put_config(
    State(app): State<AppState>,
    _: Authorized,
    RecipePath { name, .. }: RecipePath,
    Query(WriteQuery { ephemeral: is_ephemeral }): Query<WriteQuery>,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let condition = condition(request.headers())?;
    let data = read_value(&app.budget, request.into_body()).await?;
    let action = WriteAction::Put { data, is_ephemeral };
    app.write(ValueWrite { name, action, condition }).await
}

/// Deletes a value.
pub(super) async fn delete_config(
    State(app): State<AppState>,
    _: Authorized,
    _: Query<NoQuery>,
    RecipePath { name, .. }: RecipePath,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let condition = condition(&headers)?;
    if condition == Condition::Absent {
        let why = "If-None-Match is of no use with DELETE: write If-Match: \"3\"";
        return Err(ProblemResponse::bad_request(why));
    }
    app.write(ValueWrite { name, action: WriteAction::Delete, condition }).await
}

impl AppState {
    /// Returns the handle for the shared configuration. Fails if it is switched off.
    pub(super) fn shared_config(&self) -> Result<&ConfigHandle, ProblemResponse> {
        self.status.shared_config.as_ref().ok_or_else(ProblemResponse::recipes_off)
    }

    /// Sends a request to the runner, and returns the answer. Fails if no answer comes within the time limit.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> ConfigRequest,
        time_limit: Duration,
    ) -> Result<T, ProblemResponse> {
        status::ask(&self.shared_config()?.requests, request, time_limit).await.map_err(unread)
    }

    /// Returns a handle that watches a name.
    async fn watch(&self, name: &ConfigName) -> Result<WatchedValue, ProblemResponse> {
        let watched = self.ask(|answer| ConfigRequest::Watch(name.clone(), answer), READ_TIMEOUT);
        watched.await?.map_err(|TooMany| too_many())
    }

    /// Returns a reading that a quorum has confirmed since the request: `reading`, or a later one.
    async fn confirmed(
        &self,
        name: &ConfigName,
        watched: &mut WatchedValue,
        mut reading: Arc<ValueReading>,
    ) -> Result<Arc<ValueReading>, ProblemResponse> {
        for _ in 0..CONFIRM_ATTEMPTS {
            let version = reading.value.as_ref().map(|value| value.version);
            let request = |answer| ConfigRequest::Confirm(name.clone(), version, answer);
            let is_confirmed = self.ask(request, READ_TIMEOUT).await?.map_err(unread)?;
            if is_confirmed {
                return Ok(reading);
            }
            reading = read(watched).await?.0;
        }
        Err(unread("the connected server shows another version than a quorum of the servers has"))
    }

    /// Sends a write to the runner, and returns the response to the client.
    async fn write(&self, write: ValueWrite) -> Result<Response, ProblemResponse> {
        // Yield, so that nothing is written if the client has closed the connection: see `AppState::command`.
        tokio::task::yield_now().await;
        let name = write.name.clone();
        let condition = write.condition;
        let (answer, answered) = oneshot::channel();
        let sent = self.shared_config()?.requests.try_send(ConfigRequest::Write(write, answer));
        sent.map_err(|_| ProblemResponse::command_failed(CommandError::NotTaken))?;
        let written = match timeout(WRITE_TIMEOUT, answered).await {
            Ok(Ok(written)) => written,
            // No answer came, so the value may have been written.
            Ok(Err(_)) | Err(_) => Err(WriteError::Unknown),
        };
        match written {
            Ok(WriteOutcome::Created { version, index }) => {
                Ok(written_as(StatusCode::CREATED, version, index))
            }
            Ok(WriteOutcome::Changed { version, index }) => {
                Ok(written_as(StatusCode::OK, version, index))
            }
            Ok(WriteOutcome::Deleted { index }) => {
                Ok((StatusCode::NO_CONTENT, [(INDEX, index)]).into_response())
            }
            Err(unwritten) => Err(self.refusal(&name, condition, unwritten)),
        }
    }

    /// Returns the path of the value in ZooKeeper, for messages.
    fn path_of(&self, name: &ConfigName) -> String {
        let root =
            self.status.shared_config.as_ref().map(|config| &*config.root).unwrap_or_default();
        format!("{root}/{name}")
    }

    fn no_such_value(&self, name: &ConfigName) -> ProblemResponse {
        let detail = format!(
            "there is nothing at {} in ZooKeeper: PUT /config/{name} or `bellwether config put` creates it, and ?index= or \
             `config get --wait` waits for it",
            self.path_of(name)
        );
        ProblemResponse::new(StatusCode::NOT_FOUND, "no-such-value", detail)
    }

    /// Returns the error for a value that was not written, or may not have been written.
    fn refusal(&self, name: &ConfigName, condition: Condition, why: WriteError) -> ProblemResponse {
        match why {
            WriteError::Differs { found } => differs(name, found),
            WriteError::NotThere if condition == Condition::None => self.no_such_value(name),
            // The deletion had a condition, and a value that does not exist does not meet it.
            WriteError::NotThere => differs(name, None),
            WriteError::NotOurs => {
                let detail = format!(
                    "{} exists already, and is not deleted with this member's session: delete it first, or write it \
                     without ephemeral",
                    self.path_of(name)
                );
                ProblemResponse::conflict("not-ephemeral", detail)
            }
            WriteError::TooMany => too_many(),
            WriteError::Refused(why) => ProblemResponse::unavailable("refused", why),
            WriteError::NotSent => {
                let why = "not connected to ZooKeeper, so nothing was written: /status shows this member's \
                           connection";
                ProblemResponse::unavailable("not-written", why)
            }
            WriteError::Unknown => {
                let why = format!(
                    "ZooKeeper did not answer in time: the value may have been written or not, see GET /config/{name}"
                );
                ProblemResponse::unavailable("unconfirmed", why)
            }
        }
    }
}

/// Requests a new reading, and returns it with the index up to which it is known to be current.
async fn read(watched: &mut WatchedValue) -> Result<(Arc<ValueReading>, u64), ProblemResponse> {
    match timeout(READ_TIMEOUT, watched.read_now()).await {
        Ok(read) => read.map_err(unread),
        Err(_) => Err(unread(format!("ZooKeeper did not answer within {READ_TIMEOUT:?}"))),
    }
}

fn unread(why: impl std::fmt::Display) -> ProblemResponse {
    ProblemResponse::unread("config-unavailable", why)
}

fn too_many() -> ProblemResponse {
    let why = format!(
        "{NAMES_MAX} names are watched through this member already: try later, or ask another member"
    );
    ProblemResponse::unavailable("too-many-names", why)
}

/// Returns the error for a condition that is not met, because the value has the version `found`, or does not exist.
fn differs(name: &ConfigName, found: Option<i32>) -> ProblemResponse {
    let stored = match found {
        Some(version) => format!("version {version}"),
        None => "nothing".to_owned(),
    };
    let detail = format!(
        "{stored} is at {name}, which is not what was expected: read the value (`bellwether config get -o json` also prints its \
         version), decide again, and write with that version"
    );
    let problem = ProblemResponse::new(StatusCode::PRECONDITION_FAILED, "other-version", detail);
    ProblemResponse { version: found, ..problem }
}

/// Returns the response to a write, with the version and the index of the written value.
fn written_as(status: StatusCode, version: i32, index: u64) -> Response {
    let tag = version_tag(version);
    let head = [(INDEX, HeaderValue::from(index)), (header::ETAG, tag)];
    (status, head, Json(ConfigWritten { version, index })).into_response()
}

/// Returns the response with the value, or the error response if the value does not exist.
fn answer(app: &AppState, name: &ConfigName, reading: &ValueReading) -> Response {
    let index = reading.index;
    let Some(Value { data, version, .. }) = &reading.value else {
        return ProblemResponse { index: Some(index), ..app.no_such_value(name) }.into_response();
    };
    let headers = [
        (INDEX, HeaderValue::from(index)),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type(name.as_str()))),
        (header::ETAG, version_tag(*version)),
        // Keeps browsers from running any part of the value.
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    ];
    (headers, Body::from(data.clone())).into_response()
}

/// Returns the media type of a value, by the extension of its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("json") => "application/json",
        Some("toml") => "application/toml",
        Some("yaml" | "yml") => "application/yaml",
        Some("xml") => "application/xml",
        Some("txt" | "conf" | "cfg" | "ini" | "env" | "properties" | "pem") => {
            "text/plain; charset=utf-8"
        }
        Some(_) | None => "application/octet-stream",
    }
}

/// Reads the body of a request, which is the value to write.
async fn read_value(budget: &ByteBudget, body: Body) -> Result<Bytes, ProblemResponse> {
    let mut reserved = ReservedBytes::default();
    let data = body::bytes(body, VALUE_MAX, |length| {
        // Reserve twice the length, because the request to ZooKeeper contains a copy.
        let more = budget.take(2 * length).ok_or_else(|| ProblemResponse::buffers_full(budget))?;
        reserved.merge(more);
        Ok(())
    });
    let data = data.await?;
    Ok(reserved.attach_to(data))
}
