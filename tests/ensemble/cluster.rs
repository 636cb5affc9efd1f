//! The whole election, as any member shows it.

use crate::{
    group::{agreed, started_in_order},
    hooks::Home,
    member::{Member, Setup},
    observer::Observer,
    servers::Servers,
    wait::{eventually, throughout},
};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn any_member_shows_how_each_of_them_is_and_tells_no_more_often_than_that_changes() {
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let (home, setup) = (Home::new(), Setup::of(&servers));
    let fails = "[[hook]]\non = [\"leader-changed\"]\ncommand = [\"false\"]\n";
    let failing = home.with(setup.clone(), &[fails.to_owned()]);
    let [a] = started_in_order(&setup.clone().option("--app-health", "true"), ["a"]);
    let [b] = started_in_order(&failing, ["b"]);
    let [c] = started_in_order(&setup.option("--tell-state", "false"), ["c"]);
    let members = [&a, &b, &c];
    let leader = agreed(members);

    for asked in members {
        let told = eventually("all have told how they are", || {
            let told = cluster(asked);
            match told["problems"] == json!(["a hook of b fails"])
                && told["members"][0]["since"] != Value::Null
            {
                true => Ok(told),
                false => Err(told.to_string()),
            }
        });
        assert_eq!(
            (&told["leader"]["id"], &told["leader"]["token"]),
            (&json!("a"), &json!(leader.token))
        );
        assert!(told["leader"]["for_ms"].is_u64(), "{told}");
        assert_eq!((&told["next"]["id"], &told["next"]["ready"]), (&json!("b"), &json!(true)));
        let state =
            |n: usize| ["healthy", "hooks_failing"].map(|key| told["members"][n][key].clone());
        let null = Value::Null;
        assert_eq!(
            [state(0), state(1), state(2)],
            [[json!(true), json!(0)], [null.clone(), json!(1)], [null.clone(), null],]
        );
    }

    let versions = || {
        let line = observer.line("/election", "leader_");
        line.iter().map(|znode| znode.stat.version).collect::<Vec<_>>()
    };
    let before = versions();
    throughout("each has said all there is to say", Duration::from_secs(7), || {
        let now = versions();
        if now == before { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    });

    a.post("/resign");
    eventually("the next leader says so, and so does the one before it", || {
        let told = cluster(&c);
        let since = |n: usize| told["members"][n]["since"].as_str().map(str::to_owned);
        let is_told = told["leader"]["id"] == "b" && since(0).is_some() && since(2).is_some();
        if is_told { Ok(()) } else { Err(told.to_string()) }
    });
}

fn cluster(member: &Member) -> Value {
    member.get("/cluster").json()
}
