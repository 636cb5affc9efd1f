//! The promises of a runner to the core, which the crate `recipes` lists, as far as a log shows whether they were kept.

use recipes::election::{Action, Event};
use recipes::{Moment, Sequence, SessionEvent};
use std::collections::BTreeSet;

/// The requests of the core that an event may still answer.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// True while a session is requested and not opened.
    is_opening: bool,
    session: Option<SessionRequests>,
    stopped: bool,
}

/// The requests of the core in the current session.
#[derive(Debug, Default)]
struct SessionRequests {
    joins: bool,
    finds_ticket: bool,
    reads_queue: bool,
    reads_priorities: bool,
    watched: BTreeSet<Sequence>,
    heads: BTreeSet<Sequence>,
    targets: BTreeSet<Sequence>,
    /// The send times of unanswered writes. If the clock is coarse, two writes may have the same time.
    writes: Vec<Moment>,
}

impl Promises {
    /// Notes the requests in these actions.
    pub(super) fn note(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::OpenSession => {
                    self.is_opening = true;
                    self.session = None;
                }
                Action::CloseSession => {
                    self.is_opening = false;
                    self.session = None;
                }
                other => self.session.get_or_insert_default().note(other),
            }
        }
    }

    /// Checks an event that was delivered at this moment.
    pub(super) fn check(
        &mut self,
        event: &Event,
        at: Moment,
        wake_at: Option<Moment>,
    ) -> Result<(), &'static str> {
        if std::mem::replace(&mut self.stopped, *event == Event::Stop) {
            return Err("an event after the member was told to stop");
        }
        match event {
            Event::Woke if wake_at.is_none_or(|due| at < due) => {
                return Err("it woke before the moment that the core asked for");
            }
            Event::Woke | Event::Command(_) | Event::Stop => return Ok(()),
            Event::Session(
                SessionEvent::Opened { sent_at, .. } | SessionEvent::TakenOver { sent_at, .. },
            ) => {
                if !std::mem::take(&mut self.is_opening) {
                    return Err("a session that was not asked for");
                }
                self.session = Some(SessionRequests::default());
                return unless_later(*sent_at, at);
            }
            // A session may be lost before it is opened.
            Event::Session(SessionEvent::Lost) if self.is_opening => return Ok(()),
            _ => {}
        }
        let Some(session) = &mut self.session else {
            return Err("an event of a session, and there is none");
        };
        session.check(event, at)
    }
}

impl SessionRequests {
    fn note(&mut self, action: &Action) {
        match action {
            Action::OpenSession | Action::CloseSession => {}
            Action::Join(_) => self.joins = true,
            Action::FindTicket => self.finds_ticket = true,
            Action::ReadQueue => self.reads_queue = true,
            Action::WatchPredecessor(predecessor) => {
                self.watched.insert(*predecessor);
            }
            Action::ReadHead { head, .. } => {
                self.heads.insert(*head);
            }
            Action::ReadTarget(target) => {
                self.targets.insert(*target);
            }
            Action::ReadPriorities => self.reads_priorities = true,
            Action::Relay { sent_at: Some(sent_at), .. }
            | Action::Claim { sent_at, .. }
            | Action::Renew { sent_at, ahead: None } => {
                self.writes.push(*sent_at);
            }
            Action::Renew { sent_at, ahead: Some(ahead) } => {
                self.writes.push(*sent_at);
                self.heads.insert(*ahead);
            }
            Action::Relay { sent_at: None, .. } | Action::Update(_) => {}
        }
    }

    fn check(&mut self, event: &Event, at: Moment) -> Result<(), &'static str> {
        let was_asked_for = match event {
            Event::Session(SessionEvent::Resumed { sent_at, .. }) => {
                return unless_later(*sent_at, at);
            }
            Event::Joined(_) => std::mem::take(&mut self.joins),
            Event::TicketFound { .. } | Event::NoTicketFound => {
                std::mem::take(&mut self.finds_ticket)
            }
            Event::QueueRead(_) => self.reads_queue,
            Event::PredecessorRead { predecessor, .. } => {
                self.watched.contains(&predecessor.sequence)
            }
            Event::PredecessorGone { predecessor, .. } => self.watched.contains(predecessor),
            Event::HeadRead { head, sent_at, .. } => {
                unless_later(*sent_at, at)?;
                self.is_read(head.sequence)
            }
            Event::HeadGone { head, sent_at } => {
                unless_later(*sent_at, at)?;
                self.is_read(*head)
            }
            Event::TargetRead { target, .. } | Event::TargetGone { target } => {
                self.targets.contains(target)
            }
            Event::PrioritiesRead(_) => self.reads_priorities,
            Event::Committed { sent_at } | Event::ClaimRefused { sent_at, .. } => {
                unless_later(*sent_at, at)?;
                let answered = self.writes.iter().position(|write| write == sent_at);
                answered.map(|at| self.writes.remove(at)).is_some()
            }
            _ => true,
        };
        if was_asked_for { Ok(()) } else { Err("an answer to what was not asked in this session") }
    }

    /// Returns true if a read of this znode was requested. If the core gave up a target, the answer about it is
    /// delivered as an answer about a head.
    fn is_read(&self, head: Sequence) -> bool {
        self.heads.contains(&head) || self.targets.contains(&head)
    }
}

fn unless_later(sent_at: Moment, at: Moment) -> Result<(), &'static str> {
    if sent_at <= at { Ok(()) } else { Err("an answer to what is sent later") }
}
