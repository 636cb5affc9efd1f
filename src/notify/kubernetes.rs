//! Writes the current leader to Kubernetes: a label of this pod says whether this member leads, or an EndpointSlice has
//! the leader's address.

use crate::config::{KubernetesHook, KubernetesTarget, is_namespace, parse_token};
use crate::files::{self, Size};
use crate::http_client;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use recipes::election::Role;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The interval at which to write the object again, even if the last write succeeded. A request that timed out may still
/// reach the API server after a later request and overwrite it, and other clients may write the object too.
pub(super) const REFRESH: Duration = Duration::from_secs(30);

const LEADER: &str = "leader";
const FOLLOWER: &str = "follower";

/// The annotation of an EndpointSlice that holds the fencing token of the leader that wrote it last.
const TOKEN_ANNOTATION: &str = "bellwether.io/fencing-token";

/// The number of attempts to write an EndpointSlice that another client changes at the same time.
const CONFLICTS_MAX: u32 = 3;

/// Returns whether the object that was written for the role `written` must be written again for the role `now`.
pub(super) fn needs_rewrite(hook: &KubernetesHook, written: &Role, now: &Role) -> bool {
    match hook.target {
        KubernetesTarget::PodLabel { .. } => {
            written.own_term().is_some() != now.own_term().is_some()
        }
        KubernetesTarget::EndpointSlice { .. } => written.own_term() != now.own_term(),
    }
}

/// Returns whether the object is left unchanged in this role. A member that does not lead leaves an EndpointSlice alone,
/// because the next leader writes its own address into it.
pub(super) fn is_left_alone(hook: &KubernetesHook, role: &Role) -> bool {
    matches!(hook.target, KubernetesTarget::EndpointSlice { .. }) && role.own_term().is_none()
}

/// Brings the object up to date with `role`.
///
/// # Errors
/// One line with the problem and its remedy.
pub(super) async fn set(hook: &KubernetesHook, role: &Role) -> Result<(), String> {
    match &hook.target {
        KubernetesTarget::PodLabel { key, pod } => {
            let value = if role.own_term().is_some() { LEADER } else { FOLLOWER };
            set_label(&Api::read(hook)?, key, pod, value).await
        }
        KubernetesTarget::EndpointSlice { name, address } => match role.own_term() {
            Some(token) => set_endpoint(&Api::read(hook)?, name, *address, token.0).await,
            None => Ok(()), // The next leader writes its own address.
        },
    }
}

/// Sets the label `key` of the pod to `value`.
async fn set_label(api: &Api<'_>, key: &str, pod: &str, value: &str) -> Result<(), String> {
    let namespace = &api.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}?fieldManager=bellwether");
    let body = json!({ "metadata": { "labels": { (key): value } } });
    let (status, answer) = api.request(Method::PATCH, &path, Some(&body)).await?;
    if status.is_success() {
        return Ok(());
    }
    Err(api.refusal(status, &answer, &format!("pod {pod} in the namespace {namespace}")))
}

/// Writes the address into the EndpointSlice, unless a later leader has already written to it.
///
/// The request names the version of the object that was read, so it fails if another leader has written since. So an old
/// leader never overwrites a later leader's address, however late its request arrives at the API server.
async fn set_endpoint(
    api: &Api<'_>,
    name: &str,
    address: IpAddr,
    token: u64,
) -> Result<(), String> {
    let namespace = &api.namespace;
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}");
    let patch_path = format!("{path}?fieldManager=bellwether");
    let place = format!("EndpointSlice {name} in the namespace {namespace}");
    let endpoints =
        json!([{ "addresses": [address.to_string()], "conditions": { "ready": true } }]);
    for _ in 0..CONFLICTS_MAX {
        let (status, answer) = api.request(Method::GET, &path, None).await?;
        if !status.is_success() {
            return Err(api.refusal(status, &answer, &place));
        }
        let slice: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("the API server's answer for {place}: {error}"))?;
        let metadata = &slice["metadata"];
        let written = metadata["annotations"][TOKEN_ANNOTATION].as_str();
        let written = written.and_then(|token| token.parse::<u64>().ok());
        if written.is_some_and(|written| written > token) {
            return Err(format!(
                "{place} was written by a later leader, or for another election: its annotation {TOKEN_ANNOTATION} is \
                 {}, and this leader's token {token}. Delete the annotation if ZooKeeper's data are new",
                written.unwrap_or_default()
            ));
        }
        if written == Some(token) && slice["endpoints"] == endpoints {
            return Ok(());
        }
        let body = json!({
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "annotations": { (TOKEN_ANNOTATION): token.to_string() },
            },
            "endpoints": endpoints,
        });
        let (status, answer) = api.request(Method::PATCH, &patch_path, Some(&body)).await?;
        match status {
            // Another client has changed the object since it was read above, so read it again.
            StatusCode::CONFLICT => {}
            status if status.is_success() => return Ok(()),
            status => return Err(api.refusal(status, &answer, &place)),
        }
    }
    Err(format!("{place} is changed by others all the time"))
}

/// A client of the Kubernetes API with the current service account. Kubernetes replaces the account's files at run time,
/// so they are read for each use.
struct Api<'a> {
    hook: &'a KubernetesHook,
    namespace: String,
    token: Vec<u8>,
}

impl<'a> Api<'a> {
    /// Reads the files of the service account.
    fn read(hook: &'a KubernetesHook) -> Result<Self, String> {
        let account = &hook.account;
        let token = in_account(account, "token", |text| parse_token(text).map(<[u8]>::to_vec))?;
        let namespace = in_account(account, "namespace", |text| {
            let name = str::from_utf8(text).ok()?.trim_ascii();
            is_namespace(name).then(|| name.to_owned())
        })?;
        Ok(Self { hook, namespace, token })
    }

    /// Sends a request, with `patch` as its body. Returns the status and the body of the answer.
    async fn request(
        &self,
        method: Method,
        path: &str,
        patch: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), String> {
        let KubernetesHook { host, port, account, .. } = self.hook;
        let mut authorization = HeaderValue::from_bytes(&[b"Bearer ", &self.token[..]].concat())
            .map_err(|_| format!("{}/token holds no token", account.display()))?;
        authorization.set_sensitive(true);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{host}:{port}"))
            .header(AUTHORIZATION, authorization)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")));
        if patch.is_some() {
            request = request.header(CONTENT_TYPE, "application/merge-patch+json");
        }
        let body = patch.map(Value::to_string).unwrap_or_default();
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
        let answer = http_client::ask_securely(host, *port, &account.join("ca.crt"), request).await;
        answer.map_err(|why| format!("the API server at {host}:{port}: {why}"))
    }

    /// Returns a sentence about an error answer of the API server. `place` names the object of the request.
    fn refusal(&self, status: StatusCode, answer: &[u8], place: &str) -> String {
        let why = error_message(answer, &self.token).map(|why| format!(" ({why})"));
        format!("the API server answers {status} for {place}{}", why.unwrap_or_default())
    }
}

/// Reads and parses the file `name` in the directory of the service account.
fn in_account<T>(
    account: &Path,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, String> {
    let path = account.join(name);
    let text = files::read(&path, Size::Line).map_err(|why| format!("{} {why}", path.display()))?;
    parse(&text).ok_or_else(|| format!("{} holds no {name}", path.display()))
}

/// Returns the error message in the answer of the API server as one line. Returns `None` if the answer has no such text,
/// or if the text contains the service account's token, which must not be logged.
fn error_message(body: &[u8], token: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(body).ok()?;
    let message = status["message"].as_str()?;
    let has_token = message.as_bytes().windows(token.len()).any(|part| part == token);
    let line: String = message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(ERROR_MESSAGE_MAX)
        .collect();
    Some(line).filter(|line| !has_token && !line.trim().is_empty())
}

/// The maximum length of an error message in characters.
const ERROR_MESSAGE_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_one_line_and_shows_no_token() {
        let shown = |message: &str| {
            let body = json!({ "kind": "Status", "message": message }).to_string();
            error_message(body.as_bytes(), b"secret")
        };
        assert_eq!(shown("pods \"a\" is\nforbidden").unwrap(), "pods \"a\" is forbidden");
        assert_eq!(shown(&"é".repeat(1000)).unwrap(), "é".repeat(300));
        assert_eq!(shown("Bearer secret is not known"), None);
        assert_eq!(shown(" \n"), None);
        assert_eq!(error_message(b"<html>", b"secret"), None);
    }
}
