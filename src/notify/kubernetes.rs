//! Keeps a label of this pod that says whether it leads, through Kubernetes' API.

use crate::config::{PodLabel, is_namespace, token_in};
use crate::files::{self, Size};
use crate::http_client;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use recipes::election::View;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// The label is set again after this long, whatever was answered: an earlier request that was given up may have
/// reached the server all the same, and later than the next one; and other clients may write labels too.
pub(super) const REFRESH: Duration = Duration::from_secs(30);

const LEADER: &str = "leader";
const FOLLOWER: &str = "follower";

/// Tells whether a Service may send clients to this pod.
pub(super) fn tells_leader(view: &View) -> bool {
    matches!(view, View::This(_))
}

/// Sets it, or says in one line why not and how to mend that.
pub(super) async fn set(label: &PodLabel, leads: bool) -> Result<(), String> {
    let PodLabel { key, pod, host, port, account, .. } = label;
    // All three are read each time, as Kubernetes replaces them while the process runs.
    let token = in_account(account, "token", |text| token_in(text).map(<[u8]>::to_vec))?;
    let namespace = in_account(account, "namespace", |text| {
        let name = str::from_utf8(text).ok()?.trim_ascii();
        is_namespace(name).then(|| name.to_owned())
    })?;
    let value = if leads { LEADER } else { FOLLOWER };
    let body = json!({ "metadata": { "labels": { (key): value } } }).to_string();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}?fieldManager=bellwether");
    let mut shown = HeaderValue::from_bytes(&[b"Bearer ", &token[..]].concat())
        .map_err(|_| format!("{}/token holds no token", account.display()))?;
    shown.set_sensitive(true);
    let request = Request::patch(path)
        .header(HOST, format!("{host}:{port}"))
        .header(AUTHORIZATION, shown)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let answer = http_client::ask_securely(host, *port, &account.join("ca.crt"), request).await;
    let (status, body) = answer.map_err(|why| format!("the API server at {host}:{port}: {why}"))?;
    if status.is_success() {
        return Ok(());
    }
    let why = complaint(&body, &token).map_or_else(String::new, |why| format!(" ({why})"));
    let place = format!("pod {pod} in the namespace {namespace}");
    Err(match status {
        StatusCode::UNAUTHORIZED => format!(
            "the API server does not accept the token in {}/token{why}: is it of this cluster, and \
             is it renewed?",
            account.display()
        ),
        StatusCode::FORBIDDEN => format!(
            "the API server forbids it{why}: give this pod's service account a Role with \
             apiGroups: [\"\"], resources: [pods], verbs: [patch] in the namespace {namespace}"
        ),
        StatusCode::NOT_FOUND => format!(
            "the API server knows no {place}{why}: set POD_NAME by the downward API (metadata.name)"
        ),
        other => format!("the API server answers {other} for {place}{why}"),
    })
}

/// Says why there may have been no answer within this time.
pub(super) fn unanswered(label: &PodLabel, limit: Duration) -> String {
    let PodLabel { host, port, .. } = label;
    format!(
        "no answer of the API server at {host}:{port} within {limit:?}: may this pod reach it \
         (NetworkPolicy)?"
    )
}

/// Reads a file of the service account.
fn in_account<T>(
    account: &Path,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, String> {
    let path = account.join(name);
    let text = files::read(&path, Size::Line).map_err(|why| {
        format!(
            "{} {why}: is a service account mounted (automountServiceAccountToken: true, or a \
             projected volume)?",
            path.display()
        )
    })?;
    parse(&text).ok_or_else(|| format!("{} holds no {name}", path.display()))
}

/// Returns Kubernetes' error message in one line, if it is text without the token.
fn complaint(body: &[u8], token: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct KubernetesStatus {
        message: String,
    }
    let KubernetesStatus { message } = serde_json::from_slice(body).ok()?;
    let has_token = message.as_bytes().windows(token.len()).any(|part| part == token);
    let line: String = message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_COMPLAINT)
        .collect();
    Some(line).filter(|line| !has_token && !line.trim().is_empty())
}

const LONGEST_COMPLAINT: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_one_line_and_shows_no_token() {
        let shown = |message: &str| {
            let body = json!({ "kind": "Status", "message": message }).to_string();
            complaint(body.as_bytes(), b"secret")
        };
        assert_eq!(shown("pods \"a\" is\nforbidden").unwrap(), "pods \"a\" is forbidden");
        assert_eq!(shown(&"é".repeat(1000)).unwrap(), "é".repeat(300));
        assert_eq!(shown("Bearer secret is not known"), None);
        assert_eq!(shown(" \n"), None);
        assert_eq!(complaint(b"<html>", b"secret"), None);
    }
}
