//! An election over one session: carries out the member's actions, and converts events of the session and of the queue to
//! events of the member.

mod znode_data;

pub(crate) use znode_data::{decode, encode};

use self::znode_data::{MemberData, claimants_name, contender, newer_format};
use super::client::{SessionSettings, SessionTask, UnclosedSession, in_words};
use super::queue::{
    AheadEvent, MemberZnode, OtherClaim, OwnedZnode, QueueEvent, QueueSession, QueueSettings,
    Reports, server_time,
};
use crate::cached::SharedReading;
use crate::clock::Clock;
use crate::config::Settings;
use crate::status::{MemberEntry, MembersAnswer, OwnState, QueueReading};
use crate::znode_names::ZnodeNames;
use recipes::election::{Action, Announcement, Event, MemberPriority, Offer, ZnodeData};
use recipes::{ClaimOwner, MemberId, Moment, Sequence, SessionEvent, Ticket};
use std::sync::Arc;
use tokio::sync::mpsc;

/// An election's session, and the member's place in its queue.
pub(crate) struct ElectionSession {
    session: SessionTask,
    queue: QueueSession,
    events: mpsc::UnboundedReceiver<SourceEvent>,
    znodes: ZnodeNames,
    clock: Clock,
    own_id: MemberId,
    /// The target of the last transfer from this member. A read of the target's znode is reported as
    /// [`Event::TargetRead`], and a read of any other single znode as [`Event::HeadRead`].
    target: Option<Sequence>,
    /// The offer that was just read in the predecessor's or the head's znode. The next event is about this offer, after the
    /// event for the read of that znode.
    next_offer: Option<Offer>,
    /// The ticket and the id of the predecessor, according to the last read of its znode.
    predecessor: Option<(Ticket, MemberId)>,
    /// The owner of the predecessor's znode. For a standby, the predecessor is the head.
    predecessor_owner: ZnodeOwner,
    /// The owner of the head's znode, for a member behind the standby, which reads the head with each heartbeat.
    head_owner: ZnodeOwner,
    /// The current state of the member, which is to be published in its own znode.
    state: OwnState,
    own_znode: OwnZnode,
}

/// The owner of a znode ahead, judging by the data in it: a member, or an unknown client that must be reported to operators.
#[derive(Default)]
struct ZnodeOwner {
    /// The last znode in which a member's data was read.
    member: Option<Ticket>,
    /// The znode that was last read, if no read of it has found a member's data; `None` if it is a member's, or gone.
    unknown: Option<Ticket>,
    /// The znode that was last read, and the format of its data, if that format is newer than this version knows.
    newer_format: Option<(Sequence, u32)>,
}

impl ZnodeOwner {
    /// Notes a read of this znode. `read` is the decoded `data`; `None` if that is not a member's. A znode that had a
    /// member's data before does not count as unknown: another client has overwritten the data, and the member will write it
    /// again.
    fn note(&mut self, ticket: Ticket, read: Option<&MemberData>, data: &[u8]) {
        if read.is_some() {
            self.member = Some(ticket);
        }
        self.unknown = if self.member == Some(ticket) { None } else { Some(ticket) };
        self.newer_format = newer_format(read, data).map(|format| (ticket.sequence, format));
    }

    /// Notes that the znode is gone, so that it is no longer reported to operators.
    fn note_gone(&mut self) {
        self.unknown = None;
        self.newer_format = None;
    }
}

/// Our own znode, with the data and the state of the last write to it that was requested, whether committed or not.
#[derive(Default)]
struct OwnZnode {
    data: Option<ZnodeData>,
    state: OwnState,
    /// `None` while we have no znode to write to: none is created or found yet, or it is lost.
    ticket: Option<Ticket>,
}

/// An event of the session or of the queue. Both use one channel, which keeps their order.
enum SourceEvent {
    Session(SessionEvent),
    Queue(QueueEvent),
}

impl ElectionSession {
    /// Opens a session, after `previous` is closed. The member then joins through [`Self::perform`].
    pub(crate) fn open(
        settings: &Settings,
        own_id: MemberId,
        session: SessionSettings,
        previous: UnclosedSession,
        reports: Reports,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let queue_sender = sender.clone();
        let clock: Clock = session.clock;
        let session = SessionTask::open(
            session,
            previous,
            Box::new(move |event| {
                let _receiver_gone = sender.send(SourceEvent::Session(event));
            }),
        );
        let queue = QueueSettings {
            root: settings.root.clone(),
            znodes: settings.znodes.clone(),
            acl: settings.zookeeper.security.acl,
            is_open_by_choice: settings.zookeeper.security.is_open_by_choice,
        };
        let queue = QueueSession::new(
            queue,
            session.handle(),
            reports,
            clock,
            Box::new(move |event| {
                let _receiver_gone = queue_sender.send(SourceEvent::Queue(event));
            }),
        );
        let znodes = settings.znodes.clone();
        Self {
            session,
            queue,
            events,
            znodes,
            clock,
            own_id,
            target: None,
            next_offer: None,
            predecessor: None,
            predecessor_owner: ZnodeOwner::default(),
            head_owner: ZnodeOwner::default(),
            state: OwnState::default(),
            own_znode: OwnZnode::default(),
        }
    }

    /// Publishes the state of this member to others, by writing it into our own znode, now and with every later write.
    pub(crate) fn publish_state(&mut self, state: OwnState) {
        self.state = state;
        self.write_changed_state();
    }

    /// Writes our data again if the state in our znode is outdated. Does nothing while we have no znode: the state is
    /// written once we have one. Does nothing in an election that is shared with another client: there, a contender's znode
    /// has only its id.
    fn write_changed_state(&mut self) {
        if self.znodes.family().is_some() {
            return;
        }
        let OwnZnode { data: Some(data), state, ticket: Some(_) } = &self.own_znode else { return };
        if *state != self.state {
            let data = data.clone();
            let written = self.encode(&data);
            self.queue.write(written, None);
        }
    }

    /// Starts an action of the member in this session.
    pub(crate) fn perform(&mut self, action: Action) {
        match action {
            Action::OpenSession | Action::CloseSession => {
                unreachable!("the runner opens and closes sessions")
            }
            Action::Join(data) => {
                // The state was published for the previous znode. `own_state` publishes it again for the new one.
                (self.state, self.own_znode.ticket) = (OwnState::default(), None);
                // The former target may be ahead of the new znode.
                self.target = None;
                let data = match self.znodes.family() {
                    None => self.encode(&data),
                    // In an election that is shared with another client, a contender's znode has only its id.
                    Some(_) => data.profile.id.as_str().into(),
                };
                self.queue.join(data);
            }
            Action::FindTicket => self.queue.find(),
            Action::ReadQueue => self.queue.list(),
            Action::WatchPredecessor(predecessor) => self.queue.watch_predecessor(predecessor),
            Action::ReadHead { head, sent_at } => self.queue.read(head, sent_at),
            Action::ReadTarget(target) => {
                self.target = Some(target);
                // The answer is not a heartbeat, so the time that it repeats is not used.
                self.queue.read(target, self.clock.now());
            }
            Action::ReadPriorities => self.queue.read_members(),
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
            Action::Renew { ahead, sent_at } => self.queue.renew(ahead, sent_at),
        }
    }

    /// Encodes the data that is about to be written to our own znode, together with the state, and remembers both.
    fn encode(&mut self, data: &ZnodeData) -> Vec<u8> {
        self.own_znode.state = self.state;
        self.own_znode.data = Some(data.clone());
        encode(data, self.state, &self.znodes)
    }

    /// Waits for the member's next event. Cancel-safe: no event is lost.
    pub(crate) async fn next_event(&mut self) -> Event {
        loop {
            self.queue.reap();
            if let Some(offer) = self.next_offer.take() {
                return Event::OfferRead(offer);
            }
            let received = self.events.recv().await.expect("the queue holds a sender");
            let event = match received {
                SourceEvent::Session(event) => Some(Event::Session(event)),
                SourceEvent::Queue(event) => self.on_queue_event(event),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Converts an event of the queue into the member's event; `None` for a listing that is outdated.
    fn on_queue_event(&mut self, event: QueueEvent) -> Option<Event> {
        Some(match event {
            QueueEvent::Joined(ticket) => {
                self.own_znode.ticket = Some(ticket);
                self.write_changed_state();
                Event::Joined(ticket)
            }
            QueueEvent::TicketLost(ticket) => {
                self.own_znode.ticket = None;
                Event::TicketLost(ticket)
            }
            QueueEvent::Found(znode) => self.on_found(znode),
            QueueEvent::NoneFound => Event::NoTicketFound,
            QueueEvent::Listed { number, .. } if !self.queue.is_last_listing(number) => {
                return None;
            }
            QueueEvent::Listed { members, .. } => Event::QueueRead(members.into_iter().collect()),
            QueueEvent::Foreign { keep_out } => Event::Foreign { keep_out },
            QueueEvent::Predecessor(AheadEvent::Read { znode: predecessor, data }) => {
                self.on_predecessor_read(predecessor, &data)
            }
            QueueEvent::Predecessor(AheadEvent::Gone { sequence: predecessor, token }) => {
                self.predecessor = None;
                self.predecessor_owner.note_gone();
                Event::PredecessorGone { predecessor, token }
            }
            // Only a leader has a target. A leader does not read the head, so this read was for its transfer.
            QueueEvent::MemberRead { member, data, .. } if self.target == Some(member.sequence) => {
                let read = decode(&data, &self.znodes);
                let accepted = read.and_then(|read| read.znode.accepted).map(|offer| *offer);
                Event::TargetRead { target: member.sequence, accepted }
            }
            QueueEvent::MemberGone { member: target, .. } if self.target == Some(target) => {
                Event::TargetGone { target }
            }
            QueueEvent::MemberRead { member: head, data, sent_at } => {
                self.on_head_read(head, &data, sent_at)
            }
            QueueEvent::MemberGone { member: head, sent_at } => {
                self.head_owner.note_gone();
                Event::HeadGone { head, sent_at }
            }
            QueueEvent::Committed { sent_at } => Event::Committed { sent_at },
            QueueEvent::ClaimRefused { claim, sent_at } => {
                Event::ClaimRefused { holder: self.claim_owner(claim), sent_at }
            }
            QueueEvent::MembersRead(members) => {
                let priorities = members.iter().filter_map(|member| self.priority(member));
                Event::PrioritiesRead(priorities.collect())
            }
            // The member then requests another session, for which the runner closes this one.
            QueueEvent::Unusable => Event::Session(SessionEvent::Lost),
        })
    }

    /// Handles the znode that the previous process created in this session.
    fn on_found(&mut self, OwnedZnode { ticket, data, claimed }: OwnedZnode) -> Event {
        if self.znodes.family().is_some() {
            self.own_znode.ticket = Some(ticket);
            if data != self.own_id.as_str().as_bytes() {
                // The znode has an earlier id of this member. In a shared election, no znode is rewritten, so this one
                // cannot be used: the member opens another session, and joins in that.
                return Event::NoTicketFound;
            }
            // The znode has only the id. If the previous process led, its claim has all the data.
            let read = claimed.and_then(|data| decode(&data, &self.znodes));
            return Event::TicketFound { ticket, data: read.map(|read| read.znode) };
        }
        let read = decode(&data, &self.znodes);
        let state = read.as_ref().map(|read| read.state).unwrap_or_default();
        let data = read.map(|read| read.znode);
        self.own_znode = OwnZnode { data: data.clone(), state, ticket: Some(ticket) };
        self.write_changed_state();
        Event::TicketFound { ticket, data }
    }

    fn on_predecessor_read(&mut self, predecessor: Ticket, data: &[u8]) -> Event {
        let read = self.decode_ahead(data, predecessor);
        self.predecessor_owner.note(predecessor, read.as_ref(), data);
        let Some(MemberData { znode, .. }) = read else {
            self.predecessor = None;
            self.next_offer = None;
            return Event::PredecessorRead { predecessor, announcement: None, distance: None };
        };
        let ZnodeData { profile, announcement, distance, offer, .. } = znode;
        self.predecessor = Some((predecessor, profile.id.clone()));
        self.next_offer = offer.map(|offer| *offer);
        Event::PredecessorRead { predecessor, announcement, distance }
    }

    fn on_head_read(&mut self, head: Ticket, data: &[u8], sent_at: Moment) -> Event {
        let read = self.decode_ahead(data, head);
        self.head_owner.note(head, read.as_ref(), data);
        let Some(MemberData { znode, .. }) = read else {
            self.next_offer = None;
            return Event::HeadRead { head, announcement: None, sent_at };
        };
        let ZnodeData { announcement, offer, .. } = znode;
        // An offer counts if this member is its target, or if the head is the predecessor, as in `on_predecessor_read`: this
        // read may have been sent before this member knew that the head is its predecessor.
        let predecessor = self.predecessor.as_ref().map(|(ticket, _)| *ticket);
        let own = self.own_znode.ticket.map(|ticket| ticket.sequence);
        self.next_offer = match offer {
            Some(offer) if predecessor == Some(head) || own == Some(offer.target) => Some(*offer),
            _ => None,
        };
        Event::HeadRead { head, announcement, sent_at }
    }

    /// Returns the priority in a znode, with the sequence and the id of its member; `None` if the znode is not a member's.
    fn priority(&self, member: &MemberZnode) -> Option<MemberPriority> {
        let ZnodeData { profile, priority, .. } = decode(&member.data, &self.znodes)?.znode;
        let id = profile.id.clone();
        Some(MemberPriority { member: member.ticket.sequence, id, priority })
    }

    /// Returns the owner of a claim, according to the claim's data; `Unknown` if no member has written such data. If the
    /// owner is a member, also begins to read that member's znode: a server that does not show it is left.
    fn claim_owner(&mut self, claim: OtherClaim) -> ClaimOwner {
        let data = match claim {
            OtherClaim::Read(data) => data,
            OtherClaim::NotShown => return ClaimOwner::NotShown,
            OtherClaim::OursDeleted => return ClaimOwner::Gone,
        };
        if let Some(name) = claimants_name(&data) {
            // Perhaps no listing has shown the claimant's znode here, so note its name: the check needs the path.
            self.znodes.remember(&name);
        }
        match self.announcement(&data) {
            Some(Announcement { ticket, .. }) => {
                self.queue.read(ticket.sequence, self.clock.now());
                ClaimOwner::Contender(ticket)
            }
            None => ClaimOwner::Unknown,
        }
    }

    /// Decodes the data of a znode ahead; `None` if the data is not a member's. In an election that is shared with another
    /// client, the data is only a contender's id, so every znode counts as a member's.
    fn decode_ahead(&self, data: &[u8], ticket: Ticket) -> Option<MemberData> {
        match self.znodes.family() {
            None => decode(data, &self.znodes),
            Some(_) => Some(contender(data, ticket, &self.znodes)),
        }
    }

    /// Decodes the announcement in a claim's data.
    fn announcement(&self, data: &[u8]) -> Option<Announcement> {
        decode(data, &self.znodes)?.znode.announcement
    }

    /// Returns the predecessor's ticket if the predecessor has this id, according to the last read of its znode.
    pub(crate) fn predecessor_with_id(&self, id: &MemberId) -> Option<Ticket> {
        match &self.predecessor {
            Some((ticket, predecessor_id)) if predecessor_id == id => Some(*ticket),
            _ => None,
        }
    }

    /// Returns the head of the queue if its znode belongs to an unknown client, according to the last read; otherwise
    /// `None`. A standby has read the head as its predecessor.
    pub(crate) fn unknown_znode_at_head(&self, is_standby: bool) -> Option<Sequence> {
        let owner = if is_standby { &self.predecessor_owner } else { &self.head_owner };
        owner.unknown.map(|ticket| ticket.sequence)
    }

    /// Returns the predecessor or the head, and the format of its data, if that format is newer than this version knows.
    pub(crate) fn newer_format_ahead(&self, is_standby: bool) -> Option<(Sequence, u32)> {
        let of_head = if is_standby { None } else { self.head_owner.newer_format };
        self.predecessor_owner.newer_format.or(of_head)
    }

    /// Lists the election's path to find foreign contenders.
    pub(crate) fn check_for_foreign(&mut self) {
        self.queue.check_for_foreign();
    }

    /// Answers a request for the members of the queue with the last reading, or with a new one if the last is outdated. If
    /// the session ends before the answer is sent, `answer` is dropped, and the caller asks again.
    pub(crate) fn answer_members(
        &mut self,
        shared: SharedReading<QueueReading>,
        answer: MembersAnswer,
    ) {
        let reading = self.queue.reading();
        let znodes = self.znodes.clone();
        let clock = self.clock;
        self.queue.spawn(async move {
            // Do not begin to read if the caller no longer waits. Once begun, finish: the next caller can use the reading.
            let members = shared.get(clock, async {
                if answer.is_closed() {
                    return Err("nobody waits for the reading".to_owned());
                }
                let read = reading.await.map_err(|error| in_words(&error))?;
                let members = entries(read.members, &znodes).into();
                Ok(QueueReading { index: read.index, members })
            });
            let members = members.await;
            let _receiver_gone = answer.send(members);
        });
    }

    /// Closes the session, so that the servers delete our znode at once, instead of when the session expires.
    ///
    /// Returns once the connection has been given up. The returned future then waits, within a limit, until the servers
    /// confirm the end of the session. If they do not, it returns the session, which may still be alive.
    pub(crate) async fn close(mut self) -> impl Future<Output = UnclosedSession> {
        self.queue.end_requests().await;
        let closing = self.session.close().await;
        self.queue.end_watches().await;
        closing
    }
}

/// Returns the members as they are published to readers. In an election that is shared with another client, members write no
/// announcements, and the head leads, so every entry gets the head's announcement.
pub(crate) fn entries(members: Vec<MemberZnode>, znodes: &ZnodeNames) -> Vec<MemberEntry> {
    let mut entries: Vec<_> = members.into_iter().map(|member| entry(member, znodes)).collect();
    if znodes.family().is_some()
        && let Some(leader) = entries.first().and_then(|head| head.announcement.clone())
    {
        for entry in &mut entries {
            entry.announcement = Some(leader.clone());
        }
    }
    entries
}

fn entry(
    MemberZnode { ticket, session, data, created_ms }: MemberZnode,
    znodes: &ZnodeNames,
) -> MemberEntry {
    let created_at = server_time(created_ms);
    let data = match znodes.family() {
        None => decode(&data, znodes),
        Some(_) => Some(contender(&data, ticket, znodes)),
    };
    let Some(data) = data else { return MemberEntry::of_unknown(ticket, session, created_at) };
    let MemberData { znode, version, state, .. } = data;
    let ZnodeData { profile, announcement, priority, ready, .. } = znode;
    let profile = Some(Arc::unwrap_or_clone(profile));
    MemberEntry {
        ticket,
        session,
        profile,
        announcement,
        priority,
        ready,
        version,
        created_at,
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::FencingToken;

    #[test]
    fn a_znode_is_unknown_if_it_never_had_a_members_data() {
        let mut owner = ZnodeOwner::default();
        let [a, b] = [3, 4].map(|n: i32| Ticket {
            sequence: Sequence::new(n).unwrap(),
            token: FencingToken(n.unsigned_abs().into()),
        });
        let member_data = contender(b"a", a, &"leader_".into());
        let mut noted = |ticket, read| {
            owner.note(ticket, read, b"");
            owner.unknown
        };
        assert_eq!(noted(a, None), Some(a));
        assert_eq!(noted(a, Some(&member_data)), None, "a member's data came later");
        assert_eq!(noted(a, None), None, "a client has overwritten the data");
        assert_eq!(noted(b, None), Some(b));
    }
}
