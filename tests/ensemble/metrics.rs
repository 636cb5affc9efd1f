//! What members say in their metrics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::{
    group::{agreed_after, settled, started_in_order},
    member::{Member, Setup},
    observer::Observer,
    scrape::Scrape,
    servers::Servers,
    wait::eventually,
};

#[test]
fn metrics_say_of_each_member_what_its_status_says() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let [a, b, c] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let (first, _) = settled([&a, &b, &c], &observer);
    let leads = |member: &Member| {
        let scrape = Scrape::of(member);
        let leads = scrape.of_us("role", r#"role="leader""#);
        assert_eq!(scrape.value(r#"leader_election_master_status{name="/election"}"#), leads);
        assert_eq!(scrape.of_us("lease_remaining_seconds", "") > 0.0, leads == 1.0);
        let roles = ["leader", "candidate", "follower", "absent"];
        let roles = roles.map(|role| scrape.of_us("role", &format!("role={role:?}")));
        assert_eq!(roles.iter().sum::<f64>(), 1.0, "{}", scrape.text);
        leads
    };
    assert_eq!([&a, &b, &c].map(leads), [1.0, 0.0, 0.0]);
    for (member, place) in [(&a, 1.0), (&b, 2.0), (&c, 3.0)] {
        let scrape = Scrape::of(member);
        assert_eq!(scrape.of_us("queue_position", ""), place, "{}", member.id);
        assert_eq!(scrape.of_us("leader_token", ""), first.token as f64);
        assert_eq!(scrape.of_us("leader_changes_total", ""), 0.0, "the first is no change");
        assert_eq!(scrape.of_us("session_state", r#"state="connected""#), 1.0);
        assert_eq!(scrape.of_us("session_timeout_seconds", ""), 10.0);
        assert_eq!(scrape.of_us("sessions_total", ""), 1.0);
        let uptime = member.status()["uptime_ms"].as_u64().unwrap() as f64 / 1000.0;
        assert!(scrape.of_us("session_age_seconds", "") > 0.0, "{}", scrape.text);
        assert!(scrape.of_us("session_age_seconds", "") <= uptime, "{}", scrape.text);
        assert!(scrape.of_us("leaderless_seconds_total", "") > 0.0, "it was not born a follower");
    }
    let before = Scrape::of(&b).of_us("leaderless_seconds_total", "");
    eventually("the leader renews, and the standby, each its own lease", || {
        let committed = [&a, &b]
            .map(|member| Scrape::of(member).of_us("renewals_total", r#"result="committed""#));
        if committed[0] > committed[1] && committed[1] >= 1.0 {
            Ok(())
        } else {
            Err(format!("{committed:?}"))
        }
    });
    let scrape = Scrape::of(&a);
    let count = scrape.of_us("renewal_duration_seconds_count", "");
    assert_eq!(count, scrape.of_us("renewals_total", r#"result="committed""#));
    assert!(scrape.of_us("renewal_duration_seconds_sum", "") > 0.0);

    // A hand-over: b leads, c is right behind it, and a is behind both.
    assert_eq!(a.post("/resign").status, 202);
    let second = agreed_after(&first, [&a, &b, &c]);
    assert_eq!(second.id, "b");
    settled([&a, &b, &c], &observer);
    for (member, place) in [(&b, 1.0), (&c, 2.0), (&a, 3.0)] {
        let scrape = Scrape::of(member);
        assert_eq!(scrape.of_us("leader_token", ""), second.token as f64);
        assert_eq!(scrape.of_us("leader_changes_total", ""), 1.0, "{}", member.id);
        // No member ahead of c has told it that one of them is gone.
        assert!(scrape.of_us("queue_position", "") >= place, "{}: {}", member.id, scrape.text);
    }
    assert_eq!(Scrape::of(&a).of_us("sessions_total", ""), 2.0);
    let after = Scrape::of(&b).of_us("leaderless_seconds_total", "");
    assert_eq!(after, before, "it led at the notification: it knew of a leader at any moment");
    assert_eq!(c.post("/pause").status, 200);
    let scrape = Scrape::of(&c);
    assert_eq!(scrape.of_us("paused", ""), 1.0);
    assert_eq!(scrape.of_us("role", r#"role="absent""#), 1.0);
    assert_eq!(scrape.of_us("session_state", r#"state="none""#), 1.0);
    assert_eq!(scrape.of_us("session_timeout_seconds", ""), 10.0, "granted last");
    for zero in ["queue_position", "leader_token", "session_age_seconds"] {
        assert_eq!(scrape.of_us(zero, ""), 0.0, "{zero}");
    }
}

#[test]
fn a_leader_whose_servers_fall_silent_says_so_in_its_metrics() {
    let mut servers = Servers::standalone();
    let [leader] = started_in_order(&Setup::of(&servers).short_sessions(), ["a"]);
    assert_eq!(Scrape::of(&leader).of_us("renewals_total", r#"result="unanswered""#), 0.0);

    servers.first().pause();
    let scrape = eventually("it leads no more", || {
        let scrape = Scrape::of(&leader);
        let leads = scrape.of_us("role", r#"role="leader""#);
        if leads == 0.0 { Ok(scrape) } else { Err(scrape.text) }
    });
    assert!(scrape.of_us("renewals_total", r#"result="unanswered""#) >= 1.0, "{}", scrape.text);
    assert_eq!(scrape.of_us("session_state", r#"state="connected""#), 0.0);
    let before = scrape.of_us("leaderless_seconds_total", "");
    let after = Scrape::of(&leader).of_us("leaderless_seconds_total", "");
    assert!(after > before, "time goes on from scrape to scrape: {before} {after}");
    servers.first().resume();
}
