//! The channels between the runner of the election (`zookeeper/runner`) and the rest of the daemon: the runner publishes
//! snapshots, and accepts requests.

use crate::api;
use crate::counters::{Counters, Meter};
use crate::holdings::HoldingsHandle;
use crate::problems::Problems;
use crate::shared_config::ConfigHandle;
use recipes::election::{
    Announcement, Cause, Change, Command, Member, Priority, Profile, Role, Standing,
};
use recipes::{FencingToken, ForeignClient, Moment, SessionId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The state that the runner publishes. Evaluate it at the moment of use, and do not store the result: a lease ends without
/// an event.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The state of the member in the election: `Standing::at` returns its role at a moment.
    pub standing: Standing,
    /// The connection to ZooKeeper.
    pub link: ConnectionState,
    pub problems: Problems,
    /// When the runner's loop last ran.
    pub last_looped_at: Moment,
    pub recent_changes: Arc<RecentChanges>,
    pub counters: Counters,
    /// When the Kerberos tickets end, or have ended; `None` if no login needs tickets.
    pub tickets_end_at: Option<SystemTime>,
    /// True if a login needs Kerberos tickets and they have ended, so that no session can be opened.
    pub tickets_have_ended: bool,
}

/// The time without a run after which the runner's loop is considered stuck. The loop runs at least every five seconds.
const STUCK_AFTER: Duration = Duration::from_secs(30);

impl Snapshot {
    /// Returns false if the runner's loop is stuck.
    pub fn loop_runs(&self, now: Moment) -> bool {
        now.since(self.last_looped_at) <= STUCK_AFTER
    }

    /// Fails without a connection to ZooKeeper if the reason is known. The error is that reason, for operators.
    /// Without a known reason, this succeeds, so that the caller's request waits for a connection.
    fn check_connection(&self) -> Result<(), String> {
        let stays_out = self.standing.is_paused() || self.standing.is_unhealthy();
        if stays_out && self.link.session.is_none() {
            return Err("this member is paused, or its application is not healthy, so it has no session with ZooKeeper: ask \
                        another member"
                .to_owned());
        }
        match &self.link.problem {
            Some(problem) if !self.link.connected => Err(problem.clone()),
            _ => Ok(()),
        }
    }
}

/// Another process in the queue with the id of this member: another member, or an earlier life (process) of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateId {
    /// The leader ahead. It may be an earlier life of this member, whose session has not ended.
    MayBeEarlierLife { token: FencingToken },
    /// The leader ahead. Every session of an earlier life must have ended by now, so the leader is another member.
    Leader { token: FencingToken },
    /// The predecessor, which does not lead. It is another member, for the same reason.
    InQueue { token: FencingToken },
}

impl DuplicateId {
    /// Returns the leader ahead, or else the predecessor, if it has the id of this member. `same_id` is the token of the
    /// predecessor if it has this id. A predecessor that may be an earlier life of this member does not lead, so it is
    /// harmless and is not returned.
    pub fn find(
        standing: &Standing,
        same_id: Option<FencingToken>,
        counters: &Counters,
        now: Moment,
    ) -> Option<Self> {
        // `None`: this member has had no session yet.
        let may_be_earlier_life = now < counters.earlier_lives_end_at?;
        let leader = standing.duplicate_id().map(|leader| leader.ticket.token);
        match (leader, same_id) {
            (Some(token), _) if may_be_earlier_life => Some(Self::MayBeEarlierLife { token }),
            (Some(token), _) => Some(Self::Leader { token }),
            (None, Some(token)) if !may_be_earlier_life => Some(Self::InQueue { token }),
            (None, _) => None,
        }
    }
}

/// The remedy for a duplicate id.
const ID_REMEDY: &str = "give each member an id of its own (member.id, --id)";

/// Describes the member with the same id for operators.
impl fmt::Display for DuplicateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MayBeEarlierLife { token } => write!(
                f,
                "behind an earlier life of this member, token {token}, until its session ends"
            ),
            Self::Leader { token } => write!(
                f,
                "another member leads under the id of this one, with token {token}: {ID_REMEDY}"
            ),
            Self::InQueue { token } => write!(
                f,
                "another member of the queue has the id of this one, with token {token}: {ID_REMEDY}"
            ),
        }
    }
}

/// The last changes of leadership, the newest at the end.
#[derive(Clone, Debug, Default)]
pub struct RecentChanges(VecDeque<RecordedChange>);

/// The queue, as it was read at one moment.
#[derive(Clone, Debug, Default)]
pub struct QueueReading {
    /// The zxid of the last creation or deletion of a znode in the queue, which is the same at every member.
    pub index: u64,
    pub members: Arc<[MemberEntry]>,
}

/// Receives the queue, or the reason why it cannot be read, for operators.
pub type MembersAnswer = oneshot::Sender<Result<QueueReading, String>>;

/// A change of leadership, with its circumstances.
#[derive(Clone, Debug)]
pub struct RecordedChange {
    pub change: Change,
    /// The index of [`Standing`] from this change until the next; `None` if this member has not joined yet.
    pub index: Option<u64>,
    pub at: SystemTime,
    pub cause: Cause,
    /// If the change resumes a term of the previous process: the time for which no process ran.
    pub down_for: Option<Duration>,
}

/// The state of the connection to ZooKeeper, for people to read. The election does not depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    /// The id of the session and its timeout.
    pub session: Option<(SessionId, Duration)>,
    pub connected: bool,
    /// The address of the server of the last connection.
    pub server: Option<Arc<str>>,
    /// The problem that keeps this member from taking part, as a sentence for operators.
    pub problem: Option<String>,
    /// Set if this process took over the session of the previous one.
    pub restart: Option<SessionRestart>,
    /// Other clients' contenders in the election's path, as of the last reading.
    pub foreign: Vec<ForeignQueue>,
    /// The timeout that the servers granted last, which may be longer than the requested one.
    pub granted: Option<Duration>,
}

/// Another client's contenders in the election's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignQueue {
    pub family: ForeignClient,
    /// The number of these contenders among the znodes that were read. At most the hundred znodes with the lowest numbers are
    /// read, whichever client they are of.
    pub contenders: usize,
    /// The name of the znode with the lowest number.
    pub first: String,
    /// The id that the first contender gives itself, if it could be read.
    pub id: Option<String>,
    /// The client whose queue this member is configured to join (`election.compatible_with`); `None` for an election of
    /// members only. If set, this member stays out of that queue while these contenders are there.
    pub compatible_with: Option<ForeignClient>,
}

impl ForeignQueue {
    /// Returns true if this member stays out of the queue because of these contenders.
    pub fn keeps_out(&self) -> bool {
        self.compatible_with.is_some()
    }

    /// Describes for operators that these contenders are in this path, and what to do.
    pub fn problem(&self, path: &str) -> String {
        let Self { family, contenders, first, id, compatible_with } = self;
        let of = id.as_ref().map(|id| format!(" of {id:?}")).unwrap_or_default();
        let contend = if *contenders == 1 { "contender stands" } else { "contenders stand" };
        // Contenders of the client that this member is compatible with are foreign only after an overflow of the counter.
        let why = match *compatible_with == Some(*family) {
            true => {
                "past the end of ZooKeeper's counter, beyond which its clients disagree on who is first. Have the path \
                 created again while no member leads"
            }
            false => {
                "two elections in one path, each with a leader of its own. Give each a path of its own (election.path)"
            }
        };
        let out =
            if self.keeps_out() { "; this member keeps out of the queue meanwhile" } else { "" };
        format!("{contenders} {contend} in {path} by {family}, the first {first}{of}: {why}{out}")
    }
}

/// How this process took over the session of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRestart {
    /// From the last sign of life of the previous process until its session was resumed.
    pub down_for: Duration,
    /// The number of times that this session has been taken over.
    pub restarts: u64,
}

impl ConnectionState {
    pub fn forget_session(&mut self) {
        self.restart = None;
        self.session = None;
        self.connected = false;
    }

    /// Returns true if there is a problem, or the session has lost its connection.
    pub fn is_troubled(&self) -> bool {
        self.problem.is_some() || (self.session.is_some() && !self.connected)
    }
}

/// Requests to the runner.
pub enum MemberRequest {
    /// Reads the queue.
    Members(MembersAnswer),
    /// Writes this state into the member's own znode.
    PublishState(OwnState),
    /// Carries out the command. The reply is false if the command ended the session and ZooKeeper did not confirm its end,
    /// otherwise true.
    Command(Command, ReplyTo),
}

/// Why a command is not known to have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// Too many requests are waiting. The command was not carried out.
    NotTaken,
    /// The command was not carried out in time, and may still be.
    Pending,
    /// The command would end the session, and no other could be opened because the Kerberos tickets have ended. It was not
    /// carried out.
    NoTickets,
}

/// Limits the wait for a reading of the queue.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before another request for the queue, if the session ended before it had read the queue.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Sends a request to a runner, and returns its answer. `request` makes the request from the channel for the answer.
///
/// # Errors
/// Why no answer comes within `patience`, for operators.
pub async fn ask<R, T>(
    runner: &mpsc::Sender<R>,
    request: impl FnOnce(oneshot::Sender<T>) -> R,
    patience: Duration,
) -> Result<T, String> {
    let (answer, answered) = oneshot::channel();
    runner.try_send(request(answer)).map_err(|_| "too many ask at once")?;
    match timeout(patience, answered).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("this member is leaving".into()),
        Err(_) => Err(format!("ZooKeeper did not answer within {patience:?}")),
    }
}

/// The reply channel of a command, with the deadline of its caller.
pub struct ReplyTo {
    done: oneshot::Sender<bool>,
    /// After this moment the caller no longer waits, even if a freeze of the process has kept it from closing the channel.
    pub(crate) waits_until: Option<Moment>,
}

impl ReplyTo {
    /// Creates a channel. The receiver gets whether ZooKeeper confirmed the command. Without a deadline, the caller waits
    /// for as long as it takes, or does not wait at all.
    pub fn new(waits_until: Option<Moment>) -> (Self, oneshot::Receiver<bool>) {
        let (done, when_done) = oneshot::channel();
        (Self { done, waits_until }, when_done)
    }

    /// Sends the answer: whether ZooKeeper confirmed the command.
    pub fn send(self, confirmed: bool) {
        let _receiver_gone = self.done.send(confirmed);
    }

    /// Returns true if the caller no longer waits.
    fn is_expired(&self, now: Moment) -> bool {
        self.done.is_closed() || self.waits_until.is_some_and(|until| until < now)
    }
}

/// Returns true if the command must be dropped: it would make the member join, leave or hand over, but its caller no longer
/// waits and may assume that the command has failed. Other commands, such as a new profile, are never dropped.
///
/// After a freeze of this process, the channel of a caller may still be open after its deadline, so this also compares the
/// deadline with `now`.
pub fn caller_expired(command: &Command, caller: &ReplyTo, now: Moment) -> bool {
    match command {
        Command::Resign
        | Command::Transfer { .. }
        | Command::Preempt { .. }
        | Command::HandOver(_)
        | Command::Pause
        | Command::Resume => caller.is_expired(now),
        _ => false,
    }
}

/// The problems that a member reports in its znode to readers of the queue; by default there are none. No decision
/// depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnState {
    /// The application is known to be unhealthy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unhealthy: bool,
    /// The number of hooks that failed, and have not succeeded since.
    #[serde(skip_serializing_if = "is_zero")]
    pub hooks_failing: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One member's znode, as it was read.
#[derive(Clone, Debug)]
pub struct MemberEntry {
    pub ticket: Ticket,
    /// The session that owns the znode.
    pub session: SessionId,
    /// `None` if the znode's data has no profile: another ZooKeeper client wrote it.
    pub profile: Option<Profile>,
    /// The leader that the znode announces.
    pub announcement: Option<Announcement>,
    pub priority: Priority,
    /// True if the znode says that the member is a standby that could lead at once.
    pub ready: bool,
    /// The version of Bellwether that the member runs.
    pub version: Option<String>,
    /// When the znode was created, by the servers' clock.
    pub created_at: SystemTime,
    /// The problems that the member reports.
    pub state: OwnState,
}

impl MemberEntry {
    /// Returns the entry for a znode that another ZooKeeper client wrote.
    pub fn of_unknown(ticket: Ticket, session: SessionId, created_at: SystemTime) -> Self {
        Self {
            ticket,
            session,
            profile: None,
            announcement: None,
            priority: Priority::default(),
            ready: false,
            version: None,
            created_at,
            state: OwnState::default(),
        }
    }
}

/// The state of the hooks.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// The records of the hooks, in the order in which the hooks run.
    pub records: Vec<HookRecord>,
    /// The index of [`Standing`] up to which the hooks have run for all changes.
    pub done_up_to: Option<u64>,
}

/// The record of one hook since it was configured.
#[derive(Clone, Debug, Default)]
pub struct HookRecord {
    /// The hook's entry in `/status`.
    pub report: api::Hook,
    /// The total time of all runs.
    pub spent: Duration,
    /// The start of the first failed run since the last successful one.
    pub failing_since: Option<SystemTime>,
}

impl RecentChanges {
    /// The largest number of changes: enough for a hundred terms, with times without a leader between them.
    const LONGEST: usize = 200;

    pub fn push(&mut self, recorded: RecordedChange) {
        if self.0.len() == Self::LONGEST {
            self.0.pop_front();
        }
        self.0.push_back(recorded);
    }

    /// Returns the role after the newest change.
    pub fn role(&self) -> &Role {
        self.0.back().map_or(&Role::Absent, |newest| &newest.change.role)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &RecordedChange> {
        self.0.iter()
    }
}

/// The runner's side of the channels.
pub struct StatusPublisher {
    /// Only changes wake the readers that wait. A new `last_looped_at` or a longer lease is stored without waking them.
    pub snapshot: watch::Sender<Arc<Snapshot>>,
    /// Notified when the published lease ends at another moment than before.
    pub lease_moved: Arc<Notify>,
    pub requests: mpsc::Receiver<MemberRequest>,
    pub meter: Arc<Meter>,
}

impl StatusPublisher {
    /// Publishes the snapshot with a change that wakes all readers.
    #[cfg(test)]
    pub(crate) fn amend(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshot.send_modify(|snapshot| change(Arc::make_mut(snapshot)));
    }
}

/// The side of the channels for the rest of the daemon.
#[derive(Clone)]
pub struct StatusHandle {
    /// The current snapshot. Only those may wait for its changes that must not wait for the thread that serves clients:
    /// see `relay_changes`.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Wakes the clients of the API after a change of the snapshot.
    pub changes: watch::Receiver<()>,
    /// Wakes the hooks and the daemon's other tasks after a change of the snapshot, once the clients have been woken.
    pub late_changes: watch::Receiver<()>,
    /// Notified when the published lease ends at another moment than before. `exec` waits for it, to kill its program in
    /// time.
    pub lease_moved: Arc<Notify>,
    pub requests: mpsc::Sender<MemberRequest>,
    /// The state of the hooks, which their runner publishes.
    pub hooks: watch::Receiver<Hooks>,
    /// The result that the health check publishes; `None` without a check, or before its first result.
    pub application: watch::Receiver<Option<api::Application>>,
    pub meter: Arc<Meter>,
    /// How long to wait until a command has been carried out.
    pub patience: Duration,
    /// The longest time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// Handles requests for locks and barriers; `None` if they are switched off.
    pub holdings: Option<HoldingsHandle>,
    /// Handles requests for the shared configuration; `None` if it is switched off.
    pub shared_config: Option<ConfigHandle>,
    /// The state of the values that are written to files.
    pub synced_files: watch::Receiver<Vec<api::SyncedFile>>,
    /// Notified when a client requests that the process shuts down.
    pub shutdown: Arc<Notify>,
}

impl StatusHandle {
    /// The default of `patience`.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// Sends a command to the runner, and waits until it has been carried out. Returns false if the command ended the
    /// session and ZooKeeper did not confirm its end, otherwise true.
    ///
    /// # Errors
    /// Fails if the command is not known to have been carried out.
    pub async fn command(&self, command: Command, now: Moment) -> Result<bool, CommandError> {
        let ends_session =
            matches!(command, Command::Resign | Command::Transfer { .. } | Command::Preempt { .. });
        // Without Kerberos, tickets never end: leave this code out of the static binary, which must stay small.
        if cfg!(feature = "kerberos") && ends_session && self.snapshot.borrow().tickets_have_ended {
            return Err(CommandError::NoTickets);
        }
        let (caller, when_done) = ReplyTo::new(Some(now.after(self.patience)));
        let asked = self.requests.try_send(MemberRequest::Command(command, caller));
        asked.map_err(|_| CommandError::NotTaken)?;
        match timeout(self.patience, when_done).await {
            Ok(Ok(confirmed)) => Ok(confirmed),
            Ok(Err(_)) | Err(_) => Err(CommandError::Pending),
        }
    }

    /// Returns the queue, in order, as it was read within the last second.
    ///
    /// # Errors
    /// Why the queue cannot be read, for operators.
    pub async fn members(&self) -> Result<QueueReading, String> {
        // Without a connection, a request would only wait for one.
        self.snapshot.borrow().check_connection()?;
        match timeout(READ_TIMEOUT, self.read_members()).await {
            Ok(read) => read,
            Err(_) => Err(format!("ZooKeeper did not answer within {READ_TIMEOUT:?}")),
        }
    }

    async fn read_members(&self) -> Result<QueueReading, String> {
        loop {
            let (answer, answered) = oneshot::channel();
            match self.requests.try_send(MemberRequest::Members(answer)) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return Err("too many ask at once".into()),
                Err(TrySendError::Closed(_)) => return Err("this member is leaving".into()),
            }
            // If the session ends meanwhile, it drops the channel without an answer. Then ask the next session.
            if let Ok(read) = answered.await {
                return read;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Waits for a snapshot for which `condition` is true. Does not return it: a caller that holds a borrow of the watch
    /// channel and borrows again would deadlock with a writer that waits in between.
    ///
    /// # Errors
    /// Fails if no such snapshot is published within `patience`.
    pub async fn until(
        &self,
        patience: Duration,
        mut condition: impl FnMut(&Snapshot) -> bool,
    ) -> Result<(), Elapsed> {
        let mut changes = self.changes.clone();
        timeout(patience, async {
            loop {
                let is_met = condition(&self.snapshot.borrow());
                if is_met || changes.changed().await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// Waits until the hooks have run for the newest change.
    ///
    /// # Errors
    /// Fails if the hooks have not run within `patience`.
    pub async fn until_hooks_have_run(&self, patience: Duration) -> Result<(), Elapsed> {
        let newest = self.snapshot.borrow().standing.index();
        let mut hooks = self.hooks.clone();
        timeout(patience, hooks.wait_for(|hooks| hooks.done_up_to >= newest)).await.map(drop)
    }

    /// Returns the same channels, except that requests go to the returned receiver. The task that receives the requests
    /// must forward them to the runner, each within `max_delay`.
    pub fn with_interceptor(&self, max_delay: Duration) -> (Self, mpsc::Receiver<MemberRequest>) {
        let (requests, intercepted) = mpsc::channel(64);
        (Self { requests, patience: self.patience + max_delay, ..self.clone() }, intercepted)
    }
}

/// Creates the channels, with the snapshot of a member that has not handled any event. Call this in the runtime that serves
/// clients.
pub fn set_up(member: &Member, now: Moment) -> (StatusPublisher, StatusHandle) {
    let snapshot = Snapshot {
        standing: member.standing(),
        link: ConnectionState::default(),
        problems: Problems::default(),
        last_looped_at: now,
        recent_changes: Arc::default(),
        counters: Counters::new(now),
        tickets_end_at: None,
        tickets_have_ended: false,
    };
    let (snapshot_in, snapshot_out) = watch::channel(Arc::new(snapshot));
    let (ask, asked) = mpsc::channel(64);
    let meter = Arc::<Meter>::default();
    let lease_moved = Arc::<Notify>::default();
    let publisher = StatusPublisher {
        snapshot: snapshot_in,
        lease_moved: lease_moved.clone(),
        requests: asked,
        meter: meter.clone(),
    };
    let (changes, late_changes) = relay_changes(snapshot_out.clone());
    let status = StatusHandle {
        snapshot: snapshot_out,
        changes,
        late_changes,
        lease_moved,
        requests: ask,
        // The runner of the hooks and the health check have not published anything yet.
        hooks: watch::channel(Hooks::default()).1,
        application: watch::channel(None).1,
        meter,
        patience: StatusHandle::PATIENCE,
        heartbeat: member.heartbeat(),
        holdings: None,
        shared_config: None,
        synced_files: watch::channel(vec![]).1,
        shutdown: Arc::default(),
    };
    (publisher, status)
}

/// Starts a task that passes on each change of the snapshot to those who wait for one: first to the clients of the API, and
/// then to the daemon's other tasks, some of which run on another thread. The election's thread, which publishes the
/// snapshot, wakes only this task: to wake a thousand clients would delay its claim and its renewals, and to wake a second
/// thread would delay the clients on a machine with few cores.
///
/// The returned channels only wake: the snapshot itself may be newer.
fn relay_changes(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> (watch::Receiver<()>, watch::Receiver<()>) {
    let (clients, changes) = watch::channel(());
    let (others, late_changes) = watch::channel(());
    tokio::spawn(async move {
        while snapshots.changed().await.is_ok() {
            clients.send_replace(());
            // Let the clients' tasks run first.
            tokio::task::yield_now().await;
            others.send_replace(());
        }
    });
    (changes, late_changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recipes::election::{Event, Policy};
    use recipes::{FencingToken, Margins, MemberId, Sequence, SessionEvent};
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn a_leader_of_the_own_id_is_another_member_once_it_has_outlived_an_earlier_life() {
        let second = Duration::from_secs(1);
        let margins = Margins { heartbeat: second, half_tick: second };
        let id = MemberId::new("a").unwrap();
        let labels = BTreeMap::new();
        let profile = Arc::new(Profile { id, address: None, labels, revision: 0 });
        let mut member = Member::new(profile.clone(), Policy::new(margins));
        let (publisher, status) = set_up(&member, at(0));
        let mut hear = |now, event: Event| {
            let _undone = member.step(now, event.clone());
            publisher.amend(|snapshot| {
                snapshot.counters.on_event(&event);
                snapshot.standing = member.standing();
            });
        };
        let judged = |now| {
            let snapshot = status.snapshot.borrow();
            DuplicateId::find(&snapshot.standing, None, &snapshot.counters, now)
        };
        let ticket =
            |n: i32| Ticket { sequence: Sequence::new(n).unwrap(), token: FencingToken(n as u64) };
        let ahead = ticket(3);
        let token = ticket(3).token;
        let timeout = Duration::from_secs(10);
        hear(
            at(0),
            Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at: at(0) }),
        );
        hear(at(0), Event::Joined(ticket(4)));
        hear(at(0), Event::QueueRead([ahead.sequence, ticket(4).sequence].into_iter().collect()));
        assert_eq!(judged(at(60)), None, "who leads is not known");
        let announcement = Some(Announcement { leader: profile, ticket: ahead });
        hear(at(1), Event::PredecessorRead { predecessor: ahead, announcement, distance: None });
        assert_eq!(judged(at(14)), Some(DuplicateId::MayBeEarlierLife { token }));
        assert_eq!(judged(at(15)), Some(DuplicateId::Leader { token }));
        // The servers may have a new leader, which restarts all timeouts.
        hear(at(20), Event::Session(SessionEvent::Resumed { timeout, sent_at: at(20) }));
        assert_eq!(judged(at(34)), Some(DuplicateId::MayBeEarlierLife { token }));
        assert_eq!(judged(at(35)), Some(DuplicateId::Leader { token }));
    }

    #[tokio::test]
    async fn another_of_the_same_id_that_does_not_lead_is_a_duplicate_id_when_it_outlives_earlier_lives()
     {
        let heartbeat = Duration::from_secs(1);
        let id = MemberId::new("a").unwrap();
        let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
        let policy = Policy::new(Margins { heartbeat, half_tick: heartbeat });
        let (publisher, status) = set_up(&Member::new(Arc::new(profile), policy), at(0));
        let timeout = Duration::from_secs(10);
        let opened =
            Event::Session(SessionEvent::Opened { session: SessionId(1), timeout, sent_at: at(0) });
        let token = FencingToken(3);
        publisher.amend(|snapshot| snapshot.counters.on_event(&opened));
        let judged = |now| {
            let snapshot = status.snapshot.borrow();
            DuplicateId::find(&snapshot.standing, Some(token), &snapshot.counters, now)
        };
        assert_eq!(judged(at(14)), None, "it may be an earlier life, and is in nobody's way");
        assert_eq!(judged(at(15)), Some(DuplicateId::InQueue { token }));
    }

    #[test]
    fn a_command_to_move_comes_too_late_when_its_caller_waits_no_more() {
        for command in [Command::Resign, Command::Pause, Command::Resume] {
            let (caller, waits) = ReplyTo::new(Some(at(5)));
            assert!(!caller_expired(&command, &caller, at(5)));
            assert!(caller_expired(&command, &caller, at(6)));
            drop(waits);
            assert!(caller_expired(&command, &caller, at(5)));
            let (patient, waits) = ReplyTo::new(None);
            assert!(!caller_expired(&command, &patient, at(500)));
            drop(waits);
            assert!(caller_expired(&command, &patient, at(0)));
        }
        let told = Command::UpdateProfile { address: None, labels: BTreeMap::new() };
        for command in [Command::ReportHealth { healthy: false }, told] {
            let (caller, _) = ReplyTo::new(None);
            assert!(!caller_expired(&command, &caller, at(0)), "its sender never waits");
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }
}
