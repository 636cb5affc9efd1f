//! One election over one session: carries out the member's actions, and puts what happens to the session
//! and to the queue into the member's events.

mod news_age;
mod znode_data;

pub use znode_data::MemberData;
pub(crate) use znode_data::{decode, encode};

use self::news_age::NewsAge;
use super::client::{Session, SessionEvent, SessionSettings, UnclosedSession};
use super::queue::{Member, Queue, QueueEvent, QueueSettings, Reports};
use crate::clock::Clock;
use crate::config::Settings;
use crate::desk::{Entry, Link};
use ::zookeeper::Error;
use recipes::election::{Action, Announcement, Event, Profile, Sequence, Ticket};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

/// An election's session, and the member's place in its queue.
pub(crate) struct ElectionSession {
    session: Session,
    queue: Queue,
    heard: mpsc::UnboundedReceiver<Heard>,
    root: String,
    prefix: String,
    /// What our znode says of us, or will when it is created.
    profile: Arc<Profile>,
    news_age: NewsAge,
    link: watch::Sender<Link>,
    predecessor: Option<Ticket>,
    out_of_order: Option<Sequence>,
}

/// What the session and the queue tell, in one order.
enum Heard {
    Session(SessionEvent),
    Queue(QueueEvent),
}

/// Answers a request to read all members.
pub(crate) type Reading = oneshot::Receiver<Result<Vec<Member>, Error>>;

impl ElectionSession {
    pub(crate) fn open(
        settings: &Settings,
        session: SessionSettings,
        before: UnclosedSession,
        profile: Arc<Profile>,
        reports: Reports,
    ) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let tell_queue = tell.clone();
        let clock: Clock = session.clock;
        let news_age = NewsAge::measured_by(reports.meter.clone());
        let link = reports.link.clone();
        let session = Session::open(
            session,
            before,
            Box::new(move |event| {
                let _receiver_gone = tell.send(Heard::Session(event));
            }),
        );
        let queue = QueueSettings {
            root: settings.root.clone(),
            prefix: settings.prefix.clone(),
            acl: settings.zookeeper.security.acl,
            is_open_by_choice: settings.zookeeper.security.is_open_by_choice,
        };
        let queue = Queue::new(
            queue,
            session.handle(),
            reports,
            clock,
            Box::new(move |event| {
                let _receiver_gone = tell_queue.send(Heard::Queue(event));
            }),
        );
        Self {
            session,
            queue,
            heard,
            root: settings.root.clone(),
            prefix: settings.prefix.clone(),
            profile,
            news_age,
            link,
            predecessor: None,
            out_of_order: None,
        }
    }

    /// Begins what the member wants done in this session.
    pub(crate) fn perform(&mut self, action: Action) {
        match action {
            Action::OpenSession | Action::CloseSession => {
                unreachable!("the runner opens and closes sessions")
            }
            Action::DrawTicket(profile) => {
                self.profile = profile;
                self.queue.join(self.encode(None));
            }
            Action::ReadLine => self.queue.list(),
            Action::WatchPredecessor(predecessor) => self.queue.watch_predecessor(predecessor),
            Action::ReadHead { head, sent_at } => self.queue.read(head, sent_at),
            Action::PassOn { announcement, sent_at } | Action::Claim { announcement, sent_at } => {
                self.queue.write(self.encode(Some(&announcement)), Some(sent_at));
            }
            Action::Introduce { profile, says } => {
                self.profile = profile;
                self.queue.write(self.encode(says.as_ref()), None);
            }
            Action::Renew { sent_at } => self.queue.renew(sent_at),
        }
    }

    fn encode(&self, announcement: Option<&Announcement>) -> Vec<u8> {
        encode(&self.profile, announcement, &self.prefix)
    }

    /// Waits for the member's next event. May be dropped and called again: nothing is lost.
    pub(crate) async fn heard(&mut self) -> Event {
        loop {
            self.queue.reap();
            let heard = self.heard.recv().await.expect("the queue holds a sender");
            let event = match heard {
                Heard::Session(event) => Some(of_session(event)),
                Heard::Queue(event) => self.of_queue(event),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn of_queue(&mut self, event: QueueEvent) -> Option<Event> {
        Some(match event {
            QueueEvent::Joined(ticket) => Event::TicketDrawn(ticket),
            QueueEvent::TicketLost(ticket) => Event::TicketLost(ticket),
            QueueEvent::Listed(members) => Event::LineRead(members.into_iter().collect()),
            QueueEvent::PredecessorRead { predecessor, data, modified_ms } => {
                self.predecessor = Some(predecessor);
                let says = self.announcement(&data);
                if let Some(own) = says.as_ref().filter(|says| says.ticket == predecessor) {
                    self.news_age.leader_wrote(own, modified_ms);
                }
                Event::PredecessorRead { predecessor: predecessor.sequence, says }
            }
            QueueEvent::PredecessorGone { predecessor, token } => {
                self.predecessor = self.predecessor.filter(|watched| Some(watched.token) != token);
                Event::PredecessorGone(predecessor)
            }
            QueueEvent::MemberRead { member: head, data, modified_ms, sent_at } => {
                let says = self.announcement(&data).filter(|_| self.came_in_turn(head));
                if let Some(says) = &says {
                    self.news_age.leader_wrote(says, modified_ms);
                }
                Event::HeadRead { head, says, sent_at }
            }
            QueueEvent::MemberGone { member: head, sent_at } => Event::HeadGone { head, sent_at },
            QueueEvent::Written { data, created_ms, modified_ms, sent_at } => {
                if let Some(announcement) = self.announcement(&data) {
                    self.news_age.we_wrote(announcement, created_ms, modified_ms);
                }
                Event::Committed { sent_at: sent_at? }
            }
            QueueEvent::Renewed { sent_at } => Event::Committed { sent_at },
            QueueEvent::Unusable => Event::SessionLost,
        })
    }

    fn announcement(&self, data: &[u8]) -> Option<Announcement> {
        decode(data, &self.prefix)?.announcement
    }

    /// Numbers and tokens grow together, unless a znode was made by hand with a number of its maker's
    /// choice. Which of two that is cannot be told; so what the head says is not believed.
    fn came_in_turn(&mut self, head: Ticket) -> bool {
        let other = self
            .predecessor
            .filter(|other| other.sequence > head.sequence && other.token < head.token);
        let Some(other) = other else {
            self.out_of_order = None;
            return true;
        };
        let path = |ticket: Ticket| format!("{}/{}", self.root, ticket.sequence.name(&self.prefix));
        let (first, other) = (path(head), path(other));
        let problem = format!(
            "{first} stands ahead of {other} and was created after it: one of them was made by hand, and \
             who leads cannot be told. Delete it"
        );
        if self.out_of_order.replace(head.sequence) != Some(head.sequence) {
            warn!("{problem}");
        }
        self.link.send_modify(|link| link.problem = Some(problem));
        false
    }

    /// Reads the znodes of all members.
    pub(crate) fn read_members(&mut self) -> Reading {
        let (answer, reading) = oneshot::channel();
        self.queue.read_all(answer);
        reading
    }

    /// Ends the session now rather than when the servers would expire it, and with it our znode. Returns
    /// the session if it may live on.
    pub(crate) async fn close(mut self) -> UnclosedSession {
        self.queue.end_requests().await;
        let closing = self.session.close().await;
        self.queue.end_watches().await;
        closing.await
    }
}

fn of_session(event: SessionEvent) -> Event {
    match event {
        SessionEvent::Opened { session, timeout, sent_at } => {
            Event::SessionOpened { session, timeout, sent_at }
        }
        SessionEvent::Disconnected => Event::Disconnected,
        SessionEvent::Resumed { timeout, sent_at } => Event::SessionResumed { timeout, sent_at },
        SessionEvent::Lost => Event::SessionLost,
    }
}

/// Returns a member as it is published.
pub(crate) fn entry(Member { ticket, data }: Member, prefix: &str) -> Entry {
    match decode(&data, prefix) {
        Some(MemberData { profile, announcement, version }) => {
            Entry { ticket, profile: Some(profile), names: announcement, version }
        }
        None => Entry { ticket, profile: None, names: None, version: None },
    }
}
