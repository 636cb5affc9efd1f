//! The loop that runs the hooks: reads the snapshot, runs the hooks for the next change, and waits for a new snapshot.

use super::file::{self, WriteLock};
use super::message;
use super::perform::{Notice, perform};
use super::{HookError, StopReason, kubernetes};
use crate::api::{self, Hook};
use crate::clock::{Alarm, Clock, KernelTime};
use crate::config::{HookAction, HookConfig, WhenUnknown};
use crate::process::reap;
use crate::status::{HookRecord, Hooks, Snapshot, StatusHandle};
use crate::znode_names::ElectionNames;
use recipes::election::{Change, Role, changes};
use recipes::{FencingToken, Moment};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};

/// The shortest and the longest delay before the next attempt to write a file or Kubernetes object. The delay doubles
/// after each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The name, in logs and `/status`, of a hook's run that no change of the leader has caused: it brings a file or Kubernetes
/// object up to date. The first event of a stream of `/events` has the same name.
const STATE: &str = "state";

/// Runs the hooks.
struct HookRunner {
    names: ElectionNames,
    /// The limit of open files for the commands of hooks, if there is one.
    file_limit: Option<u64>,
    /// Receives the configured hooks, at the start and when the configuration is reloaded.
    hooks: watch::Receiver<Arc<[HookConfig]>>,
    /// Publishes the results of the hooks.
    records: watch::Sender<Hooks>,
    watch: SnapshotWatch,
    /// SIGCHLD, at which dead children are reaped.
    deaths: Signal,
    hook_states: Vec<HookState>,
    /// The role after the last change for which the hooks were run.
    handled: Role,
}

/// The daemon's side of the channels to the runner of the hooks.
pub struct HooksHandle {
    /// The list of hooks to run. A reload of the configuration sends a new list.
    pub hooks: watch::Sender<Arc<[HookConfig]>>,
    /// Set when this member leaves, to the moment by which all hooks must have ended. From then on, hooks see this member as
    /// one that does not lead.
    pub leave: watch::Sender<Option<Moment>>,
    /// The results of the hooks.
    pub records: watch::Receiver<Hooks>,
}

/// The runner's side of the channels to the daemon, which holds the [`HooksHandle`].
pub struct HookInputs {
    hooks: watch::Receiver<Arc<[HookConfig]>>,
    leaving: watch::Receiver<Option<Moment>>,
    records: watch::Sender<Hooks>,
}

/// Creates the channels between the runner of the hooks and the daemon.
pub fn set_up(hooks: Vec<HookConfig>) -> (HookInputs, HooksHandle) {
    let (hooks, list) = watch::channel(Arc::from(hooks));
    let (leave, leaving) = watch::channel(None);
    let (sender, records) = watch::channel(Hooks::default());
    (HookInputs { hooks: list, leaving, records: sender }, HooksHandle { hooks, leave, records })
}

/// A hook, and the state of its file or Kubernetes object.
struct HookState {
    hook: HookConfig,
    record: HookRecord,
    /// The lock of the hook's file.
    lock: WriteLock,
    /// The role for which the file or Kubernetes object was last written. `None` if it was never written, or the last
    /// write failed.
    written: Option<Role>,
    /// The moment of the next write, if one is due without a change, and the current retry delay, which is zero after a
    /// successful write.
    next_write: Option<(Moment, Duration)>,
}

/// A run of a hook that has begun.
struct HookRun {
    /// The name of the change for which the hook runs, or `STATE`.
    change: &'static str,
    /// The date and the moment at which the run began.
    at: SystemTime,
    since: Moment,
}

/// Runs the hooks for the changes that they are configured for, until this member leaves. `file_limit` is the limit of
/// open files for a command, if there is one.
///
/// # Errors
/// The operating system refuses a timer or a signal handler.
pub async fn run(
    inputs: HookInputs,
    names: ElectionNames,
    file_limit: Option<u64>,
    clock: Clock,
    status: StatusHandle,
) -> io::Result<()> {
    let HookInputs { hooks, leaving, records } = inputs;
    let StatusHandle { snapshot, late_changes, .. } = status;
    let runner = HookRunner {
        names,
        file_limit,
        hooks,
        records,
        watch: SnapshotWatch {
            clock,
            alarm: Alarm::new()?,
            snapshot,
            late_changes,
            has_hooks: false,
            leaving,
        },
        deaths: signal(SignalKind::child())?,
        hook_states: vec![],
        handled: Role::Absent,
    };
    runner.run().await;
    Ok(())
}

impl HookRunner {
    async fn run(mut self) {
        loop {
            self.update_hooks();
            let seen = self.watch.current_role();
            // Run the hooks for one change only, and then read the snapshot again: later changes may be outdated by then.
            if let Some(change) = changes(&self.handled, &seen.role).into_iter().next() {
                self.handled = change.role.clone();
                self.run_hooks(&change, seen.index).await;
                continue;
            }
            let next_refresh = self.refresh_all().await;
            // Read this before the role: a leaving member counts as one that does not lead, so if it is leaving and the role
            // is unchanged, the hooks for the end of its leadership have run.
            let is_leaving = self.watch.leaving.borrow().is_some();
            // If the leader has changed meanwhile, run the hooks for that first.
            if !self.watch.current_role().role.has_same_leader(&self.handled) {
                continue;
            }
            // Publish that the hooks have run for all changes up to this index.
            let done = seen.index;
            self.records
                .send_if_modified(|hooks| std::mem::replace(&mut hooks.done_up_to, done) != done);
            if is_leaving {
                return;
            }
            tokio::select! {
                () = self.watch.wait_for_change(self.handled.own_term(), next_refresh) => {}
                Ok(()) = self.hooks.changed() => {}
                // Also reap the processes that hooks leave behind: the first process of a container adopts them.
                _ = self.deaths.recv() => reap(),
            }
        }
    }

    /// Takes over the new list of hooks, if it has changed. A hook that was in the old list keeps its state and its
    /// record.
    fn update_hooks(&mut self) {
        let list = self.hooks.borrow_and_update().clone();
        if list.iter().eq(self.hook_states.iter().map(|state| &state.hook)) {
            return;
        }
        let mut old_states = std::mem::take(&mut self.hook_states);
        for hook in list.iter() {
            let known = old_states.iter().position(|state| state.hook == *hook);
            let state = known.map(|n| old_states.remove(n));
            self.hook_states.push(state.unwrap_or_else(|| HookState::new(hook.clone())));
        }
        self.watch.has_hooks = !self.hook_states.is_empty();
        self.publish();
    }

    /// Publishes the records of all hooks.
    fn publish(&self) {
        let records = self.hook_states.iter().map(|state| state.record.clone()).collect();
        self.records.send_modify(|hooks| hooks.records = records);
    }

    /// Runs the hooks that are configured for `change`. Writes files first.
    async fn run_hooks(&mut self, change: &Change, index: Option<u64>) {
        let notice = self.notice(change, index);
        // Files must be up to date at every moment, so they do not wait for hooks that may take long. Kubernetes objects
        // wait for their turn in the list, because the API server may take long as well.
        for n in 0..self.hook_states.len() {
            if matches!(self.hook_states[n].hook.action, HookAction::Keep { .. }) {
                self.refresh(n, change.kind.name()).await;
            }
        }
        for n in 0..self.hook_states.len() {
            // The remaining hooks are too late if this member's term has ended, or the deadline of the shutdown is
            // over.
            let now = self.watch.clock.now();
            if self.watch.stop_reason(change.role.own_term(), now).is_some() {
                return;
            }
            let hook = &self.hook_states[n].hook;
            match &hook.action {
                // The file of such a hook was written above.
                HookAction::Keep { .. } if hook.keeps_up_to_date() => {}
                _ if hook.keeps_up_to_date() => self.refresh(n, change.kind.name()).await,
                _ if hook.runs_for(change.kind) => {
                    let began = self.begin(n, change.kind.name());
                    let done = self.run_action(n, &notice, &change.role, index).await;
                    self.end(n, began, done);
                }
                _ => {}
            }
        }
    }

    /// Returns the message about `change`.
    fn notice(&self, change: &Change, index: Option<u64>) -> Notice {
        let id = self.watch.snapshot.borrow().standing.profile().id.to_string();
        let valid_until = self.watch.valid_until(&change.role);
        let date = self.watch.clock.date();
        let state = message::leader_file(&change.role, &self.names, index, date, valid_until);
        message::notice(change, id, self.names.election.clone(), state)
    }

    /// Performs the action of the hook with the number `n` for a change, after which the role is `role` and the index is
    /// `index`.
    async fn run_action(
        &mut self,
        n: usize,
        notice: &Notice,
        role: &Role,
        index: Option<u64>,
    ) -> Result<(), HookError> {
        let action = self.hook_states[n].hook.action.clone();
        if let HookAction::Keep { .. } | HookAction::Kubernetes(_) = action {
            return self.write(n, action, role, index).await;
        }
        let term = role.own_term();
        let clock = self.watch.clock;
        let watch = &mut self.watch;
        let stopped = async |limit| watch.stopped(term, limit).await;
        perform(&action, notice, self.file_limit, clock, &mut self.deaths, stopped).await
    }

    /// Brings the files and Kubernetes objects of all hooks up to date. Returns the moment at which to call this again
    /// even if the leader does not change, if there is one.
    async fn refresh_all(&mut self) -> Option<Moment> {
        for n in 0..self.hook_states.len() {
            self.refresh(n, STATE).await;
        }
        self.hook_states.iter().filter_map(|state| state.next_write).map(|(at, _)| at).min()
    }

    /// Brings the file or Kubernetes object of the hook with the number `n` up to date with the snapshot, which may be
    /// newer than the change for which the other hooks run. Does nothing if this hook runs only for certain changes.
    async fn refresh(&mut self, n: usize, occasion: &'static str) {
        let CurrentRole { role, index } = self.watch.current_role();
        let HookState { hook, written, next_write, .. } = &self.hook_states[n];
        if !hook.keeps_up_to_date() {
            return;
        }
        let action = hook.action.clone();
        let next_write = *next_write;
        let is_time_to_write = next_write.is_some_and(|(at, _)| at <= self.watch.clock.now());
        let is_current = written.as_ref().map(|written| has_same_content(&action, written, &role));
        let is_due = match is_current {
            Some(true) => is_time_to_write,
            Some(false) => true,
            // The first write is due at once. After a failure, wait for the next retry, unless the leader has changed.
            None => is_time_to_write || next_write.is_none() || occasion != STATE,
        };
        if !is_due {
            return;
        }
        let is_left_alone = matches!(&action, HookAction::Kubernetes(hook) if kubernetes::is_left_alone(hook, &role));
        let began = self.begin(n, occasion);
        let done = self.write(n, action.clone(), &role, index).await;
        let state = &mut self.hook_states[n];
        let now = self.watch.clock.now();
        (state.written, state.next_write) = match (&done, &action) {
            (Ok(()), HookAction::Kubernetes(_)) => {
                (Some(role), Some((now.after(kubernetes::REFRESH), Duration::ZERO)))
            }
            (Ok(()), _) => (Some(role), None),
            (Err(_), _) => {
                let last_delay = next_write.map_or(Duration::ZERO, |(_, delay)| delay);
                let delay = (2 * last_delay).clamp(RETRY_MIN, RETRY_MAX);
                (None, Some((now.after(delay), delay)))
            }
        };
        // Do not log a success if the content was right already, or if the object was left as it is.
        if (is_current == Some(true) || is_left_alone) && done.is_ok() {
            self.record(n, began, &done);
        } else {
            self.end(n, began, done);
        }
    }

    /// Writes the file or Kubernetes object of the hook with the number `n` for `role`.
    async fn write(
        &mut self,
        n: usize,
        action: HookAction,
        role: &Role,
        index: Option<u64>,
    ) -> Result<(), HookError> {
        match action {
            HookAction::Keep { file, mode, unknown } => {
                let date = self.watch.clock.date();
                let until = self.watch.valid_until(role);
                let content = message::leader_file(role, &self.names, index, date, until);
                // `None` removes the file.
                let text = (unknown == WhenUnknown::Keep || role.leader().is_some())
                    .then(|| (api::json(&content) + "\n").into_bytes());
                let lock = self.hook_states[n].lock.clone();
                file::update(&lock, &file, mode, text).await.map_err(HookError::Failed)
            }
            HookAction::Kubernetes(hook) => {
                let reason = self.watch.stopped_or_outdated(role.own_term(), hook.timeout, |now| {
                    kubernetes::needs_rewrite(&hook, role, now)
                });
                tokio::select! {
                    done = kubernetes::set(&hook, role) => done.map_err(HookError::Failed),
                    reason = reason => Err(reason.into()),
                }
            }
            // Does not happen: the callers pass only the actions above.
            _ => Ok(()),
        }
    }

    /// Publishes that the hook with the number `n` runs.
    fn begin(&mut self, n: usize, change: &'static str) -> HookRun {
        self.hook_states[n].record.report.running = Some(change.to_owned());
        self.publish();
        HookRun { change, at: self.watch.clock.date(), since: self.watch.clock.now() }
    }

    /// Records and logs the result of a run that has ended.
    fn end(&mut self, n: usize, run: HookRun, done: Result<(), HookError>) {
        let change = run.change;
        let took = self.record(n, run, &done);
        let what = &self.hook_states[n].hook.action;
        match &done {
            Ok(()) => info!("hook[{n}] {what}: {change}: done in {took:.0?}"),
            Err(HookError::CutShort(why)) => {
                warn!("hook[{n}] {what}: {change}: {why}, after {took:.0?}");
            }
            Err(HookError::Failed(why)) => {
                error!("hook[{n}] {what}: {change}: {why}, after {took:.0?}");
            }
        }
    }

    /// Records the result of a run. Returns its duration.
    fn record(&mut self, n: usize, run: HookRun, done: &Result<(), HookError>) -> Duration {
        let HookRun { change, at, since } = run;
        let took = self.watch.clock.now().since(since);
        let HookRecord { report, spent, failing_since } = &mut self.hook_states[n].record;
        *spent += took;
        match done {
            Ok(()) => *failing_since = None,
            Err(HookError::Failed(_)) => {
                report.failures += 1;
                failing_since.get_or_insert(at);
            }
            Err(HookError::CutShort(_)) => report.cut_short += 1,
        }
        report.runs += 1;
        report.running = None;
        report.last = Some(api::HookRun {
            change: change.to_owned(),
            at: api::date(at),
            took_ms: api::millis(took),
            failure: done.as_ref().err().map(HookError::to_string),
        });
        self.publish();
        took
    }
}

impl HookState {
    fn new(hook: HookConfig) -> Self {
        let on = hook.change_kinds().map(|kind| kind.name().to_owned()).collect();
        let report = Hook { hook: hook.action.to_string(), on, ..Hook::default() };
        let record = HookRecord { report, ..HookRecord::default() };
        Self { hook, record, lock: WriteLock::default(), written: None, next_write: None }
    }
}

/// Returns whether a file or Kubernetes object has the same content for the role `now` as for the role `written`.
fn has_same_content(action: &HookAction, written: &Role, now: &Role) -> bool {
    match action {
        HookAction::Kubernetes(hook) => !kubernetes::needs_rewrite(hook, written, now),
        _ => written.has_same_leader(now),
    }
}

/// Reads the snapshot, and waits for changes of this member's role.
struct SnapshotWatch {
    clock: Clock,
    alarm: Alarm,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Wakes this task after a change of the snapshot. Only without hooks: hooks must not wait for the thread that serves
    /// clients.
    late_changes: watch::Receiver<()>,
    has_hooks: bool,
    /// The deadline of all hooks, if this process is shutting down.
    leaving: watch::Receiver<Option<Moment>>,
}

/// This member's role in the current snapshot, and the snapshot's index.
struct CurrentRole {
    role: Role,
    index: Option<u64>,
}

impl SnapshotWatch {
    /// Returns this member's role now. A leader's role changes with the clock, when its lease ends.
    fn current_role(&self) -> CurrentRole {
        let now = self.clock.now();
        // If the election's runner has ended, or this process is shutting down, the lease is not renewed. So treat this
        // member as absent.
        let is_over = self.snapshot.has_changed().is_err() || self.leaving.borrow().is_some();
        let standing = &self.snapshot.borrow().standing;
        let role = if is_over { Role::Absent } else { standing.at(now) };
        CurrentRole { role, index: standing.index_at(now) }
    }

    /// Returns the end of this member's lease, if it still leads in the term of `role`.
    fn valid_until(&self, role: &Role) -> Option<KernelTime> {
        let now = self.clock.now();
        let seen = self.current_role();
        match seen.role {
            Role::Leader { left, .. } if seen.role.own_term() == role.own_term() => {
                Some(self.clock.kernel_time(now.after(left)))
            }
            _ => None,
        }
    }

    /// Returns why a run must stop now, or `None` if it may continue. `term` is this member's term if the run depends on
    /// its leadership.
    fn stop_reason(&self, term: Option<FencingToken>, now: Moment) -> Option<StopReason> {
        if term.is_some() && self.current_role().role.own_term() != term {
            return Some(StopReason::LostLeadership);
        }
        let deadline = *self.leaving.borrow();
        deadline.filter(|deadline| *deadline <= now).map(|_| StopReason::Leaving)
    }

    /// Waits until a run must stop, for `limit` at most, and returns the reason. `term` is as in
    /// [`stop_reason`](Self::stop_reason).
    async fn stopped(&mut self, term: Option<FencingToken>, limit: Duration) -> StopReason {
        self.stopped_or_outdated(term, limit, |_| false).await
    }

    /// Like [`stopped`](Self::stopped), but also stops the run when `is_overtaken` returns true for the current role.
    async fn stopped_or_outdated(
        &mut self,
        term: Option<FencingToken>,
        limit: Duration,
        is_overtaken: impl Fn(&Role) -> bool,
    ) -> StopReason {
        let late_at = self.clock.now().after(limit);
        loop {
            let now = self.clock.now();
            if let Some(reason) = self.stop_reason(term, now) {
                return reason;
            }
            if is_overtaken(&self.current_role().role) {
                return StopReason::Overtaken;
            }
            if late_at <= now {
                return StopReason::TimedOut(limit);
            }
            self.wait_for_change(term, Some(late_at)).await;
        }
    }

    /// Waits for a new snapshot, the end of the lease (if `term` is given), the deadline of the shutdown or `moment`. May
    /// also return earlier, so the caller must check what has happened.
    async fn wait_for_change(&mut self, term: Option<FencingToken>, moment: Option<Moment>) {
        let lease_end = self.snapshot.borrow().standing.changes_at(self.clock.now());
        let deadline = *self.leaving.borrow();
        let due = [lease_end.filter(|_| term.is_some()), deadline, moment].into_iter().flatten();
        // A channel whose sender is gone would complete at once, again and again, so do not wait for it.
        let may_publish =
            self.snapshot.has_changed().is_ok() && self.late_changes.has_changed().is_ok();
        let may_leave = self.leaving.has_changed().is_ok();
        tokio::select! {
            _ = self.snapshot.changed(), if may_publish && self.has_hooks => {}
            _ = self.late_changes.changed(), if may_publish && !self.has_hooks => {}
            _ = self.leaving.changed(), if may_leave => {}
            () = self.alarm.ring_at(due.min()) => {}
        }
    }
}
