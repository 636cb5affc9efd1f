//! What hooks are told. Others parse these bodies: a field is a promise.

use crate::clock::KernelTime;
use crate::config::HOOKS_VARIABLE;
use recipes::election::{Announcement, Change, View};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What these are called in this election, and what the index counts from.
#[derive(Clone, Debug)]
pub struct Names {
    pub id: String,
    pub election: String,
    pub prefix: String,
    /// To be added to the index of a standing, as it is in every reply over HTTP.
    pub first_index: u64,
}

/// What a command reads and what is posted.
#[derive(Serialize)]
struct Told<'a> {
    change: &'static str,
    election: &'a str,
    /// This member.
    id: &'a str,
    #[serde(flatten)]
    state: State<'a>,
    /// Of the term that the change is about: for `lost-leadership`, the one that was lost.
    token: Option<u64>,
}

/// What a file says.
#[derive(Serialize)]
struct State<'a> {
    leader: Option<Leader<'a>>,
    is_self: bool,
    /// When the lease that this member has now ends, by the kernel's clocks; it may be renewed before.
    valid_until_boottime_ns: Option<u64>,
    valid_until_monotonic_ns: Option<u64>,
    index: u64,
    at: String,
}

#[derive(Serialize)]
struct Leader<'a> {
    id: &'a str,
    address: Option<&'a str>,
    labels: &'a BTreeMap<String, String>,
    znode: String,
    token: u64,
    /// Whether its application has taken up its work, where it is asked to say so.
    active: bool,
}

/// One message: the same for each hook, and at each try.
pub(super) struct Message<'a> {
    pub(super) change: &'a Change,
    /// Who leads from this change on.
    pub(super) view: View,
    pub(super) names: &'a Names,
    pub(super) index: u64,
    pub(super) at: SystemTime,
    /// When the lease ends under which this member leads, if it does.
    pub(super) valid_until: Option<KernelTime>,
}

impl<'a> Message<'a> {
    pub(super) fn new(
        change: &'a Change,
        names: &'a Names,
        index: u64,
        at: SystemTime,
        valid_until: Option<KernelTime>,
    ) -> Self {
        Self { change, view: change.view(), names, index, at, valid_until }
    }

    pub(super) fn json(&self) -> String {
        let Self { change, view, names, index, at, valid_until } = self;
        json(&Told {
            change: change.kind.name(),
            election: &names.election,
            id: &names.id,
            state: State::of(view, names, *index, *at, *valid_until),
            token: change.token.map(|token| token.0),
        })
    }

    /// The same in a command's environment. What is `None` is not there.
    pub(super) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let Self { change, view, names, valid_until, .. } = self;
        let leader = view.leader();
        // What another member says of itself may hold what no environment can.
        let address = leader.and_then(|it| it.leader.address.clone());
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
            ("BELLWETHER_LEADER_ID", leader.map(|it| it.leader.id.to_string())),
            ("BELLWETHER_LEADER_ADDRESS", address),
            ("BELLWETHER_LEADER_TOKEN", leader.map(|it| it.ticket.token.to_string())),
        ]
    }
}

/// What a file says of this view.
pub(super) fn state(
    view: &View,
    names: &Names,
    index: u64,
    at: SystemTime,
    valid_until: Option<KernelTime>,
) -> String {
    json(&State::of(view, names, index, at, valid_until)) + "\n"
}

impl<'a> State<'a> {
    fn of(
        view: &'a View,
        names: &Names,
        index: u64,
        at: SystemTime,
        valid_until: Option<KernelTime>,
    ) -> Self {
        let is_self = view.own_term().is_some();
        let leader = view.leader().map(|leader| Leader::of(leader, &names.prefix));
        let at = humantime::format_rfc3339_millis(at).to_string();
        Self {
            leader,
            is_self,
            valid_until_boottime_ns: valid_until.map(|until| until.boottime_ns),
            valid_until_monotonic_ns: valid_until.map(|until| until.monotonic_ns),
            index: names.first_index + index,
            at,
        }
    }
}

impl<'a> Leader<'a> {
    fn of(announcement: &'a Announcement, prefix: &str) -> Self {
        let Announcement { leader, ticket, active } = announcement;
        Self {
            id: leader.id.as_str(),
            address: leader.address.as_deref(),
            labels: &leader.labels,
            znode: ticket.sequence.name(prefix),
            token: ticket.token.0,
            active: *active,
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it has nothing that JSON lacks")
}
