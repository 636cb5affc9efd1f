//! What the log says, for people and for programs: which member became leader when.

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::{Member, Setup},
    servers::Servers,
    wait::eventually,
};
use serde_json::Value;

/// The fields of a log line, whose names docs/reference/log-messages.md promises.
const FIELDS: [&str; 8] =
    ["event", "id", "election", "role", "znode", "session", "leader", "token"];

#[test]
fn a_program_reads_what_happened_and_who_leads() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--log-format", "json");
    let [mut first, second] = started_in_order(&setup, ["a", "b"]);
    let before = agreed([&first, &second]);
    first.signal("TERM");
    first.wait();
    let after = agreed_after(&before, [&second]);

    for (member, own) in [(&first, &before), (&second, &after)] {
        let became = one(member, "became-leader");
        let session = one(member, "session-opened")["session"].clone();
        assert!(session.as_str().is_some_and(|id| id.starts_with("0x")), "{session}");
        for (field, value) in [
            ("level", Value::from("INFO")),
            ("id", (&*own.id).into()),
            ("election", "/election".into()),
            ("role", "leader".into()),
            ("leader", (&*own.id).into()),
            ("token", own.token.into()),
            ("znode", (&*own.znode).into()),
            ("session", session),
        ] {
            assert_eq!(became[field], value, "{field}: {became}");
        }
        let joined = one(member, "joined");
        assert_eq!((&joined["znode"], joined.get("leader")), (&Value::from(&*own.znode), None));
        for line in lines(member) {
            let known = ["timestamp", "level", "message", "target"].into_iter().chain(FIELDS);
            let known: Vec<_> = known.collect();
            let fields = line.as_object().unwrap();
            if let Some(event) = fields.get("event") {
                assert!(fields.keys().all(|field| known.contains(&&**field)), "{line}");
                assert!(event.is_string() && fields.contains_key("role"), "{line}");
            }
        }
    }
    let lost = one(&first, "lost-leadership");
    assert_eq!((&lost["token"], lost.get("leader")), (&before.token.into(), None), "{lost}");
    assert_eq!(lost["role"], "absent");
    assert_eq!(one(&first, "stop")["id"], "a");
    let follows = one(&second, "leader-changed");
    assert_eq!((&follows["leader"], &follows["token"]), (&"a".into(), &before.token.into()));
    assert_eq!(follows["role"], "follower");
    for event in ["queue-read", "predecessor-read", "predecessor-gone", "committed"] {
        assert!(lines(&second).iter().any(|line| line["event"] == event), "{event}");
    }
}

#[test]
fn people_read_it_in_the_words_of_the_scenarios() {
    let servers = Servers::standalone();
    let [mut first, second] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let before = agreed([&first, &second]);
    first.signal("TERM");
    first.wait();
    let after = agreed_after(&before, [&second]);
    for (member, said) in [
        (&first, format!(": became leader: «a leads, token {}»\n", before.token)),
        (&first, format!(": no longer leads, token {}\n", before.token)),
        (&second, format!(": follows: «a leads, token {}»\n", before.token)),
        (&second, format!(": became leader: «b leads, token {}»\n", after.token)),
    ] {
        eventually(&said, || {
            let times = member.log().lines().filter(|l| format!("{l}\n").ends_with(&said)).count();
            if times == 1 { Ok(()) } else { Err(format!("{times} times: {}", member.log())) }
        });
    }
    for log in [first.log(), second.log()] {
        assert!(log.lines().all(|line| line.trim_end() == line && !line.ends_with("->")), "{log}");
    }
}

/// Returns the only log line of this event.
fn one(member: &Member, event: &str) -> Value {
    eventually(event, || {
        let mut found = lines(member);
        found.retain(|line| line["event"] == event);
        if found.len() == 1 { Ok(found.remove(0)) } else { Err(format!("{found:?}")) }
    })
}

fn lines(member: &Member) -> Vec<Value> {
    let log = member.log();
    log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}
