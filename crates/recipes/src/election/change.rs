//! Changes of the known leader, computed in one place for everything that publishes them.

use super::Role;
use crate::FencingToken;

/// A kind of change; its name is the same in events, hooks, logs and the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// This member has become the leader.
    BecameLeader,
    /// A term of this member has ended.
    LostLeadership,
    /// Another member leads, or the leader's profile has changed.
    LeaderChanged,
    /// No leader is known after another member led.
    LeaderLost,
}

/// A change of the leader or of its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: ChangeKind,
    /// The token of the term that the change is about: for `LostLeadership`, this member's own term, which has ended.
    /// `None` for `LeaderLost`: no leader is known now.
    pub token: Option<FencingToken>,
    /// The member's role after the change.
    pub role: Role,
}

/// Returns the changes of the leader from `before`, the role that was published last, to `current`, the present role of
/// this member; empty if both report the same leader.
///
/// Changes that were undone in between are left out. The end of this member's own term is always reported, and so is a
/// leader after it, even if that is this member again. The last change leads to `current`.
pub fn changes(before: &Role, current: &Role) -> Vec<Change> {
    let mut changes = vec![];
    let has_lost_term = before.own_term().is_some() && before.own_term() != current.own_term();
    if has_lost_term {
        // If a leader is known now, this member's znode is gone: while it existed, no other term could begin. So after its
        // term, the member was out of the queue, with the role `Absent`. The change to the known leader follows.
        let role = if current.leader().is_none() { current.clone() } else { Role::Absent };
        changes.push(Change { kind: ChangeKind::LostLeadership, token: before.own_term(), role });
    }
    // The loss is reported already, so the next change starts without a leader.
    let before = if has_lost_term { &Role::Absent } else { before };
    if before.has_same_leader(current) {
        return changes;
    }
    let kind = match (current.leader(), current.own_term()) {
        (None, _) => ChangeKind::LeaderLost,
        (Some(_), Some(_)) if before.own_term().is_none() => ChangeKind::BecameLeader,
        // If this member leads, only its profile has changed, since the term is the same.
        (Some(_), _) => ChangeKind::LeaderChanged,
    };
    let token = current.leader().map(|leader| leader.ticket.token);
    changes.push(Change { kind, token, role: current.clone() });
    changes
}

impl ChangeKind {
    pub const ALL: [Self; 4] =
        [Self::BecameLeader, Self::LostLeadership, Self::LeaderChanged, Self::LeaderLost];

    /// Returns the name for events, hooks, logs and the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::BecameLeader => "became-leader",
            Self::LostLeadership => "lost-leadership",
            Self::LeaderChanged => "leader-changed",
            Self::LeaderLost => "leader-lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{Announcement, Profile};
    use crate::{MemberId, Sequence, Ticket};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn each_transition_has_its_changes_with_token_and_role() {
        let candidate = Role::Candidate;
        let absent = Role::Absent;
        let alone = Role::Follower { leader: None };
        let lost_4 = "lost-leadership 4 absent";
        for (before, now, expected) in [
            (absent.clone(), absent.clone(), vec![]),
            (absent.clone(), candidate.clone(), vec![]),
            (candidate.clone(), alone.clone(), vec![]),
            (absent.clone(), this(4), vec!["became-leader 4 leader"]),
            (other("b", 3), this(4), vec!["became-leader 4 leader"]),
            (this(4), this(4), vec![]),
            (this(4), with(this(4), 1), vec!["leader-changed 4 leader"]),
            (this(4), candidate.clone(), vec!["lost-leadership 4 candidate"]),
            (this(4), alone.clone(), vec!["lost-leadership 4 follower"]),
            (this(4), absent.clone(), vec![lost_4]),
            (this(4), this(5), vec![lost_4, "became-leader 5 leader"]),
            (this(4), other("b", 5), vec![lost_4, "leader-changed 5 follower"]),
            (absent.clone(), other("b", 5), vec!["leader-changed 5 follower"]),
            (other("b", 5), other("b", 5), vec![]),
            (other("b", 5), with(other("b", 5), 1), vec!["leader-changed 5 follower"]),
            (other("b", 5), other("c", 6), vec!["leader-changed 6 follower"]),
            (other("b", 5), other("b", 6), vec!["leader-changed 6 follower"]),
            (other("b", 5), alone, vec!["leader-lost - follower"]),
            (other("b", 5), candidate, vec!["leader-lost - candidate"]),
            (other("b", 5), absent, vec!["leader-lost - absent"]),
        ] {
            let found = changes(&before, &now);
            let words: Vec<_> = found.iter().map(words).collect();
            assert_eq!(words, expected, "{before:?}, then {now:?}");
            let end = found.last().map_or(&before, |last| &last.role);
            assert!(end.has_same_leader(&now), "the last change leads to the present role");
            if let Some((first, rest)) = found.split_first() {
                assert_eq!(changes(&first.role, &now), rest, "one at a time, or all at once");
            }
        }
    }

    #[test]
    fn a_longer_lease_is_no_change() {
        let Role::Leader { announcement, .. } = this(4) else { unreachable!() };
        let renewed = Role::Leader { announcement, left: Duration::from_secs(9) };
        assert_eq!(changes(&this(4), &renewed), []);
    }

    fn words(change: &Change) -> String {
        let token = change.token.map_or_else(|| "-".into(), |token| token.to_string());
        format!("{} {token} {}", change.kind.name(), change.role.name())
    }

    fn this(token: u64) -> Role {
        let left = Duration::from_secs(1);
        Role::Leader { announcement: announcement("a", token), left }
    }

    fn other(id: &str, token: u64) -> Role {
        Role::Follower { leader: Some(announcement(id, token)) }
    }

    fn with(mut role: Role, revision: u64) -> Role {
        if let Role::Leader { announcement, .. } | Role::Follower { leader: Some(announcement) } =
            &mut role
        {
            Arc::make_mut(&mut announcement.leader).revision = revision;
        }
        role
    }

    fn announcement(id: &str, token: u64) -> Announcement {
        let id = MemberId::new(id).unwrap();
        let leader = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision: 0 });
        let ticket = Ticket { sequence: Sequence::new(1).unwrap(), token: FencingToken(token) };
        Announcement { leader, ticket }
    }
}
