//! Checks requests to a listener on the loopback interface, so that no web page can read the answers.
//!
//! A web page can make its own host name resolve to 127.0.0.1 for a while (DNS rebinding), and could then read the answers
//! as if they came from its own site. But its browser always sends the host name that the page used.

use super::problem::ProblemResponse;
use crate::config;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns the error response to a request that is not allowed on the loopback interface; `None` if it is allowed.
pub(crate) fn refusal(request: &Request) -> Option<Response> {
    let problem = if let Some(name) = foreign_host(request.uri(), request.headers()) {
        let detail = format!(
            "the request is for the host {name:?}, but a listener on the loopback interface answers only \
             for localhost, names that end in .localhost, 127.0.0.0/8 and [::1], so that no web page can \
             read this through its own host name: use 127.0.0.1 instead, or, if the name must stay, make \
             the client or the proxy send the header Host: localhost"
        );
        ProblemResponse::new(StatusCode::MISDIRECTED_REQUEST, "foreign-host", detail)
    } else if is_from_another_site(request.headers()) {
        let detail = "the header Sec-Fetch-Site says that a page of another site made a browser send \
                      this request, and a listener on the loopback interface answers none of them: \
                      send it from a program, or open this address itself";
        ProblemResponse::new(StatusCode::FORBIDDEN, "cross-site", detail)
    } else {
        return None;
    };
    Some(problem.into_response())
}

/// Returns true if a page of another site made a browser send the request, except for a link that the user follows.
/// Browsers set these headers themselves, and no page can change them. A page cannot read an answer that it embeds, but
/// it sees whether loading succeeded, and so whether this member leads.
fn is_from_another_site(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, value: &str| headers.get(name).is_some_and(|found| found == value);
    has(SEC_FETCH_SITE, "cross-site")
        // A link is allowed: the browser leaves the page, which then sees nothing of the answer.
        && !(has(SEC_FETCH_MODE, "navigate") && has(SEC_FETCH_DEST, "document"))
}

/// Returns the first host name in the request that does not belong to the loopback interface; `None` if all do, or the
/// request has no host name. Such a request does not come from a browser: load balancers check with HTTP/1.0, without a
/// host name.
fn foreign_host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let in_headers = headers.get_all(header::HOST).iter().map(|name| name.as_bytes());
    let in_uri = uri.authority().map(|name| name.as_str().as_bytes());
    let mut names = in_uri.into_iter().chain(in_headers).filter(|name| !name.is_empty());
    let foreign = names.find(|name| !is_of_loopback(name))?;
    Some(String::from_utf8_lossy(foreign).into_owned())
}

fn is_of_loopback(name: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(name) else { return false };
    let Some((host, _)) = config::host_and_port(&uri) else { return false };
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    // RFC 6761: these names always resolve to the loopback interface.
    let last_label = host.trim_end_matches('.').rsplit('.').next();
    last_label.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_loopback_has_these_names_and_no_others() {
        for ours in [
            "localhost",
            "localhost:4040",
            "LocalHost.",
            "shop.localhost:4040",
            "127.0.0.1",
            "127.8.9.10:1",
            "[::1]:4040",
            "[::1]",
            "[::ffff:127.0.0.1]:4040",
        ] {
            assert!(is_of_loopback(ours.as_bytes()), "{ours}");
        }
        for foreign in [
            "evil.example",
            "evil.example:4040",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "localhost@evil.example:4040",
            "evil@localhost",
            "10.0.0.1",
            "0.0.0.0:4040",
            "[::]",
            "[fe80::1]",
            "localhost/evil",
            "localhost, evil.example",
            "evil.example, localhost",
            "evil.example/.localhost",
            "evil@x.localhost",
            "localhost:80:80",
            "localhost:@evil.example",
            "127.0.0.1:evil",
            "::1",
            "[::1",
            "localhost evil.example",
            "local\u{7f}host",
            ".",
            ":4040",
        ] {
            assert!(!is_of_loopback(foreign.as_bytes()), "{foreign}");
        }
        assert!(!is_of_loopback(b"\xff"));
    }

    #[test]
    fn what_another_sites_page_embeds_is_not_answered_and_its_links_are() {
        let refused = |words: [&'static str; 3]| {
            let names = ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"];
            let headers = names.into_iter().zip(words).filter(|(_, word)| !word.is_empty());
            let headers =
                headers.map(|(name, it)| (name.parse().unwrap(), HeaderValue::from_static(it)));
            is_from_another_site(&headers.collect())
        };
        assert!(refused(["cross-site", "no-cors", "script"]));
        assert!(refused(["cross-site", "cors", "empty"]));
        assert!(refused(["cross-site", "navigate", "iframe"]));
        assert!(refused(["cross-site", "", ""]));
        assert!(!refused(["cross-site", "navigate", "document"]));
        assert!(!refused(["same-origin", "no-cors", "script"]));
        // A page at another port of this machine is of the same site: the application may serve it.
        assert!(!refused(["same-site", "cors", "empty"]));
        assert!(!refused(["none", "navigate", "document"]));
        assert!(!refused(["", "", ""]), "probes and programs say nothing");
    }

    #[test]
    fn every_name_that_is_given_counts_and_none_need_be() {
        let asked = |uri: &'static str, hosts: &[&'static str]| {
            let hosts = hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host)));
            foreign_host(&Uri::from_static(uri), &hosts.collect())
        };
        assert_eq!(asked("/leader", &[]), None);
        assert_eq!(asked("/leader", &[""]), None);
        assert_eq!(asked("/leader", &["localhost"]), None);
        assert_eq!(asked("/leader", &["localhost", "b.example"]), Some("b.example".into()));
        assert_eq!(asked("http://a.example/", &["localhost"]), Some("a.example".into()));
        assert_eq!(asked("http://localhost/", &["b.example"]), Some("b.example".into()));
    }
}
