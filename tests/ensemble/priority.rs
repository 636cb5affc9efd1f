//! Members of higher priority come to lead.

use crate::{
    group::{agreed, agreed_after, has_role, started_in_order},
    member::{Answer, Member, Setup, ok, problem},
    sampler::Sampler,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn a_member_of_higher_priority_leads_once_it_was_seen_for_long_enough_and_none_in_between() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--preempt-after", "2s");
    let [a, b] = started_in_order(&setup, ["a", "b"]);
    let before = agreed([&a, &b]);
    let [c, d] = [("c", "70"), ("d", "60")].map(|(id, priority)| {
        let [member] = started_in_order(&setup.clone().option("--priority", priority), [id]);
        member
    });
    let members = [&a, &b, &c, &d];
    let sampler = Sampler::of(members);
    let after = agreed_after(&before, members);
    assert_eq!(after.id, "c");
    sampler.saw_one_leader_at_a_time();
    let mut tokens: Vec<_> = sampler.stints().iter().map(|stint| stint.token).collect();
    tokens.dedup();
    assert_eq!(tokens, [before.token, after.token], "no other has led in between");
    let metrics = a.get("/metrics").body;
    let done = "bellwether_preemptions_total{election=\"/election\",result=\"done\"} 1";
    assert!(metrics.contains(done), "{metrics}");
    let priorities = priorities(&b);
    assert_eq!(priorities.as_object().map(|it| it.len()), Some(4), "{priorities}");
    assert_eq!(
        (&priorities["c"], &priorities["d"], &priorities["a"]),
        (&json!(70), &json!(60), &json!(50))
    );
    let leads_on = || if agreed(members) == after { Ok(()) } else { Err("another leads".into()) };
    throughout("it leads on", Duration::from_secs(4), leads_on);
}

#[test]
fn a_priority_changes_while_the_member_runs() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--preempt-after", "1s");
    let [a, b] = started_in_order(&setup, ["a", "b"]);
    let before = agreed([&a, &b]);
    for wrong in [r#"{"priority": 101}"#, r#"{"priority": -1}"#, r#"{"priority": "high"}"#] {
        problem(&patch(&b, wrong), 422);
    }
    let patched = patch(&b, r#"{"priority": 90}"#);
    assert_eq!((patched.status, &patched.json()["priority"]), (200, &json!(90)));
    assert_eq!(ok(&b, "/status")["priority"], json!(90));
    let after = agreed_after(&before, [&a, &b]);
    assert_eq!(after.id, "b");
    assert_eq!(patch(&b, r#"{"priority": null}"#).json()["priority"], json!(50));
    assert_eq!(patch(&a, r#"{"priority": 51}"#).json()["priority"], json!(51));
    assert_eq!(agreed_after(&after, [&a, &b]).id, "a");
}

#[test]
fn one_of_priority_0_leads_only_where_no_other_is_ready() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [last] = started_in_order(&setup.clone().option("--priority", "0"), ["last"]);
    let before = agreed([&last]);
    let [other] = started_in_order(&setup, ["other"]);
    let after = agreed_after(&before, [&last, &other]);
    assert_eq!(after.id, "other");
    other.signal("TERM");
    eventually("it leads again", || has_role(&last, "leader"));
}

fn priorities(asked: &Member) -> Value {
    let told = ok(asked, "/members");
    let members = told["members"].as_array().expect("members").iter();
    members
        .map(|it| (it["id"].as_str().unwrap_or_default().to_owned(), it["priority"].clone()))
        .collect()
}

fn patch(member: &Member, body: &str) -> Answer {
    let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
    member.send("PATCH", "/member", &headers, body)
}
