//! Leadership is moved to a member of choice.

use crate::{
    group::{Named, agreed, agreed_after, started_in_order},
    member::{Answer, Handovers, Member, Setup, ok, problem},
    sampler::{Sampler, Stint, handovers},
    scrape::Scrape,
    servers::Servers,
    wait::eventually,
};
use serde_json::{Value, json};
use std::env;

/// `TRANSFERS=200 MEMBERS=50` takes longer than these few.
fn number(variable: &str, usually: usize) -> usize {
    env::var(variable).map_or(usually, |number| number.parse().expect("it is a number"))
}

#[test]
fn leadership_goes_where_it_is_wanted_and_no_other_member_leads_in_between() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let start = |n| {
        let [member] = started_in_order(&setup, [&*format!("m{n}")]);
        member
    };
    let members: Vec<Member> = (0..number("MEMBERS", 5)).map(start).collect();
    let sampler = Sampler::of(&members);
    let mut leaders = vec![agreed(&members)];
    let mut leaderless_ms = vec![];
    let before = all_handovers(&members);
    for round in 0..number("TRANSFERS", 10) {
        let old = leaders.last().expect("one leads").clone();
        let from = members.iter().position(|it| it.id == old.id).expect("it is one of them");
        // Near and far down the queue.
        let to = (from + 1 + round % (members.len() - 1)) % members.len();
        let moved = transfer(&members[from], &json!({"to": members[to].id, "within_ms": 9000}));
        assert_eq!(moved.status, 200, "{round}: {moved:?}");
        let moved = moved.json();
        let new = Named::read(&moved["leader"]).expect("it leads");
        assert_eq!(new.id, members[to].id);
        assert!(new.token > old.token, "{new:?} after {old:?}");
        assert_eq!(agreed_after(&old, &members), new);
        leaderless_ms.push(moved["leaderless_ms"].as_u64().expect("it is told"));
        leaders.push(new);
    }
    sampler.saw_one_leader_at_a_time();
    let stints = sampler.stints();
    let mut tokens: Vec<_> = stints.iter().map(|stint| stint.token).collect();
    tokens.dedup();
    let expected: Vec<_> = leaders.iter().map(|leader| leader.token).collect();
    assert_eq!(tokens, expected, "others have led: {stints:?}");
    let transfers = leaders.len() as u64 - 1;
    let since = all_handovers(&members).since(before);
    assert_eq!(since, Handovers { by_notification: transfers, by_claim: 0 });
    leaderless_ms.sort_unstable();
    let (told, most) =
        (leaderless_ms[leaderless_ms.len() / 2], leaderless_ms[leaderless_ms.len() - 1]);
    eprintln!("{transfers} transfers: told {told} ms in the median, {most} at most");
    eprintln!("no leader was seen for {}", gaps(&stints));
    if env::var_os("TRANSFERS").is_some() {
        resign_as_often(&members, leaders.pop().expect("one leads"), transfers);
        let resigned = sampler.stints().split_off(stints.len() - 1);
        eprintln!("by as many resignations for {}", gaps(&resigned));
    }
}

/// To compare with: the same members hand over as they stand.
fn resign_as_often(members: &[Member], mut leader: Named, times: u64) {
    for _ in 0..times {
        let first = members.iter().find(|it| it.id == leader.id).expect("it is one of them");
        eventually("there is a ready standby", || {
            let is_ready = |it: &Member| it.is_ready_standby().is_ok();
            members.iter().any(is_ready).then_some(()).ok_or_else(String::new)
        });
        assert_eq!(first.post("/resign").status, 202);
        leader = agreed_after(&leader, members);
    }
}

/// Returns how long no member was seen to lead, between one and the next.
fn gaps(stints: &[Stint]) -> String {
    let mut gaps: Vec<_> = handovers(stints).iter().map(|handover| handover.most).collect();
    gaps.sort_by(f64::total_cmp);
    let most = gaps.last().expect("leadership has moved");
    format!("{:.4} s in the median, {most:.4} s at most", gaps[gaps.len() / 2])
}

#[test]
fn a_transfer_that_comes_to_nothing_says_why_and_the_leader_leads_on() {
    let servers = Servers::standalone();
    let [first, second, third] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let before = agreed([&first, &second, &third]);
    let refused = |member: &Member, body: Value, kind: &str| {
        let answer = transfer(member, &body);
        problem(&answer, 409);
        let refusal = answer.json();
        assert_eq!(refusal["type"], format!("urn:bellwether:problem:{kind}"), "{body}");
        refusal["detail"].to_string()
    };
    assert!(refused(&second, json!({"to": "c"}), "not-leader").contains("a leads"));
    refused(&first, json!({"to": "a"}), "already-leader");
    refused(&first, json!({"to": "z"}), "no-such-member");
    third.signal("STOP");
    refused(&first, json!({"to": "c", "within_ms": 2000}), "target-not-ready");
    third.signal("CONT");
    assert_eq!(agreed([&first, &second, &third]), before);
    assert_eq!(second.post("/pause").status, 200);
    assert_eq!(third.post("/pause").status, 200);
    refused(&first, json!({"to": "b"}), "no-such-member");
    refused(&first, json!({}), "no-such-member");
    assert_eq!(agreed([&first]), before);

    let send = |kind: &str, body: &str| {
        first.send("POST", "/transfer", &[("x-bellwether", "1"), ("content-type", kind)], body)
    };
    problem(&send("text/plain", "{}"), 415);
    problem(&send("application/json", "{"), 400);
    for wrong in ["[]", r#"{"to": 1}"#, r#"{"at": "b"}"#, r#"{"within_ms": 0}"#] {
        problem(&send("application/json", wrong), 422);
    }
    let passed_over = first.post("/transfer?to=b");
    problem(&passed_over, 400);
    assert!(passed_over.body.contains("unknown field `to`"), "{passed_over:?}");
    assert_eq!(agreed([&first]), before);
}

/// The upgraded member that is to lead is there before the leader is restarted.
/// The target of the later one is rejoining behind the target of the first, for which it made way.
#[test]
fn of_two_transfers_at_once_the_later_one_has_its_target_lead() {
    let servers = Servers::standalone();
    let [first, second, third] = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    agreed([&first, &second, &third]);
    let place = |member: &Member| member.get("/status").json()["znode"].clone();
    let before = place(&second);
    third.signal("STOP");
    std::thread::scope(|scope| {
        let to = |id: &'static str| {
            let first = &first;
            scope.spawn(move || transfer(first, &json!({"to": id, "within_ms": 20_000})))
        };
        let earlier = to("c");
        eventually("b makes way for c", || match place(&second) {
            place if place.is_string() && place != before => Ok(()),
            place => Err(place.to_string()),
        });
        let later = to("b");
        let earlier = earlier.join().expect("it is answered");
        problem(&earlier, 409);
        assert!(earlier.body.contains("another-target"), "{earlier:?}");
        third.signal("CONT");
        let later = later.join().expect("it is answered");
        assert_eq!((later.status, &later.json()["leader"]["id"]), (200, &json!("b")), "{later:?}");
    });
    assert_eq!(agreed([&first, &second, &third]).id, "b");
}

#[test]
fn a_rolling_restart_moves_leadership_once() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers);
    let [mut first, mut second, mut third] = started_in_order(&setup, ["a", "b", "c"]);
    let before = agreed([&first, &second, &third]);
    let restart = |member: &mut Member| {
        member.signal("TERM");
        assert_eq!(member.wait().0.code(), Some(0));
        let [anew] = started_in_order(&setup, [&*member.id]);
        *member = anew;
    };
    restart(&mut second);
    restart(&mut third);
    assert_eq!(agreed([&first, &second, &third]), before);
    assert_eq!(transfer(&first, &json!({"to": "b"})).status, 200);
    let after = agreed_after(&before, [&first, &second, &third]);
    restart(&mut first);
    assert_eq!(agreed([&first, &second, &third]), after);
    let terms = ok(&third, "/history")["terms"].clone();
    let led: Vec<_> = terms.as_array().expect("terms").iter().map(|it| &it["id"]).collect();
    assert_eq!(led.len(), 2, "{terms}");
    assert!(led.contains(&&json!("a")) && led.contains(&&json!("b")), "{terms}");
}

/// The leader is the last that is upgraded. It has a higher priority, which brings leadership back to it.
#[test]
fn a_rolling_upgrade_ends_where_it_began_with_one_transfer_and_no_session_timeout() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--preempt-after", "5s");
    let preferred = setup.clone().option("--priority", "60");
    let [first] = started_in_order(&preferred, ["a"]);
    let others = started_in_order(&setup, ["b", "c", "d", "e"]);
    let mut members: Vec<Member> = [first].into_iter().chain(others).collect();
    let before = agreed(&members);
    let upgrade = |member: &mut Member, setup: &Setup| {
        member.signal("TERM");
        assert_eq!(member.wait().0.code(), Some(0));
        let [anew] = started_in_order(setup, [&*member.id]);
        *member = anew;
    };
    members[1..].iter_mut().for_each(|member| upgrade(member, &setup));
    assert_eq!(agreed(&members), before, "none of them led");
    let before_s = leaderless_s(&members[3]);
    assert_eq!(transfer(&members[0], &json!({"to": "c"})).status, 200);
    let between = agreed_after(&before, &members);
    assert_eq!(between.id, "c");
    upgrade(&mut members[0], &preferred);
    let after = agreed_after(&between, &members);
    assert_eq!(after.id, "a", "it ends where it began");
    let seen = &members[3];
    let history = ok(seen, "/history");
    let terms = history["terms"].as_array().expect("terms");
    let led: Vec<_> = terms.iter().map(|it| it["token"].as_u64().expect("a token")).collect();
    assert_eq!(led, [before.token, between.token, after.token], "{history}");
    let of_c = ok(&members[2], "/history");
    let ended: Vec<_> =
        of_c["terms"].as_array().expect("terms").iter().map(|it| &it["ended"]).collect();
    assert!(ended.contains(&&json!("transferred")), "{of_c}");
    let leaderless = leaderless_s(seen) - before_s;
    eprintln!("no leader was known for {leaderless:.3} s in all, in two hand-overs");
    assert!(leaderless < 2.0, "a session timed out: {leaderless} s without a leader");
}

/// For how long this member has known no leader.
fn leaderless_s(member: &Member) -> f64 {
    Scrape::of(member).of_us("leaderless_seconds_total", "")
}

pub(crate) fn transfer(leader: &Member, body: &Value) -> Answer {
    let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
    leader.send("POST", "/transfer", &headers, &body.to_string())
}

fn all_handovers(members: &[Member]) -> Handovers {
    let mut all = Handovers::default();
    members.iter().for_each(|member| all += member.handovers().expect("it answers"));
    all
}
