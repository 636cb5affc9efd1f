//! The loop that runs a member: waits for an event, steps the member, performs its actions, and publishes.

mod event_log;
mod problems;

use self::event_log::{EventLog, LoggedEvent};
use super::client::{
    Credentials, DELAY_AFTER_CLOSE, SavedSession, SessionFile, SessionSettings, UnclosedSession,
    close_session, rejoin_delay,
};
use super::election::ElectionSession;
use super::queue::Reports;
use crate::cached::SharedReading;
use crate::clock::{Alarm, Clock};
use crate::config::Settings;
use crate::counters::Counters;
use crate::problems::Problems;
use crate::status::{
    self, ConnectionState, MemberRequest, QueueReading, RecentChanges, RecordedChange, ReplyTo,
    Snapshot, StatusPublisher,
};
use recipes::election::{Action, Cause, Change, ChangeKind, Event, Member, Standing, changes};
use recipes::{ClaimOwner, FencingToken, Moment, SessionEvent, SessionId, SessionRecord, Ticket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{oneshot, watch};
use tracing::{Level, info, warn};

/// The longest time that the loop waits for an event. `/livez` and the systemd watchdog check that the loop goes on.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Interval at which a leader checks for foreign contenders. Each check takes two requests.
const FOREIGN_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the member until `stop` is received. Returns true if the member's znode is certainly gone from the queue.
pub async fn run(
    member: Member,
    settings: Settings,
    credentials: Arc<Credentials>,
    clock: Clock,
    publisher: StatusPublisher,
    resume: ResumeState,
    stop: oneshot::Receiver<()>,
) -> bool {
    let (link_sender, link) = watch::channel(ConnectionState::default());
    let actions = member.start();
    let runner = Runner {
        credentials,
        link,
        reports: Reports::new(link_sender, publisher.meter.clone()),
        session: None,
        unclosed: None,
        resume,
        saved_record: None,
        resumed_term: None,
        members: SharedReading::default(),
        actions,
        standing: member.standing(),
        recent_changes: Arc::default(),
        problems: Problems::default(),
        logged_problems: Problems::default(),
        counters: Counters::new(clock.now()),
        log: EventLog::of(&settings),
        waiting_callers: vec![],
        alarm: Alarm::new().expect("one more file can be opened"),
        refusal_logged_at: None,
        refused_by_unknown: None,
        foreign_checked_at: None,
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

/// The session file, and the session that the previous process saved in it. Both are `None` unless the operator has
/// configured a session file, by which leadership survives a restart of the process.
#[derive(Default)]
pub struct ResumeState {
    pub file: Option<Arc<SessionFile>>,
    /// The session of the previous process, until this process begins to resume or to close it.
    pub former: Option<SavedSession>,
}

/// The loop's state.
struct Runner {
    member: Member,
    settings: Settings,
    clock: Clock,
    publisher: StatusPublisher,
    credentials: Arc<Credentials>,
    /// Receives the state of the connection to ZooKeeper, which sessions and requests publish.
    link: watch::Receiver<ConnectionState>,
    /// The channels by which each session reports problems and measurements.
    reports: Reports,
    /// The current session; `None` while there is none.
    session: Option<ElectionSession>,
    /// The previous session, if it may still be alive; `None` once the next session has been opened, which closes it.
    unclosed: UnclosedSession,
    /// The session file, and the session of the previous process.
    resume: ResumeState,
    /// The record of the current session that was last saved for the next process; `None` without a session.
    saved_record: Option<SessionRecord>,
    /// The term that the previous process began and this one continues.
    resumed_term: Option<FencingToken>,
    /// The members as they were last read for operators.
    members: SharedReading<QueueReading>,
    /// The actions from the member's last step that are still to be performed.
    actions: Vec<Action>,
    /// The member's standing after its last step.
    standing: Standing,
    /// The last changes of leadership, for readers.
    recent_changes: Arc<RecentChanges>,
    /// The current problems, as they were last published.
    problems: Problems,
    /// The problems when they were last logged.
    logged_problems: Problems,
    counters: Counters,
    log: EventLog,
    /// The callers of commands, which wait until the actions that followed are performed.
    waiting_callers: Vec<ReplyTo>,
    /// The timer that wakes the member at [`Member::wake_at`].
    alarm: Alarm,
    /// The time when a refused claim was last logged above the debug level.
    refusal_logged_at: Option<Moment>,
    /// Our ticket if the last claim by it was refused because an unknown client owns the claim znode.
    refused_by_unknown: Option<Ticket>,
    /// The time of the last check for foreign contenders; `None` while this member does not check regularly.
    foreign_checked_at: Option<Moment>,
    /// True if the answer to the last heartbeat came only after the next heartbeat was due.
    is_slow: bool,
    /// The time at which the session last continued over another connection.
    reconnected_at: Moment,
    /// The session whose lease was last logged, and its timeout.
    logged_session: Option<(SessionId, Duration)>,
    /// True if the last event was the loss of our znode, although our session is alive: a client has deleted the znode.
    ticket_was_lost: bool,
    /// True if the last event ended this member's leadership.
    term_has_ended: bool,
    /// True if the last event was the request to stop this process.
    stopping: bool,
}

impl Runner {
    /// Runs the loop until `stop` is received. Returns true if the member has certainly left the queue.
    ///
    /// The order of the steps matters:
    ///
    /// - when the member loses leadership, publish that before its session is closed and another member may lead;
    /// - when the member leads as soon as the head is gone, by the lease of its session, publish before the claim is sent;
    /// - when the member has no such lease, it leads only once its claim is acknowledged: send the claim, then publish;
    /// - send all requests, and the end of a session, before anything is logged, so that logging does not delay them.
    async fn run(mut self, mut stop: oneshot::Receiver<()>) -> bool {
        self.log.trace_start(&self.member, &self.actions);
        // If the previous process may already have sent the end of its session, that session cannot be resumed, so close it.
        match self.resume.former.take() {
            Some(former) if former.is_closing => {
                self.unclosed = self.close_former_session(&former).await;
            }
            former => self.resume.former = former,
        }
        loop {
            if self.leads_before_claim() || self.term_has_ended {
                // Readers must see the gain or loss of leadership before any request is sent.
                self.publish();
            }
            self.send_requests().await;
            self.publish();
            let closing = self.begin_closing_session().await;
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
            self.check_for_foreign();
            if let Some(event) = self.next_event(&mut stop).await {
                self.step(event);
            }
        }
    }

    /// Checks regularly for foreign contenders while this member leads. Other members do not, to save requests: they notice
    /// foreign contenders when they read the queue. In an election that is shared with another client, foreign contenders
    /// keep members out of the queue, so there the leader and the standby check with each heartbeat.
    fn check_for_foreign(&mut self) {
        let now = self.clock.now();
        let is_shared = self.settings.znodes.family().is_some();
        let is_leader = self.standing.acquired_by().is_some();
        let is_standby = self.standing.is_standby();
        let must_check = is_leader || (is_shared && is_standby);
        let session = match &mut self.session {
            Some(session) if must_check => session,
            _ => {
                self.foreign_checked_at = None;
                return;
            }
        };
        let interval = if is_shared { self.member.heartbeat() } else { FOREIGN_CHECK_INTERVAL };
        let is_recent = self.foreign_checked_at.is_some_and(|at| now < at.after(interval));
        if !is_recent {
            self.foreign_checked_at = Some(now);
            session.check_for_foreign();
        }
    }

    /// Closes the session of the previous process, after noting that in the session file. Returns the session if it may
    /// still be alive.
    async fn close_former_session(&self, former: &SavedSession) -> UnclosedSession {
        if let Some(file) = &self.resume.file {
            file.note_closing();
        }
        let settings = &self.settings.zookeeper;
        close_session(self.clock, settings, &self.credentials, former.session()).await
    }

    /// Ends the runner. Closes the session of the previous process if that was not resumed. If all sessions have certainly
    /// ended, removes the session file and returns true: this member has certainly left the queue.
    async fn leave(mut self) -> bool {
        let mut has_left = self.unclosed.is_none();
        // If this member never opened a session, for example because it was never healthy, it has not resumed the previous
        // process's session.
        if let Some(former) = self.resume.former.take() {
            has_left &= self.close_former_session(&former).await.is_none();
        }
        if has_left && let Some(file) = &self.resume.file {
            file.remove();
        }
        has_left
    }

    /// Returns true if the member already leads by the lease of its session, although its claim is still to be sent.
    fn leads_before_claim(&self) -> bool {
        let claims = self.actions.iter().any(|action| matches!(action, Action::Claim { .. }));
        claims && self.standing.acquired_by().is_some()
    }

    /// Sends the requests of the member's actions. If one of the actions ends the session, leaves all actions in
    /// `self.actions`, because the member's new state must be published before the session ends.
    async fn send_requests(&mut self) {
        if self.actions.is_empty() || self.actions.iter().any(Action::ends_session) {
            return;
        }
        let Some(session) = &mut self.session else { return };
        for action in self.actions.drain(..) {
            session.perform(action);
        }
        // Let the tasks send these requests now, before publishing wakes readers.
        tokio::task::yield_now().await;
    }

    /// Publishes a snapshot of the member. Readers are woken only if something that they can see has changed.
    fn publish(&mut self) {
        let link = self.connection_state_with_own_problem();
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
        // A heartbeat that only extends the lease does not wake readers.
        self.publisher.snapshot.send_if_modified(|published| {
            if snapshot.standing.changes_at(now) != published.standing.changes_at(now) {
                // The end of the lease has moved, which `exec` waits for.
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

    /// Returns the predecessor's token if the predecessor has the same id as this member; otherwise `None`.
    pub(super) fn token_of_same_id_predecessor(&self) -> Option<FencingToken> {
        let id = &self.standing.profile().id;
        // The session may still have the read of an earlier predecessor.
        let ahead = self.session.as_ref()?.predecessor_with_id(id)?;
        if Some(ahead.sequence) == self.standing.predecessor() { Some(ahead.token) } else { None }
    }

    /// Begins to close the session if [`Self::send_requests`] has left actions, because those end the session. (An action to
    /// open another session without one to close the current one means that the current one is lost. It is closed all the
    /// same, because it may still be alive.) The returned future completes when the session has ended, or after a limit, as
    /// in [`ElectionSession::close`].
    async fn begin_closing_session(
        &mut self,
    ) -> Option<impl Future<Output = UnclosedSession> + use<>> {
        if self.actions.is_empty() {
            return None;
        }
        let session = self.session.take()?;
        // Note the end before its request is sent: the next process must not resume a session that may end at any moment.
        if let Some(file) = &self.resume.file {
            file.note_closing();
        }
        let closing = session.close().await;
        // Let the library's task send the request now, before anything is logged.
        tokio::task::yield_now().await;
        Some(closing)
    }

    /// Drops the state of the closed session, if [`Self::send_requests`] has left actions, because those have ended it. Then
    /// opens another session if an action asks for it.
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
        let delay = if !actions.contains(&Action::CloseSession) {
            Duration::ZERO
        } else if self.ticket_was_lost {
            rejoin_delay()
        } else {
            DELAY_AFTER_CLOSE
        };
        let session = SessionSettings {
            zookeeper: self.settings.zookeeper.clone(),
            credentials: self.credentials.clone(),
            clock: self.clock,
            link: self.reports.link.clone(),
            purpose: "election",
            delay,
            connections: watch::Sender::new(None),
            file: self.resume.file.clone(),
            former: self.resume.former.take(),
        };
        let own_id = self.standing.profile().id.clone();
        let unclosed = self.unclosed.take();
        let reports = self.reports.clone();
        self.session =
            Some(ElectionSession::open(&self.settings, own_id, session, unclosed, reports));
    }

    /// Answers the callers of commands. The answer is false if the command ended the session for good, and ZooKeeper has not
    /// confirmed the end, so that the session may still be alive. If the member has opened another session, which closes the
    /// previous one, the answer is always true.
    fn answer_commands(&mut self) {
        for caller in self.waiting_callers.drain(..) {
            caller.send(self.unclosed.is_none());
        }
    }

    /// Waits for the next event of the member, from one of these sources. If several are ready, they are taken in this
    /// order:
    ///
    /// 1. the end of the process: it must not wait for a busy session;
    /// 2. events of the session: an answer that has arrived takes precedence over a timeout;
    /// 3. the member's own timer;
    /// 4. requests of callers, such as the HTTP API;
    /// 5. a change of the connection, which has to be published.
    ///
    /// Returns `None` if the member has no event to handle, so that the loop only publishes.
    async fn next_event(&mut self, stop: &mut oneshot::Receiver<()>) -> Option<Event> {
        let wake_at = self.member.wake_at();
        let latest = self.clock.now().after(LONGEST_WAIT);
        tokio::select! {
            biased;
            _ = stop => Some(Event::Stop),
            event = session_event(&mut self.session) => self.drop_offer_without_tickets(event),
            () = self.alarm.ring_at(wake_at.map_or(latest, |at| at.min(latest))) => {
                match wake_at {
                    Some(at) if at <= self.clock.now() => Some(Event::Woke),
                    // The alarm rang early, or only to end the longest wait.
                    _ => None,
                }
            }
            Some(request) = self.publisher.requests.recv() => self.on_request(request),
            _ = self.link.changed() => None,
        }
    }

    /// Drops an offer of the member ahead if the Kerberos tickets have expired, and returns any other event. A member that
    /// accepts an offer leads, or makes room for the target of a transfer. To make room, it opens another session, which it
    /// cannot do without tickets.
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

    /// Handles a request of the HTTP API, or of another part of the daemon. Returns an event if the request is a command.
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
                if let Some(session) = &mut self.session {
                    session.publish_state(state);
                }
                None
            }
            MemberRequest::Command(command, caller) => {
                self.waiting_callers.push(caller);
                Some(Event::Command(command))
            }
        }
    }

    /// Steps the member with the event. Sets the actions to perform next and the new standing, and records the event for the
    /// log, and the changes of leadership for readers.
    fn step(&mut self, event: Event) {
        self.stopping = event == Event::Stop;
        self.ticket_was_lost = matches!(event, Event::TicketLost(_));
        self.log.note_session(&event);
        let now = self.clock.now();
        self.note_event(&event, now);
        let lapsed = self.standing.has_lapsed(now);
        self.counters.on_event(&event);
        self.resumed_term = event.resumed_term().or(self.resumed_term);
        self.actions = self.member.step(now, event.clone());
        self.save_session(now);
        let previous = std::mem::replace(&mut self.standing, self.member.standing());
        self.term_has_ended =
            previous.acquired_by().is_some() && self.standing.acquired_by().is_none();
        self.counters.on_state(&self.standing, now);
        let changes = changes(self.recent_changes.role(), &self.standing.at(now));
        let cause = Cause::of(&event, &previous, now);
        // The date when the lease ended. After a freeze of this process that may be long ago.
        let lapsed_at = previous.lapsed_at(now).and_then(|at| self.clock.date_of(at));
        for change in &changes {
            self.record_change(change.clone(), cause, lapsed_at, now);
        }
        let has_moved = previous.ticket() != self.standing.ticket();
        if has_moved {
            // The refusals of claims by the previous znode say nothing about claims by the new one.
            self.refusal_logged_at = None;
        }
        if !changes.is_empty() || has_moved {
            self.members.changes.note_change();
        }
        // While foreign contenders keep this member out of the queue, the member reads the queue again and again.
        let waits_outside = matches!(event, Event::QueueRead(_))
            && self.standing.ticket().is_none()
            && self.actions.is_empty();
        let repeats_refusal = self.note_refusal(&event, now);
        let is_routine = waits_outside || is_routine(&event, &self.actions) || repeats_refusal;
        // A routine event does not end a term. So if the lease has run out, the event that ends the term is still logged as
        // a warning.
        let level = if is_routine {
            Level::DEBUG
        } else if lapsed {
            Level::WARN
        } else {
            Level::INFO
        };
        let is_too_short = self.standing.is_session_too_short();
        let error = if is_too_short && !previous.is_session_too_short() {
            Some(SESSION_TOO_SHORT)
        } else {
            None
        };
        self.log.record(LoggedEvent {
            event,
            actions: self.actions.clone(),
            handled_at: now,
            level,
            lapse: lapsed.then(|| self.lapse_reason()),
            changes,
            lapsed_at,
            error,
        });
        // Two members whose tokens are not in the order of their numbers: one of the znodes was created by hand.
        if let Some(members) = self.standing.out_of_order()
            && previous.out_of_order() != Some(members)
        {
            warn!("{}", self.out_of_order_problem(members));
        }
    }

    /// Notes the facts in an event from which [`Self::current_problems`] derives problems, before the member is stepped.
    fn note_event(&mut self, event: &Event, now: Moment) {
        match event {
            Event::Session(SessionEvent::Resumed { .. }) => self.reconnected_at = now,
            // With another owner of the claim, an earlier refusal because of an unknown client no longer counts.
            Event::ClaimRefused { holder, .. } => {
                self.refused_by_unknown = match holder {
                    ClaimOwner::Unknown => self.standing.ticket(),
                    _ => None,
                };
            }
            Event::Committed { sent_at }
            | Event::HeadRead { sent_at, .. }
            | Event::HeadGone { sent_at, .. } => {
                // Only the time since the last reconnection counts: before that, no server could have answered.
                let waiting_since = (*sent_at).max(self.reconnected_at);
                self.is_slow = now.since(waiting_since) > self.member.heartbeat();
            }
            _ => {}
        }
    }

    /// Records a change of leadership for readers. `lapsed_at` is when this member's lease ended, if that was before the
    /// event.
    fn record_change(
        &mut self,
        change: Change,
        cause: Cause,
        lapsed_at: Option<SystemTime>,
        now: Moment,
    ) {
        let at = match lapsed_at {
            Some(lapsed_at) if change.kind == ChangeKind::LostLeadership => lapsed_at,
            _ => self.clock.date(),
        };
        // If the change resumes the previous process's term, readers also get the time for which no process ran.
        let own_term = change.role.own_term();
        let restart = self.link.borrow().restart;
        let down_for = match restart {
            Some(restart) if own_term.is_some() && own_term == self.resumed_term => {
                Some(restart.down_for)
            }
            _ => None,
        };
        let index = self.standing.index_at(now);
        let recorded = RecordedChange { change, index, at, cause, down_for };
        Arc::make_mut(&mut self.recent_changes).push(recorded);
    }

    /// Saves the record of the session in the session file, for the next process, if the record has changed.
    fn save_session(&mut self, now: Moment) {
        let Some(file) = &self.resume.file else { return };
        let record = self.member.session_record();
        if let Some(record) = record
            && self.saved_record != Some(record)
        {
            file.note(record, now);
        }
        self.saved_record = record;
    }

    /// Returns true if the event is to be logged only at the debug level, because it belongs to a repeated claim, and a
    /// refusal was logged shortly before: while a server does not show the leader, a member reads the queue and repeats its
    /// claim at each heartbeat. Notes the time of each refusal that is logged above that level.
    fn note_refusal(&mut self, event: &Event, now: Moment) -> bool {
        let is_refusal = matches!(event, Event::ClaimRefused { .. });
        let was_logged_lately =
            self.refusal_logged_at.is_some_and(|at| now < at.after(QUIET_AFTER_REFUSAL));
        if is_refusal && !was_logged_lately {
            self.refusal_logged_at = Some(now);
        }
        was_logged_lately && (is_refusal || matches!(event, Event::QueueRead(_)))
    }
}

/// The time after the log line of a refused claim for which further refusals are logged only at the debug level.
const QUIET_AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// The problem, for operators, of a session whose timeout is too short for a useful lease.
const SESSION_TOO_SHORT: &str = "the session timeout that the servers grant leaves no useful \
    lease, so this member does not lead: raise maxSessionTimeout on the servers, or lower \
    lease.heartbeat or exec.kill_after (where a program is run). Lower zookeeper.tick_time only if \
    it is larger than the servers' own tickTime";

/// Returns true if the event is frequent and only frequent actions follow, so that it is logged at the debug level.
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

/// Waits for the next event of the session. Never returns without a session.
async fn session_event(session: &mut Option<ElectionSession>) -> Event {
    match session {
        Some(session) => session.next_event().await,
        None => std::future::pending().await,
    }
}
