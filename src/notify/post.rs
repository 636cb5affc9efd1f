//! Posts a message to the application. If there is a secret, the message is signed according to Standard Webhooks.

use super::{HookError, StopReason};
use crate::clock::Clock;
use crate::config::{self, Webhook};
use crate::http_client;
use crate::random;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use sha2::Sha256;
use std::time::{Duration, SystemTime};

/// Posts the message, with retries. `stopped(limit)` waits until the hook must stop, for `limit` at most, and returns the
/// reason.
pub(super) async fn send(
    post: &Webhook,
    body: &str,
    clock: Clock,
    mut stopped: impl AsyncFnMut(Duration) -> StopReason,
) -> Result<(), HookError> {
    let id = format!("msg_{:032x}", random::id());
    let mut retries = 0;
    loop {
        let failure = tokio::select! {
            done = attempt(post, &id, body, clock.date()) => match done {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            },
            reason = stopped(post.timeout) => match reason {
                StopReason::TimedOut(limit) => format!("no answer within {limit:?}"),
                reason => return Err(reason.into()),
            },
        };
        if retries == post.retries {
            return Err(HookError::Failed(format!("{failure} (tried {} times)", retries + 1)));
        }
        // Wait before the next attempt, unless the hook must stop before. Here, `TimedOut` is the end of the pause.
        match stopped(pause(retries)).await {
            StopReason::TimedOut(_) => retries += 1,
            reason => return Err(reason.into()),
        }
    }
}

/// Posts the message once. All attempts have the same `id`, so that the application can recognize a message that it has
/// received already. Each attempt has its own date.
async fn attempt(post: &Webhook, id: &str, body: &str, date: SystemTime) -> Result<(), String> {
    let Webhook { host, port, path, secret_file, .. } = post;
    let mut request = Request::post(path)
        .header(HOST, format!("{host}:{port}"))
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")));
    // Read the secret for each attempt, so that its file can be replaced while the daemon runs.
    if let Some(file) = secret_file {
        let secret =
            config::signing_secret(file).map_err(|wrong| format!("secret_file: {wrong}"))?;
        let epoch_secs = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        request = request
            .header("webhook-id", id)
            .header("webhook-timestamp", epoch_secs)
            .header("webhook-signature", signature(&secret, id, epoch_secs, body));
    }
    let body = Full::new(Bytes::from(body.to_owned()));
    let request = request.body(body).map_err(|error| error.to_string())?;
    http_client::ask(host, *port, request).await
}

/// Returns the pause after the first attempt and `retries` retries: an exponential backoff with jitter.
fn pause(retries: u32) -> Duration {
    // Ten doublings are far above `LONGEST_PAUSE`, and more could overflow the shift.
    let pause = FIRST_PAUSE.saturating_mul(1 << retries.min(10)).min(LONGEST_PAUSE);
    pause.mul_f64(0.75 + fastrand::f64() / 2.0)
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Returns the signature of a message according to Standard Webhooks.
fn signature(secret: &[u8], id: &str, epoch_secs: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a secret may have any length");
    mac.update(format!("{id}.{epoch_secs}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example with which the specification and the libraries of Standard Webhooks test.
    #[test]
    fn a_signature_is_the_one_of_standard_webhooks() {
        let secret = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let body = r#"{"test": 2432232314}"#;
        let signed = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature(&secret, id, 1_614_265_330, body), signed);
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        for (tries, about_ms) in [(0, 100.0), (1, 200.0), (5, 3200.0), (6, 5000.0), (99, 5000.0)] {
            let pause = pause(tries).as_secs_f64() * 1000.0;
            assert!((0.75 * about_ms..=1.25 * about_ms).contains(&pause), "{tries}: {pause}");
        }
    }
}
