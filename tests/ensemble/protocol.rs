//! The trace of the protocol: the core agrees with it when it is replayed, and disagrees if a line was altered.

use crate::{
    check_log::{check, overlap},
    group::{agreed, agreed_after, has_role, started_in_order},
    member::{SessionFiles, Setup},
    servers::Servers,
    wait::eventually,
};

#[test]
fn the_core_agrees_with_each_step_of_a_daemon_and_finds_a_line_that_was_altered() {
    let servers = Servers::standalone();
    let files = SessionFiles::new();
    let setup = Setup::of(&servers).traced();
    let kept = files.kept_by(&setup, "a");
    let [mut first] = started_in_order(&kept, ["a"]);
    let [second] = started_in_order(&setup, ["b"]);
    let before = agreed([&first, &second]);
    eventually("the standby is ready", || second.is_ready_standby());

    // The next process resumes the session.
    first.kill();
    let killed = first.log();
    first = kept.start("a");
    eventually("it leads again", || has_role(&first, "leader"));
    assert_eq!(agreed([&first, &second]), before);
    let headers = [("x-bellwether", "1"), ("content-type", "application/json")];
    let changes = r#"{"address": "10.0.0.1:80", "labels": {"a \"b\"": "ü, {c}"}, "priority": 60}"#;
    assert_eq!(second.send("PATCH", "/member", &headers, changes).status, 200);
    assert_eq!(first.send("POST", "/transfer", &headers, "{}").status, 200);
    let after = agreed_after(&before, [&first, &second]);
    assert_eq!(first.post("/pause").status, 200);
    assert_eq!(first.post("/resume").status, 202);
    eventually("it is back", || has_role(&first, "follower"));
    assert_eq!(second.post("/resign").status, 202);
    agreed_after(&after, [&first, &second]);

    let logs = [("a.log", killed + &first.log()), ("b.log", second.log())];
    let checked = logs.each_ref().map(|(file, log)| check(file, log).unwrap());
    assert_eq!(checked.each_ref().map(|log| log.processes), [2, 1]);
    let steps = checked.iter().map(|log| log.steps).sum::<usize>();
    assert!(steps > 30, "{steps} steps");
    let terms: Vec<_> = checked.into_iter().flat_map(|log| log.terms).collect();
    assert!(terms.len() >= 3, "{terms:?}");
    assert_eq!(overlap(&terms), None);

    let (_, log) = &logs[1];
    for (before, after) in [
        // Alter an event, an action, a role and a moment.
        ("heard\":\"QueueRead(Queue([Sequence(0), ", "heard\":\"QueueRead(Queue(["),
        ("actions\":\"[Claim {", "actions\":\"[Relay {"),
        ("standing\":\"Leader {", "standing\":\"Candidate {"),
        ("at\":\"Moment(", "at\":\"Moment(1"),
    ] {
        let traced =
            log.lines().enumerate().filter(|(_, line)| line.contains("bellwether::protocol"));
        let mut rest = traced.skip_while(|(_, line)| !line.contains(before));
        let (n, line) = rest.next().expect(before);
        let altered = log.replace(line, &line.replacen(before, after, 1));
        let error = check("b.log", &altered).expect_err(after);
        // A moment that is too late is only noticed at the next step.
        let (next, _) = rest.next().expect("it goes on");
        let places = [n, next].map(|n| format!("b.log:{}: ", n + 1));
        assert!(places.iter().any(|place| error.starts_with(place)), "{places:?}: {error}");
    }
}
