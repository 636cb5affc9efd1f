//! What is wrong with each member, as any of them shows it.

use crate::{
    group::{agreed, started_in_order},
    hook_notes::Home,
    member::{Member, Setup},
    observer::Observer,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn any_member_shows_what_is_wrong_with_each_of_them_and_nothing_is_written_while_nothing_is() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let (home, setup) = (Home::new(), Setup::of(&servers));
    let fails = "[[hook]]\non = [\"leader-changed\", \"became-leader\"]\ncommand = [\"sh\", \"-c\", \"test -e \\\"$MENDED\\\"\"]\n";
    let mended = home.path("mended");
    let failing = home.with(setup.clone(), &[fails.to_owned()]);
    let failing = failing.environment("MENDED", mended.to_str().expect("a path of text"));
    let [a] = started_in_order(&setup, ["a"]);
    let [b] = started_in_order(&failing, ["b"]);
    let [c] = started_in_order(&setup, ["c"]);
    let members = [&a, &b, &c];
    agreed(members);

    for asked in members {
        let told = has_problems(asked, &["a hook of b fails"]);
        assert_eq!(told["members"][0]["is_leader"], true);
        assert_eq!(told["members"][1]["standby"], json!({"ready": true}));
        let failing = [0, 1, 2].map(|n: usize| told["members"][n]["hooks_failing"].clone());
        assert_eq!(failing, [json!(0), json!(1), json!(0)]);
    }

    let data = || {
        let line = observer.queue("/election", "leader_");
        line.into_iter().map(|znode| (znode.stat.version, znode.data)).collect::<Vec<_>>()
    };
    let before = data();
    throughout("nothing is written while nothing changes", Duration::from_secs(7), || {
        if data() == before { Ok(()) } else { Err("it was".into()) }
    });
    assert!(String::from_utf8_lossy(&before[1].1).contains(r#""state":{"hooks_failing":1}"#));

    std::fs::write(&mended, "").expect("a file");
    a.post("/resign");
    has_problems(&a, &[]);
    let told = data();
    let says = |data: &[u8]| String::from_utf8_lossy(data).contains("state");
    assert!(told.iter().all(|(_, data)| !says(data)), "what is over is told no more");
}

/// Waits until the member shows these and no others, and returns what it shows.
fn has_problems(member: &Member, problems: &[&str]) -> Value {
    eventually("all have told what is wrong", || {
        let told = member.get("/members").json();
        if told["problems"] == json!(problems) { Ok(told) } else { Err(told.to_string()) }
    })
}
