//! The standby: right behind the head, ready to lead at the notification that the head is gone.

use crate::{
    group::{agreed, agreed_after, started_in_order},
    member::{Handovers, Member, Setup, ok},
    observer::Observer,
    servers::Servers,
    wait::eventually,
};
use serde_json::{Value, json};

#[test]
fn a_ready_standby_leads_at_the_notification_and_the_next_one_becomes_ready() {
    let servers = Servers::standalone();
    let [first, second, third] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let before = agreed([&first, &second, &third]);
    become_ready(&second);
    let others = [&first, &third].map(|it| it.status()["standby"].clone());
    assert_eq!(others, [Value::Null, Value::Null]);
    let first_of_all = first.handovers().unwrap();
    assert_eq!(first_of_all, Handovers { by_notification: 0, by_claim: 1 });

    assert_eq!(first.post("/resign").status, 202);
    let after = agreed_after(&before, [&first, &second, &third]);
    assert_eq!(after.id, "b");
    let next = second.handovers().unwrap();
    assert_eq!(next, Handovers { by_notification: 1, by_claim: 0 });
    become_ready(&third);

    eventually("all know of the standby", || {
        let members = ok(&first, "/members")["members"].clone();
        let standby: Vec<_> =
            members.as_array().unwrap().iter().map(|it| (&it["id"], &it["standby"])).collect();
        let expected = [
            (&json!("b"), &Value::Null),
            (&json!("c"), &json!({"ready": true})),
            (&json!("a"), &Value::Null),
        ];
        if standby == expected { Ok(()) } else { Err(members.to_string()) }
    });
}

/// A standby costs one quorum write a heartbeat more, however many members wait.
#[test]
fn only_the_leader_and_the_standby_write() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let members = started_in_order(&Setup::of(&servers), ["a", "b", "c", "d", "e"]);
    agreed(&members);
    become_ready(&members[1]);

    let before = members.each_ref().map(renewals);
    eventually("the leader has renewed ten times", || match renewals(&members[0]) - before[0] {
        n if n >= 10 => Ok(()),
        n => Err(n.to_string()),
    });
    let renewed: Vec<_> =
        members.iter().zip(before).map(|(member, before)| renewals(member) - before).collect();

    assert!((2..=renewed[0]).contains(&renewed[1]), "{renewed:?}");
    // Once in six session timeouts, each of the others asks a quorum for the znode ahead.
    assert!(renewed[2..].iter().all(|renewed| *renewed <= 1), "{renewed:?}");
    assert_eq!(observer.queue("/election", "leader_").len(), 5);
}

fn become_ready(member: &Member) {
    eventually("the standby is ready", || member.is_ready_standby());
}

fn renewals(member: &Member) -> u64 {
    let page = member.get("/metrics").body;
    let committed = |line: &&str| {
        line.starts_with("bellwether_renewals_total{") && line.contains("result=\"committed\"")
    };
    let line = page.lines().find(committed).unwrap_or_else(|| panic!("{page}"));
    line.rsplit_once(' ').and_then(|(_, n)| n.parse().ok()).expect("a number")
}
