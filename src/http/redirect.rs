//! Redirects clients to the leader's application.

use super::AppState;
use super::problem::ProblemResponse;
use crate::config;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use recipes::election::{Announcement, Profile};

/// Redirects to the leader's application.
pub(super) async fn redirect(State(app): State<AppState>) -> Result<Response, ProblemResponse> {
    let verdict = app.evaluate_and_claim();
    let location = match verdict.leader() {
        Some(Announcement { leader, .. }) => {
            leader.address.as_deref().and_then(url).ok_or_else(|| no_address(leader))
        }
        None => Err(verdict.no_leader()),
    };
    let location =
        location.map_err(|problem| ProblemResponse { index: verdict.index(), ..problem })?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response())
}

fn no_address(leader: &Profile) -> ProblemResponse {
    let detail = format!(
        "{} leads, but its address is not a URL: set its member.address to host:port or http://host:port/path",
        leader.id
    );
    ProblemResponse::unavailable("no-address", detail)
}

/// Returns the address as a URL, if it is one. An address without a scheme is an HTTP URL.
fn url(address: &str) -> Option<HeaderValue> {
    let has_scheme = address.contains("://");
    let url = if has_scheme { address.to_owned() } else { format!("http://{address}") };
    let parsed: Uri = url.parse().ok()?;
    let is_web = matches!(parsed.scheme_str(), Some("http" | "https"));
    // Return `None` unless the URL has a valid host and port.
    config::host_and_port(&parsed)?;
    if is_web { HeaderValue::try_from(url).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::testing::MemberFixture;
    use super::super::tests::ask;
    use super::*;
    use http_body_util::BodyExt;
    use recipes::election::{Command, Event};
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn a_client_is_sent_to_the_leaders_address_if_there_is_one() {
        let mut scene = MemberFixture::new();
        let without_leader = ask(&scene.service, "/leader/redirect").await;
        assert_eq!(without_leader.status(), StatusCode::SERVICE_UNAVAILABLE);
        scene.leads(4);
        for (address, expected) in [
            (Some("10.0.0.1:8080"), Some("http://10.0.0.1:8080")),
            (Some("https://shop.example/api"), Some("https://shop.example/api")),
            (Some("[::1]:80"), Some("http://[::1]:80")),
            (None, None),
            (Some("a b"), None),
            (Some("::1:80"), None),
            (Some("javascript://x"), None),
            (Some("http://"), None),
            (Some("app:http"), None),
            (Some("app:99999"), None),
            (Some("h:1\r\nSet-Cookie: x"), None),
        ] {
            let address = address.map(str::to_owned);
            let labels = BTreeMap::new();
            let update = Command::UpdateProfile { address: address.clone(), labels };
            scene.step(Event::Command(update));
            let answer = ask(&scene.service, "/leader/redirect").await;
            let location = answer.headers().get(header::LOCATION).cloned();
            assert_eq!(location, expected.map(HeaderValue::from_static), "{address:?}");
            let status = if expected.is_some() { 307 } else { 503 };
            assert_eq!(answer.status(), status, "{address:?}");
            if expected.is_none() {
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let text = String::from_utf8(body.to_vec()).unwrap();
                assert!(text.contains("member.address") && text.contains("\"index\""), "{text}");
            }
        }
    }
}
