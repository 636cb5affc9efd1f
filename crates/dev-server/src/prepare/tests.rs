//! The checks, one by one and in their order.

use super::*;

const SESSION: i64 = 0x100;

fn caller() -> Requester {
    Requester { session: SESSION, ids: Vec::new(), extended_types: true }
}

fn anyone() -> Option<Vec<RawAcl>> {
    let entry =
        RawAcl { perms: 31, scheme: Some("world".to_owned()), id: Some("anyone".to_owned()) };
    Some(vec![entry])
}

fn create(path: &str, flags: i32) -> WriteRequest {
    WriteRequest::Create(Create {
        kind: CreateKind::Create,
        path: Some(path.to_owned()),
        data: None,
        acl: anyone(),
        flags,
        ttl_ms: -1,
    })
}

fn with_ttl(path: &str, flags: i32, ttl_ms: i64) -> WriteRequest {
    WriteRequest::Create(Create {
        kind: CreateKind::Ttl,
        path: Some(path.to_owned()),
        data: None,
        acl: anyone(),
        flags,
        ttl_ms,
    })
}

fn delete(path: &str, version: i32) -> WriteRequest {
    WriteRequest::Delete { path: Some(path.to_owned()), version }
}

fn check(path: &str, version: i32) -> WriteRequest {
    WriteRequest::Check { path: Some(path.to_owned()), version }
}

fn set_data(path: &str, version: i32) -> WriteRequest {
    WriteRequest::SetData { path: Some(path.to_owned()), data: None, version }
}

/// Returns the result of the last of several operations of one transaction.
fn last(tree: &Tree, writes: Vec<WriteRequest>) -> Result<TreeChange, ErrorCode> {
    let caller = caller();
    let mut preparation = Preparation::new(tree, &caller, 1, 0);
    let mut result = Ok(TreeChange::Nothing);
    for write in writes {
        result = preparation.prepare(write);
    }
    result
}

fn refusal(tree: &Tree, writes: Vec<WriteRequest>) -> Option<ErrorCode> {
    last(tree, writes).err()
}

fn created(tree: &Tree, writes: Vec<WriteRequest>) -> String {
    match last(tree, writes).unwrap() {
        TreeChange::Create(_, new) => new.path,
        other => panic!("{other:?}"),
    }
}

/// A tree with `/a` and, under it, the ephemeral `/a/e`; the counter of `/a` stands at `creations`.
fn tree(creations: i32) -> Tree {
    let mut tree = Tree::new();
    let new = |path: &str, owner, parent_creations| NewNode {
        path: path.to_owned(),
        data: None,
        acl: acl::open(),
        owner,
        parent_creations,
    };
    tree.create(new("/a", Owner::Tree, 1), 1, 0);
    tree.create(new("/a/e", Owner::Session(SESSION), creations), 2, 0);
    tree
}

#[test]
fn a_create_is_refused_for_the_first_reason_that_holds() {
    let tree = tree(1);
    let refused = |write| refusal(&tree, vec![write]);
    assert_eq!(refused(create("bad", 7)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(create("/a/x", 5)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(with_ttl("/a/x", 5, 0)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(with_ttl("/a/x", 0, 7)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(with_ttl("/a/x", 0, -1)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(create("bad", 0)), Some(ErrorCode::BadArguments));
    // The parent is looked up before the whole path is validated.
    assert_eq!(refused(create("/none//x", 0)), Some(ErrorCode::NoNode));
    assert_eq!(refused(create("/a/", 0)), Some(ErrorCode::BadArguments));
    assert_eq!(refused(create("/a/e", 0)), Some(ErrorCode::NodeExists));
    assert_eq!(refused(create("/a/e/x", 0)), Some(ErrorCode::NoChildrenForEphemerals));
    assert_eq!(refused(create("/", 0)), Some(ErrorCode::NodeExists));
    let mut without_acl = create("/none/x", 0);
    if let WriteRequest::Create(create) = &mut without_acl {
        create.acl = None;
    }
    assert_eq!(refused(without_acl), Some(ErrorCode::InvalidAcl));
}

#[test]
fn without_extended_types_there_is_no_ttl() {
    let tree = tree(1);
    let caller = Requester { extended_types: false, ..caller() };
    let mut preparation = Preparation::new(&tree, &caller, 1, 0);
    assert_eq!(preparation.prepare(with_ttl("/a/x", 5, 0)).err(), Some(ErrorCode::Unimplemented));
}

#[test]
fn a_sequential_name_is_the_number_of_creations() {
    assert_eq!(created(&tree(1), vec![create("/a/n_", 2)]), "/a/n_0000000001");
    // A name may be nothing but its number.
    assert_eq!(created(&tree(7), vec![create("/a/", 3)]), "/a/0000000007");
    let two = vec![create("/a/n_", 2), create("/a/n_", 2)];
    assert_eq!(created(&tree(7), two), "/a/n_0000000008");
}

#[test]
fn within_a_multi_the_counter_goes_on_below_zero() {
    let two = vec![create("/a/n_", 2), create("/a/n_", 2)];
    assert_eq!(created(&tree(i32::MAX), two), "/a/n_-2147483648");
}

#[test]
fn a_delete_is_refused_for_the_first_reason_that_holds() {
    let tree = tree(1);
    let refused = |path, version| refusal(&tree, vec![delete(path, version)]);
    assert_eq!(refused("/", -1), Some(ErrorCode::BadArguments));
    assert_eq!(refused("/zookeeper/config", -1), Some(ErrorCode::BadArguments));
    assert_eq!(refused("bad", -1), Some(ErrorCode::BadArguments));
    assert_eq!(refused("/none/x", -1), Some(ErrorCode::NoNode));
    assert_eq!(refused("/a/none", -1), Some(ErrorCode::NoNode));
    assert_eq!(refused("/a", 1), Some(ErrorCode::BadVersion));
    assert_eq!(refused("/a", 0), Some(ErrorCode::NotEmpty));
    assert_eq!(refused("/a/e", 0), None);
}

#[test]
fn a_transaction_sees_its_own_changes() {
    let tree = tree(1);
    let both = vec![delete("/a/e", -1), delete("/a", -1)];
    assert_eq!(refusal(&tree, both), None);
    let gone = vec![delete("/a/e", -1), check("/a/e", -1)];
    assert_eq!(refusal(&tree, gone), Some(ErrorCode::NoNode));
    let changed = vec![set_data("/a", 0), check("/a", 1)];
    assert_eq!(refusal(&tree, changed), None);
    let under_new = vec![create("/b", 1), create("/b/x", 0)];
    assert_eq!(refusal(&tree, under_new), Some(ErrorCode::NoChildrenForEphemerals));
}

#[test]
fn versions_are_held_against_what_is_expected() {
    let tree = tree(1);
    assert_eq!(refusal(&tree, vec![set_data("/a", 1)]), Some(ErrorCode::BadVersion));
    assert_eq!(refusal(&tree, vec![set_data("/a", 0)]), None);
    assert_eq!(refusal(&tree, vec![set_data("/a", -1)]), None);
    assert_eq!(refusal(&tree, vec![set_data("/a/", -1)]), Some(ErrorCode::BadArguments));
    assert_eq!(next_version(i32::MAX, -1), Ok(i32::MIN));
}

#[test]
fn null_is_refused_as_java_refuses_it() {
    let tree = tree(1);
    let null = || WriteRequest::Delete { path: None, version: -1 };
    assert_eq!(refusal(&tree, vec![null()]), Some(ErrorCode::Marshalling));
    let null = || WriteRequest::SetData { path: None, data: None, version: -1 };
    assert_eq!(refusal(&tree, vec![null()]), Some(ErrorCode::BadArguments));
}
