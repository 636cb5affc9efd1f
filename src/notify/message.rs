//! The message that hooks receive: as JSON, and as environment variables of a command.

use crate::api::{self, HookMessage, Leader, LeaderFile};
use crate::clock::KernelTime;
use crate::config::HOOKS_VARIABLE;
use crate::znode_names::ZnodeNames;
use recipes::election::{Change, View};
use std::time::SystemTime;

/// The names that messages of this election contain.
#[derive(Clone, Debug)]
pub struct HookNames {
    pub id: String,
    pub election: String,
    pub znodes: ZnodeNames,
}

/// A message. It is the same for every hook and every attempt.
pub(super) struct Message<'a> {
    pub(super) change: &'a Change,
    /// The view of the leader after this change.
    pub(super) view: View,
    pub(super) names: &'a HookNames,
    /// The index of the snapshot that caused this message.
    pub(super) index: Option<u64>,
    /// The time at which this message was created.
    pub(super) at: SystemTime,
    /// When the lease ends, if this member leads.
    pub(super) valid_until: Option<KernelTime>,
}

impl<'a> Message<'a> {
    pub(super) fn new(
        change: &'a Change,
        names: &'a HookNames,
        index: Option<u64>,
        at: SystemTime,
        valid_until: Option<KernelTime>,
    ) -> Self {
        Self { change, view: change.view(), names, index, at, valid_until }
    }

    pub(super) fn json(&self) -> String {
        let Self { change, view, names, index, at, valid_until } = self;
        api::json(&HookMessage {
            change: change.kind.name().to_owned(),
            election: names.election.clone(),
            id: names.id.clone(),
            state: file(view, names, *index, *at, *valid_until),
            token: change.token.map(|token| token.0),
        })
    }

    /// Returns the message as environment variables for a command; `None` removes a variable.
    pub(super) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let Self { change, view, names, valid_until, .. } = self;
        let leader = view.leader();
        // An environment variable cannot hold NUL, which another member's address may contain.
        let address = leader.and_then(|leader| leader.leader.address.clone());
        let address = address.filter(|address| !address.contains('\0'));
        vec![
            (HOOKS_VARIABLE, Some(change.kind.name().to_owned())),
            ("BELLWETHER_TOKEN", change.token.map(|token| token.to_string())),
            (
                "BELLWETHER_VALID_UNTIL_BOOTTIME_NS",
                valid_until.map(|until| until.boottime_ns.to_string()),
            ),
            ("BELLWETHER_ID", Some(names.id.clone())),
            ("BELLWETHER_ELECTION", Some(names.election.clone())),
            ("BELLWETHER_LEADER_ID", leader.map(|leader| leader.leader.id.to_string())),
            ("BELLWETHER_LEADER_ADDRESS", address),
            ("BELLWETHER_LEADER_TOKEN", leader.map(|leader| leader.ticket.token.to_string())),
        ]
    }
}

/// Returns the content of a hook's file for this view.
pub(super) fn file(
    view: &View,
    names: &HookNames,
    index: Option<u64>,
    at: SystemTime,
    valid_until: Option<KernelTime>,
) -> LeaderFile {
    LeaderFile {
        leader: view.leader().map(|leader| Leader::of(leader, &names.znodes)),
        is_self: view.own_term().is_some(),
        valid_until_boottime_ns: valid_until.map(|until| until.boottime_ns),
        valid_until_monotonic_ns: valid_until.map(|until| until.monotonic_ns),
        index,
        at: api::date(at),
    }
}
