//! `GET /` is the status page for browsers. For all other clients, it is the body that clients of other electors
//! expect: Kubernetes' retired leader-elector, nais/elector and k8s-elector.

use super::query::accepts;
use super::{AppState, Authorization, Verdict};
use crate::api;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use std::borrow::Cow;

const PAGE: &str = include_str!("page.html");

/// The content security policy of the page. Allows nothing from other origins, nothing inline except the style and the
/// script with these hashes, and no text that becomes HTML.
const POLICY: &str = concat!(
    "default-src 'none'; connect-src 'self'; img-src data:; ",
    "style-src 'sha256-zXLJciDP/ola3gXI0U0E6A3Gh7RnFM8MjtMq0WKaf9k='; ",
    "script-src 'sha256-J35qeDcqzNIzycXB3YBtnvRqzEMVAUbfHSvxlvo+hak='; ",
    "require-trusted-types-for 'script'; trusted-types 'none'; ",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Returns the page to browsers, and the [`LeaderElectorBody`] to all other clients.
pub(super) async fn page_or_leader_elector_body(
    State(app): State<AppState>,
    headers: HeaderMap,
) -> Response {
    let mut response = if asks_for_html(&headers) {
        page(&app.authorization).into_response()
    } else {
        Json(LeaderElectorBody::of(&app, &app.evaluate_and_claim())).into_response()
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// The body for clients of other electors. Clients of leader-elector compare `name` with the name of their host; `name` is
/// empty, never null, while no leader is known. The other fields are those of nais/elector and k8s-elector.
#[derive(Serialize)]
pub(super) struct LeaderElectorBody {
    name: String,
    is_leader: bool,
    leader: String,
    node: String,
    timestamp: String,
    last_update: String,
}

impl LeaderElectorBody {
    pub(super) fn of(app: &AppState, verdict: &Verdict) -> Self {
        let leader =
            verdict.leader().map_or_else(String::new, |leader| leader.leader.id.to_string());
        let changed_at = verdict.snapshot.recent_changes.iter().next_back().map(|change| change.at);
        Self {
            name: leader.clone(),
            is_leader: verdict.leads(),
            leader,
            node: verdict.snapshot.standing.profile().id.to_string(),
            timestamp: api::date(app.clock.date()),
            last_update: api::date(changed_at.unwrap_or(app.started.date)),
        }
    }
}

fn page(authorization: &Authorization) -> impl IntoResponse + use<> {
    let headers =
        [(header::CONTENT_SECURITY_POLICY, POLICY), (header::REFERRER_POLICY, "no-referrer")];
    // If no token is configured, commands from web pages are refused, also from this page: see `authorize`. So the page
    // offers commands only if a token is configured.
    let page = match authorization {
        Authorization::Header => Cow::Borrowed(PAGE),
        Authorization::TokenIn(_) => {
            Cow::Owned(PAGE.replacen("<body ", "<body data-takes=token ", 1))
        }
    };
    (headers, Html(page))
}

/// Returns true for browsers, which name HTML in the header `Accept`.
fn asks_for_html(headers: &HeaderMap) -> bool {
    // Java's HttpURLConnection names HTML too, but also `image/gif`, which browsers do not name.
    let is_program = accepts(headers, "image/gif") || accepts(headers, "application/json");
    accepts(headers, "text/html") && !is_program
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine, prelude::BASE64_STANDARD};
    use http_body_util::BodyExt;
    use sha2::{Digest, Sha256};
    use std::path::Path;

    #[test]
    fn the_body_of_electors_keeps_the_order_of_its_fields() {
        let text = |text: &str| text.to_owned();
        let body = LeaderElectorBody {
            name: text("a"),
            is_leader: true,
            leader: text("a"),
            node: text("b"),
            timestamp: text("T"),
            last_update: text("U"),
        };
        let json = r#"{"name":"a","is_leader":true,"leader":"a","node":"b","timestamp":"T","last_update":"U"}"#;
        assert_eq!(api::json(&body), json);
    }

    #[test]
    fn only_requests_for_html_get_the_page() {
        let gets_it = |accepted: &'static str| {
            asks_for_html(&HeaderMap::from_iter([(
                header::ACCEPT,
                HeaderValue::from_static(accepted),
            )]))
        };
        for browser in [
            "text/html",
            "Text/HTML;level=1",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
             image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
        ] {
            assert!(gets_it(browser), "{browser}");
        }
        for program in [
            "*/*",
            "",
            "text/*",
            "application/json",
            "application/json, text/plain, */*",
            "application/json, text/html",
            "text/html; q=0.2, application/json",
            "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
            "text/html, image/gif, image/jpeg, */*; q=0.2",
        ] {
            assert!(!gets_it(program), "{program}");
        }
        assert!(!asks_for_html(&HeaderMap::new()));
        let two = ["application/xml", "text/html"].map(HeaderValue::from_static);
        assert!(asks_for_html(&two.map(|value| (header::ACCEPT, value)).into_iter().collect()));
    }

    #[test]
    fn the_policy_allows_the_page_its_own_style_and_script_and_no_other() {
        for (directive, tag) in [("style-src", "style"), ("script-src", "script")] {
            let hash = BASE64_STANDARD.encode(Sha256::digest(inline(tag)));
            let allowed = format!("{directive} 'sha256-{hash}';");
            assert!(POLICY.contains(&allowed), "in POLICY it has to say: {allowed}");
        }
    }

    #[tokio::test]
    async fn only_where_a_token_is_configured_the_page_offers_commands() {
        let token_file = Authorization::TokenIn(Path::new("/token").into());
        for (authorization, offers) in [(Authorization::Header, false), (token_file, true)] {
            let body = page(&authorization)
                .into_response()
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes();
            let body = str::from_utf8(&body).unwrap();
            assert_eq!(body.contains("<body data-takes=token "), offers);
        }
    }

    #[test]
    fn the_page_is_small_and_brings_all_that_it_needs() {
        assert!(PAGE.len() < 38_000, "{} bytes", PAGE.len());
        for way_out in ["http:", "//", "@import", "url("] {
            let own_words = PAGE.replace("http://www.w3.org/2000/svg", "").replace("// ", "");
            assert!(!own_words.contains(way_out), "{way_out}");
        }
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!PAGE.contains(sink), "{sink}");
        }
    }

    /// Returns the text between the tags of this name. There must be only one such pair.
    fn inline(tag: &str) -> &'static str {
        let (_, rest) = PAGE.split_once(&format!("<{tag}>")).expect("it begins");
        let (inside, rest) = rest.split_once(&format!("</{tag}>")).expect("it ends");
        assert!(!rest.contains(&format!("<{tag}")), "a second <{tag}>");
        inside
    }
}
