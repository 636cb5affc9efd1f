//! By which names a listener on the loopback is asked.
//!
//! A web page can have its own name mean 127.0.0.1 for a while (DNS rebinding), and could then read
//! what is served here as if it came from where the page did. Its browser cannot help saying by which
//! name it asks.

use super::problem::Problem;
use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// The same, for who asks by a name of the loopback.
pub(crate) fn on_loopback(router: Router) -> Router {
    router.layer(from_fn(only_by_loopback_names))
}

async fn only_by_loopback_names(request: Request, next: Next) -> Response {
    match foreign(request.uri(), request.headers()) {
        Some(name) => Problem::foreign_host(&name).into_response(),
        None => next.run(request).await,
    }
}

/// The first name in the request that is none of this machine's loopback. Who gives no name is no
/// browser: load balancers check with HTTP/1.0 and without.
fn foreign(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let in_headers = headers.get_all(header::HOST).iter().map(|name| name.as_bytes());
    let in_uri = uri.authority().map(|name| name.as_str().as_bytes());
    let mut names = in_uri.into_iter().chain(in_headers).filter(|name| !name.is_empty());
    let foreign = names.find(|name| !is_of_loopback(name))?;
    Some(String::from_utf8_lossy(foreign).into_owned())
}

fn is_of_loopback(name: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(name) else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    // RFC 6761: no resolver has these mean anything else.
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
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
    fn every_name_that_is_given_counts_and_none_need_be() {
        let asked = |uri: &'static str, hosts: &[&'static str]| {
            let hosts = hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host)));
            foreign(&Uri::from_static(uri), &hosts.collect())
        };
        assert_eq!(asked("/leader", &[]), None);
        assert_eq!(asked("/leader", &[""]), None);
        assert_eq!(asked("/leader", &["localhost"]), None);
        assert_eq!(asked("/leader", &["localhost", "b.example"]), Some("b.example".into()));
        assert_eq!(asked("http://a.example/", &["localhost"]), Some("a.example".into()));
        assert_eq!(asked("http://localhost/", &["b.example"]), Some("b.example".into()));
    }
}
