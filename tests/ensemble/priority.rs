//! Members of higher priority come to lead.

use crate::{
    group::{agreed, agreed_after, has_role, started_in_order},
    http::{ok, problem},
    member::{Answer, Member, Setup},
    observer::Observer,
    sampler::Sampler,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::time::Duration;
use zookeeper::CreateMode;

#[test]
fn a_member_of_higher_priority_leads_once_it_was_seen_for_long_enough_and_none_in_between() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers).option("--preempt-after", "2s");
    let [a, b] = started_in_order(&setup, ["a", "b"]);
    let before = agreed([&a, &b]);
    let [c, d] = [("c", "70"), ("d", "60")].map(|(id, priority)| {
        let [member] = started_in_order(&setup.clone().option("--priority", priority), [id]);
        member
    });
    let members = [&a, &b, &c, &d];
    let sampler = Sampler::of(members);
    let bid = eventually("the leader has seen the bid", || {
        let status = ok(&a, "/status");
        if status["bid"].is_null() { Err(status.to_string()) } else { Ok(status["bid"].clone()) }
    });
    assert_eq!(bid, json!({"znode": "leader_0000000003", "priority": 70}));
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
    eventually("no bid is left", || match observer.znode("/election/bid-leader_") {
        None => Ok(()),
        Some(znode) => Err(format!("{znode:?}")),
    });
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

/// A znode as version 0.1.0 without transfers wrote it: it knows no priorities, relays nothing, and keeps its place.
#[test]
fn a_member_of_an_older_version_keeps_its_place_and_the_leader_leads_on() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers).option("--preempt-after", "1s");
    let [a] = started_in_order(&setup, ["a"]);
    let before = agreed([&a]);
    let old = br#"{"id":"old","address":null,"labels":{},"leader":null,"version":"0.1.0"}"#;
    observer.create("/election/leader_", old, CreateMode::EphemeralSequential);
    let [c] = started_in_order(&setup.option("--priority", "70"), ["c"]);
    let offered = || match observer.line("/election", "leader_").first() {
        Some(head) if head.json()["offer"]["heir"] == "leader_0000000003" => Ok(()),
        head => Err(format!("{head:?}")),
    };
    eventually("the leader offers to hand over", offered);
    let told = ok(&a, "/cluster");
    let priorities = priorities(&a);
    assert_eq!((&priorities["old"], &priorities["c"]), (&json!(50), &json!(70)), "{told}");
    let leads_on = || if agreed([&a, &c]) == before { Ok(()) } else { Err("another leads".into()) };
    throughout("it leads on", Duration::from_secs(4), leads_on);
    observer.delete("/election/leader_0000000002");
    assert_eq!(agreed_after(&before, [&a, &c]).id, "c");
}

/// A leader of such a version hands over to none, and the bid stands until it is gone.
#[test]
fn a_leader_of_an_older_version_leads_on_beside_a_bid() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    observer.make_path("/election");
    observer.create("/election/leader_", b"", CreateMode::EphemeralSequential);
    let own = observer.line("/election", "leader_").remove(0);
    let (znode, token) = (&own.name, own.token());
    let profile = r#""id":"old","address":null,"labels":{}"#;
    let leads = format!(
        r#"{{{profile},"leader":{{{profile},"znode":"{znode}","token":{token}}},"version":"0.1.0"}}"#
    );
    observer.set(&format!("/election/{znode}"), leads.as_bytes());
    let setup = Setup::of(&servers).option("--preempt-after", "1s");
    let [b, c] = started_in_order(&setup.option("--priority", "70"), ["b", "c"]);
    eventually("it bids", || {
        observer.znode("/election/bid-leader_").map(drop).ok_or_else(String::new)
    });
    let follow = || [&b, &c].into_iter().try_for_each(|member| has_role(member, "follower"));
    throughout("the old one leads on", Duration::from_secs(4), follow);
    observer.delete(&format!("/election/{znode}"));
    eventually("the next one leads", || has_role(&b, "leader"));
    eventually("no bid is left", || match observer.znode("/election/bid-leader_") {
        None => Ok(()),
        Some(znode) => Err(format!("{znode:?}")),
    });
}

fn priorities(asked: &Member) -> Value {
    let told = ok(asked, "/cluster");
    let members = told["members"].as_array().expect("members").iter();
    members
        .map(|it| (it["id"].as_str().unwrap_or_default().to_owned(), it["priority"].clone()))
        .collect()
}

fn patch(member: &Member, body: &str) -> Answer {
    let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
    member.send("PATCH", "/member", &headers, body)
}
