//! The shared configuration and barriers on three servers, of which one dies.

use crate::{
    barriers::{entering, leave},
    configuration::put,
    group::started_in_order,
    locks::started,
    member::Setup,
    servers::Servers,
    wait::eventually,
};
use serde_json::Value;
use std::iter;

#[test]
fn values_are_written_and_told_on_when_any_one_server_dies() {
    let mut servers = Servers::three();
    let [writer, reader] = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let mut stream = reader.stream("/config/x");
    assert_eq!(stream.event().name, "absent");
    assert_eq!(put(&writer, "/config/x", &[], "0").status, 201);
    assert_eq!(stream.event().data["text"], "0");
    for n in 0..3 {
        servers.all()[n].kill();
        let value = format!("after {n}");
        eventually("two of three servers take a write", || {
            let answer = put(&writer, "/config/x", &[], &value);
            if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
        });
        // One whose outcome is unknown may be told first, with the same value.
        while stream.event().data["text"] != *value {}
        let read = eventually("two of three servers show it", || {
            let answer = reader.get("/config/x");
            if answer.status == 200 { Ok(answer) } else { Err(format!("{answer:?}")) }
        });
        assert_eq!(read.body, value);
        servers.all()[n].start();
    }
}

#[test]
fn all_enter_a_barrier_and_all_leave_it_when_any_one_server_dies() {
    let mut servers = Servers::three();
    let members = started(&Setup::of(&servers), ["a", "b", "c"]);
    let is = |state: &str, count: usize| {
        eventually(state, || {
            let answer = members[2].get("/barriers/deploy");
            if answer.status != 200 {
                return Err(format!("{answer:?}"));
            }
            let told = answer.json();
            let inside = |it: &&Value| it["inside"] == (state == "inside");
            let all = told["members"].as_array().cloned().unwrap_or_default();
            let so = all.len() == count && all.iter().filter(inside).count() == count;
            if so { Ok(()) } else { Err(told.to_string()) }
        });
    };
    for n in 0..3 {
        let waiting = [entering(&members[0], 3), entering(&members[1], 3)];
        is("waiting", 2);
        servers.all()[n].kill();
        let [first, second] = waiting;
        let mut all = [first, second, entering(&members[2], 3)];
        let inside = all.each_mut().map(|stream| stream.event("entered"));
        servers.all()[n].start();
        is("inside", 3);

        servers.all()[(n + 1) % 3].kill();
        iter::zip(&members, &inside).for_each(|(member, entered)| leave(member, entered));
        all.iter_mut().for_each(|stream| drop(stream.event("left")));
        servers.all()[(n + 1) % 3].start();
    }
}
