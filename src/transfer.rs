//! Moves leadership to another member: names the target, waits until it has accepted, and hands over.
//!
//! Until then this member leads on, so that a transfer which comes to nothing costs no term.

use crate::clock::Clock;
use crate::counters::outcome;
use crate::status::{CommandError, RecentChanges, StatusHandle};
use recipes::election::{Announcement, ChangeKind, Command, Offer, Role, Standing, TransferTarget};
use recipes::{FencingToken, Moment, Sequence, Ticket};
use std::fmt;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The shortest wait for the announcement of the next leader.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How old a reading of the queue may be, and a little more.
const READING: Duration = Duration::from_millis(1100);
/// How many heartbeats a member has to become ready before the next one is tried, where any will do.
const HEARTBEATS: u32 = 3;

/// Leadership was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferDone {
    pub leader: Announcement,
    /// From the end of the old term until this member heard of the new one: an upper bound of the time without a leader.
    pub leaderless: Duration,
}

/// Why leadership was not moved to the member that was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead.
    NotLeader,
    /// The target is this member.
    Itself,
    /// No such member is in the queue, or no other at all.
    NotInQueue(Option<String>),
    /// The target has left the queue since.
    Gone,
    /// The target has not accepted in time.
    NotReady,
    /// Another target was named meanwhile: its number.
    Replaced(Sequence),
    /// This member ceased to lead meanwhile.
    LeadsNoMore,
    /// The queue cannot be read: why.
    Unread(String),
    /// It is not known whether the election got the command.
    Undone(CommandError),
    /// This member has handed over, and knows no leader yet.
    Unheard,
    /// This member has handed over, and another leads than the one that was wanted.
    AnotherLeads(Announcement),
}

/// Has this member, which leads, hand over to the member with this id, or to any that is ready, within this time.
///
/// If the future is dropped before that, this member leads on.
///
/// # Errors
/// Why the member that was wanted does not lead.
pub async fn transfer(
    status: &StatusHandle,
    clock: Clock,
    to: Option<&str>,
    within: Duration,
) -> Result<TransferDone, Refusal> {
    let mut attempt = Attempt::begun(status, clock, within)?;
    let result = attempt.carried_out(to).await;
    status.meter.transfers.with_label_values(&[outcome(result.is_ok())]).inc();
    result
}

/// Transfers leadership from this member to this one of higher priority, if it is time for it.
///
/// # Errors
/// Why that member does not lead.
pub async fn preempt(
    status: &StatusHandle,
    clock: Clock,
    preferred: Sequence,
    within: Duration,
) -> Result<TransferDone, Refusal> {
    let mut attempt = Attempt::begun(status, clock, within)?;
    let result = attempt.preempted_by(preferred).await;
    status.meter.preemptions.with_label_values(&[outcome(result.is_ok())]).inc();
    result
}

struct Attempt<'a> {
    status: &'a StatusHandle,
    clock: Clock,
    /// The term that is to end.
    own: Announcement,
    within: Duration,
    /// The last offer that was made.
    named: Option<Offer>,
    /// The refusal to return if the time is over now.
    late: Refusal,
}

impl<'a> Attempt<'a> {
    fn begun(status: &'a StatusHandle, clock: Clock, within: Duration) -> Result<Self, Refusal> {
        let role = status.snapshot.borrow().standing.at(clock.now());
        let Role::Leader { announcement, .. } = role else { return Err(Refusal::NotLeader) };
        Ok(Self { status, clock, own: announcement, within, named: None, late: Refusal::NotReady })
    }

    async fn carried_out(&mut self, to: Option<&str>) -> Result<TransferDone, Refusal> {
        let accepted = timeout(self.within, self.accepted(to)).await;
        let own = self.own.leader.id.clone();
        let ended = match accepted.unwrap_or_else(|_| Err(self.late.clone())) {
            Ok(offer) => {
                self.hand_over(offer, |leader| match to {
                    Some(to) => leader.leader.id.as_str() == to,
                    None => leader.leader.id != own,
                })
                .await
            }
            Err(refusal) => Err(refusal),
        };
        self.ended(ended).await
    }

    async fn preempted_by(&mut self, preferred: Sequence) -> Result<TransferDone, Refusal> {
        let until = self.until();
        let accepted = self.accepted_by(preferred, Command::Preempt { until }, self.within).await;
        let ended = match accepted {
            Ok(offer) => self.hand_over(offer, |leader| leader.ticket.sequence == preferred).await,
            Err(refusal) => Err(refusal),
        };
        self.ended(ended).await
    }

    /// Has the member forget the offer of an attempt that came to nothing.
    async fn ended(&self, ended: Result<TransferDone, Refusal>) -> Result<TransferDone, Refusal> {
        if let (Err(_), Some(offer)) = (&ended, self.named) {
            // The member has forgotten it if it leads no more, or has another target; else it forgets it in time.
            let _done = self.status.command(Command::CancelTransfer(offer), self.clock.now()).await;
        }
        ended
    }

    /// Waits until a target has accepted. Where any will do, those that are not ready are passed over.
    async fn accepted(&mut self, to: Option<&str>) -> Result<Offer, Refusal> {
        if let Some(to) = to {
            return self.accepted_by_one(to).await;
        }
        loop {
            for target in self.found(None, None).await? {
                match self.accepts(target, HEARTBEATS * self.status.heartbeat).await {
                    Err(Refusal::Gone | Refusal::NotReady) => {}
                    ended => return ended,
                }
            }
            sleep(READING).await;
        }
    }

    /// As `accepted`, by the member with this id. If it leaves its place, to make way for the target of another transfer, it
    /// is asked again at the next one.
    async fn accepted_by_one(&mut self, to: &str) -> Result<Offer, Refusal> {
        if to == self.own.leader.id.as_str() {
            return Err(Refusal::Itself);
        }
        let mut gone = None;
        loop {
            // Of two with one id, one may be an earlier life, which came first.
            let target = self.found(Some(to), gone).await?.pop().expect("there is at least one");
            match self.accepts(target, self.within).await {
                Err(Refusal::Gone) => gone = Some(target),
                ended => return ended,
            }
        }
    }

    /// Returns the members behind this one that have this id, or any, in order, but for one that is gone: at least one.
    async fn found(
        &mut self,
        to: Option<&str>,
        gone: Option<Sequence>,
    ) -> Result<Vec<Sequence>, Refusal> {
        let absent = match gone {
            None => Refusal::NotInQueue(to.map(str::to_owned)),
            Some(_) => Refusal::Gone,
        };
        self.late = absent.clone();
        let mut targets = self.targets(to, gone).await?;
        if targets.is_empty() {
            // The target may have joined since the queue was read.
            sleep(READING).await;
            targets = self.targets(to, gone).await?;
        }
        self.late = Refusal::NotReady;
        if targets.is_empty() { Err(absent) } else { Ok(targets) }
    }

    async fn targets(
        &self,
        to: Option<&str>,
        gone: Option<Sequence>,
    ) -> Result<Vec<Sequence>, Refusal> {
        let queue = self.status.members().await.map_err(Refusal::Unread)?;
        let behind =
            queue.members.iter().filter(|entry| entry.ticket.sequence > self.own.ticket.sequence);
        let wanted = behind.filter(|entry| {
            let id = entry.profile.as_ref().map(|profile| profile.id.as_str());
            id.is_some_and(|id| to.is_none_or(|to| to == id))
        });
        let sequences = wanted.map(|entry| entry.ticket.sequence);
        Ok(sequences.filter(|target| Some(*target) != gone).collect())
    }

    async fn accepts(&mut self, target: Sequence, at_most: Duration) -> Result<Offer, Refusal> {
        let until = self.until();
        self.accepted_by(target, Command::Transfer { target, until }, at_most).await
    }

    /// Returns when an offer that is made now is given up: it outlasts the end of a command that `exec` runs.
    fn until(&self) -> Moment {
        self.clock.now().after(self.within + self.status.patience)
    }

    async fn accepted_by(
        &mut self,
        target: Sequence,
        offering: Command,
        at_most: Duration,
    ) -> Result<Offer, Refusal> {
        self.command(offering).await?;
        let named = self.status.snapshot.borrow().standing.target();
        let Some((offer, _)) = named.filter(|(offer, _)| offer.target == target) else {
            return Err(
                named.map_or(Refusal::LeadsNoMore, |(named, _)| Refusal::Replaced(named.target))
            );
        };
        self.named = Some(offer);
        let mut seen = Err(Refusal::NotReady);
        let settled = self.status.until(at_most, |snapshot| {
            seen = self.judged(&snapshot.standing, offer);
            seen != Err(Refusal::NotReady)
        });
        let _or_late = settled.await;
        seen
    }

    /// Judges the state of this offer.
    fn judged(&self, standing: &Standing, offer: Offer) -> Result<Offer, Refusal> {
        match standing.target() {
            Some((named, _)) if named != offer => Err(Refusal::Replaced(named.target)),
            Some((_, TransferTarget::Awaited)) => Err(Refusal::NotReady),
            Some((_, TransferTarget::Gone)) => Err(Refusal::Gone),
            Some((_, TransferTarget::Ready)) => Ok(offer),
            None if self.leads(standing) => Err(Refusal::NotReady),
            None => Err(Refusal::LeadsNoMore),
        }
    }

    async fn hand_over(
        &self,
        offer: Offer,
        is_wanted: impl Fn(&Announcement) -> bool,
    ) -> Result<TransferDone, Refusal> {
        self.command(Command::HandOver(offer)).await?;
        let standing = self.status.snapshot.borrow().standing.clone();
        if self.leads(&standing) {
            return Err(self.judged(&standing, offer).err().unwrap_or(Refusal::NotReady));
        }
        let Ticket { token, .. } = self.own.ticket;
        let patience = self.within.max(RESPONSE_TIMEOUT);
        let heard = self
            .status
            .until(patience, |snapshot| successor(&snapshot.recent_changes, token).is_some());
        let _or_late = heard.await;
        let found = successor(&self.status.snapshot.borrow().recent_changes, token);
        let (leader, leaderless) = found.ok_or(Refusal::Unheard)?;
        match is_wanted(&leader) {
            true => Ok(TransferDone { leader, leaderless }),
            false => Err(Refusal::AnotherLeads(leader)),
        }
    }

    async fn command(&self, command: Command) -> Result<(), Refusal> {
        let done = self.status.command(command, self.clock.now()).await;
        done.map(drop).map_err(Refusal::Undone)
    }

    /// Whether the term that is to end goes on.
    fn leads(&self, standing: &Standing) -> bool {
        standing.way().is_some() && standing.ticket() == Some(self.own.ticket)
    }
}

/// Returns the leader that was heard of first after this term, and how long after its end.
fn successor(changes: &RecentChanges, term: FencingToken) -> Option<(Announcement, Duration)> {
    let ended = changes.iter().find(|entry| {
        entry.change.kind == ChangeKind::LostLeadership && entry.change.token == Some(term)
    })?;
    changes.iter().find_map(|entry| {
        let leader =
            entry.change.view().leader().cloned().filter(|entry| entry.ticket.token > term)?;
        // The wall clock may have been set back.
        Some((leader, entry.at.duration_since(ended.at).unwrap_or_default()))
    })
}

impl Refusal {
    /// Returns the name for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotLeader => "not-leader",
            Self::Itself => "already-leader",
            Self::NotInQueue(_) => "no-such-member",
            Self::Gone => "target-gone",
            Self::NotReady => "target-not-ready",
            Self::Replaced(_) => "another-target",
            Self::LeadsNoMore => "no-longer-leader",
            Self::Unread(_) => "queue-unavailable",
            Self::Undone(_) => "command-pending",
            Self::Unheard => "no-leader",
            Self::AnotherLeads(_) => "another-leads",
        }
    }
}

/// Explains it to operators.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OUT: &str =
            "it is stopped, paused, or its application is not healthy (see its own /status)";
        match self {
            Self::NotLeader => f.write_str("this member does not lead"),
            Self::Itself => f.write_str("it leads already"),
            Self::NotInQueue(Some(id)) => write!(f, "{id:?} is not in the queue: {OUT}"),
            Self::NotInQueue(None) => f.write_str("no other member is in the queue"),
            Self::Gone => write!(f, "the target has left the queue: {OUT}; this member leads on"),
            Self::NotReady => f.write_str(
                "no target was ready in time: it, or a member between, has no connection or no lease, or is of a version \
                 without transfers; this member leads on",
            ),
            Self::Replaced(target) => write!(
                f,
                "a later transfer made the member with the number {target} the target: only the last one counts. See /members \
                 for who it is, and transfer again if another is to lead after all"
            ),
            Self::LeadsNoMore => {
                f.write_str("this member ceased to lead before the target was ready (see /history)")
            }
            Self::Unread(why) => write!(f, "the queue cannot be read: {why}"),
            Self::Undone(_) => f.write_str("the election was not told in time"),
            Self::Unheard => {
                f.write_str("this member has handed over, and has not heard yet who leads")
            }
            Self::AnotherLeads(leader) => write!(
                f,
                "the target was gone when this member had handed over: {} leads, with token {}",
                leader.leader.id, leader.ticket.token
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Meter;
    use crate::status::{
        self, MemberEntry, MemberRequest, QueueReading, RecordedChange, ReplyTo, StatusPublisher,
    };
    use recipes::election::{Cause, Event, Member, Policy, Profile, changes};
    use recipes::{Margins, MemberId, SessionId};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    const MINUTE: Duration = Duration::from_secs(60);

    /// What the members behind do when they read an offer.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Behind {
        Accept,
        /// The first is passed over, the others accept.
        AllButTheFirstAccept,
        AcceptAndVanish,
        Leave,
        /// The second makes way for another target, and joins again as number 4.
        SecondRejoins,
        Nothing,
    }

    fn transfers(meter: &Meter) -> [u64; 2] {
        ["done", "failed"].map(|result| meter.transfers.with_label_values(&[result]).get())
    }

    #[tokio::test(start_paused = true)]
    async fn the_target_that_was_named_leads_and_the_answer_has_its_token() {
        let (done, runner) = transferred(Behind::Accept, Some("c"), MINUTE).await;
        let TransferDone { leader, leaderless } = done.expect("it accepted");
        assert_eq!((leader.leader.id.as_str(), leader.ticket), ("c", ticket(3)));
        assert!(leaderless < MINUTE);
        assert_eq!(transfers(&runner.status.meter), [1, 0]);
        let causes: Vec<_> = runner.recent_changes.iter().map(|entry| entry.cause).collect();
        assert!(causes.contains(&Cause::Transferred), "{causes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_name_one_that_is_not_ready_is_passed_over() {
        let (done, _) = transferred(Behind::Accept, None, MINUTE).await;
        assert_eq!(done.expect("it accepted").leader.ticket, ticket(2));
        let (done, _) = transferred(Behind::AllButTheFirstAccept, None, MINUTE).await;
        assert_eq!(done.expect("it accepted").leader.ticket, ticket(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_comes_to_nothing_says_why_and_leaves_no_target() {
        for (behind, to, expected) in [
            (Behind::Nothing, Some("b"), Refusal::NotReady),
            (Behind::Nothing, None, Refusal::NotReady),
            (Behind::Leave, Some("b"), Refusal::Gone),
            (Behind::Accept, Some("a"), Refusal::Itself),
            (Behind::Accept, Some("z"), Refusal::NotInQueue(Some("z".into()))),
        ] {
            let (done, runner) = transferred(behind, to, MINUTE).await;
            assert_eq!(done, Err(expected.clone()));
            let now = runner.clock.now();
            let is_leader = matches!(runner.member.standing().at(now), Role::Leader { .. });
            assert!(is_leader, "{expected}");
            assert_eq!(runner.member.standing().target(), None, "{expected}");
            assert_eq!(transfers(&runner.status.meter), [0, 1]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_target_that_has_made_way_for_another_is_asked_at_its_next_place() {
        let (done, _) = transferred(Behind::SecondRejoins, Some("b"), MINUTE).await;
        assert_eq!(done.expect("it accepted").leader.ticket, ticket(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_not_there_is_not_said_to_be_unready_however_short_the_time_is() {
        let (done, _) = transferred(Behind::Accept, Some("z"), Duration::from_millis(1)).await;
        assert_eq!(done, Err(Refusal::NotInQueue(Some("z".into()))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_target_that_is_gone_once_leadership_was_given_up_is_told_of() {
        let (done, _) = transferred(Behind::AcceptAndVanish, Some("b"), MINUTE).await;
        let Err(Refusal::AnotherLeads(leader)) = done else { panic!("{done:?}") };
        assert_eq!(leader.ticket, ticket(3));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_target_that_was_named_last_is_waited_for() {
        let mut runner = TransferFixture::new(Behind::Nothing);
        let status = runner.status.clone();
        let clock = runner.clock;
        let first = transfer(&status, clock, Some("b"), MINUTE);
        let second = async {
            // The first has named its target by then.
            let _named = status.until(MINUTE, |entry| entry.standing.target().is_some()).await;
            transfer(&status, clock, Some("c"), 2 * MINUTE).await
        };
        let both = async { tokio::join!(first, second) };
        let (first, second) = tokio::select! {
            both = both => both,
            () = runner.run() => unreachable!("it runs for ever"),
        };
        assert_eq!((first, second), (Err(Refusal::Replaced(sequence(3))), Err(Refusal::NotReady)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_transfers_and_only_while_it_leads() {
        let mut runner = TransferFixture::new(Behind::Nothing);
        let status = runner.status.clone();
        let clock = runner.clock;
        let asked = transfer(&status, clock, Some("b"), MINUTE);
        let paused = async {
            let _named = status.until(MINUTE, |entry| entry.standing.target().is_some()).await;
            status.command(Command::Pause, clock.now()).await
        };
        let both = async { tokio::join!(asked, paused) };
        let (asked, _) = tokio::select! {
            both = both => both,
            () = runner.run() => unreachable!("it runs for ever"),
        };
        assert_eq!(asked, Err(Refusal::LeadsNoMore));
        let again = transfer(&status, clock, Some("b"), MINUTE).await;
        assert_eq!(again, Err(Refusal::NotLeader));
        assert_eq!(transfers(&status.meter), [0, 1], "the second was none");
    }

    async fn transferred(
        behind: Behind,
        to: Option<&str>,
        within: Duration,
    ) -> (Result<TransferDone, Refusal>, TransferFixture) {
        let mut runner = TransferFixture::new(behind);
        let status = runner.status.clone();
        let clock = runner.clock;
        let done = tokio::select! {
            done = transfer(&status, clock, to, within) => done,
            () = runner.run() => unreachable!("it runs for ever"),
        };
        (done, runner)
    }

    /// A leader, a, ahead of b and c, and what is needed to run it.
    struct TransferFixture {
        member: Member,
        publisher: StatusPublisher,
        status: StatusHandle,
        clock: Clock,
        behind: Behind,
        recent_changes: Arc<RecentChanges>,
        rejoined: bool,
    }

    impl TransferFixture {
        fn new(behind: Behind) -> Self {
            let second = Duration::from_secs(1);
            let policy = Policy::new(Margins { heartbeat: second, half_tick: second });
            let member = Member::new(profile("a"), policy);
            let clock = Clock::system();
            let (publisher, status) = status::set_up(&member, clock.now());
            let recent_changes = Arc::default();
            let rejoined = false;
            let mut runner =
                Self { member, publisher, status, clock, behind, recent_changes, rejoined };
            let timeout = Duration::from_secs(600);
            let sent_at = clock.now();
            for event in [
                Event::SessionOpened { session: SessionId(1), timeout, sent_at },
                Event::Joined(ticket(1)),
                Event::QueueRead([1, 2, 3].map(sequence).into_iter().collect()),
            ] {
                runner.step(event);
            }
            let sent_at = clock.now();
            runner.step(Event::Committed { sent_at });
            runner
        }

        async fn run(&mut self) {
            while let Some(request) = self.publisher.requests.recv().await {
                match request {
                    MemberRequest::Members(answer) => {
                        let entries = match self.rejoined {
                            false => [(1, "a"), (2, "b"), (3, "c")],
                            true => [(1, "a"), (3, "c"), (4, "b")],
                        };
                        let entries = entries.map(|(n, id)| entry(n, id));
                        // A transfer whose time is over waits no more.
                        let _unheard =
                            answer.send(Ok(QueueReading { index: 1, members: entries.into() }));
                    }
                    MemberRequest::Tell(_) => {}
                    MemberRequest::Carry(command, caller) => self.carry(command, caller),
                }
            }
        }

        fn carry(&mut self, command: Command, caller: ReplyTo) {
            self.step(Event::Command(command.clone()));
            caller.tell(true);
            match command {
                Command::Transfer { target, .. } => self.answer_offer(target),
                Command::HandOver(offer) => self.rejoin(offer.target),
                _ => {}
            }
        }

        fn answer_offer(&mut self, target: Sequence) {
            let (offer, _) = self.member.standing().target().expect("it leads");
            let accepted = Event::TargetRead { target, accepted: Some(offer) };
            match self.behind {
                Behind::Accept | Behind::AcceptAndVanish => self.step(accepted),
                Behind::AllButTheFirstAccept if target != ticket(2).sequence => self.step(accepted),
                Behind::SecondRejoins if target != ticket(2).sequence => self.step(accepted),
                Behind::Leave | Behind::SecondRejoins => {
                    self.rejoined = self.behind == Behind::SecondRejoins;
                    self.step(Event::TargetGone { target });
                }
                _ => {}
            }
        }

        /// It is behind the next leader.
        fn rejoin(&mut self, target: Sequence) {
            let vanished = self.behind == Behind::AcceptAndVanish;
            let (leader, id) = match target.number() {
                2 if !vanished => (ticket(2), "b"),
                4 => (ticket(4), "b"),
                _ => (ticket(3), "c"),
            };
            let timeout = Duration::from_secs(600);
            let sent_at = self.clock.now();
            let announcement = Announcement { leader: profile(id), ticket: leader };
            let announcement = Some(announcement);
            for event in [
                Event::SessionOpened { session: SessionId(2), timeout, sent_at },
                Event::Joined(ticket(9)),
                Event::QueueRead([leader.sequence, sequence(9)].into_iter().collect()),
                Event::PredecessorRead { predecessor: leader, announcement },
            ] {
                self.step(event);
            }
        }

        fn step(&mut self, event: Event) {
            let now = self.clock.now();
            let before = self.member.standing();
            let _undone = self.member.step(now, event.clone());
            let standing = self.member.standing();
            let cause = Cause::of(&event, &before, now);
            for change in changes(&self.recent_changes.view(), &standing.at(now)) {
                let index = standing.index_at(now);
                let at = self.clock.date();
                let recorded = RecordedChange { change, index, at, cause, down_for: None };
                Arc::make_mut(&mut self.recent_changes).push(recorded);
            }
            let recent_changes = self.recent_changes.clone();
            self.publisher.amend(|snapshot| {
                (snapshot.standing, snapshot.recent_changes) = (standing, recent_changes);
            });
        }
    }

    fn entry(number: i32, id: &str) -> MemberEntry {
        let profile = Some((*profile(id)).clone());
        MemberEntry { profile, ..MemberEntry::of_unknown(ticket(number), SystemTime::UNIX_EPOCH) }
    }

    fn profile(id: &str) -> Arc<Profile> {
        let id = MemberId::new(id).unwrap();
        let labels = BTreeMap::new();
        Arc::new(Profile { id, address: None, labels, revision: 0 })
    }

    fn ticket(number: i32) -> Ticket {
        Ticket { sequence: sequence(number), token: FencingToken(number.unsigned_abs().into()) }
    }

    fn sequence(number: i32) -> Sequence {
        Sequence::new(number).unwrap()
    }
}
