//! The message that hooks receive, as JSON and as environment variables of a command, and the content of their files.

use super::perform::Notice;
use crate::api::{self, HookMessage, Leader, LeaderFile};
use crate::clock::KernelTime;
use crate::config::CHANGE_VARIABLE;
use crate::znode_names::ElectionNames;
use recipes::election::{Change, Role};
use std::time::SystemTime;

/// Returns the message about a change, for all hooks and all attempts. `id` is that of this member, and `state` is the
/// state after the change.
pub(super) fn notice(change: &Change, id: String, election: String, state: LeaderFile) -> Notice {
    let name = change.kind.name();
    let token = change.token.map(|token| token.0);
    let leader = state.leader.as_ref();
    // Leave out an address with a NUL byte, because an environment variable cannot contain it.
    let address = leader.and_then(|leader| leader.address.clone());
    let address = address.filter(|address| !address.contains('\0'));
    let valid_until = state.valid_until_boottime_ns;
    let environment = vec![
        (CHANGE_VARIABLE, Some(name.to_owned())),
        ("BELLWETHER_TOKEN", token.map(|token| token.to_string())),
        ("BELLWETHER_VALID_UNTIL_BOOTTIME_NS", valid_until.map(|until| until.to_string())),
        ("BELLWETHER_ID", Some(id.clone())),
        ("BELLWETHER_ELECTION", Some(election.clone())),
        ("BELLWETHER_LEADER_ID", leader.map(|leader| leader.id.clone())),
        ("BELLWETHER_LEADER_ADDRESS", address),
        ("BELLWETHER_LEADER_TOKEN", leader.map(|leader| leader.token.to_string())),
    ];
    let body = api::json(&HookMessage { change: name.to_owned(), election, id, state, token });
    Notice { environment, input: format!("{body}\n"), body }
}

/// Returns the content of a hook's file for `role`, which was read at the time `at` and has the index `index`.
/// `valid_until` is the end of this member's lease, if it leads.
pub(super) fn leader_file(
    role: &Role,
    names: &ElectionNames,
    index: Option<u64>,
    at: SystemTime,
    valid_until: Option<KernelTime>,
) -> LeaderFile {
    LeaderFile {
        leader: role.leader().map(|leader| Leader::of(leader, &names.znodes)),
        is_self: role.own_term().is_some(),
        valid_until_boottime_ns: valid_until.map(|until| until.boottime_ns),
        valid_until_monotonic_ns: valid_until.map(|until| until.monotonic_ns),
        index,
        at: api::date(at),
    }
}
