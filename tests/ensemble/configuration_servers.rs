//! The shared configuration on three servers, of which one dies.

use crate::{
    configuration::put, group::started_in_order, member::Setup, servers::Servers, wait::eventually,
};

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
