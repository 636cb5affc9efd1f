//! One election over one session: carries out the member's actions, and puts what happens to the session
//! and to the queue into the member's events.

mod news_age;
mod znode_data;

pub use znode_data::MemberData;
pub(crate) use znode_data::{decode, encode};

use self::news_age::NewsAge;
use super::client::{Session, SessionEvent, SessionSettings, UnclosedSession};
use super::queue::{ClaimHolder, Member, Queue, QueueEvent, QueueSettings, Reports};
use crate::clock::Clock;
use crate::config::Settings;
use crate::status::{Entry, OwnState};
use ::zookeeper::Error;
use recipes::election::{Action, Announcement, Event, Offer, ZnodeData};
use recipes::{Holder, MemberId, Sequence, Ticket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};

/// An election's session, and the member's place in its queue.
pub(crate) struct ElectionSession {
    session: Session,
    queue: Queue,
    events: mpsc::UnboundedReceiver<SourceEvent>,
    prefix: String,
    clock: Clock,
    news_age: NewsAge,
    /// What its heir's znode says is to be told of a transfer, and not of the head.
    heir: Option<Sequence>,
    /// The predecessor's offer, to be told behind what it announces.
    offer: Option<Offer>,
    /// The predecessor as it was last read, and its member's id.
    predecessor: Option<(Ticket, MemberId)>,
    /// What the own znode is to say of the member.
    state: OwnState,
    own_znode: OwnZnode,
}

/// The own znode, as far as its data is known that was written last, or is to be.
#[derive(Default)]
struct OwnZnode {
    data: Option<ZnodeData>,
    state: OwnState,
    /// Whether it can be written to.
    stands: bool,
}

/// An event of the session or of the queue: both come over one channel, which keeps their order.
enum SourceEvent {
    Session(SessionEvent),
    Queue(QueueEvent),
}

/// The receiver of the answer to a request to read all members.
pub(crate) type Reading = oneshot::Receiver<Result<Vec<Member>, Error>>;

impl ElectionSession {
    pub(crate) fn open(
        settings: &Settings,
        session: SessionSettings,
        before: UnclosedSession,
        reports: Reports,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let queue_sender = sender.clone();
        let clock: Clock = session.clock;
        let news_age = NewsAge::measured_by(reports.meter.clone());
        let session = Session::open(
            session,
            before,
            Box::new(move |event| {
                let _receiver_gone = sender.send(SourceEvent::Session(event));
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
                let _receiver_gone = queue_sender.send(SourceEvent::Queue(event));
            }),
        );
        let prefix = settings.prefix.clone();
        Self {
            session,
            queue,
            events,
            prefix,
            clock,
            news_age,
            heir: None,
            offer: None,
            predecessor: None,
            state: OwnState::default(),
            own_znode: OwnZnode::default(),
        }
    }

    /// Has the own znode say this of the member from now on.
    pub(crate) fn tell(&mut self, state: OwnState) {
        self.state = state;
        self.tell_if_news();
    }

    fn tell_if_news(&mut self) {
        let OwnZnode { data: Some(data), state, stands: true } = &self.own_znode else { return };
        if *state != self.state {
            let data = data.clone();
            let written = self.encode(&data);
            self.queue.write(written, None);
        }
    }

    /// Begins what the member wants done in this session.
    pub(crate) fn perform(&mut self, action: Action) {
        match action {
            Action::OpenSession | Action::CloseSession => {
                unreachable!("the runner opens and closes sessions")
            }
            Action::Join(data) => {
                // What was told was of the place before.
                (self.state, self.own_znode.stands) = (OwnState::default(), false);
                let data = self.encode(&data);
                self.queue.join(data);
            }
            Action::FindTicket => self.queue.find(),
            Action::ReadQueue => self.queue.list(),
            Action::WatchPredecessor(predecessor) => self.queue.watch_predecessor(predecessor),
            Action::ReadHead { head, prove, sent_at } => self.queue.read(head, prove, sent_at),
            Action::ReadHeir(heir) => {
                self.heir = Some(heir);
                self.queue.read(heir, false, self.clock.now());
            }
            Action::Relay { data, sent_at } => {
                let data = self.encode(&data);
                self.queue.write(data, sent_at);
            }
            Action::Claim { data, sent_at } => {
                let data = self.encode(&data);
                self.queue.claim(data, sent_at);
            }
            Action::Update(data) => {
                let data = self.encode(&data);
                self.queue.write(data, None);
            }
            Action::Renew { predecessor, sent_at } => self.queue.renew(predecessor, sent_at),
        }
    }

    /// Returns what is to be written, and notes it.
    fn encode(&mut self, data: &ZnodeData) -> Vec<u8> {
        self.own_znode.state = self.state;
        self.own_znode.data = Some(data.clone());
        encode(data, self.state, &self.prefix)
    }

    /// Waits for the member's next event. May be dropped and called again: nothing is lost.
    pub(crate) async fn heard(&mut self) -> Event {
        loop {
            self.queue.reap();
            if let Some(offer) = self.offer.take() {
                return Event::OfferRead(offer);
            }
            let received = self.events.recv().await.expect("the queue holds a sender");
            let event = match received {
                SourceEvent::Session(event) => Some(of_session(event)),
                SourceEvent::Queue(event) => self.of_queue(event),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn of_queue(&mut self, event: QueueEvent) -> Option<Event> {
        Some(match event {
            QueueEvent::Joined(ticket) => {
                self.own_znode.stands = true;
                self.tell_if_news();
                Event::Joined(ticket)
            }
            QueueEvent::TicketLost(ticket) => {
                self.own_znode.stands = false;
                Event::TicketLost(ticket)
            }
            QueueEvent::Found { ticket, data } => {
                let state = decode(&data, &self.prefix).map(|it| it.state).unwrap_or_default();
                let data = self.own_data(&data);
                self.own_znode = OwnZnode { data: data.clone(), state, stands: true };
                self.tell_if_news();
                Event::TicketFound { ticket, data }
            }
            QueueEvent::NoneFound => Event::NoTicketFound,
            QueueEvent::Listed { number, .. } if !self.queue.is_last_listing(number) => {
                return None;
            }
            QueueEvent::Listed { members, .. } => Event::QueueRead(members.into_iter().collect()),
            QueueEvent::ForeignListed(names) => {
                self.queue.read_foreign(names);
                return None;
            }
            QueueEvent::PredecessorRead { predecessor, data, modified_ms } => {
                let data = decode(&data, &self.prefix);
                self.predecessor = data.as_ref().map(|it| (predecessor, it.profile.id.clone()));
                self.offer = data.as_ref().and_then(|it| it.offer);
                let announcement = data.and_then(|it| it.announcement);
                // The standby's predecessor is the leader, of which it reads nothing else.
                if let Some(own) = announcement.as_ref().filter(|own| own.ticket == predecessor) {
                    self.news_age.leader_wrote(own, modified_ms);
                }
                Event::PredecessorRead { predecessor, announcement }
            }
            QueueEvent::PredecessorGone { predecessor, token } => {
                self.predecessor = None;
                Event::PredecessorGone { predecessor, token }
            }
            // A member that leads reads no head.
            QueueEvent::MemberRead { member, data, .. } if self.heir == Some(member.sequence) => {
                let accepted = decode(&data, &self.prefix).and_then(|data| data.accepted);
                Event::HeirRead { heir: member.sequence, accepted }
            }
            QueueEvent::MemberGone { member: heir, .. } if self.heir == Some(heir) => {
                Event::HeirGone { heir }
            }
            QueueEvent::MemberRead { member: head, data, modified_ms, sent_at } => {
                let data = decode(&data, &self.prefix);
                // A member that has just become the standby may have read the offer before it knew that it is.
                if self.predecessor.as_ref().is_some_and(|(it, _)| *it == head) {
                    self.offer = data.as_ref().and_then(|it| it.offer);
                }
                let announcement = data.and_then(|it| it.announcement);
                if let Some(announcement) = &announcement {
                    self.news_age.leader_wrote(announcement, modified_ms);
                }
                Event::HeadRead { head, announcement, sent_at }
            }
            QueueEvent::MemberGone { member: head, sent_at } => Event::HeadGone { head, sent_at },
            QueueEvent::Written { data, created_ms, modified_ms, sent_at } => {
                if let Some(announcement) = self.announcement(&data) {
                    self.news_age.we_wrote(announcement, created_ms, modified_ms);
                }
                Event::Committed { sent_at: sent_at? }
            }
            QueueEvent::Renewed { sent_at } => Event::Committed { sent_at },
            QueueEvent::ClaimRefused { holder, sent_at } => {
                Event::ClaimRefused { holder: self.of_holder(holder), sent_at }
            }
            QueueEvent::Unusable => Event::SessionLost,
        })
    }

    fn of_holder(&mut self, holder: ClaimHolder) -> Holder {
        let data = match holder {
            ClaimHolder::Gone => return Holder::Gone,
            ClaimHolder::Another(data) => data,
        };
        match self.announcement(&data) {
            Some(Announcement { ticket, .. }) => {
                self.queue.verify(ticket.sequence);
                Holder::Contender(ticket)
            }
            None => Holder::Stranger,
        }
    }

    fn own_data(&self, data: &[u8]) -> Option<ZnodeData> {
        let MemberData { profile, announcement, ready, offer, accepted, .. } =
            decode(data, &self.prefix)?;
        let [offer, accepted] = [offer, accepted].map(|offer| offer.map(Box::new));
        Some(ZnodeData { profile: Arc::new(profile), announcement, ready, offer, accepted })
    }

    fn announcement(&self, data: &[u8]) -> Option<Announcement> {
        decode(data, &self.prefix)?.announcement
    }

    /// Returns the predecessor if its member has this id, as far as it was read.
    pub(crate) fn predecessor_named(&self, id: &MemberId) -> Option<Ticket> {
        let (ticket, _) = self.predecessor.as_ref().filter(|(_, other)| other == id)?;
        Some(*ticket)
    }

    /// Looks whether other clients' contenders stand in the election's path.
    pub(crate) fn look_for_foreign(&mut self) {
        self.queue.look_for_foreign();
    }

    /// Reads the znodes of all members.
    pub(crate) fn read_members(&mut self) -> Reading {
        let (answer, reading) = oneshot::channel();
        self.queue.read_all(answer);
        reading
    }

    /// Ends the session now rather than when the servers would expire it, and with it our znode.
    ///
    /// Returns once the connection is given up; the future that it returns ends when the session has
    /// ended, with the session if it may live on.
    pub(crate) async fn close(mut self) -> impl Future<Output = UnclosedSession> {
        self.queue.end_requests().await;
        let closing = self.session.close().await;
        self.queue.end_watches().await;
        closing
    }
}

fn of_session(event: SessionEvent) -> Event {
    match event {
        SessionEvent::Opened { session, timeout, sent_at } => {
            Event::SessionOpened { session, timeout, sent_at }
        }
        SessionEvent::TakenOver { record, timeout, sent_at } => {
            Event::SessionTakenOver { record, timeout, sent_at }
        }
        SessionEvent::Disconnected => Event::Disconnected,
        SessionEvent::Resumed { timeout, sent_at } => Event::SessionResumed { timeout, sent_at },
        SessionEvent::Lost => Event::SessionLost,
    }
}

/// Returns a member as it is published.
pub(crate) fn entry(Member { ticket, data, created_ms }: Member, prefix: &str) -> Entry {
    let since_epoch = Duration::from_millis(created_ms.try_into().unwrap_or(0));
    let created_at = SystemTime::UNIX_EPOCH + since_epoch;
    let Some(data) = decode(&data, prefix) else {
        return Entry::of_stranger(ticket, created_at);
    };
    let MemberData { profile, announcement, ready, version, state, .. } = data;
    let (profile, names) = (Some(profile), announcement);
    Entry { ticket, profile, names, ready, version, created_at, state }
}
