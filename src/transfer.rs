//! Moves leadership from this member to another one: offers leadership to the target, waits until the target has accepted,
//! and hands over. All of that is done by commands to the runner.
//!
//! Until the hand-over this member keeps leading, so that a transfer that fails does not end its term.

use crate::clock::Clock;
use crate::counters::outcome;
use crate::status::{CommandError, RecentChanges, RecordedChange, StatusHandle};
use recipes::election::{Announcement, ChangeKind, Command, Offer, Role, Standing, TransferTarget};
use recipes::{FencingToken, Moment, Sequence, Ticket};
use std::fmt;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// After the hand-over, the announcement of the next leader is awaited for at least this long.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait between two readings of the queue. It is slightly longer than the time for which a reading is reused, so that
/// the second reading is a new one.
const QUEUE_READ_INTERVAL: Duration = Duration::from_millis(1100);
/// If no target was named, each member has this many heartbeats to accept an offer. Then the next member gets an offer.
const HEARTBEATS_TO_ACCEPT: u32 = 3;

/// The outcome of a transfer that moved leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferDone {
    pub leader: Announcement,
    /// The time from the end of the old term until this member learned of the new term: an upper bound of the time without
    /// a leader.
    pub leaderless: Duration,
}

/// Why leadership was not moved to the intended member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead.
    NotLeader,
    /// The target is this member, which leads already.
    AlreadyLeader,
    /// The member with this id is not in the queue. With `None`: no other member is in the queue.
    NotInQueue(Option<String>),
    /// The target has left the queue since the offer.
    Gone,
    /// The target has not accepted the offer in time.
    NotReady,
    /// Another transfer has made the member with this sequence number the target.
    Replaced(Sequence),
    /// This member stopped leading meanwhile.
    NoLongerLeader,
    /// The queue cannot be read, for this reason.
    QueueUnavailable(String),
    /// A command of the transfer is not known to have been carried out, for this reason.
    CommandPending(CommandError),
    /// This member has handed over, but has not learned in time who leads.
    LeaderUnknown,
    /// This member has handed over, but a member other than the intended one leads.
    AnotherLeads(Announcement),
}

/// Transfers leadership from this member to the member with the id `to`, or with `None`, to any member that is ready. The
/// target must accept before the time `within` has passed.
///
/// If the future is dropped before the hand-over, this member keeps leading.
///
/// # Errors
/// The reason why the intended member does not lead.
pub async fn transfer(
    status: &StatusHandle,
    clock: Clock,
    to: Option<&str>,
    within: Duration,
) -> Result<TransferDone, Refusal> {
    let mut attempt = Attempt::begin(status, clock, within)?;
    let accepted = match timeout(within, attempt.find_accepting(to)).await {
        Ok(accepted) => accepted,
        Err(_) => Err(attempt.error_on_timeout.clone()),
    };
    let own_id = &attempt.own_term.leader.id;
    let finishing = attempt.finish(accepted, |leader| match to {
        Some(to) => leader.leader.id.as_str() == to,
        None => leader.leader.id != *own_id,
    });
    let result = finishing.await;
    status.meter.transfers.with_label_values(&[outcome(result.is_ok())]).inc();
    result
}

/// Transfers leadership from this member to `preferred`, a member of higher priority, if the preemption is still due. The
/// target must accept before the time `within` has passed.
///
/// # Errors
/// The reason why `preferred` does not lead.
pub async fn preempt(
    status: &StatusHandle,
    clock: Clock,
    preferred: Sequence,
    within: Duration,
) -> Result<TransferDone, Refusal> {
    let mut attempt = Attempt::begin(status, clock, within)?;
    let until = attempt.offer_expiry();
    let accepted = attempt.make_offer(preferred, Command::Preempt { until }, within).await;
    let result = attempt.finish(accepted, |leader| leader.ticket.sequence == preferred).await;
    status.meter.preemptions.with_label_values(&[outcome(result.is_ok())]).inc();
    result
}

/// One attempt to transfer leadership.
struct Attempt<'a> {
    status: &'a StatusHandle,
    clock: Clock,
    /// The announcement of this member's term, which is to end.
    own_term: Announcement,
    /// The time limit for finding a target that accepts.
    within: Duration,
    /// The last offer that was made. It is cancelled if the attempt fails.
    last_offer: Option<Offer>,
    /// The error to return if the time limit passes during the current step.
    error_on_timeout: Refusal,
}

impl<'a> Attempt<'a> {
    /// Begins an attempt. Fails unless this member leads.
    fn begin(status: &'a StatusHandle, clock: Clock, within: Duration) -> Result<Self, Refusal> {
        let role = status.snapshot.borrow().standing.at(clock.now());
        let Role::Leader { announcement, .. } = role else { return Err(Refusal::NotLeader) };
        Ok(Self {
            status,
            clock,
            own_term: announcement,
            within,
            last_offer: None,
            error_on_timeout: Refusal::NotReady,
        })
    }

    /// Hands over if a target has accepted, and cancels the last offer if the attempt fails. `is_intended` returns true for
    /// a next leader with which the transfer has succeeded.
    async fn finish(
        &self,
        accepted: Result<Offer, Refusal>,
        is_intended: impl Fn(&Announcement) -> bool,
    ) -> Result<TransferDone, Refusal> {
        let result = match accepted {
            Ok(offer) => self.hand_over(offer, is_intended).await,
            Err(refusal) => Err(refusal),
        };
        if result.is_err()
            && let Some(offer) = self.last_offer
        {
            // The outcome does not matter: a member that no longer leads, or has another target, has dropped the offer
            // already, and otherwise the offer expires.
            let _done = self.status.command(Command::CancelTransfer(offer), self.clock.now()).await;
        }
        result
    }

    /// Waits until the member with the id `to` has accepted an offer. With `None`, makes an offer to one member after the
    /// other in the order of the queue, again and again, until a member accepts. The caller limits the time.
    async fn find_accepting(&mut self, to: Option<&str>) -> Result<Offer, Refusal> {
        if let Some(to) = to {
            return self.offer_to_member(to).await;
        }
        loop {
            for target in self.find_targets(None, None).await? {
                match self.offer_to(target, HEARTBEATS_TO_ACCEPT * self.status.heartbeat).await {
                    Err(Refusal::Gone | Refusal::NotReady) => {}
                    accepted_or_failed => return accepted_or_failed,
                }
            }
            sleep(QUEUE_READ_INTERVAL).await;
        }
    }

    /// Waits until the member with the id `to` has accepted. If the member leaves its place to make room for the target of
    /// another transfer, it gets another offer at its next place.
    async fn offer_to_member(&mut self, to: &str) -> Result<Offer, Refusal> {
        if to == self.own_term.leader.id.as_str() {
            return Err(Refusal::AlreadyLeader);
        }
        let mut gone = None;
        loop {
            // Take the last of several znodes with this id: the others may belong to earlier sessions of the member.
            let target =
                self.find_targets(Some(to), gone).await?.pop().expect("there is at least one");
            match self.offer_to(target, self.within).await {
                Err(Refusal::Gone) => gone = Some(target),
                accepted_or_failed => return accepted_or_failed,
            }
        }
    }

    /// Returns the sequence numbers of the members behind this member, in order: the members with the id `to`, or with
    /// `None`, all members. Leaves out `gone`, the number of a place that the target has left. Fails if two readings show no
    /// such member, so the list is never empty.
    async fn find_targets(
        &mut self,
        to: Option<&str>,
        gone: Option<Sequence>,
    ) -> Result<Vec<Sequence>, Refusal> {
        let absent = match gone {
            None => Refusal::NotInQueue(to.map(str::to_owned)),
            Some(_) => Refusal::Gone,
        };
        self.error_on_timeout = absent.clone();
        let mut targets = self.read_targets(to, gone).await?;
        if targets.is_empty() {
            // The target may have joined since the queue was read.
            sleep(QUEUE_READ_INTERVAL).await;
            targets = self.read_targets(to, gone).await?;
        }
        self.error_on_timeout = Refusal::NotReady;
        if targets.is_empty() { Err(absent) } else { Ok(targets) }
    }

    /// Reads the queue, and returns the matching members behind this member. The list may be empty.
    async fn read_targets(
        &self,
        to: Option<&str>,
        gone: Option<Sequence>,
    ) -> Result<Vec<Sequence>, Refusal> {
        let queue = self.status.members().await.map_err(Refusal::QueueUnavailable)?;
        let mut targets = vec![];
        for entry in queue.members.iter() {
            let sequence = entry.ticket.sequence;
            // Without a profile, the znode belongs to another ZooKeeper client.
            let Some(profile) = &entry.profile else { continue };
            let is_match = match to {
                Some(to) => profile.id.as_str() == to,
                None => true,
            };
            if is_match && sequence > self.own_term.ticket.sequence && Some(sequence) != gone {
                targets.push(sequence);
            }
        }
        Ok(targets)
    }

    /// Offers leadership to this target, and waits until the target has accepted.
    async fn offer_to(&mut self, target: Sequence, at_most: Duration) -> Result<Offer, Refusal> {
        let until = self.offer_expiry();
        self.make_offer(target, Command::Transfer { target, until }, at_most).await
    }

    /// Returns when an offer that is made now expires. A hand-over may begin until the time limit, and then takes up to
    /// `patience`, because `exec` first ends its command.
    fn offer_expiry(&self) -> Moment {
        self.clock.now().after(self.within + self.status.patience)
    }

    /// Makes an offer with this command, and waits until the target has accepted it.
    async fn make_offer(
        &mut self,
        target: Sequence,
        command: Command,
        at_most: Duration,
    ) -> Result<Offer, Refusal> {
        self.command(command).await?;
        let current = self.status.snapshot.borrow().standing.target();
        let offer = match current {
            Some((offer, _)) if offer.target == target => offer,
            Some((other, _)) => return Err(Refusal::Replaced(other.target)),
            // The target left the queue before the offer.
            None if self.still_leads(&self.status.snapshot.borrow().standing) => {
                return Err(Refusal::Gone);
            }
            // This member has left its place.
            None => return Err(Refusal::NoLongerLeader),
        };
        self.last_offer = Some(offer);
        let mut state = Err(Refusal::NotReady);
        let settled = self.status.until(at_most, |snapshot| {
            state = self.offer_state(&snapshot.standing, offer);
            state != Err(Refusal::NotReady)
        });
        // After the time limit, the last state counts.
        let _timed_out = settled.await;
        state
    }

    /// Returns the state of this offer: `Ok` once the target has accepted, and [`Refusal::NotReady`] while the target may
    /// still accept.
    fn offer_state(&self, standing: &Standing, offer: Offer) -> Result<Offer, Refusal> {
        match standing.target() {
            Some((current, _)) if current != offer => Err(Refusal::Replaced(current.target)),
            Some((_, TransferTarget::Awaited)) => Err(Refusal::NotReady),
            Some((_, TransferTarget::Gone)) => Err(Refusal::Gone),
            Some((_, TransferTarget::Ready)) => Ok(offer),
            // The offer has expired, so the time limit has passed.
            None if self.still_leads(standing) => Err(Refusal::NotReady),
            None => Err(Refusal::NoLongerLeader),
        }
    }

    /// Hands over to the target of the offer, and waits for the announcement of the next leader.
    async fn hand_over(
        &self,
        offer: Offer,
        is_intended: impl Fn(&Announcement) -> bool,
    ) -> Result<TransferDone, Refusal> {
        self.command(Command::HandOver(offer)).await?;
        let standing = self.status.snapshot.borrow().standing.clone();
        if self.still_leads(&standing) {
            // The target is no longer ready, so this member has kept leading.
            return Err(self.offer_state(&standing, offer).err().unwrap_or(Refusal::NotReady));
        }
        let Ticket { token, .. } = self.own_term.ticket;
        let patience = self.within.max(ANNOUNCEMENT_TIMEOUT);
        let announced = self
            .status
            .until(patience, |snapshot| successor(&snapshot.recent_changes, token).is_some());
        // If the time limit has passed, no successor is found below.
        let _timed_out = announced.await;
        let found = successor(&self.status.snapshot.borrow().recent_changes, token);
        let (leader, leaderless) = found.ok_or(Refusal::LeaderUnknown)?;
        match is_intended(&leader) {
            true => Ok(TransferDone { leader, leaderless }),
            false => Err(Refusal::AnotherLeads(leader)),
        }
    }

    /// Sends a command to the runner, and waits until it was carried out.
    async fn command(&self, command: Command) -> Result<(), Refusal> {
        let done = self.status.command(command, self.clock.now()).await;
        done.map(drop).map_err(Refusal::CommandPending)
    }

    /// Returns true while the term that is to end still lasts.
    fn still_leads(&self, standing: &Standing) -> bool {
        standing.acquired_by().is_some() && standing.ticket() == Some(self.own_term.ticket)
    }
}

/// Returns the first leader after the term with this token, and the time from the end of the term until this member learned
/// of that leader.
fn successor(changes: &RecentChanges, term: FencingToken) -> Option<(Announcement, Duration)> {
    let mut ended_at = None;
    for RecordedChange { change, at, .. } in changes.iter() {
        if change.kind == ChangeKind::LostLeadership && change.token == Some(term) {
            ended_at = ended_at.or(Some(*at));
        }
        // Skip all changes before the end of this term: before a loss of ZooKeeper's data, tokens may have been larger.
        let Some(ended_at) = ended_at else { continue };
        if let Some(leader) = change.role.leader()
            && leader.ticket.token > term
        {
            // The wall clock may have been set back.
            let leaderless = at.duration_since(ended_at).unwrap_or_default();
            return Some((leader.clone(), leaderless));
        }
    }
    None
}

impl Refusal {
    /// Returns the kind of the refusal, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotLeader => "not-leader",
            Self::AlreadyLeader => "already-leader",
            Self::NotInQueue(_) => "no-such-member",
            Self::Gone => "target-gone",
            Self::NotReady => "target-not-ready",
            Self::Replaced(_) => "another-target",
            Self::NoLongerLeader => "no-longer-leader",
            Self::QueueUnavailable(_) => "queue-unavailable",
            Self::CommandPending(_) => "command-pending",
            Self::LeaderUnknown => "no-leader",
            Self::AnotherLeads(_) => "another-leads",
        }
    }
}

/// Explains the refusal to operators.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OUT: &str =
            "it is stopped, paused, or its application is not healthy (see its own /status)";
        match self {
            Self::NotLeader => f.write_str("this member does not lead"),
            Self::AlreadyLeader => f.write_str("it leads already"),
            Self::NotInQueue(Some(id)) => write!(f, "{id:?} is not in the queue: {OUT}"),
            Self::NotInQueue(None) => f.write_str("no other member is in the queue"),
            Self::Gone => write!(f, "the target has left the queue: {OUT}; this member leads on"),
            Self::NotReady => f.write_str(
                "no target was ready in time: it, or a member between, has no connection, no lease or no Kerberos tickets, or \
                 is of a version without transfers; this member leads on",
            ),
            Self::Replaced(target) => write!(
                f,
                "a later transfer made the member with the number {target} the target: only the last one counts. See /members \
                 for who it is, and transfer again if another is to lead after all"
            ),
            Self::NoLongerLeader => {
                f.write_str("this member ceased to lead before the target was ready (see /history)")
            }
            Self::QueueUnavailable(why) => write!(f, "the queue cannot be read: {why}"),
            Self::CommandPending(_) => f.write_str("a command was not carried out in time"),
            Self::LeaderUnknown => {
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
    use crate::status::{self, MemberEntry, MemberRequest, QueueReading, ReplyTo, StatusPublisher};
    use recipes::election::{Cause, Change, Event, Member, Policy, Profile, changes};
    use recipes::{Margins, MemberId, SessionEvent, SessionId};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The reaction of the members behind the leader to an offer.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Behind {
        Accept,
        /// The first is passed over, the others accept.
        AllButTheFirstAccept,
        AcceptAndVanish,
        Leave,
        /// Member 2 makes room for another target, and joins again as number 4.
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

    /// As after ZooKeeper's data were lost: tokens begin again.
    #[test]
    fn a_term_of_before_with_a_larger_token_does_not_follow_the_one_that_has_ended() {
        let mut all = RecentChanges::default();
        let mut add = |kind, number: Option<i32>, role| {
            let token = number.map(|number| ticket(number).token);
            let change = Change { kind, token, role };
            let at = SystemTime::UNIX_EPOCH;
            all.push(RecordedChange {
                change,
                index: None,
                at,
                cause: Cause::Announced,
                down_for: None,
            });
        };
        let led_by = |number| {
            let leader = profile("z");
            Role::Follower { leader: Some(Announcement { leader, ticket: ticket(number) }) }
        };
        add(ChangeKind::LeaderChanged, Some(9), led_by(9));
        add(ChangeKind::LostLeadership, Some(3), Role::Absent);
        add(ChangeKind::LeaderChanged, Some(5), led_by(5));
        let (leader, _) = successor(&all, ticket(3).token).expect("one follows");
        assert_eq!(leader.ticket, ticket(5));
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
            (Behind::Accept, Some("a"), Refusal::AlreadyLeader),
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
    async fn a_target_that_has_made_room_for_another_gets_an_offer_at_its_next_place() {
        let (done, _) = transferred(Behind::SecondRejoins, Some("b"), MINUTE).await;
        assert_eq!(done.expect("it accepted").leader.ticket, ticket(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_not_there_is_not_said_to_be_unready_however_short_the_time_is() {
        let (done, _) = transferred(Behind::Accept, Some("z"), Duration::from_millis(1)).await;
        assert_eq!(done, Err(Refusal::NotInQueue(Some("z".into()))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_other_than_the_target_is_reported_after_the_hand_over() {
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
            () = runner.run() => unreachable!("the runner does not return"),
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
            () = runner.run() => unreachable!("the runner does not return"),
        };
        assert_eq!(asked, Err(Refusal::NoLongerLeader));
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
            () = runner.run() => unreachable!("the runner does not return"),
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
                Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at }),
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
                        // A transfer whose time limit has passed no longer waits.
                        let _unheard =
                            answer.send(Ok(QueueReading { index: 1, members: entries.into() }));
                    }
                    MemberRequest::PublishState(_) => {}
                    MemberRequest::Command(command, caller) => self.carry(command, caller),
                }
            }
        }

        fn carry(&mut self, command: Command, caller: ReplyTo) {
            self.step(Event::Command(command.clone()));
            caller.send(true);
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

        /// After the hand-over, this member joins again behind the next leader.
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
                Event::Session(SessionEvent::Opened { session: SessionId(2), timeout, sent_at }),
                Event::Joined(ticket(9)),
                Event::QueueRead([leader.sequence, sequence(9)].into_iter().collect()),
                Event::PredecessorRead { predecessor: leader, announcement, distance: None },
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
            for change in changes(self.recent_changes.role(), &standing.at(now)) {
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
        MemberEntry {
            profile,
            ..MemberEntry::of_unknown(ticket(number), SessionId(1), SystemTime::UNIX_EPOCH)
        }
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
