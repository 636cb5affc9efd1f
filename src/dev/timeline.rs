//! Turns the members' answers about the leader into lines to print.

use crate::api::LeaderState;
use recipes::Moment;
use std::time::Duration;

/// The leader that was printed last, and the event that ended its term.
#[derive(Default)]
pub(super) struct Timeline {
    /// The id of the leader; `None` if no member leads.
    leader: Option<String>,
    /// The fencing token of the latest leader. Tokens grow from leader to leader, so an answer with a lower token is
    /// outdated.
    token: u64,
    /// The event that ended the leader's term, and when it happened.
    cause: Option<(Moment, String)>,
}

impl Timeline {
    pub(super) fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    /// Notes an event that happened to `member`, if that is the leader. The line about the next leader ends with this
    /// event: the id of `member`, and then `what`.
    pub(super) fn note_event(&mut self, now: Moment, member: &str, what: &str) {
        if self.leader() == Some(member) {
            self.cause = Some((now, format!("{member} {what}")));
        }
    }

    /// Notes that the process of `member` has ended, so that it no longer leads.
    pub(super) fn note_end(&mut self, now: Moment, member: &str) {
        self.note_event(now, member, "ended");
        self.leader = self.leader.take().filter(|leader| leader != member);
    }

    /// Handles the answer of `member` about the leader, and returns a line to print if the leader has changed.
    pub(super) fn note_answer(
        &mut self,
        now: Moment,
        member: &str,
        answer: Option<&LeaderState>,
    ) -> Option<String> {
        let is_self = answer.is_some_and(|answer| answer.is_self);
        let leader = answer.and_then(|answer| answer.leader.as_ref());
        match leader {
            Some(leader) if leader.token > self.token => {
                self.leader = Some(leader.id.clone());
                self.token = leader.token;
                // The leader may have been started by somebody else, with any id, so escape the id.
                let id = leader.id.escape_debug();
                let mut line = format!("{id} leads, fencing token {}", leader.token);
                if let Some((at, cause)) = self.cause.take() {
                    line += &format!(", {:?} after {cause}", in_ms(now.since(at)));
                }
                Some(line)
            }
            // The latest leader reported that it does not lead, and now leads again in the same term.
            Some(leader) if is_self && self.leader.is_none() && leader.token == self.token => {
                self.leader = Some(leader.id.clone());
                Some(format!("{member} leads again"))
            }
            // Only the leader's own answer shows that it leads no longer.
            Some(_) | None if !is_self && self.leader() == Some(member) => {
                self.leader = None;
                Some(format!("{member} leads no longer"))
            }
            Some(_) | None => None,
        }
    }
}

/// Rounds down to milliseconds.
fn in_ms(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Leader;
    use std::collections::BTreeMap;

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn naming(id: &str, token: u64, is_self: bool) -> LeaderState {
        let znode = format!("leader_{token}");
        let address = None;
        let labels = BTreeMap::new();
        let leader = Leader { id: id.into(), address, labels, znode, token };
        LeaderState {
            leader: Some(leader),
            is_self,
            valid_for_ms: None,
            valid_until_boottime_ns: None,
            valid_until_monotonic_ns: None,
            index: Some(1),
        }
    }

    #[test]
    fn each_leader_is_printed_once_and_with_what_befell_the_one_before() {
        let mut timeline = Timeline::default();
        let line = timeline.note_answer(at(0), "a", Some(&naming("a", 4, true)));
        assert_eq!(line.as_deref(), Some("a leads, fencing token 4"));
        assert_eq!(timeline.note_answer(at(1), "b", Some(&naming("a", 4, false))), None);
        timeline.note_event(at(2), "b", "was killed");
        timeline.note_end(at(1000), "a");
        assert_eq!(timeline.leader(), None);
        let line = timeline.note_answer(at(4123), "c", Some(&naming("b", 9, false)));
        assert_eq!(line.as_deref(), Some("b leads, fencing token 9, 3.123s after a ended"));
        assert_eq!(timeline.note_answer(at(4124), "b", Some(&naming("b", 9, true))), None);
        assert_eq!(timeline.leader(), Some("b"));
    }

    #[test]
    fn a_member_that_is_behind_changes_nothing() {
        let mut timeline = Timeline::default();
        timeline.note_answer(at(0), "b", Some(&naming("b", 9, true)));
        assert_eq!(timeline.note_answer(at(1), "a", Some(&naming("a", 4, false))), None);
        assert_eq!(timeline.note_answer(at(1), "a", None), None);
        assert_eq!(timeline.leader(), Some("b"));
    }

    #[test]
    fn a_leader_loses_its_leadership_only_by_its_own_answer_and_may_lead_again() {
        let mut timeline = Timeline::default();
        timeline.note_answer(at(0), "a", Some(&naming("a", 4, true)));
        let line = timeline.note_answer(at(1), "a", None);
        assert_eq!(line.as_deref(), Some("a leads no longer"));
        let line = timeline.note_answer(at(2), "a", Some(&naming("a", 4, true)));
        assert_eq!(line.as_deref(), Some("a leads again"));
    }

    #[test]
    fn control_characters_in_a_members_id_are_escaped() {
        let line =
            Timeline::default().note_answer(at(0), "a", Some(&naming("\u{1b}[2J", 4, false)));
        assert_eq!(line.as_deref(), Some("\\u{1b}[2J leads, fencing token 4"));
    }
}
