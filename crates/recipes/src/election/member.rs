//! One member: where it stands, and what it does about what it hears.

use super::lease::{Activation, Disconnect, Policy, Rhythm, Spacing, Unhealthy};
use super::{
    Action, Announcement, Event, FencingToken, Lease, Line, Moment, Place, Profile, Sequence,
    SessionId, Term, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    profile: Arc<Profile>,
    policy: Policy,
    /// What has to be left of a term, besides a heartbeat, for it to be of use.
    reserve: Duration,
    /// The operator wants it out of the line.
    paused: bool,
    /// Its application is not healthy.
    unhealthy: bool,
    phase: Phase,
    index: u64,
}

/// Each phase holds just what is known in it, so that nothing stale can be read in another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// No session.
    Away,
    /// The servers grant too short a session to lead in; we ask again later.
    Refused { until: Moment },
    /// Out of the line until told otherwise.
    Aside,
    /// A session, but no ticket: our application is not healthy, so we stand only where nobody else
    /// does. `None` while the line is being read.
    Waiting { session: Session, look_at: Option<Moment> },
    /// A session, but no ticket: what is being drawn will say this of us.
    Arriving { session: Session, profile: Arc<Profile> },
    /// A ticket; whoever is ahead is not known yet.
    Looking { session: Session, ticket: Ticket, known: Option<Ahead>, heard: Heard },
    /// Somebody is ahead.
    Following { session: Session, ticket: Ticket, ahead: Ahead, heard: Heard },
    /// Nobody is ahead, and nobody ever will be again; but no quorum has lately said so.
    Claiming { session: Session, ticket: Ticket },
    /// Nobody is ahead, and a quorum has lately heard from us.
    Leading { session: Session, lease: Lease, ticket: Ticket, activity: Activity },
    /// Out of the line, for good.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Session {
    id: SessionId,
    /// The smallest that it ever had.
    timeout: Duration,
    rhythm: Rhythm,
    beat: Beat,
}

/// Whether the application has taken up its work as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Activity {
    /// It has until this moment to say so.
    Elected {
        until: Moment,
    },
    Active,
}

/// The one sign of life that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Beat {
    Sent(Moment),
    Answered(Moment),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ahead {
    predecessor: Sequence,
    /// As it was last read: whoever came since stands behind us.
    line: Line,
    head: Head,
    /// Under which token the head would lead, once its znode was read.
    token: Option<FencingToken>,
    /// Whether the predecessor, or somebody ahead of it, has told us what the head contradicted. Then
    /// we hear only the head.
    doubted: bool,
}

/// Who stands first, as far as we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Head {
    Stands(Sequence),
    /// This one did. The line is to be read again.
    Gone(Sequence),
}

/// What the line has told us.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Heard {
    Nothing,
    /// This, since that moment.
    Leads(Announcement, Moment),
    /// The last leader we heard of has left the line; only a newer one is news.
    Left(FencingToken),
}

/// What a member may tell its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    profile: Arc<Profile>,
    paused: bool,
    unhealthy: bool,
    phase: Phase,
    index: u64,
}

/// A standing, judged at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Leader {
        announcement: Announcement,
        left: Duration,
    },
    /// First in the line without a live lease: nobody leads, as far as we know.
    Candidate,
    Follower {
        heard: Option<Announcement>,
    },
    Absent,
}

type Next = (Phase, Vec<Action>);

impl Member {
    pub fn new(profile: Arc<Profile>, policy: Policy) -> Self {
        let (reserve, phase) = (Duration::ZERO, Phase::Away);
        Self { profile, policy, reserve, paused: false, unhealthy: false, phase, index: 1 }
    }

    /// It is not to stand before its application is known to be healthy.
    #[must_use]
    pub fn unhealthy_at_first(self) -> Self {
        let strict = self.policy.unhealthy == Unhealthy::StandAside;
        let phase = if strict { Phase::Aside } else { self.phase };
        Self { unhealthy: true, phase, ..self }
    }

    /// It is to lead only in sessions whose term leaves so much time to end what is done under it.
    #[must_use]
    pub fn reserving(self, reserve: Duration) -> Self {
        Self { reserve, ..self }
    }

    /// The first wish of a member.
    pub fn start(&self) -> Vec<Action> {
        if self.phase == Phase::Aside { vec![] } else { vec![Action::OpenSession] }
    }

    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let told = self.told();
        let phase = std::mem::replace(&mut self.phase, Phase::Gone);
        let (phase, actions) = self.transition(phase, now, event);
        self.phase = phase;
        self.index += u64::from(self.told() != told);
        actions
    }

    /// When to be told [`Event::Woke`].
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Away
            | Phase::Aside
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Gone => None,
            Phase::Refused { until } => Some(*until),
            Phase::Waiting { look_at, .. } => *look_at,
            Phase::Following { .. } | Phase::Claiming { .. } => self.beat_due(&self.phase),
            Phase::Leading { lease, activity, .. } => {
                let deadline = match activity {
                    Activity::Elected { until } => Some(*until),
                    Activity::Active => None,
                };
                let due = [self.beat_due(&self.phase), deadline, Some(lease.until())];
                due.into_iter().flatten().min()
            }
        }
    }

    pub fn standing(&self) -> Standing {
        let mut phase = self.phase.clone();
        // Signs of life are no news: who stands as before has the same standing.
        if let Some(session) = phase.session_mut() {
            let never = Moment(Duration::ZERO);
            session.rhythm = Rhythm::begun(never);
            session.beat = Beat::Answered(never);
        }
        let Self { paused, unhealthy, index, .. } = *self;
        Standing { profile: self.profile.clone(), paused, unhealthy, phase, index }
    }

    fn told(&self) -> Option<Announcement> {
        match &self.phase {
            Phase::Leading { ticket, activity, .. } => {
                Some(activity.announced(&self.profile, *ticket))
            }
            Phase::Looking { heard, .. } | Phase::Following { heard, .. } => {
                heard.leader_besides(&self.profile)
            }
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Claiming { .. }
            | Phase::Gone => None,
        }
    }

    fn transition(&mut self, phase: Phase, now: Moment, event: Event) -> Next {
        match event {
            Event::SessionOpened { session, timeout, sent_at } => {
                self.arrive(phase, session, timeout, sent_at, now)
            }
            Event::Disconnected => self.lose_connection(phase),
            Event::SessionResumed { timeout, sent_at } => self.resume(phase, timeout, sent_at, now),
            Event::SessionLost => Self::lose_session(phase),
            Event::TicketDrawn(ticket) => self.enter(phase, ticket),
            Event::TicketLost(ticket) => self.lose_ticket(phase, ticket),
            Event::LineRead(line) => self.take_place(phase, line, now),
            Event::PredecessorRead { predecessor, says } => {
                Self::hear_predecessor(phase, predecessor, says, now)
            }
            Event::PredecessorGone(predecessor) => self.move_up(phase, predecessor, now),
            Event::HeadRead { head, says, sent_at } => {
                self.hear_head(phase, head, says, sent_at, now)
            }
            Event::HeadGone { head, sent_at } => self.miss_head(phase, head, sent_at, now),
            Event::Committed { sent_at } => self.lead(phase, sent_at, now),
            Event::Woke => self.wake(phase, now),
            Event::Acknowledge(token) => self.activate(phase, token, now),
            Event::Resign => Self::resign(phase),
            Event::Pause => {
                self.paused = true;
                Self::stand_aside(phase)
            }
            Event::Unpause => {
                self.paused = false;
                self.stand_again(phase, now)
            }
            Event::Unhealthy if self.unhealthy => stay(phase),
            Event::Unhealthy => {
                self.unhealthy = true;
                self.ail(phase)
            }
            Event::Healthy => {
                self.unhealthy = false;
                self.stand_again(phase, now)
            }
            Event::Describe { address, labels } => self.describe(phase, address, labels, now),
            Event::Stop => (Phase::Gone, vec![Action::CloseSession]),
        }
    }

    fn arrive(
        &self,
        phase: Phase,
        id: SessionId,
        timeout: Duration,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        let Phase::Away = phase else { return stay(phase) };
        if self.term(timeout, Spacing::Close).is_none() {
            return self.refuse(now);
        }
        let session =
            Session { id, timeout, rhythm: Rhythm::begun(sent_at), beat: Beat::Answered(sent_at) };
        if self.unhealthy {
            return (Phase::Waiting { session, look_at: None }, vec![Action::ReadLine]);
        }
        self.draw(session)
    }

    /// A resumed session is worth no more than the smallest timeout it ever had.
    fn resume(&self, mut phase: Phase, timeout: Duration, sent_at: Moment, now: Moment) -> Next {
        let Some(session) = phase.session_mut() else { return stay(phase) };
        if self.term(timeout, Spacing::Close).is_none() {
            return self.refuse(now);
        }
        session.timeout = session.timeout.min(timeout);
        let margins = &self.policy.margins;
        session.rhythm = session.rhythm.resumed(sent_at, now, session.timeout, margins);
        if let Phase::Leading { lease, .. } = &mut phase {
            *lease = lease.cut_to(self.term(timeout, lease.spacing()));
        }
        stay(phase)
    }

    /// What a committed write is worth where signs of life come so far apart, if that is of use.
    fn term(&self, timeout: Duration, spacing: Spacing) -> Option<Term> {
        let margins = &self.policy.margins;
        let term = margins.at(spacing).term(timeout);
        term.filter(|term| term.0 > margins.heartbeat + self.reserve)
    }

    /// The lease by a write that was committed, as far as the session's signs of life allow for one.
    fn lease(&self, session: &Session, ticket: Ticket, sent_at: Moment) -> Option<Lease> {
        let spacing = session.rhythm.spacing(&self.policy.margins)?;
        let term = self.term(session.timeout, spacing)?;
        Some(Lease::granted(ticket.token, sent_at, term, spacing))
    }

    /// When the next sign of life is due, unless one is under way. Whoever only stands in line needs no more of them
    /// than it could claim by.
    fn beat_due(&self, phase: &Phase) -> Option<Moment> {
        let (Phase::Following { session, ticket, .. }
        | Phase::Claiming { session, ticket }
        | Phase::Leading { session, ticket, .. }) = phase
        else {
            return None;
        };
        let Beat::Answered(last) = session.beat else { return None };
        let stands = matches!(phase, Phase::Following { .. });
        let spacing = match self.term(session.timeout, Spacing::Wide) {
            Some(_) if stands => Spacing::Wide,
            Some(_) | None => Spacing::Close,
        };
        Some(last.after(self.policy.margins.pace(ticket.sequence, spacing)))
    }

    fn refuse(&self, now: Moment) -> Next {
        let until = now.after(10 * self.policy.margins.heartbeat);
        (Phase::Refused { until }, vec![Action::CloseSession])
    }

    fn lose_connection(&self, phase: Phase) -> Next {
        match (self.policy.disconnect, &phase) {
            (Disconnect::StepDown, Phase::Claiming { .. } | Phase::Leading { .. }) => give_up(),
            (Disconnect::StepDown | Disconnect::Hold, _) => stay(phase),
        }
    }

    fn lose_session(phase: Phase) -> Next {
        match phase {
            Phase::Gone | Phase::Aside | Phase::Refused { .. } => stay(phase),
            Phase::Away
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. } => (Phase::Away, vec![Action::OpenSession]),
        }
    }

    fn draw(&self, session: Session) -> Next {
        let profile = self.profile.clone();
        (Phase::Arriving { session, profile: profile.clone() }, vec![Action::DrawTicket(profile)])
    }

    fn enter(&self, phase: Phase, ticket: Ticket) -> Next {
        let Phase::Arriving { session, profile } = phase else { return stay(phase) };
        let mut actions = vec![Action::ReadLine];
        if profile != self.profile {
            let profile = self.profile.clone();
            actions.push(Action::Introduce { profile, says: None });
        }
        (Phase::Looking { session, ticket, known: None, heard: Heard::Nothing }, actions)
    }

    fn lose_ticket(&self, mut phase: Phase, lost: Ticket) -> Next {
        if phase.ticket() != Some(lost) {
            return stay(phase);
        }
        let Some(&mut mut session) = phase.session_mut() else { return stay(phase) };
        // What was under way concerned the old znode, and its answer is not waited for.
        let (Beat::Sent(at) | Beat::Answered(at)) = session.beat;
        session.beat = Beat::Answered(at);
        self.draw(session)
    }

    fn take_place(&self, phase: Phase, line: Line, now: Moment) -> Next {
        let (mut session, ticket, known, heard, watched) = match phase {
            Phase::Looking { session, ticket, known, heard } => {
                (session, ticket, known, heard, None)
            }
            Phase::Following { session, ticket, ahead, heard } => {
                let watched = ahead.predecessor;
                (session, ticket, Some(ahead), heard, Some(watched))
            }
            Phase::Waiting { session, .. } if line.is_empty() => {
                return self.stand_up(session, now);
            }
            Phase::Waiting { session, .. } => {
                let look_at = Some(now.after(self.policy.margins.patience(session.id)));
                return stay(Phase::Waiting { session, look_at });
            }
            Phase::Claiming { ticket, .. } | Phase::Leading { ticket, .. } => {
                let others = line.iter().any(|one| one != ticket.sequence);
                return if self.unhealthy && others { give_up() } else { stay(phase) };
            }
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Arriving { .. }
            | Phase::Gone => return stay(phase),
        };
        // Whoever has a smaller number now than the head had was not given it: somebody has jumped ahead.
        let line = match &known {
            Some(Ahead { head, .. }) => line.iter().filter(|one| head.may_be(*one)).collect(),
            None => line,
        };
        match line.place_of(ticket.sequence) {
            Place::Behind { .. } if self.unhealthy => give_up(),
            Place::First => self.claim(session, ticket, now),
            Place::Behind { predecessor, head } => {
                let heard = heard.only_if(|leader| leader >= head);
                let mut actions = vec![];
                if watched != Some(predecessor) {
                    actions.push(Action::WatchPredecessor(predecessor));
                }
                if head != predecessor && !matches!(heard, Heard::Leads(..)) {
                    session.beat = Beat::Sent(now);
                    actions.push(Action::ReadHead { head, sent_at: now });
                }
                let head = Head::Stands(head);
                // What the head contradicted stays in doubt for as long as there is no other head.
                let (token, doubted) = match known {
                    Some(known) if known.head == head => (known.token, known.doubted),
                    Some(_) | None => (None, false),
                };
                let ahead = Ahead { predecessor, line, head, token, doubted };
                (Phase::Following { session, ticket, ahead, heard }, actions)
            }
            Place::Nowhere => self.draw(session),
        }
    }

    fn hear_predecessor(
        phase: Phase,
        from: Sequence,
        says: Option<Announcement>,
        now: Moment,
    ) -> Next {
        let Phase::Following { ahead, .. } = &phase else { return stay(phase) };
        if ahead.predecessor == from && !ahead.doubted {
            Self::hear(phase, from, says, now)
        } else {
            stay(phase)
        }
    }

    /// While the head stands, nobody else leads, and what it says of itself is the truth: whatever the
    /// line had told us before we asked gives way to it.
    fn hear_head(
        &self,
        phase: Phase,
        head: Ticket,
        says: Option<Announcement>,
        sent_at: Moment,
        now: Moment,
    ) -> Next {
        match self.answered(phase, sent_at, now) {
            Phase::Following { session, ticket, ahead, heard }
                if ahead.head == Head::Stands(head.sequence) =>
            {
                let own = says.filter(|says| says.ticket == head);
                let lie = heard.was_told_before(sent_at) && heard.leader() != own.as_ref();
                let heard = match heard {
                    // Whoever has left may have been none.
                    Heard::Left(_) if own.is_some() => Heard::Nothing,
                    Heard::Leads(..) if lie => Heard::Nothing,
                    heard @ (Heard::Nothing | Heard::Left(_) | Heard::Leads(..)) => heard,
                };
                let doubted = ahead.doubted || lie;
                let ahead = Ahead { token: Some(head.token), doubted, ..ahead };
                let phase = Phase::Following { session, ticket, ahead, heard };
                Self::hear(phase, head.sequence, own, now)
            }
            phase @ (Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. }
            | Phase::Gone) => stay(phase),
        }
    }

    /// Passes news on to whoever stands behind us; old news stops here. Whoever leads stands first:
    /// so news is old if it names somebody who has left the line, and no news at all if it names
    /// somebody behind the one who says so, or a znode that cannot be where it is said to stand.
    fn hear(phase: Phase, from: Sequence, says: Option<Announcement>, now: Moment) -> Next {
        let Phase::Following { mut session, ticket, ahead, heard } = phase else {
            return stay(phase);
        };
        let is_news = |says: &Announcement| {
            says.ticket.sequence <= from
                && says.ticket.token < ticket.token
                && ahead.may_lead(says.ticket)
                && heard.is_older_than(says)
        };
        match says.filter(is_news) {
            Some(announcement) => {
                let leads_itself = announcement.ticket.sequence == from;
                let heard = Heard::Leads(announcement.clone(), now);
                let mut actions = vec![Action::PassOn { announcement, sent_at: now }];
                // Then we are next, and had better know it before it goes.
                if let Head::Stands(head) = ahead.head
                    && leads_itself
                    && head != from
                    && let Beat::Answered(_) = session.beat
                {
                    session.beat = Beat::Sent(now);
                    actions.push(Action::ReadHead { head, sent_at: now });
                }
                (Phase::Following { session, ticket, ahead, heard }, actions)
            }
            None => stay(Phase::Following { session, ticket, ahead, heard }),
        }
    }

    /// The head is gone. Whoever stood next to it is the first now, for nobody has come in between; if
    /// that one is gone as well, we read the line when we wake.
    fn miss_head(&self, phase: Phase, gone: Sequence, sent_at: Moment, now: Moment) -> Next {
        match self.answered(phase, sent_at, now) {
            Phase::Following { mut session, ticket, ahead, heard }
                if ahead.head == Head::Stands(gone) =>
            {
                let next = ahead.line.behind(gone).filter(|next| *next < ticket.sequence);
                let (ahead, actions) = match next.filter(|_| ahead.token.is_some()) {
                    Some(next) => {
                        session.beat = Beat::Sent(now);
                        let head = Head::Stands(next);
                        let actions = vec![Action::ReadHead { head: next, sent_at: now }];
                        (Ahead { head, token: None, doubted: false, ..ahead }, actions)
                    }
                    None => (Ahead { head: Head::Gone(gone), ..ahead }, vec![]),
                };
                let heard = heard.only_if(|leader| ahead.head.may_be(leader));
                (Phase::Following { session, ticket, ahead, heard }, actions)
            }
            phase @ (Phase::Following { .. }
            | Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. }
            | Phase::Gone) => stay(phase),
        }
    }

    /// The line never grows at its head: whoever stood right behind it knows that it is the first now,
    /// and only who stood further back reads the line.
    fn move_up(&self, phase: Phase, gone: Sequence, now: Moment) -> Next {
        let Phase::Following { session, ticket, ahead, heard } = phase else { return stay(phase) };
        if ahead.predecessor != gone {
            return stay(Phase::Following { session, ticket, ahead, heard });
        }
        if ahead.head.was(gone) {
            return self.claim(session, ticket, now);
        }
        (
            Phase::Looking {
                session,
                ticket,
                known: Some(ahead),
                heard: heard.only_if(|leader| leader != gone),
            },
            vec![Action::ReadLine],
        )
    }

    fn claim(&self, mut session: Session, ticket: Ticket, now: Moment) -> Next {
        let announcement = self.policy.activation.first(now).announced(&self.profile, ticket);
        session.beat = Beat::Sent(now);
        let claim = Action::Claim { announcement, sent_at: now };
        (Phase::Claiming { session, ticket }, vec![claim])
    }

    fn lead(&self, phase: Phase, sent_at: Moment, now: Moment) -> Next {
        match self.answered(phase, sent_at, now) {
            Phase::Claiming { session, ticket } => {
                // Of the writes under way, only the claim and what came after it prove that the
                // znode says that we lead.
                let ours = session.beat == Beat::Answered(sent_at);
                let lease = self.lease(&session, ticket, sent_at).filter(|_| ours);
                match lease.filter(|lease| lease.left(now).is_some()) {
                    Some(lease) => {
                        let activity = self.policy.activation.first(now);
                        stay(Phase::Leading { session, lease, ticket, activity })
                    }
                    None => stay(Phase::Claiming { session, ticket }),
                }
            }
            Phase::Leading { session, lease, ticket, activity } => {
                // A lease that ran out is never renewed: the servers may already be at work on
                // the end of the session.
                if lease.left(now).is_none() {
                    return give_up();
                }
                let renewed = self.lease(&session, ticket, sent_at);
                let longer = renewed.filter(|renewed| renewed.until() > lease.until());
                let lease = longer.unwrap_or(lease);
                stay(Phase::Leading { session, lease, ticket, activity })
            }
            phase @ (Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Gone) => stay(phase),
        }
    }

    fn resign(phase: Phase) -> Next {
        if matches!(phase, Phase::Leading { .. }) { give_up() } else { stay(phase) }
    }

    fn stand_aside(phase: Phase) -> Next {
        match phase {
            Phase::Gone | Phase::Aside => stay(phase),
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. } => (Phase::Aside, vec![Action::CloseSession]),
        }
    }

    /// Unless something else still keeps it from it.
    fn stand_again(&self, phase: Phase, now: Moment) -> Next {
        let strict = self.policy.unhealthy == Unhealthy::StandAside;
        match phase {
            Phase::Aside if !(self.paused || self.unhealthy && strict) => {
                (Phase::Away, vec![Action::OpenSession])
            }
            Phase::Waiting { session, .. } if !self.unhealthy => self.stand_up(session, now),
            phase @ (Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. }
            | Phase::Gone) => stay(phase),
        }
    }

    /// Who has waited for long has given no sign of life, and would have to show its rhythm before it
    /// could lead: another session begins with one.
    fn stand_up(&self, session: Session, now: Moment) -> Next {
        if session.rhythm.is_unbroken(now, &self.policy.margins) {
            self.draw(session)
        } else {
            give_up()
        }
    }

    /// Whoever stands alone may be all there is; whoever does not makes room.
    fn ail(&self, phase: Phase) -> Next {
        match (self.policy.unhealthy, &phase) {
            (Unhealthy::StandAside, _) => Self::stand_aside(phase),
            (Unhealthy::LeadAlone, Phase::Claiming { .. } | Phase::Leading { .. }) => {
                (phase, vec![Action::ReadLine])
            }
            (
                Unhealthy::LeadAlone,
                Phase::Arriving { .. } | Phase::Looking { .. } | Phase::Following { .. },
            ) => give_up(),
            (
                Unhealthy::LeadAlone,
                Phase::Away
                | Phase::Refused { .. }
                | Phase::Aside
                | Phase::Waiting { .. }
                | Phase::Gone,
            ) => stay(phase),
        }
    }

    /// The application has taken up its work under this token.
    fn activate(&self, phase: Phase, token: FencingToken, now: Moment) -> Next {
        match phase {
            Phase::Leading { session, lease, ticket, activity: Activity::Elected { .. } }
                if token == ticket.token && lease.left(now).is_some() =>
            {
                let activity = Activity::Active;
                let says = Some(activity.announced(&self.profile, ticket));
                let introduce = Action::Introduce { profile: self.profile.clone(), says };
                (Phase::Leading { session, lease, ticket, activity }, vec![introduce])
            }
            phase @ (Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Following { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. }
            | Phase::Gone) => stay(phase),
        }
    }

    /// Tells the line what there is to tell of us now. It costs no place in it, and a leader leads
    /// on with the same token.
    fn describe(
        &mut self,
        phase: Phase,
        address: Option<String>,
        labels: BTreeMap<String, String>,
        now: Moment,
    ) -> Next {
        if self.profile.address == address && self.profile.labels == labels {
            return stay(phase);
        }
        let (id, revision) = (self.profile.id.clone(), self.profile.revision + 1);
        let profile = Arc::new(Profile { id, address, labels, revision });
        self.profile = profile.clone();
        let says = match &phase {
            Phase::Claiming { ticket, .. } => {
                Some(self.policy.activation.first(now).announced(&profile, *ticket))
            }
            Phase::Leading { ticket, activity, .. } => Some(activity.announced(&profile, *ticket)),
            Phase::Looking { heard, .. } | Phase::Following { heard, .. } => {
                heard.leader().cloned()
            }
            // Whoever draws a ticket later, or is drawing one, says so then.
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Gone => return stay(phase),
        };
        (phase, vec![Action::Introduce { profile, says }])
    }

    fn wake(&self, mut phase: Phase, now: Moment) -> Next {
        if let Phase::Refused { until } = phase {
            return if until <= now {
                (Phase::Away, vec![Action::OpenSession])
            } else {
                stay(phase)
            };
        }
        if let Phase::Waiting { session, look_at: Some(look_at) } = &phase
            && *look_at <= now
        {
            let session = *session;
            return (Phase::Waiting { session, look_at: None }, vec![Action::ReadLine]);
        }
        if let Phase::Leading { lease, activity, .. } = &phase
            && (lease.left(now).is_none() || activity.is_overdue(now))
        {
            return give_up();
        }
        if self.beat_due(&phase).is_none_or(|due| now < due) {
            return stay(phase);
        }
        let Some(session) = phase.session_mut() else { return stay(phase) };
        session.beat = Beat::Sent(now);
        let actions = match &phase {
            Phase::Following { ahead: Ahead { head: Head::Stands(head), .. }, .. } => {
                vec![Action::ReadHead { head: *head, sent_at: now }]
            }
            Phase::Following { ahead: Ahead { head: Head::Gone(_), .. }, .. } => {
                let Some(session) = phase.session_mut() else { return stay(phase) };
                session.beat = Beat::Answered(now);
                vec![Action::ReadLine]
            }
            Phase::Claiming { .. } | Phase::Leading { .. } if self.unhealthy => {
                vec![Action::Renew { sent_at: now }, Action::ReadLine]
            }
            Phase::Claiming { .. } | Phase::Leading { .. } => vec![Action::Renew { sent_at: now }],
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Gone => return stay(phase),
        };
        (phase, actions)
    }

    /// Notes that a request sent at this moment was answered.
    fn answered(&self, mut phase: Phase, sent_at: Moment, now: Moment) -> Phase {
        if let Some(session) = phase.session_mut() {
            session.rhythm = session.rhythm.sign(sent_at, now, &self.policy.margins);
            if session.beat == Beat::Sent(sent_at) {
                session.beat = Beat::Answered(sent_at);
            }
        }
        phase
    }
}

/// What came does not concern this phase: an answer to a question no longer asked.
fn stay(phase: Phase) -> Next {
    (phase, vec![])
}

/// Out of the line with this session, and in again at the tail with another.
fn give_up() -> Next {
    (Phase::Away, vec![Action::CloseSession, Action::OpenSession])
}

impl Phase {
    fn session_mut(&mut self) -> Option<&mut Session> {
        match self {
            Self::Waiting { session, .. }
            | Self::Arriving { session, .. }
            | Self::Looking { session, .. }
            | Self::Following { session, .. }
            | Self::Claiming { session, .. }
            | Self::Leading { session, .. } => Some(session),
            Self::Away | Self::Refused { .. } | Self::Aside | Self::Gone => None,
        }
    }

    fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Looking { ticket, .. }
            | Self::Following { ticket, .. }
            | Self::Claiming { ticket, .. }
            | Self::Leading { ticket, .. } => Some(*ticket),
            Self::Away
            | Self::Refused { .. }
            | Self::Aside
            | Self::Waiting { .. }
            | Self::Arriving { .. }
            | Self::Gone => None,
        }
    }
}

impl Activation {
    /// How a term begins.
    fn first(self, now: Moment) -> Activity {
        match self {
            Self::AtOnce => Activity::Active,
            Self::OnAcknowledgement { within } => Activity::Elected { until: now.after(within) },
        }
    }
}

impl Activity {
    fn announced(self, leader: &Arc<Profile>, ticket: Ticket) -> Announcement {
        Announcement { leader: leader.clone(), ticket, active: self == Self::Active }
    }

    fn is_overdue(self, now: Moment) -> bool {
        matches!(self, Self::Elected { until } if until <= now)
    }
}

impl Ahead {
    /// Numbers and tokens grow together along a line.
    fn may_lead(&self, ticket: Ticket) -> bool {
        let Ticket { sequence, token } = ticket;
        let in_order = match (self.head, self.token) {
            (Head::Stands(head) | Head::Gone(head), Some(known)) => {
                sequence.cmp(&head) == token.cmp(&known)
            }
            (Head::Stands(_) | Head::Gone(_), None) => true,
        };
        in_order && self.head.may_be(sequence)
    }
}

impl Head {
    fn was(self, one: Sequence) -> bool {
        let (Self::Stands(head) | Self::Gone(head)) = self;
        head == one
    }

    /// Whether this one may lead: the line never grows at its head.
    fn may_be(self, leader: Sequence) -> bool {
        match self {
            Self::Stands(head) => leader >= head,
            Self::Gone(head) => leader > head,
        }
    }
}

impl Heard {
    fn leader(&self) -> Option<&Announcement> {
        match self {
            Self::Leads(announcement, _) => Some(announcement),
            Self::Nothing | Self::Left(_) => None,
        }
    }

    /// Whoever is not first in the line does not lead, whatever the line says: the news is of an
    /// earlier life of ours, whose znode or whose word is not yet gone. An application that only
    /// compares names must not take it for leave to lead.
    fn leader_besides(&self, ourselves: &Profile) -> Option<Announcement> {
        self.leader().filter(|announcement| announcement.leader.id != ourselves.id).cloned()
    }

    /// What is asked later than this is newer.
    fn was_told_before(&self, asked_at: Moment) -> bool {
        matches!(self, Self::Leads(_, since) if *since < asked_at)
    }

    fn is_older_than(&self, says: &Announcement) -> bool {
        match self {
            Self::Nothing => true,
            Self::Leads(known, _) => known.edition() < says.edition(),
            Self::Left(token) => *token < says.ticket.token,
        }
    }

    /// What is left of it if this is who may lead.
    fn only_if(self, may_lead: impl Fn(Sequence) -> bool) -> Self {
        match self {
            Self::Leads(Announcement { ticket, .. }, _) if !may_lead(ticket.sequence) => {
                Self::Left(ticket.token)
            }
            heard @ (Self::Nothing | Self::Leads(..) | Self::Left(_)) => heard,
        }
    }
}

impl Standing {
    /// The one way to ask who leads: there is no answer without a moment.
    pub fn at(&self, now: Moment) -> Role {
        match &self.phase {
            Phase::Leading { lease, ticket, activity, .. } => match lease.left(now) {
                Some(left) => {
                    let announcement = activity.announced(&self.profile, *ticket);
                    Role::Leader { announcement, left }
                }
                None => Role::Candidate,
            },
            Phase::Claiming { .. } => Role::Candidate,
            Phase::Looking { heard, .. } | Phase::Following { heard, .. } => {
                Role::Follower { heard: heard.leader_besides(&self.profile) }
            }
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Gone => Role::Absent,
        }
    }

    /// When this becomes another role by itself, if ever: at the end of a lease.
    pub fn changes_at(&self, now: Moment) -> Option<Moment> {
        match self.at(now) {
            Role::Leader { left, .. } => Some(now.after(left)),
            Role::Candidate | Role::Follower { .. } | Role::Absent => None,
        }
    }

    /// Grows by one at each change of what is told. The end of a lease is such a change, whether
    /// or not the driver has woken to see it.
    pub fn index_at(&self, now: Moment) -> u64 {
        self.index + u64::from(self.has_lapsed(now))
    }

    /// Whether a lease ran out that nobody has given up yet.
    pub fn has_lapsed(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Leading { lease, .. } if lease.left(now).is_none())
    }

    /// The same, as far as the driver has seen.
    pub fn index(&self) -> u64 {
        self.index
    }

    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub fn ticket(&self) -> Option<Ticket> {
        self.phase.ticket()
    }

    pub fn predecessor(&self) -> Option<Sequence> {
        match &self.phase {
            Phase::Following { ahead, .. } => Some(ahead.predecessor),
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Claiming { .. }
            | Phase::Leading { .. }
            | Phase::Gone => None,
        }
    }

    /// Where we stand in the line at most, the first being 1: those ahead only become fewer.
    pub fn place(&self) -> Option<usize> {
        match &self.phase {
            Phase::Following { ticket, ahead: Ahead { line, head, .. }, .. } => {
                let ahead = line.iter().filter(|one| *one < ticket.sequence && head.may_be(*one));
                Some(ahead.count() + 1)
            }
            Phase::Claiming { .. } | Phase::Leading { .. } => Some(1),
            Phase::Away
            | Phase::Refused { .. }
            | Phase::Aside
            | Phase::Waiting { .. }
            | Phase::Arriving { .. }
            | Phase::Looking { .. }
            | Phase::Gone => None,
        }
    }

    /// Whether nobody stands ahead.
    pub fn is_first(&self) -> bool {
        matches!(self.phase, Phase::Claiming { .. } | Phase::Leading { .. })
    }

    /// Whether the servers grant sessions too short to lead in.
    pub fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Refused { .. })
    }

    /// Whether this member was told to stay out of the line.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether its application is not healthy.
    pub fn is_unhealthy(&self) -> bool {
        self.unhealthy
    }

    /// Whether it leads, but its application has not acknowledged that in time.
    pub fn is_overdue(&self, now: Moment) -> bool {
        matches!(&self.phase, Phase::Leading { activity, .. } if activity.is_overdue(now))
    }

    /// Whether it waits for nothing but to be told.
    pub fn is_aside(&self) -> bool {
        matches!(self.phase, Phase::Aside)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Margins, MemberId};
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The term is 6.89 s of a session of ten seconds, and 2.894 s of one of six.
    fn member(disconnect: Disconnect) -> Member {
        let margins = Margins { heartbeat: seconds(1), half_tick: seconds(1) };
        Member::new(profile("me"), Policy { disconnect, ..Policy::new(margins) })
    }

    fn profile(name: &str) -> Arc<Profile> {
        let id = MemberId::new(name).unwrap();
        Arc::new(Profile { id, address: None, labels: BTreeMap::new(), revision: 0 })
    }

    fn ticket(number: i32) -> Ticket {
        let token = FencingToken(number.unsigned_abs().into());
        Ticket { sequence: Sequence::new(number).unwrap(), token }
    }

    fn opened(timeout: Duration) -> Event {
        Event::SessionOpened { session: SessionId(1), timeout, sent_at: at(0) }
    }

    fn line(numbers: &[i32]) -> Event {
        Event::LineRead(numbers.iter().map(|&n| ticket(n).sequence).collect())
    }

    fn gone(number: i32) -> Event {
        Event::PredecessorGone(ticket(number).sequence)
    }

    /// A member with the last number of the line.
    fn in_line(disconnect: Disconnect, numbers: &[i32]) -> Member {
        let mut member = member(disconnect);
        member.step(at(0), opened(seconds(10)));
        member.step(at(0), Event::TicketDrawn(ticket(*numbers.last().unwrap())));
        member.step(at(0), line(numbers));
        member
    }

    fn leader(disconnect: Disconnect) -> Member {
        let mut member = in_line(disconnect, &[1]);
        member.step(at(0), Event::Committed { sent_at: at(0) });
        member
    }

    /// Its predecessor says that the first in line leads.
    fn follower(numbers: &[i32]) -> Member {
        let mut member = in_line(Disconnect::Hold, numbers);
        let predecessor = ticket(numbers[numbers.len() - 2]).sequence;
        member.step(at(0), Event::PredecessorRead { predecessor, says: leads(numbers[0]) });
        assert!(names(&member, numbers[0]));
        member
    }

    fn leads(number: i32) -> Option<Announcement> {
        Some(Announcement { leader: profile("first"), ticket: ticket(number), active: true })
    }

    fn names(member: &Member, number: i32) -> bool {
        member.standing().at(at(0)) == Role::Follower { heard: leads(number) }
    }

    fn names_nobody(member: &Member) -> bool {
        member.standing().at(at(0)) == Role::Follower { heard: None }
    }

    /// When its lease ends.
    fn leads_until(member: &Member, now: Moment) -> Moment {
        let Role::Leader { left, .. } = member.standing().at(now) else { panic!("no leader") };
        now.after(left)
    }

    #[test]
    fn a_resumption_with_a_shorter_timeout_cuts_this_lease_and_every_later_one() {
        let mut leader = leader(Disconnect::Hold);
        assert_eq!(leads_until(&leader, at(500)), at(6_890));
        let resumed = |timeout, sent_at| Event::SessionResumed { timeout, sent_at };
        leader.step(at(500), resumed(seconds(6), at(500)));
        assert_eq!(leads_until(&leader, at(500)), at(2_894));
        leader.step(at(600), resumed(seconds(10), at(600)));
        leader.step(at(1_000), Event::Committed { sent_at: at(1_000) });
        assert_eq!(leads_until(&leader, at(1_000)), at(3_894));
    }

    #[test]
    fn a_resumption_makes_up_for_a_gap() {
        let late = |resumed: bool| {
            let mut leader = leader(Disconnect::Hold);
            if resumed {
                let timeout = seconds(10);
                leader.step(at(3_000), Event::SessionResumed { timeout, sent_at: at(3_000) });
            }
            leader.step(at(3_000), Event::Committed { sent_at: at(3_000) });
            leads_until(&leader, at(3_000))
        };
        assert_eq!(late(false), at(6_890));
        assert_eq!(late(true), at(9_890));
    }

    #[test]
    fn a_leader_whose_answers_are_late_leads_on_by_a_shorter_term() {
        let mut leader = leader(Disconnect::Hold);
        // The terms are 6.89 s and 4.89 s.
        for (sent_at, until) in [(900, 6_890), (1_800, 6_890), (2_700, 7_590)] {
            leader.step(at(sent_at + 600), Event::Committed { sent_at: at(sent_at) });
            assert_eq!(leads_until(&leader, at(sent_at + 600)), at(until));
        }
        // And by the longest again, when the signs have come close to each other for three seconds.
        for (sent_at, until) in [(3_600, 8_490), (4_500, 9_390), (5_400, 10_290), (6_300, 13_190)] {
            leader.step(at(sent_at), Event::Committed { sent_at: at(sent_at) });
            assert_eq!(leads_until(&leader, at(sent_at)), at(until));
        }
    }

    #[test]
    fn a_lease_by_late_answers_is_cut_to_what_such_a_lease_would_have_been() {
        let mut leader = leader(Disconnect::Hold);
        leader.step(at(2_000), Event::Committed { sent_at: at(2_000) });
        leader.step(at(3_900), Event::Committed { sent_at: at(3_900) });
        assert_eq!(leads_until(&leader, at(3_900)), at(8_790));
        let resumed = |timeout| Event::SessionResumed { timeout, sent_at: at(4_000) };
        let mut cut = leader.clone();
        cut.step(at(4_000), resumed(seconds(8)));
        assert_eq!(leads_until(&cut, at(4_000)), at(6_792));
        // Six seconds allow for none.
        leader.step(at(4_000), resumed(seconds(6)));
        assert_eq!(leader.standing().at(at(4_000)), Role::Candidate);
    }

    #[test]
    fn whoever_only_stands_in_line_gives_fewer_signs_of_life_where_it_could_claim_by_them() {
        let due = |timeout, numbers: &[i32]| {
            let mut member = member(Disconnect::Hold);
            member.step(at(0), opened(seconds(timeout)));
            member.step(at(0), Event::TicketDrawn(ticket(*numbers.last().unwrap())));
            member.step(at(0), line(numbers));
            let head = ticket(numbers[0]);
            member.step(at(0), Event::HeadRead { head, says: None, sent_at: at(0) });
            member.wake_at().unwrap().0.as_millis()
        };
        assert!((875..=1000).contains(&due(10, &[1, 2])));
        assert!(
            (375..=500).contains(&due(6, &[1, 2])),
            "a session too short for the wider spacing"
        );
        let leader = leader(Disconnect::Hold);
        assert!((375..=500).contains(&leader.wake_at().unwrap().0.as_millis()));
    }

    #[test]
    fn a_session_too_short_to_lead_in_is_closed() {
        let mut member = member(Disconnect::Hold);
        assert_eq!(member.step(at(0), opened(seconds(1))), [Action::CloseSession]);
        assert!(member.standing().is_refused());
        assert_eq!(member.step(at(10_000), Event::Woke), [Action::OpenSession]);
    }

    #[test]
    fn a_session_too_short_to_end_what_is_done_in_it_is_closed() {
        let opened_by = |reserve_ms| {
            let mut member = member(Disconnect::Hold).reserving(Duration::from_millis(reserve_ms));
            member.step(at(0), opened(seconds(10)))
        };
        // The term is 6.89 s, the heartbeat 1 s.
        assert_eq!(opened_by(5_889), [Action::DrawTicket(profile("me"))]);
        assert_eq!(opened_by(5_890), [Action::CloseSession]);
    }

    #[test]
    fn only_who_is_to_step_down_gives_up_when_it_is_cut_off() {
        let cut = |disconnect| leader(disconnect).step(at(0), Event::Disconnected);
        assert_eq!(cut(Disconnect::Hold), []);
        assert_eq!(cut(Disconnect::StepDown), [Action::CloseSession, Action::OpenSession]);
    }

    #[test]
    fn whoever_has_left_the_line_is_named_no_more() {
        let mut last = in_line(Disconnect::Hold, &[1, 2, 3]);
        let predecessor = ticket(2).sequence;
        last.step(at(0), Event::PredecessorRead { predecessor, says: leads(2) });
        assert!(names(&last, 2));
        last.step(at(0), gone(2));
        assert!(names_nobody(&last), "its predecessor is gone");

        let mut third = follower(&[1, 2, 3]);
        third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
        assert!(names_nobody(&third), "the head is gone");

        let mut fourth = follower(&[1, 2, 3, 4]);
        fourth.step(at(0), gone(3));
        assert!(names(&fourth, 1), "another one is gone");
        fourth.step(at(0), line(&[2, 4]));
        assert!(names_nobody(&fourth), "the line begins behind the leader");
    }

    #[test]
    fn only_the_predecessor_is_moved_up_for() {
        assert_eq!(follower(&[1, 2, 3]).step(at(0), gone(1)), []);
        assert_eq!(follower(&[1, 2, 3]).step(at(0), gone(2)), [Action::ReadLine]);
    }

    #[test]
    fn only_who_stood_right_behind_the_head_knows_that_it_is_the_first_now() {
        let mut second = follower(&[1, 2]);
        assert!(matches!(second.step(at(0), gone(1))[..], [Action::Claim { .. }]));
        let mut third = follower(&[1, 2, 3]);
        third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
        assert_eq!(third.step(at(0), gone(2)), [Action::ReadLine]);
    }

    #[test]
    fn a_claim_that_is_answered_too_late_to_lead_is_followed_by_a_renewal() {
        let mut first = in_line(Disconnect::Hold, &[1]);
        assert_eq!(first.step(at(7_000), Event::Committed { sent_at: at(0) }), []);
        assert_eq!(first.standing().at(at(7_000)), Role::Candidate);
        assert_eq!(first.step(at(7_000), Event::Woke), [Action::Renew { sent_at: at(7_000) }]);
    }

    #[test]
    fn the_index_grows_with_what_is_told_and_with_nothing_else() {
        let mut second = follower(&[1, 2]);
        let index = second.standing().index_at(at(0));
        second.step(at(500), Event::Woke);
        assert_eq!(second.standing().index_at(at(0)), index);
        second.step(at(500), gone(1));
        assert_eq!(second.standing().index_at(at(0)), index + 1);

        let leader = leader(Disconnect::Hold).standing();
        assert_eq!(leader.index_at(at(6_889)) + 1, leader.index_at(at(6_890)));
    }

    #[test]
    fn a_lost_session_is_asked_for_anew() {
        assert_eq!(follower(&[1, 2]).step(at(0), Event::SessionLost), [Action::OpenSession]);
        let lost = leader(Disconnect::Hold).step(at(0), Event::SessionLost);
        assert_eq!(lost, [Action::OpenSession]);
    }

    #[test]
    fn only_the_ticket_that_we_hold_can_be_lost() {
        let lose = |lost| leader(Disconnect::Hold).step(at(0), Event::TicketLost(lost));
        assert_eq!(lose(ticket(2)), []);
        assert_eq!(lose(Ticket { token: FencingToken(2), ..ticket(1) }), []);
        assert_eq!(lose(ticket(1)), [Action::DrawTicket(profile("me"))]);
    }

    #[test]
    fn whoever_is_not_in_the_line_draws_a_ticket() {
        let drawn = follower(&[1, 2]).step(at(0), line(&[1, 3]));
        assert_eq!(drawn, [Action::DrawTicket(profile("me"))]);
    }

    #[test]
    fn nobody_is_told_that_who_is_behind_leads_or_that_it_leads_itself() {
        let hear = |leader: &str, number, token| {
            let mut third = in_line(Disconnect::Hold, &[1, 2, 3]);
            let ticket = Ticket { token: FencingToken(token), ..ticket(number) };
            let says = Some(Announcement { leader: profile(leader), ticket, active: true });
            let predecessor = Sequence::new(2).unwrap();
            third.step(at(0), Event::PredecessorRead { predecessor, says });
            third
        };
        assert!(names(&hear("first", 1, 1), 1));
        assert!(names_nobody(&hear("first", 4, 4)));
        assert!(names_nobody(&hear("first", 4, 1)), "whatever its token");
        assert!(names_nobody(&hear("me", 1, 1)), "an earlier life of ours");
    }

    /// Numbers begin anew when the path is created anew. Tokens never do.
    #[test]
    fn only_a_larger_token_than_that_of_who_has_left_is_news() {
        let hear = |token| {
            let mut third = follower(&[1, 2, 3]);
            third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
            let predecessor = ticket(2).sequence;
            let ticket = Ticket { token: FencingToken(token), ..ticket(2) };
            let says = Some(Announcement { leader: profile("first"), ticket, active: true });
            third.step(at(0), Event::PredecessorRead { predecessor, says });
            third
        };
        assert!(names_nobody(&hear(1)));
        assert!(names(&hear(2), 2));
    }

    fn head_says(member: &mut Member, sent_at: Moment, says: Option<Announcement>) {
        member.step(at(0), Event::HeadRead { head: ticket(1), says, sent_at });
    }

    #[test]
    fn only_the_term_that_is_on_is_acknowledged() {
        let margins = Margins { heartbeat: seconds(1), half_tick: seconds(1) };
        let activation = Activation::OnAcknowledgement { within: seconds(5) };
        let mut elected = Member::new(profile("me"), Policy { activation, ..Policy::new(margins) });
        elected.step(at(0), opened(seconds(10)));
        elected.step(at(0), Event::TicketDrawn(ticket(7)));
        elected.step(at(0), line(&[7]));
        elected.step(at(0), Event::Committed { sent_at: at(0) });
        let mut heed =
            |ms, token| elected.step(at(ms), Event::Acknowledge(FencingToken(token))).len();
        assert_eq!([heed(0, 6), heed(7_000, 7), heed(0, 7), heed(0, 7)], [0, 0, 1, 0]);
    }

    /// Two that see an empty line draw their tickets at once.
    #[test]
    fn whoever_ails_and_finds_somebody_ahead_makes_room_again() {
        let margins = Margins { heartbeat: seconds(1), half_tick: seconds(1) };
        let policy = Policy { unhealthy: Unhealthy::LeadAlone, ..Policy::new(margins) };
        let mut member = Member::new(profile("me"), policy).unhealthy_at_first();
        member.step(at(0), opened(seconds(10)));
        assert_eq!(member.step(at(0), line(&[])), [Action::DrawTicket(profile("me"))]);
        member.step(at(0), Event::TicketDrawn(ticket(2)));
        let left = member.step(at(0), line(&[1, 2]));
        assert_eq!(left, [Action::CloseSession, Action::OpenSession]);
    }

    #[test]
    fn whoever_is_to_be_healthy_first_opens_no_session_before() {
        let mut member = member(Disconnect::Hold).unhealthy_at_first();
        assert_eq!(member.start(), []);
        assert_eq!(member.step(at(0), Event::Unhealthy), []);
        assert_eq!(member.step(at(0), Event::Healthy), [Action::OpenSession]);
    }

    /// What a predecessor says, and the head when it was asked before that.
    #[test]
    fn an_older_look_at_the_head_contradicts_nothing() {
        let mut third = in_line(Disconnect::Hold, &[1, 2, 3]);
        let predecessor = ticket(2).sequence;
        third.step(at(100), Event::PredecessorRead { predecessor, says: leads(1) });
        head_says(&mut third, at(0), None);
        assert!(names(&third, 1));
        head_says(&mut third, at(101), None);
        assert!(names_nobody(&third));
    }

    /// Who left the line, and was said to lead, may have led nobody.
    #[test]
    fn a_token_larger_than_the_heads_does_not_outlive_who_bore_it() {
        let mut fourth = in_line(Disconnect::Hold, &[1, 2, 3]);
        let predecessor = ticket(2).sequence;
        fourth.step(at(0), Event::PredecessorRead { predecessor, says: leads(2) });
        fourth.step(at(0), gone(2));
        fourth.step(at(0), line(&[1, 3]));
        assert!(names_nobody(&fourth));
        head_says(&mut fourth, at(0), leads(1));
        assert!(names(&fourth, 1));
    }

    #[test]
    fn numbers_and_tokens_grow_together_along_the_line() {
        let hear = |number, token| {
            let mut fourth = in_line(Disconnect::Hold, &[1, 2, 3, 9]);
            fourth.step(at(0), Event::HeadRead { head: ticket(1), says: None, sent_at: at(0) });
            let ticket = Ticket { token: FencingToken(token), ..ticket(number) };
            let leads = Announcement { leader: profile("first"), ticket, active: true };
            let predecessor = Sequence::new(3).unwrap();
            fourth.step(at(0), Event::PredecessorRead { predecessor, says: Some(leads) });
            !names_nobody(&fourth)
        };
        assert!(hear(1, 1));
        assert!(hear(2, 5), "the head may be gone");
        for (number, token) in [(1, 2), (2, 1), (1, 0)] {
            assert!(!hear(number, token), "{number}, {token}");
        }
    }

    #[test]
    fn whoever_knew_the_head_asks_the_one_behind_it_and_then_reads_the_line() {
        let head_gone = |n| Event::HeadGone { head: ticket(n).sequence, sent_at: at(0) };
        let mut fourth = follower(&[1, 2, 3, 4]);
        head_says(&mut fourth, at(0), leads(1));
        let ask = Action::ReadHead { head: ticket(2).sequence, sent_at: at(0) };
        assert_eq!(fourth.step(at(0), head_gone(1)), [ask]);
        assert_eq!(fourth.step(at(0), head_gone(2)), []);
        assert_eq!(fourth.step(at(1_000), Event::Woke), [Action::ReadLine]);

        let mut second = follower(&[1, 2]);
        head_says(&mut second, at(0), leads(1));
        assert_eq!(second.step(at(0), head_gone(1)), [], "nobody is left ahead");
    }

    #[test]
    fn nobody_gets_ahead_of_the_head() {
        let mut fourth = follower(&[3, 5, 6]);
        assert_eq!(fourth.step(at(0), gone(5)), [Action::ReadLine]);
        fourth.step(at(0), line(&[1, 3, 4, 6]));
        assert_eq!(fourth.standing().place(), Some(3), "behind the third and the fourth");
        assert_eq!(fourth.step(at(0), gone(4)), [Action::ReadLine]);
        let ahead = fourth.step(at(0), line(&[1, 3, 6]));
        assert_eq!(ahead, [Action::WatchPredecessor(ticket(3).sequence)]);
    }

    #[test]
    fn who_was_lied_to_hears_only_the_head_until_there_is_another() {
        let mut fifth = in_line(Disconnect::Hold, &[1, 2, 3, 4, 5]);
        let lie = |from: i32| Event::PredecessorRead {
            predecessor: ticket(from).sequence,
            says: leads(2),
        };
        fifth.step(at(0), lie(4));
        assert!(names(&fifth, 2));
        head_says(&mut fifth, at(1), leads(1));
        fifth.step(at(2), gone(4));
        fifth.step(at(2), line(&[1, 2, 3, 5]));
        fifth.step(at(2), lie(3));
        assert!(names(&fifth, 1), "another liar, the same head");
        fifth.step(at(3), gone(3));
        fifth.step(at(3), line(&[2, 5]));
        fifth.step(at(3), lie(2));
        assert!(names(&fifth, 2), "another head");
    }

    #[test]
    fn whoever_is_next_sees_whether_the_head_has_gone() {
        let hear = |line: &[i32], from, leader| {
            let predecessor = ticket(from).sequence;
            let mut last = in_line(Disconnect::Hold, line);
            let told = Event::PredecessorRead { predecessor, says: leads(leader) };
            head_says(&mut last, at(0), None);
            let actions = last.step(at(10), told);
            actions.contains(&Action::ReadHead { head: ticket(1).sequence, sent_at: at(10) })
        };
        assert!(hear(&[1, 2, 3], 2, 2));
        assert!(!hear(&[1, 2, 3], 2, 1), "the head leads");
        assert!(!hear(&[1, 2], 1, 1), "our predecessor is the head");
        assert!(!hear(&[1, 2, 3, 4], 3, 2), "another is next");
    }

    #[test]
    fn whoever_misses_the_head_reads_the_line() {
        let mut third = in_line(Disconnect::Hold, &[1, 2, 3]);
        third.step(at(0), Event::HeadGone { head: ticket(1).sequence, sent_at: at(0) });
        assert_eq!(third.step(at(1_000), Event::Woke), [Action::ReadLine]);
    }

    #[test]
    fn a_standing_is_the_same_until_there_is_something_to_tell() {
        let mut third = in_line(Disconnect::Hold, &[1, 2, 3]);
        head_says(&mut third, at(0), leads(1));
        let before = third.standing();
        assert_eq!(third.step(at(1_000), Event::Woke).len(), 1);
        let sent_at = at(1_000);
        third.step(at(1_100), Event::HeadRead { head: ticket(1), says: leads(1), sent_at });
        assert_eq!(third.standing(), before);

        let mut leader = leader(Disconnect::Hold);
        let before = leader.standing();
        leader.step(at(500), Event::Woke);
        assert_eq!(leader.standing(), before);
        leader.step(at(600), Event::Committed { sent_at: at(500) });
        assert_ne!(leader.standing(), before, "its lease is longer");
    }

    #[test]
    fn what_changes_nothing_is_not_told() {
        let mut leader = leader(Disconnect::Hold);
        let mut tell = |address: Option<&str>| {
            let (address, labels) = (address.map(str::to_owned), BTreeMap::new());
            leader.step(at(0), Event::Describe { address, labels }).len()
        };
        assert_eq!([tell(None), tell(Some("h:1")), tell(Some("h:1")), tell(None)], [0, 1, 0, 1]);
    }

    #[test]
    fn an_older_write_proves_no_claim() {
        let mut second = follower(&[1, 2]);
        second.step(at(100), gone(1));
        second.step(at(100), line(&[2]));
        second.step(at(200), Event::Committed { sent_at: at(0) });
        assert_eq!(second.standing().at(at(200)), Role::Candidate);
        second.step(at(200), Event::Committed { sent_at: at(100) });
        assert_eq!(leads_until(&second, at(200)), at(6_990));
    }

    #[test]
    fn a_leader_without_an_answer_wakes_at_the_end_of_its_lease() {
        let mut leader = leader(Disconnect::Hold);
        leader.step(at(500), Event::Woke);
        assert_eq!(leader.wake_at(), Some(at(6_890)));
    }
}
