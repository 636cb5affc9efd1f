//! The queue of an election, as `GET /members` and `bellwether inspect` show it.

use crate::api::{self, Members, QueueMember, Standby};
use crate::status::QueueReading;
use crate::znode_names::ZnodeNames;
use recipes::Ticket;
use std::collections::BTreeMap;

/// Returns the members of the queue, and their problems, one sentence each. `leader` is the ticket of the leader, if one is
/// known, and `own` that of this process's member.
pub fn members(
    queue: &QueueReading,
    leader: Option<Ticket>,
    own: Option<Ticket>,
    znodes: &ZnodeNames,
) -> Members {
    let entries = &queue.members;
    // The member that leads next is right behind the leader, or, if the queue has no known leader, right behind the head.
    // The leader need not be at position 0, because an unknown znode may be ahead of it.
    let next = entries.iter().position(|entry| Some(entry.ticket) == leader).unwrap_or(0) + 1;
    // In another client's queue, the znodes do not say whether a standby is ready.
    let has_readiness = znodes.family().is_none();
    let mut members = vec![];
    let mut problems = vec![];
    let mut count_by_id = BTreeMap::<_, usize>::new();
    for (position, entry) in entries.iter().enumerate() {
        let is_standby = position == next && has_readiness;
        let znode = znodes.name(entry.ticket.sequence);
        let announcement = entry.announcement.as_ref();
        let profile = entry.profile.as_ref();
        if let Some(profile) = profile {
            let id = &profile.id;
            *count_by_id.entry(id).or_default() += 1;
            if leader.is_some() && announcement.map(|announced| announced.ticket) != leader {
                problems.push(format!("{id} does not name the leader yet"));
            }
            if is_standby && !entry.ready {
                problems.push(format!("{id} is next, and not ready: it would have to claim first"));
            }
            if entry.state.unhealthy {
                problems.push(format!("the application of {id} is not healthy"));
            }
            match entry.state.hooks_failing {
                0 => {}
                1 => problems.push(format!("a hook of {id} fails")),
                failing => problems.push(format!("{failing} hooks of {id} fail")),
            }
        } else {
            problems.push(format!("{znode} does not say whose it is: another client made it"));
        }
        members.push(QueueMember {
            id: profile.map(|profile| profile.id.to_string()),
            znode,
            sequence: entry.ticket.sequence.number(),
            address: profile.and_then(|profile| profile.address.clone()),
            labels: profile.map(|profile| profile.labels.clone()).unwrap_or_default(),
            is_leader: leader == Some(entry.ticket),
            is_self: own == Some(entry.ticket),
            standby: is_standby.then_some(Standby { ready: entry.ready }),
            names: announcement.map(|announced| announced.leader.id.to_string()),
            version: entry.version.clone(),
            priority: entry.priority.number(),
            since: Some(api::date(entry.created_at)),
            unhealthy: entry.state.unhealthy,
            hooks_failing: entry.state.hooks_failing,
            token: entry.ticket.token.0,
            session: entry.session.to_string(),
        });
    }
    let duplicates = count_by_id.into_iter().filter(|(_, count)| *count > 1).map(|(id, count)| {
        format!(
            "{count} members have the id {id}: give each its own (member.id), unless one of them is an earlier life (process) \
             whose session has not ended yet"
        )
    });
    let problems = duplicates.chain(problems).collect();
    Members { members, problems, index: queue.index }
}
