//! Invariants of the state under arbitrary requests.

use super::{delete, nothing, part};
use crate::state::testing::{Bench, create};
use crate::wire::Writer;
use crate::wire::opcode::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
enum Act {
    Create { kind: i32, path: &'static str, flags: i32 },
    Delete(&'static str),
    Multi(Vec<(i32, &'static str)>),
    Close,
    Expire,
    DeleteOutlived,
}

fn act() -> impl Strategy<Value = Act> {
    let path = || select(vec!["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/a/a/b"]);
    let kind = select(vec![CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL]);
    let create = (kind, path(), 0..7_i32);
    let part = (select(vec![CREATE, DELETE]), path());
    prop_oneof![
        10 => create.prop_map(|(kind, path, flags)| Act::Create { kind, path, flags }),
        5 => path().prop_map(Act::Delete),
        4 => vec(part, 0..5).prop_map(Act::Multi),
        1 => Just(Act::Close),
        1 => Just(Act::Expire),
        1 => Just(Act::DeleteOutlived),
    ]
}

proptest! {
    #[test]
    fn the_tree_stays_whole_and_zxids_grow(acts in vec((0..3_usize, act()), 0..60)) {
        let mut bench = Bench::new();
        let mut clients: Vec<_> = (0..3).map(|_| bench.client()).collect();
        for (client, act) in acts {
            let id = clients[client].0;
            let session = clients[client].1.session;
            let before = bench.state.zxid;
            bench.now.wall_ms += 10;
            match act {
                Act::Create { kind, path, flags } => {
                    bench.send(id, kind, |body| {
                        create(body, path, flags);
                        if kind == CREATE_TTL {
                            body.long(15);
                        }
                    });
                }
                Act::Delete(path) => {
                    bench.send(id, DELETE, delete(path));
                }
                Act::Multi(parts) => {
                    bench.send(id, MULTI, |body: &mut Writer| {
                        for (kind, path) in parts {
                            part(body, kind);
                            match kind {
                                CREATE => create(body, path, 1),
                                _ => delete(path)(body),
                            }
                        }
                        part(body, -1);
                    });
                }
                Act::Close => {
                    bench.send(id, CLOSE_SESSION, nothing);
                    clients[client] = bench.client();
                }
                Act::Expire => {
                    prop_assert!(bench.state.expire(session));
                    prop_assert!(bench.state.tree.ephemerals_of(session).is_empty());
                    clients[client] = bench.client();
                }
                Act::DeleteOutlived => {
                    bench.state.delete_outlived(bench.now);
                    bench.received();
                    continue;
                }
            }
            prop_assert!(bench.state.zxid > before);
            bench.state.tree.assert_whole();
        }
    }
}
