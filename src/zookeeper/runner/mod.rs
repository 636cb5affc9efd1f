//! The loop that runs a member: waits for an event, steps the member, performs its actions, and publishes.

mod event_log;
mod problems;

use self::event_log::{EventLog, LoggedEvent};
use super::cached::SharedReading;
use super::client::{
    Credentials, PreviousEnd, SavedSession, SessionFile, SessionSettings, UnclosedSession,
    close_limit, end_former,
};
use super::election::ElectionSession;
use super::queue::Reports;
use crate::clock::{Alarm, Clock};
use crate::config::Settings;
use crate::counters::Counters;
use crate::problems::Problems;
use crate::status::{
    self, ConnectionState, MemberRequest, QueueReading, RecentChanges, RecordedChange, ReplyTo,
    Snapshot, StatusPublisher,
};
use recipes::election::{Action, Cause, ChangeKind, Event, Member, Standing, changes};
use recipes::{ClaimOwner, FencingToken, Moment, SessionEvent, SessionId, SessionRecord, Ticket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::{Level, info, warn};

/// Upper bound between iterations of the loop; `/livez` and the systemd watchdog check it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Interval at which a leader checks for foreign contenders. Each check takes two requests.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the member until it is stopped. Returns true if it has certainly left the queue.
pub async fn run(
    member: Member,
    settings: Settings,
    credentials: Arc<Credentials>,
    clock: Clock,
    publisher: StatusPublisher,
    resume: ResumeState,
    stop: oneshot::Receiver<()>,
) -> bool {
    let (link_in, link) = watch::channel(ConnectionState::default());
    let actions = member.start();
    let runner = Runner {
        credentials,
        link,
        reports: Reports::new(link_in, publisher.meter.clone()),
        session: None,
        unclosed: None,
        resume,
        noted: None,
        resumed_term: None,
        members: SharedReading::default(),
        actions,
        standing: member.standing(),
        recent_changes: Arc::default(),
        problems: Problems::default(),
        logged_problems: Problems::default(),
        counters: Counters::begun(clock.now()),
        log: EventLog::of(&settings),
        commands: vec![],
        alarm: Alarm::new().expect("one more file can be opened"),
        claim_refused_at: None,
        refused_by_unknown: None,
        looked_for_foreign_at: None,
        is_slow: false,
        reconnected_at: clock.now(),
        logged_session: None,
        ticket_was_lost: false,
        term_has_ended: false,
        stopping: false,
        member,
        settings,
        clock,
        publisher,
    };
    runner.run(stop).await
}

/// The state that outlives a process, if the operator has configured that.
#[derive(Default)]
pub struct ResumeState {
    pub file: Option<Arc<SessionFile>>,
    /// The session of the previous process.
    pub former: Option<SavedSession>,
}

/// The loop's state.
struct Runner {
    member: Member,
    settings: Settings,
    clock: Clock,
    publisher: StatusPublisher,
    credentials: Arc<Credentials>,
    /// The state of the connection to ZooKeeper, as sessions and requests publish it.
    link: watch::Receiver<ConnectionState>,
    reports: Reports,
    session: Option<ElectionSession>,
    /// The previous session, if it may still be alive.
    unclosed: UnclosedSession,
    /// The session file, and the session of the previous process until it is resumed or closed.
    resume: ResumeState,
    /// The record of the session that was last saved for the next process.
    noted: Option<SessionRecord>,
    /// The term that the previous process began and this one continues.
    resumed_term: Option<FencingToken>,
    /// The members as they were last read for operators.
    members: SharedReading<QueueReading>,
    /// The actions of the member's last step that are still to be performed.
    actions: Vec<Action>,
    /// The member's standing after its last step.
    standing: Standing,
    recent_changes: Arc<RecentChanges>,
    problems: Problems,
    /// The problems when they were last logged.
    logged_problems: Problems,
    counters: Counters,
    log: EventLog,
    /// Callers that wait until the actions of the last step are done.
    commands: Vec<ReplyTo>,
    alarm: Alarm,
    /// When a refused claim was last logged.
    claim_refused_at: Option<Moment>,
    /// The own ticket, if its last claim was refused because an unknown client owns the claim znode.
    refused_by_unknown: Option<Ticket>,
    /// When this member last checked for foreign contenders; `None` unless it checks regularly.
    looked_for_foreign_at: Option<Moment>,
    /// True if the last heartbeat was answered later than the next one was due.
    is_slow: bool,
    /// When the session last continued over another connection.
    reconnected_at: Moment,
    /// The session whose lease was last logged, and its timeout.
    logged_session: Option<(SessionId, Duration)>,
    /// True if the last event was the loss of our znode, because a client has deleted it.
    ticket_was_lost: bool,
    /// True if the last event ended a term.
    term_has_ended: bool,
    /// True if the last event was the end of this process.
    stopping: bool,
}

impl Runner {
    /// The order matters. When the member loses leadership: publish first, then act. When it is notified that the head is
    /// gone and leads at once, by the lease of its session: publish first, then send the claim. When it has no lease and the
    /// claim has to be acknowledged first: send the claim, then publish. Requests, including the end of a session, are sent
    /// before anything is logged.
    async fn run(mut self, mut stop: oneshot::Receiver<()>) -> bool {
        self.log.begin(&self.member, &self.actions);
        // The previous process may have sent the end of its session already, so that session cannot be resumed: end it.
        if let Some(former) = self.resume.former.take_if(|former| former.is_closing) {
            self.unclosed = self.end(&former).await;
        }
        loop {
            if self.leads_before_claim() || self.term_has_ended {
                self.publish();
            }
            self.send().await;
            self.publish();
            let closing = self.give_session_up().await;
            self.log.write(&self.standing);
            self.log_problems();
            if let Some(closing) = closing {
                self.unclosed = closing.await;
            }
            self.forget_session_and_open_another();
            if self.stopping {
                return self.leave().await;
            }
            self.answer_commands();
            self.look_for_foreign();
            if let Some(event) = self.next_event(&mut stop).await {
                self.step(event);
            }
        }
    }

    /// Checks for foreign contenders while this member leads. Other members notice them when they read the queue, and
    /// need not all list it regularly. If foreign contenders keep members out of the queue, the leader and the standby
    /// check with each heartbeat.
    fn look_for_foreign(&mut self) {
        let now = self.clock.now();
        let refuses = self.settings.znodes.family().is_some();
        let leads = self.standing.acquired_by().is_some();
        let is_to_look = leads || refuses && self.standing.standby_is_ready(now).is_some();
        let Some(session) = self.session.as_mut().filter(|_| is_to_look) else {
            self.looked_for_foreign_at = None;
            return;
        };
        let interval = if refuses { self.member.heartbeat() } else { LOOK_INTERVAL };
        if self.looked_for_foreign_at.is_none_or(|at| at.after(interval) <= now) {
            self.looked_for_foreign_at = Some(now);
            session.look_for_foreign();
        }
    }

    /// Closes the session of the previous process, after noting that in the session file.
    async fn end(&self, former: &SavedSession) -> UnclosedSession {
        self.resume.file.iter().for_each(|file| file.closing());
        let settings = &self.settings.zookeeper;
        let limit = close_limit(settings);
        end_former(former, self.clock, settings, &self.credentials, limit).await
    }

    /// Closes the session of the previous process if it was not resumed, and removes the session file. Returns true if no
    /// session is left.
    async fn leave(mut self) -> bool {
        // A member that was not healthy yet has not resumed the session.
        let mut has_left = self.unclosed.is_none();
        if let Some(former) = self.resume.former.take() {
            has_left &= self.end(&former).await.is_none();
        }
        if let Some(file) = self.resume.file.filter(|_| has_left) {
            file.remove();
        }
        has_left
    }

    /// Returns true if the member already leads, on a notification, while its claim is yet to be sent.
    fn leads_before_claim(&self) -> bool {
        let claims = self.actions.iter().any(|action| matches!(action, Action::Claim { .. }));
        claims && self.standing.acquired_by().is_some()
    }

    /// Sends the requests of the member's actions, unless the actions end the session, which is published first.
    async fn send(&mut self) {
        if self.actions.iter().any(Action::ends_session) {
            return;
        }
        let Some(session) = &mut self.session else { return };
        let sends = !self.actions.is_empty();
        self.actions.drain(..).for_each(|action| session.perform(action));
        if sends {
            // Let the tasks send their requests before a claim, or anything else that waits for an answer, is published.
            tokio::task::yield_now().await;
        }
    }

    fn publish(&mut self) {
        let link = self.link_with_own_problem();
        let found = self.current_problems(&link);
        self.problems.update(found, || self.clock.date());
        let snapshot = Snapshot {
            standing: self.standing.clone(),
            link,
            problems: self.problems.clone(),
            last_looped_at: self.clock.now(),
            recent_changes: self.recent_changes.clone(),
            counters: self.counters,
            tickets_end_at: self.credentials.tickets_end_at(),
            tickets_have_ended: self.tickets_have_ended(),
        };
        let now = snapshot.last_looped_at;
        // A heartbeat alone does not wake readers.
        self.publisher.snapshot.send_if_modified(|published| {
            if snapshot.standing.changes_at(now) != published.standing.changes_at(now) {
                self.publisher.lease_moved.notify_one();
            }
            let wakes_readers = snapshot.standing.differs_for_readers(&published.standing, now)
                || published.link != snapshot.link
                || published.problems != snapshot.problems
                || !Arc::ptr_eq(&published.recent_changes, &snapshot.recent_changes);
            *published = Arc::new(snapshot);
            wakes_readers
        });
    }

    /// Returns the predecessor's token if the predecessor has the same id as this member.
    pub(super) fn same_id(&self) -> Option<FencingToken> {
        let id = &self.standing.profile().id;
        let ahead = self.session.as_ref()?.predecessor_named(id)?;
        (Some(ahead.sequence) == self.standing.predecessor()).then_some(ahead.token)
    }

    /// Begins to close the session if the actions that [`Self::send`] has left end it. Opening another session implies that
    /// the previous one is lost.
    async fn give_session_up(&mut self) -> Option<impl Future<Output = UnclosedSession> + use<>> {
        if self.actions.is_empty() {
            return None;
        }
        let session = self.session.take()?;
        // Note this before the request is sent: the next process must not resume a session that may end at any moment.
        if let Some(file) = &self.resume.file {
            file.closing();
        }
        Some(session.close().await)
    }

    /// Performs the remaining actions after the session is closed: opens another session if the member wants one.
    fn forget_session_and_open_another(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        if actions.is_empty() {
            return;
        }
        self.reports.link.send_modify(ConnectionState::forget_session);
        self.members.changes.note_change();
        if !actions.contains(&Action::OpenSession) {
            return;
        }
        let before = match (actions.contains(&Action::CloseSession), self.ticket_was_lost) {
            (false, _) => PreviousEnd::Ended,
            (true, false) => PreviousEnd::Closed,
            (true, true) => PreviousEnd::ClosedAfterForce,
        };
        let session = SessionSettings {
            zookeeper: self.settings.zookeeper.clone(),
            credentials: self.credentials.clone(),
            clock: self.clock,
            link: self.reports.link.clone(),
            purpose: "election",
            before,
            file: self.resume.file.clone(),
            former: self.resume.former.take(),
        };
        let own_id = self.standing.profile().id.clone();
        let unclosed = self.unclosed.take();
        let reports = self.reports.clone();
        self.session =
            Some(ElectionSession::open(&self.settings, own_id, session, unclosed, reports));
    }

    fn answer_commands(&mut self) {
        for caller in self.commands.drain(..) {
            caller.send(self.unclosed.is_none());
        }
    }

    /// Waits for the first of these. If several are ready, they are taken in this order:
    ///
    /// 1. the end of the process: it must not wait for a busy session;
    /// 2. events of the session: an answer that has arrived takes precedence over a timeout;
    /// 3. the member's own timer;
    /// 4. requests of callers;
    /// 5. a change of the connection, to be published.
    ///
    /// Returns `None` if there is nothing for the member to handle.
    async fn next_event(&mut self, stop: &mut oneshot::Receiver<()>) -> Option<Event> {
        let wake_at = self.member.wake_at();
        let latest = self.clock.now().after(LONGEST_WAIT);
        tokio::select! {
            biased;
            _ = stop => Some(Event::Stop),
            event = session_event(&mut self.session) => self.drop_offer_without_tickets(event),
            () = self.alarm.ring_at(wake_at.map_or(latest, |at| at.min(latest))) => {
                wake_at.filter(|at| *at <= self.clock.now()).map(|_| Event::Woke)
            }
            Some(request) = self.publisher.requests.recv() => self.on_request(request),
            _ = self.link.changed() => None,
        }
    }

    /// Ignores the offer of the member ahead, to lead or to make room for the target of a transfer, if the Kerberos tickets have
    /// expired: the member that makes room opens another session, and without tickets it could not.
    fn drop_offer_without_tickets(&self, event: Event) -> Option<Event> {
        if matches!(event, Event::OfferRead(_)) && self.tickets_have_ended() {
            warn!("{event}: ignored, as no other session can be opened without Kerberos tickets");
            return None;
        }
        Some(event)
    }

    fn tickets_have_ended(&self) -> bool {
        self.credentials.tickets_end_at().is_some_and(|end_at| end_at <= self.clock.date())
    }

    fn on_request(&mut self, request: MemberRequest) -> Option<Event> {
        match request {
            MemberRequest::Command(command, caller)
                if status::caller_expired(&command, &caller, self.clock.now()) =>
            {
                info!("dropped {command:?}: its caller timed out");
                None
            }
            MemberRequest::Members(answer) => {
                match &mut self.session {
                    Some(session) => session.answer_members(self.members.clone(), answer),
                    None => {
                        let _receiver_gone = answer.send(Err("no session with ZooKeeper".into()));
                    }
                }
                None
            }
            MemberRequest::PublishState(state) => {
                self.session.iter_mut().for_each(|session| session.publish_state(state));
                None
            }
            MemberRequest::Command(command, caller) => {
                self.commands.push(caller);
                Some(Event::Command(command))
            }
        }
    }

    /// Steps the member with the event. Keeps its actions and its standing, and records a line for the log.
    fn step(&mut self, event: Event) {
        self.stopping = event == Event::Stop;
        self.ticket_was_lost = matches!(event, Event::TicketLost(_));
        self.log.hear(&event);
        let now = self.clock.now();
        match event {
            Event::Session(SessionEvent::Resumed { .. }) => self.reconnected_at = now,
            Event::ClaimRefused { holder, .. } => {
                let ticket = self.standing.ticket();
                self.refused_by_unknown = ticket.filter(|_| holder == ClaimOwner::Unknown);
            }
            Event::Committed { sent_at }
            | Event::HeadRead { sent_at, .. }
            | Event::HeadGone { sent_at, .. } => {
                // While there was no connection, the request did not wait for the servers.
                let asked_at = sent_at.max(self.reconnected_at);
                self.is_slow = now.since(asked_at) > self.member.heartbeat();
            }
            _ => {}
        }
        let lapsed = self.standing.has_lapsed(now);
        self.counters.on_event(&event);
        self.resumed_term = event.resumed_term().or(self.resumed_term);
        self.actions = self.member.step(now, event.clone());
        self.note(now);
        let before = std::mem::replace(&mut self.standing, self.member.standing());
        self.term_has_ended =
            before.acquired_by().is_some() && self.standing.acquired_by().is_none();
        self.counters.on_state(&self.standing, now);
        let changes = changes(&self.recent_changes.view(), &self.standing.at(now));
        let cause = Cause::of(&event, &before, now);
        // After a freeze, the lease may have ended long ago, and another member may have led since.
        let lapsed_at = before.lapsed_at(now).and_then(|at| self.clock.date_of(at));
        for change in changes.iter().cloned() {
            let index = self.standing.index_at(now);
            let lapsed_at = lapsed_at.filter(|_| change.kind == ChangeKind::LostLeadership);
            let at = lapsed_at.unwrap_or_else(|| self.clock.date());
            let own_term = change.view().own_term();
            let restart = self.link.borrow().restart;
            let restart = restart.filter(|_| own_term.is_some() && own_term == self.resumed_term);
            let down_for = restart.map(|restart| restart.down_for);
            let recorded = RecordedChange { change, index, at, cause, down_for };
            Arc::make_mut(&mut self.recent_changes).push(recorded);
        }
        let has_moved = before.ticket() != self.standing.ticket();
        if has_moved {
            // Refusals of a claim for the previous znode say nothing about the new one.
            self.claim_refused_at = None;
        }
        if !changes.is_empty() || has_moved {
            self.members.changes.note_change();
        }
        // A member that is kept out of the queue reads it again and again.
        let waits_outside = matches!(event, Event::QueueRead(_))
            && self.standing.ticket().is_none()
            && self.actions.is_empty();
        let is_routine =
            waits_outside || is_routine(&event, &self.actions) || self.repeats_refusal(&event, now);
        let level = match (is_routine, lapsed) {
            (true, _) => Level::DEBUG,
            (false, true) => Level::WARN,
            (false, false) => Level::INFO,
        };
        let is_refused = self.standing.is_session_too_short() && !before.is_session_too_short();
        self.log.record(LoggedEvent {
            event,
            actions: self.actions.clone(),
            at: now,
            level,
            lapse: lapsed.then(|| self.lapse()),
            changes,
            lapsed_at,
            alarm: is_refused.then_some(REFUSED),
        });
        let out_of_order = self.standing.out_of_order();
        if let Some(pair) = out_of_order.filter(|_| before.out_of_order() != out_of_order) {
            warn!("{}", self.out_of_order(pair));
        }
    }

    /// Saves what has changed of the session for the next process.
    fn note(&mut self, now: Moment) {
        let Some(file) = &self.resume.file else { return };
        let record = self.member.session_record();
        if let Some(record) = record.filter(|_| record != self.noted) {
            file.note(record, now);
        }
        self.noted = record;
    }

    /// Returns true if the event belongs to a claim that is repeated soon after it was refused: with a server that does not
    /// show the leader, each heartbeat makes such a claim.
    fn repeats_refusal(&mut self, event: &Event, now: Moment) -> bool {
        let is_refusal = matches!(event, Event::ClaimRefused { .. });
        let was_lately = self.claim_refused_at.is_some_and(|at| now < at.after(REFUSED_QUIETLY));
        if is_refusal && !was_lately {
            self.claim_refused_at = Some(now);
        }
        was_lately && (is_refusal || matches!(event, Event::QueueRead(_)))
    }
}

/// For this long after a refused claim was logged, further refusals are not logged.
const REFUSED_QUIETLY: Duration = Duration::from_secs(60);

const REFUSED: &str = "the session timeout that the servers grant leaves no useful lease, so this \
    member does not lead: raise maxSessionTimeout on the servers, or lower lease.heartbeat or \
    exec.kill_after (where a program is run). Lower zookeeper.tick_time only if it is larger than \
    the servers' own tickTime";

/// Returns true if the event is frequent and leads only to routine actions.
fn is_routine(event: &Event, actions: &[Action]) -> bool {
    let recurs = matches!(
        event,
        Event::Woke
            | Event::Committed { .. }
            | Event::HeadRead { .. }
            | Event::TargetRead { accepted: None, .. }
            | Event::PrioritiesRead(_)
            | Event::PredecessorRead { .. }
            | Event::Foreign { keep_out: false }
    );
    recurs
        && actions.iter().all(|action| {
            matches!(
                action,
                Action::Renew { .. }
                    | Action::ReadHead { .. }
                    | Action::ReadTarget(_)
                    | Action::ReadPriorities
                    | Action::ReadQueue
            )
        })
}

async fn session_event(session: &mut Option<ElectionSession>) -> Event {
    match session {
        Some(session) => session.next_event().await,
        None => std::future::pending().await,
    }
}
