//! What there is to tell, from what was told last to what is so now. Pure.

use crate::config::Occasion;
use recipes::election::{Announcement, FencingToken, Role};

/// Who leads, as far as this member may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Nobody is known to.
    Nobody,
    Other(Announcement),
    Us(Announcement),
}

/// One thing to tell, with who leads from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) occasion: Occasion,
    pub(super) view: View,
    /// Of the term that this is about.
    pub(super) token: Option<FencingToken>,
}

impl View {
    pub(super) fn of(role: Role) -> Self {
        match role {
            Role::Leader { announcement, .. } => Self::Us(announcement),
            Role::Follower { heard: Some(heard) } => Self::Other(heard),
            Role::Follower { heard: None } | Role::Candidate | Role::Absent => Self::Nobody,
        }
    }

    pub(super) fn leader(&self) -> Option<&Announcement> {
        match self {
            Self::Nobody => None,
            Self::Other(leader) | Self::Us(leader) => Some(leader),
        }
    }

    /// The term in which this member leads.
    pub(super) fn own_term(&self) -> Option<FencingToken> {
        match self {
            Self::Us(us) => Some(us.ticket.token),
            Self::Nobody | Self::Other(_) => None,
        }
    }
}

/// The next thing to tell to whoever was told this last; ask again from the view it leads to.
///
/// What came and went in between is left out, but never that this member's term has ended, nor what
/// came after it.
pub(super) fn next(told: &View, now: &View) -> Option<Change> {
    let change =
        |occasion, view: &View, token| Some(Change { occasion, view: view.clone(), token });
    match (told, now) {
        _ if told == now => None,
        (View::Us(_), _) if told.own_term() != now.own_term() => {
            change(Occasion::LostLeadership, &View::Nobody, told.own_term())
        }
        (View::Nobody | View::Other(_), View::Us(us)) => {
            change(Occasion::BecameLeader, now, Some(us.ticket.token))
        }
        (_, View::Other(leader) | View::Us(leader)) => {
            change(Occasion::LeaderChanged, now, Some(leader.ticket.token))
        }
        (_, View::Nobody) => change(Occasion::LeaderLost, now, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{MemberId, Profile, Sequence, Ticket};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn announcement(id: &str, token: u64, revision: u64) -> Announcement {
        let id = MemberId::new(id).unwrap();
        let leader = Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision });
        let ticket = Ticket { sequence: Sequence::new(1).unwrap(), token: FencingToken(token) };
        Announcement { leader, ticket, active: true }
    }

    fn us(token: u64) -> View {
        View::Us(announcement("us", token, 0))
    }

    fn other(id: &str, token: u64) -> View {
        View::Other(announcement(id, token, 0))
    }

    /// In the words of the configuration, with the token of each.
    fn changes(told: &View, now: &View) -> Vec<(&'static str, Option<u64>)> {
        let mut told = told.clone();
        let mut changes = vec![];
        while let Some(change) = next(&told, now) {
            changes.push((change.occasion.name(), change.token.map(|token| token.0)));
            told = change.view;
        }
        assert_eq!(&told, now);
        changes
    }

    #[test]
    fn each_step_has_the_name_of_its_event() {
        let b = other("b", 4);
        assert_eq!(changes(&View::Nobody, &View::Nobody), []);
        assert_eq!(changes(&View::Nobody, &b), [("leader-changed", Some(4))]);
        assert_eq!(changes(&b, &other("c", 5)), [("leader-changed", Some(5))]);
        assert_eq!(changes(&b, &View::Nobody), [("leader-lost", None)]);
        assert_eq!(changes(&b, &us(7)), [("became-leader", Some(7))]);
        assert_eq!(changes(&View::Nobody, &us(7)), [("became-leader", Some(7))]);
        assert_eq!(changes(&us(7), &View::Nobody), [("lost-leadership", Some(7))]);
    }

    #[test]
    fn another_address_of_the_same_leader_is_a_change() {
        let moved = View::Us(announcement("us", 7, 1));
        assert_eq!(changes(&us(7), &moved), [("leader-changed", Some(7))]);
        let moved = View::Other(announcement("b", 4, 1));
        assert_eq!(changes(&other("b", 4), &moved), [("leader-changed", Some(4))]);
    }

    #[test]
    fn a_term_that_came_and_went_is_not_told() {
        let b = other("b", 4);
        assert_eq!(changes(&b, &b), [], "whatever was between");
        assert_eq!(changes(&b, &other("c", 9)), [("leader-changed", Some(9))]);
    }

    #[test]
    fn the_end_of_a_term_that_was_told_is_told_whatever_came_after_it() {
        let lost = ("lost-leadership", Some(7));
        assert_eq!(changes(&us(7), &us(9)), [lost, ("became-leader", Some(9))]);
        assert_eq!(changes(&us(7), &other("b", 8)), [lost, ("leader-changed", Some(8))]);
    }
}
