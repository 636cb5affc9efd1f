//! Other clients' elections in the inspected path: their contenders, and the leader by each client's own rule.

use super::inspect::{age, age_ms};
use super::table::{Cell, table};
use super::views::{BAD, ODD, PLAIN};
use crate::zookeeper::{Election, Znode};
use recipes::{First, ForeignClient};
use serde::Serialize;
use std::time::SystemTime;

/// Another client's election.
#[derive(Serialize)]
pub(super) struct ForeignElection<'a> {
    pub(super) family: &'static str,
    /// The client, for people.
    client: String,
    /// The znode that leads by the client's rule; null if none of its contenders leads.
    leader: Option<&'a str>,
    /// The name that the leader gives itself.
    leader_id: Option<&'a str>,
    /// A znode whose name the client cannot parse, so that its calls fail.
    fails_on: Option<&'a str>,
    /// The contenders, in the order of their numbers.
    contenders: Vec<ForeignContender<'a>>,
}

#[derive(Serialize)]
struct ForeignContender<'a> {
    znode: &'a str,
    number: i32,
    session: Option<String>,
    age_ms: u64,
    /// The name that the contender gives itself; null if it gives none, or if its data cannot be read.
    id: Option<&'a str>,
}

impl<'a> ForeignElection<'a> {
    /// Returns the elections of all clients that have contenders in the path.
    pub(super) fn all(election: &'a Election, now: SystemTime) -> Vec<Self> {
        ForeignClient::ALL
            .into_iter()
            .filter_map(|family| Self::of(family, election, now))
            .collect()
    }

    fn of(family: ForeignClient, election: &'a Election, now: SystemTime) -> Option<Self> {
        let Election { znodes, claim, .. } = election;
        let mut contenders: Vec<_> =
            znodes.iter().filter_map(|znode| ForeignContender::of(znode, family, now)).collect();
        contenders.sort_by_key(|contender| contender.number);
        if contenders.is_empty() {
            return None;
        }
        // The client ranks every znode in the path. That includes the claim, unless its name is a full path elsewhere.
        let claim = claim.iter().filter(|claim| !claim.name.starts_with('/'));
        let names = znodes.iter().chain(claim).map(|znode| &*znode.name);
        let (leader, fails_on) = match family.first(names) {
            First::Znode(first) => {
                (contenders.iter().find(|contender| contender.znode == first), None)
            }
            First::Fails(name) => (None, Some(name)),
            First::None => (None, None),
        };
        Some(Self {
            family: family.name(),
            client: family.to_string(),
            leader: leader.map(|leader| leader.znode),
            leader_id: leader.and_then(|leader| leader.id),
            fails_on,
            contenders,
        })
    }

    /// Describes who leads by the client's rule.
    pub(super) fn verdict(&self) -> String {
        let Self { client, leader, leader_id, fails_on, .. } = self;
        match (leader_id.or(*leader), fails_on) {
            (Some(leader), _) => format!("by {client}, {leader} leads"),
            (None, Some(name)) => format!("{client} fails on the name {name}"),
            (None, None) => format!("by {client}, none leads, as it ranks another's znode first"),
        }
    }

    /// Shows the contenders of all these elections in a single table.
    pub(super) fn shown(elections: &[Self]) -> String {
        let rows = elections.iter().flat_map(|election| {
            election.contenders.iter().map(move |contender| election.row(contender))
        });
        table(&["FOREIGN ID", "IS", "BY", "ZNODE", "AGE"], rows)
    }

    fn row(&self, contender: &ForeignContender<'_>) -> Vec<Cell> {
        let leads = self.leader == Some(contender.znode);
        let (is, style) = if leads { ("leader", BAD) } else { ("contender", PLAIN) };
        let id = contender.id.map_or_else(|| Cell::new("(no id)").style(ODD), Cell::new);
        let client = Cell::new(&self.client);
        let age = Cell::new(&age(contender.age_ms));
        vec![id, Cell::new(is).style(style), client, Cell::new(contender.znode), age]
    }
}

impl<'a> ForeignContender<'a> {
    /// Returns the contender, if the znode is one of this client's.
    fn of(znode: &'a Znode, family: ForeignClient, now: SystemTime) -> Option<Self> {
        let foreign = znode.foreign.as_ref().filter(|foreign| foreign.family == family)?;
        let session = znode.session.map(|session| session.to_string());
        let number = foreign.number;
        let id = foreign.id.as_deref();
        Some(Self { znode: &znode.name, number, session, age_ms: age_ms(znode, now), id })
    }
}
