//! The JSON bodies of the HTTP API and of hooks, and the paths of the API, each defined once.
//!
//! `http` and `notify` write the bodies, and `terminal` reads them. A field is a promise: its name, its type and its
//! position in the body do not change. A field that was added later has a default for reading, because an older sidecar
//! does not write the field.

mod barriers;
mod command;
mod history;
mod hook;
mod leader;
mod locks;
mod problem;
mod profile;
mod queue;
mod shared_config;
mod status;

pub use barriers::*;
pub use command::*;
pub use history::*;
pub use hook::*;
pub use leader::*;
pub use locks::*;
pub use problem::*;
pub use profile::*;
pub use queue::*;
pub use shared_config::*;
pub use status::*;

use serde::Serialize;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

/// Reports whether the process is sound, as text: whether the election's loop runs.
pub const LIVEZ: Endpoint<String> = Endpoint::get("/livez");
/// Reports whether this member is in the queue and knows a leader, as text.
pub const READYZ: Endpoint<String> = Endpoint::get("/readyz");

/// The path of a query or of a command, with the type `T` of the answer's body.
pub struct Endpoint<T> {
    pub path: &'static str,
    /// True for a command, which is sent with `POST`; false for a query, which is sent with `GET`.
    pub is_command: bool,
    body: PhantomData<fn() -> T>,
}

impl<T> Endpoint<T> {
    const fn get(path: &'static str) -> Self {
        Self { path, is_command: false, body: PhantomData }
    }

    const fn post(path: &'static str) -> Self {
        Self { path, is_command: true, body: PhantomData }
    }
}

/// Serializes a body.
pub fn json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("a body has string keys only")
}

/// Formats a date as in bodies: RFC 3339, with milliseconds and in UTC.
pub fn date(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Returns a duration in milliseconds, as in bodies.
pub fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    #[test]
    fn every_body_is_read_as_it_is_written_and_keeps_the_order_of_its_fields() {
        let leader = r#"{"id":"a","address":null,"labels":{"k":"v"},"znode":"n_1","token":4}"#;
        let until = r#""valid_until_boottime_ns":7,"valid_until_monotonic_ns":6"#;
        let state = format!(
            r#""leader":{leader},"is_self":true,"valid_for_ms":5,{until},"index":18446744073709551615"#
        );
        keeps::<LeaderState>(&format!("{{{state}}}"));
        keeps::<LeaderEvent>(&format!(r#"{{{state},"role":"leader","at":"T"}}"#));
        let caused = format!(r#"{state},"role":"absent","at":"T","cause":"a reason""#);
        keeps::<LeaderEvent>(&format!("{{{caused}}}"));
        keeps::<Leadership>(&format!(
            r#"{{"is_leader":true,"role":"leader","leader":"a","token":4,{until},"reason":"r"}}"#
        ));
        let file = format!(r#""leader":{leader},"is_self":true,{until},"index":1,"at":"T""#);
        keeps::<LeaderFile>(&format!("{{{file}}}"));
        keeps::<HookMessage>(&format!(
            r#"{{"change":"became-leader","election":"/e","id":"a",{file},"token":4}}"#
        ));
        let ends = r#""index":1,"clock":{"boot_id":"b","time_namespace":null},"version":"1","uptime_ms":1"#;
        let begins = format!(
            r#""id":"a","role":"follower","election":"/e","path":"/c/e","znode":"n_2","sequence":2,"token":5,"predecessor":"n_1","standby":{{"ready":true}},"leader":{leader},"valid_for_ms":null,"priority":70,"paused":false"#
        );
        keeps::<Status>(&format!(
            r#"{{{begins},"session":{{"id":"0x1","timeout_ms":10,"connected":true,"server":"h:1"}},{ends}}}"#
        ));
        let run = r#"{"change":"leader-lost","at":"T","took_ms":1,"failure":"f"}"#;
        let hook = format!(
            r#"{{"hook":"h","on":["leader-lost"],"runs":1,"failures":1,"cut_short":0,"running":null,"last":{run}}}"#
        );
        let session = r#""session":{"id":null,"timeout_ms":null,"connected":false,"server":null,"problem":"p"}"#;
        let problems = r#""problems":[{"kind":"zookeeper","problem":"p","since":"T"}]"#;
        let application = r#""application":{"healthy":false,"failure":"f"}"#;
        let kept = r#"{"name":"n","file":"/f","version":3,"state":"current","problem":null}"#;
        let lock = r#"{"lock":"l","mode":"slots","slots":3,"state":"held","token":4,"since":"T"}"#;
        let barrier = r#"{"barrier":"b","size":3,"state":"inside","token":4,"since":"T"}"#;
        keeps::<Status>(&format!(
            "{{{begins},{session},{problems},{application},\"hooks\":[{hook}],\"locks\":[{lock}],\"barriers\":[{barrier}],\"config\":[{kept}],{ends}}}"
        ));
        keeps::<Members>(
            r#"{"members":[{"id":"a","znode":"n_1","sequence":1,"address":null,"labels":{},"is_leader":true,"is_self":false,"standby":null,"names":"a","version":"1","priority":70,"since":"T","unhealthy":true,"hooks_failing":2,"token":4,"session":"0x1"}],"problems":["p"],"index":3}"#,
        );
        keeps::<History>(
            r#"{"terms":[{"id":"a","token":4,"is_self":true,"from":"T","to":null,"ended":null}]}"#,
        );
        keeps::<Done>(
            r#"{"done":"resigned","role":"candidate","znode":"n_3","predecessor":"n_2"}"#,
        );
        keeps::<Transferred>(&format!(r#"{{"leader":{leader},"leaderless_ms":12}}"#));
        for transfer in ["{}", r#"{"to":"b","within_ms":500}"#] {
            keeps::<Transfer>(transfer);
        }
        keeps::<OwnProfile>(
            r#"{"id":"a","address":null,"labels":{"k":"v"},"priority":70,"revision":1}"#,
        );
        for patch in [
            "{}",
            r#"{"address":null}"#,
            r#"{"priority":null}"#,
            r#"{"address":"h:1","labels":{"k":null,"l":"v"},"priority":7}"#,
        ] {
            keeps::<Patch>(patch);
        }
        let held = format!(r#""token":4,"valid_for_ms":5,{until}"#);
        keeps::<LockHeld>(&format!("{{{held}}}"));
        keeps::<TtlLock>(&format!(r#"{{"lock":"1f",{held}}}"#));
        let place = |mode: &str| {
            format!(
                r#"{{"member":"a","process":null,"mode":{mode},"token":4,"znode":"write-0000000001","since":"T"}}"#
            )
        };
        let exclusive = place(r#""exclusive","slots":null"#);
        let slots = place(r#""slots","slots":3"#);
        keeps::<LockQueue>(&format!(r#"{{"holders":[{exclusive}],"waiting":[{slots}]}}"#));
        keeps::<LockWaiting>(&format!(r#"{{"position":1,"holders":[{slots}]}}"#));
        keeps::<LockEnded>(r#"{"why":"the lease ran out"}"#);
        keeps::<LockNames>(r#"{"locks":["migrate"]}"#);
        keeps::<BarrierWaiting>(r#"{"id":"1f","present":1,"size":3}"#);
        keeps::<BarrierEntered>(&format!(r#"{{"id":"1f",{held}}}"#));
        let inside = r#"{"member":"a","process":null,"inside":true,"token":4,"znode":"size-3-0000000001","since":"T"}"#;
        keeps::<BarrierState>(&format!(r#"{{"size":3,"open":true,"members":[{inside}]}}"#));
        keeps::<BarrierNames>(r#"{"barriers":["deploy"]}"#);
        let problem =
            r#""type":"urn:bellwether:problem:no-leader","title":"t","status":503,"detail":"d""#;
        keeps::<Problem>(&format!("{{{problem}}}"));
        keeps::<Problem>(&format!(r#"{{{problem},"index":1}}"#));
    }

    #[test]
    fn a_body_of_a_later_version_is_read() {
        let done = r#"{"done":"moved","role":"observer","new":1}"#;
        let done: Done = serde_json::from_str(done).unwrap();
        assert!(done.role == Role::Unknown && done.znode.is_none());
        assert!(json(&done).contains(r#""role":"unknown""#), "it can be shown");
    }

    #[test]
    fn a_role_has_the_same_name_in_words_and_in_json() {
        for role in [Role::Leader, Role::Candidate, Role::Follower, Role::Absent] {
            assert_eq!(json(&role), format!("{:?}", role.name()));
        }
    }

    #[track_caller]
    fn keeps<T: Serialize + DeserializeOwned>(written: &str) {
        let body: Result<T, _> = serde_json::from_str(written);
        let body = body.unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_eq!(json(&body), written);
    }
}
