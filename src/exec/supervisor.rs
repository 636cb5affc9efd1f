//! The supervisor starts the command while there is a lease of leadership or of a lock. If an operator, the application
//! or a signal requests the end of leadership or of the lock, the supervisor ends the command first.

use super::countdown::{Countdown, KillStep, RECHECK_INTERVAL};
use super::decide::{CommandLease, CommandStage, CommandStep, after_exit, decide, restart_delay};
use super::guard_protocol::{FromGuard, GuardConfig, GuardLink, ToGuard};
use super::signals::{SignalListener, signal_name};
use super::{INNER_GUARD_MARGIN, SUPERVISOR_MARGIN};
use crate::clock::{Alarm, Clock};
use crate::config::{CHANGE_VARIABLE, KILL_MARGIN, OnExit};
use crate::process::{self, ControllingTerminal, JobChange, reap, this_program};
use crate::status::{self, MemberRequest, ReplyTo, StatusHandle};
use recipes::election::{self, Role};
use recipes::{FencingToken, Moment};
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

/// The command to run, and how to run it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub command: Vec<OsString>,
    /// The name of the lease in log lines, for example "leadership" or "the lock".
    pub under: &'static str,
    /// The time between asking the command to end and killing it.
    pub kill_after: Duration,
    /// The time for which the command may be stopped, for example with Ctrl-Z, before it is killed.
    pub stopped_for: Duration,
    /// The behaviour after the command has ended by itself.
    pub on_exit: OnExit,
    /// Whether to leave as soon as the command has ended with exit code 0, whatever `on_exit` says.
    pub once: bool,
    /// The limit of open files for the command, if there is one: the limit that this process had before it raised its own.
    pub file_limit: Option<u64>,
    /// Environment variables for the command, besides `BELLWETHER_TOKEN`.
    pub environment: Vec<(&'static str, String)>,
    /// A descriptor that the guards keep open until the command is dead.
    pub descriptor: Option<Arc<OwnedFd>>,
    /// If true, the outer guard shuts down `descriptor`, which is a connection, whenever the command is dead. If false,
    /// it does so only if the inner guard did not end the command in time.
    pub shuts_down_descriptor: bool,
    /// Whether an earlier process of this member may have run the command. Its guards may have been killed, and its
    /// command may still be dying.
    pub after_restart: bool,
}

/// Receives all requests to the member. The supervisor forwards them to the election's runner.
pub type Requests = mpsc::Receiver<MemberRequest>;

/// The time after a SIGTERM or SIGINT in which another one counts as the same signal: the parent process may forward a
/// signal that this process has also received directly. After that time, another SIGTERM or SIGINT kills the command.
const SAME_SIGNAL_WINDOW: Duration = Duration::from_millis(250);
/// The interval at which to check whether this process has the foreground of the terminal, while the program is stopped
/// because it used the terminal in the background.
const FOREGROUND_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time by which the supervisor kills later than the inner guard, so that the guards can finish first.
const GUARDS_HEAD_START: Duration = INNER_GUARD_MARGIN.checked_sub(SUPERVISOR_MARGIN).unwrap();
/// The exit code, by the shell's convention, of a program that was ended by SIGINT (signal 2).
const INTERRUPTED: u8 = 128 + 2;
/// The time after which to log that killed processes are still alive, and the interval between two such log lines.
const COMPLAIN_AFTER: Duration = Duration::from_secs(1);
const COMPLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// The signals that the supervisor handles: SIGTERM and SIGINT end the command, and the others are forwarded to it.
const HANDLED_SIGNALS: [Signal; 8] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
];

/// Runs the command whenever this member leads, until the member leaves. Returns the exit code for this process.
///
/// # Errors
/// The operating system refuses a process or a socket, or the thread of the election died.
pub async fn supervise(
    plan: Plan,
    clock: Clock,
    mut status: StatusHandle,
    mut requests: Requests,
) -> io::Result<u8> {
    // If an earlier process of this member and its guards were killed, the kernel kills that process's command, which
    // may take up to `KILL_MARGIN`. So do not start the command earlier.
    let not_before =
        clock.now().after(if plan.after_restart { KILL_MARGIN } else { Duration::ZERO });
    let mut supervisor = Supervisor::begin(plan, clock, not_before)?;
    // The commands for the member that would end its leadership (resign, hand over, pause), and a resume after them. They
    // wait here until the program has ended.
    let mut waiting_commands: Vec<(election::Command, ReplyTo)> = vec![];
    loop {
        supervisor.check_run(clock.now());
        if supervisor.run.is_none() {
            if let Some(code) = supervisor.leaving {
                return Ok(code);
            }
            for (command, caller) in waiting_commands.drain(..) {
                carry_out(&status, command, caller).await;
            }
        }
        let standing = status.snapshot.borrow_and_update().standing.clone();
        let now = clock.now();
        let wake_at = supervisor.follow(lease_of(&standing.at(now), now), now)?;
        tokio::select! {
            biased;
            () = supervisor.next_event(wake_at) => {}
            changed = status.snapshot.changed() => {
                changed.map_err(|_| io::Error::other("the election died, see the log"))?;
            }
            // A renewal of the lease alone does not wake the readers of the snapshot. The guards need each renewal,
            // because they kill the command when the last lease that they received ends.
            () = status.lease_moved.notified() => {}
            Some(request) = requests.recv() => match request {
                MemberRequest::Command(command, caller)
                    if status::caller_expired(&command, &caller, clock.now()) =>
                {
                    info!("dropped {command:?}: its caller timed out");
                }
                // A resume must not overtake a pause that waits: the member would stay paused.
                MemberRequest::Command(command @ election::Command::Resume, caller) if !waiting_commands.is_empty() => {
                    waiting_commands.push((command, caller));
                }
                MemberRequest::Command(
                    command @ (election::Command::Resign
                    | election::Command::HandOver(_)
                    | election::Command::Pause),
                    caller,
                ) => {
                    if supervisor.run.is_some() {
                        info!("told to give up its place: ending the program first");
                        supervisor.end(Signal::TERM);
                    }
                    waiting_commands.push((command, caller));
                }
                // A transfer is forwarded at once: it ends leadership only later, with the command to hand over.
                other @ (MemberRequest::Command(..) | MemberRequest::Members(_) | MemberRequest::PublishState(_)) => {
                    let _receiver_gone = status.requests.send(other).await;
                }
            },
        }
    }
}

/// Returns the lease of a member with this role, if it leads.
fn lease_of(role: &Role, now: Moment) -> Option<CommandLease> {
    match role {
        Role::Leader { announcement, left } => {
            Some(CommandLease { token: announcement.ticket.token, until: now.after(*left) })
        }
        _ => None,
    }
}

/// Runs the command once, under the lease that the function `lease` finds in the latest value of `published`. Returns
/// the command's exit code, or `None` if the command was ended because the lease was over, or was not started because
/// there was no lease or too little of it was left.
///
/// # Errors
/// The operating system refuses a process or a socket, or the sender of `published` is gone.
pub async fn run_under<T>(
    plan: Plan,
    clock: Clock,
    mut published: watch::Receiver<T>,
    mut lease: impl FnMut(&T) -> Option<CommandLease>,
) -> io::Result<Option<u8>> {
    let mut supervisor = Supervisor::begin(plan, clock, clock.now())?;
    loop {
        let known = lease(&published.borrow_and_update());
        let wake_at = supervisor.follow(known, clock.now())?;
        if supervisor.run.is_none() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = supervisor.next_event(wake_at) => {}
            changed = published.changed() => {
                changed.map_err(|_| io::Error::other("no further information about the lease"))?;
            }
        }
        supervisor.check_run(clock.now());
        // The run has ended: return instead of starting another one. `leaving` is `None` if the command was ended
        // because its lease was over.
        if supervisor.run.is_none() {
            return Ok(supervisor.leaving);
        }
    }
}

/// Sends the election command to the member, and returns when it has been carried out. [`supervise`] waits for that
/// before it starts a program again: a program that started earlier would have to end as soon as the member's
/// leadership ends.
async fn carry_out(status: &StatusHandle, command: election::Command, caller: ReplyTo) {
    let (reply_to, reply) = ReplyTo::new(caller.waits_until);
    let _receiver_gone = status.requests.send(MemberRequest::Command(command, reply_to)).await;
    if let Ok(reply) = reply.await {
        caller.send(reply);
    }
}

/// Starts the program through its guards, and ends it. The documentation of the module `exec` says how the three
/// processes work together.
struct Supervisor {
    plan: Plan,
    clock: Clock,
    /// SIGCHLD, at which dead children are reaped.
    deaths: Signals,
    /// The signals in `HANDLED_SIGNALS`.
    signals: SignalListener,
    alarm: Alarm,
    stage: CommandStage,
    /// `None` while no process of the command or of its guards is alive.
    run: Option<Run>,
    /// The delay before the last restart of the command.
    last_restart_delay: Option<Duration>,
    /// If this process is to leave, the exit code with which it does so as soon as the command has ended.
    leaving: Option<u8>,
    /// Until this moment, another SIGTERM or SIGINT counts as the same signal, received twice.
    same_signal_until: Option<Moment>,
}

/// A run of the command, from the start of the guards until no process of the run is left.
struct Run {
    begun_at: Moment,
    /// The process of the outer guard, which is the supervisor's child.
    outer_guard: Pid,
    /// The link to the outer guard. `None` if this guard is dead: the supervisor then kills the processes that are left.
    outer_link: Option<GuardLink>,
    /// The link to the inner guard. `None` if this guard is dead.
    inner_link: Option<GuardLink>,
    /// Whether the command has ended. Processes that it started may still run.
    has_ended: bool,
    /// The command's process, once the inner guard has reported it.
    program: Option<Pid>,
    /// The terminal whose foreground the command received, at the start of the run or when it was continued.
    terminal: Option<ControllingTerminal>,
    /// If the command is stopped, the moment at which it is killed, unless it is continued before.
    kill_stopped_at: Option<Moment>,
    /// Whether the command is stopped because it used the terminal in the background. The supervisor continues the
    /// command once the command has the foreground.
    waits_for_terminal: bool,
    /// Whether the supervisor killed the command because the command was stopped for too long.
    was_stopped_too_long: bool,
    /// Whether the supervisor itself kills the processes of this run, because the guards did not do so in time.
    supervisor_kills: bool,
    /// Whether the outer guard has reported that it is about to kill the inner guard.
    outer_guard_kills: bool,
    /// When to log next that killed processes are still alive; `None` until they were first seen alive.
    complain_at: Option<Moment>,
    /// The supervisor's stage once every process of this run is gone.
    next_stage: CommandStage,
    /// The supervisor's own countdown. Its kill is due later than that of each guard, so the supervisor kills only if
    /// the guards fail.
    countdown: Countdown,
}

/// A message from one of the guards, or the death of a guard.
enum GuardEvent {
    Message(FromGuard),
    /// The link to the inner guard is closed, because this guard has exited or was killed.
    InnerGuardGone,
    /// The link to the outer guard is closed, because this guard has exited or was killed.
    OuterGuardGone,
}

impl Supervisor {
    /// Creates a supervisor without a run. The first run must not start before the moment `not_before`.
    fn begin(plan: Plan, clock: Clock, not_before: Moment) -> io::Result<Self> {
        let deaths = signal(SignalKind::child())?;
        let signals = SignalListener::new(&HANDLED_SIGNALS)?;
        // Become a subreaper: if a guard is killed, the processes that it leaves behind become children of this process
        // instead of process 1.
        set_child_subreaper(Some(getpid()))?;
        process::spare_existing_children()?;
        Ok(Self {
            plan,
            clock,
            deaths,
            signals,
            alarm: Alarm::new()?,
            stage: CommandStage::Idle { not_before, ended_under: None },
            run: None,
            last_restart_delay: None,
            leaving: None,
            same_signal_until: None,
        })
    }

    /// Starts the command, forwards a renewal of the lease, or ends the command, as `lease` requires at the moment `now`.
    /// Returns the moment at which to call this again at the latest.
    fn follow(&mut self, lease: Option<CommandLease>, now: Moment) -> io::Result<Option<Moment>> {
        let time_to_end = self.plan.kill_after + KILL_MARGIN;
        let (step, decide_at) = decide(self.stage, lease, now, time_to_end);
        match step {
            CommandStep::Start(token, until) => self.start(token, until)?,
            CommandStep::Renew(until) => self.renew(until),
            CommandStep::End => {
                info!("{} is over: ending the program", self.plan.under);
                self.end(Signal::TERM);
            }
            CommandStep::Nothing => {}
        }
        let next_check_at = self.run.as_ref().map(|run| run.next_check_at(now));
        Ok(decide_at.into_iter().chain(next_check_at).min())
    }

    /// Waits for the moment `wake_at`, a guard's message, a signal or a child's death, and handles it.
    async fn next_event(&mut self, wake_at: Option<Moment>) {
        let Self { run, signals, deaths, alarm, .. } = &mut *self;
        tokio::select! {
            biased;
            event = next_guard_event(run) => self.on_guard_event(event),
            signal = signals.next() => self.on_signal(signal),
            _ = deaths.recv() => reap(),
            () = alarm.ring_at(wake_at) => {}
        }
    }

    /// Starts the outer guard, which starts the inner guard, which starts the command.
    fn start(&mut self, token: FencingToken, until: Moment) -> io::Result<()> {
        let (outer_link, outer_socket) = GuardLink::pair()?;
        let (inner_link, inner_socket) = GuardLink::pair()?;
        let guard = process::spawn(
            this_program(&["exec-outer-guard"], &self.plan.command)
                .envs(self.plan.environment.iter().map(|(name, value)| (name, value)))
                .env("BELLWETHER_TOKEN", token.0.to_string())
                // If a hook started this process, its variable is in the environment. Remove it, because
                // `alive_with_adopted` takes processes with this variable for those of hooks, and the command is not one
                // of them.
                .env_remove(CHANGE_VARIABLE)
                .stdin(Stdio::from(outer_socket)),
        )?;
        let kill_after = self.plan.kill_after;
        let terminal = ControllingTerminal::in_foreground();
        let config = GuardConfig {
            until,
            kill_after,
            file_limit: self.plan.file_limit,
            foreground: terminal.as_ref().map(|terminal| terminal.group().as_raw_pid()),
            shuts_down_descriptor: self.plan.shuts_down_descriptor,
        };
        let descriptor = self.plan.descriptor.as_ref().map(|descriptor| descriptor.as_fd());
        outer_link.send_config(config, inner_socket.as_fd(), descriptor)?;
        inner_link.send_config(config, io::stdin().as_fd(), descriptor)?;
        info!(token = token.0, "starting the program under {}", self.plan.under);
        self.run = Some(Run {
            begun_at: self.clock.now(),
            outer_guard: guard.pid(),
            outer_link: Some(outer_link),
            inner_link: Some(inner_link),
            has_ended: false,
            program: None,
            terminal,
            kill_stopped_at: None,
            waits_for_terminal: false,
            was_stopped_too_long: false,
            supervisor_kills: false,
            outer_guard_kills: false,
            complain_at: None,
            next_stage: CommandStage::Idle { not_before: self.clock.now(), ended_under: None },
            countdown: Countdown::new(kill_after, SUPERVISOR_MARGIN, until),
        });
        self.stage = CommandStage::Running(token);
        Ok(())
    }

    /// Forwards a renewal to the guards, if it changes the end of the lease.
    fn renew(&mut self, until: Moment) {
        if let Some(run) = &mut self.run
            && run.countdown.until() != until
        {
            run.countdown.renew(until);
            run.send(ToGuard::Renewed(until));
        }
    }

    /// Asks the guards to end the command with `signal`, unless they were asked before.
    fn end(&mut self, signal: Signal) {
        if let (Some(run), CommandStage::Running(token)) = (&mut self.run, self.stage) {
            run.countdown.note_end_request(self.clock.now().after(GUARDS_HEAD_START));
            run.send(ToGuard::End(signal));
            self.stage = CommandStage::Ending(token);
        }
    }

    /// Handles that the command was stopped or continued. While it is stopped, this process takes the foreground of the
    /// terminal back, so that keys such as Ctrl-C reach this process. When the command continues, it gets the foreground
    /// again.
    fn on_job_change(&mut self, change: JobChange) {
        let Some(run) = &mut self.run else { return };
        let Some(program) = run.program else { return };
        let under = self.plan.under;
        match change {
            JobChange::Stopped { signal } => {
                let signal = Signal::from_named_raw(signal);
                let uses_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
                // Suppose the program was just continued. If it used the terminal before this process gave it the
                // foreground, the kernel has stopped it again. So continue it once more, now in the foreground.
                if uses_terminal && run.give_terminal() {
                    return run.send(ToGuard::Signal(Signal::CONT));
                }
                run.waits_for_terminal = uses_terminal;
                // If the command was stopped already, another stop does not delay the kill.
                let kill_at = self.clock.now().after(self.plan.stopped_for);
                run.kill_stopped_at = run.kill_stopped_at.or(Some(kill_at));
                run.take_terminal_back();
                let limit = humantime::format_duration(self.plan.stopped_for);
                let why =
                    if uses_terminal { ", as it uses the terminal in the background" } else { "" };
                warn!(
                    "the program is stopped{why}: continue it with kill -CONT {}. It is killed, and {under} given up, if it \
                     is stopped for {limit} (--stopped-for)",
                    program.as_raw_pid()
                );
            }
            JobChange::Continued => {
                run.kill_stopped_at = None;
                run.waits_for_terminal = false;
                info!("the program goes on");
                run.give_terminal();
            }
        }
    }

    /// Takes all steps of the run that are due: kills a command that was stopped for too long, continues a command that
    /// has received the foreground of the terminal, and kills all processes of the run if the guards did not kill them
    /// in time. Drops the run if the guards have died and none of its processes is alive.
    fn check_run(&mut self, now: Moment) {
        let Some(run) = &mut self.run else { return };
        if run.kill_stopped_at.is_some_and(|at| at <= now) {
            error!("the program was stopped for too long: killing it");
            run.kill_stopped_at = None;
            run.was_stopped_too_long = true;
            run.kill(now);
        }
        // A shell that puts this running process into the foreground sends no signal, so check whether a shell did so.
        if run.waits_for_terminal && run.give_terminal() {
            run.waits_for_terminal = false;
            run.send(ToGuard::Signal(Signal::CONT));
        }
        // A step `RequestEnd` needs no action here, because the inner guard asks the command to end.
        let step = run.countdown.take_due_step(now);
        // If the outer guard is dead but its link is still open, its last messages are unread. They may report that it
        // has killed in time, so do not take it for late.
        let is_late = step == Some(KillStep::Kill)
            && (run.outer_link.is_none() || process::is_alive(run.outer_guard));
        if is_late && !run.supervisor_kills {
            error!("the guards of the program have not ended it in time: killing what is left");
            run.supervisor_kills = true;
        }
        let alive = if run.supervisor_kills {
            process::kill_with_adopted(run.outer_guard, CHANGE_VARIABLE)
        } else if run.outer_link.is_none() {
            process::alive_with_adopted(run.outer_guard, CHANGE_VARIABLE)
        } else {
            return;
        };
        match alive {
            Ok(alive) if alive.is_empty() => {}
            // Processes are alive, or `/proc` cannot be read.
            alive => return run.complain(alive, self.plan.under, now),
        }
        // No process of the run is alive. While the link to the outer guard is open, do nothing yet: the messages that this
        // guard sent before it died are handled first.
        if run.outer_link.is_none() {
            self.on_guard_died("the guards of the program died, and with them the program");
            self.forget_run();
        }
    }

    /// Handles a message from a guard, or the death of a guard.
    fn on_guard_event(&mut self, event: GuardEvent) {
        let Some(run) = &mut self.run else { return };
        match event {
            GuardEvent::Message(FromGuard::Started { pid }) => {
                run.program = Pid::from_raw(pid);
                info!(pid, "the program runs");
            }
            GuardEvent::Message(FromGuard::Job(change)) => self.on_job_change(change),
            GuardEvent::Message(FromGuard::Ended { code, by_itself }) => {
                self.on_command_ended(code, by_itself)
            }
            GuardEvent::Message(FromGuard::Kills) => run.outer_guard_kills = true,
            GuardEvent::Message(FromGuard::Gone) => self.forget_run(),
            GuardEvent::InnerGuardGone => {
                run.inner_link = None;
                self.on_guard_died("a guard of the program died, and with it the program");
            }
            GuardEvent::OuterGuardGone => {
                self.on_guard_died("the outer guard of the program died: the program is killed");
                let Some(run) = &mut self.run else { return };
                run.outer_link = None;
                // Close the link to the inner guard, so that the inner guard kills the command. The supervisor kills
                // a little later: if it killed the inner guard first, only the supervisor would be left to kill the
                // command.
                run.inner_link = None;
                run.countdown.schedule_kill(self.clock.now().after(GUARDS_HEAD_START));
            }
        }
    }

    /// Handles the death of a guard. If no guard has reported how the command ended, treats the command as killed by
    /// SIGKILL (signal 9). Logs `problem`, unless the run was being ended anyway.
    fn on_guard_died(&mut self, problem: &str) {
        let Some(run) = &self.run else { return };
        if run.has_ended {
            return;
        }
        let is_unexpected = run.is_running_normally();
        if is_unexpected {
            error!("{problem}");
        }
        // An unexpected death counts as an end by itself, so that the setting `on_exit` decides what follows.
        self.on_command_ended(128 + 9, is_unexpected);
    }

    /// Handles the end of the command: decides whether this member leaves, leads on without the command, or restarts
    /// it. Processes that the command left behind may still run. `by_itself` is false if the command was asked to end
    /// or killed.
    fn on_command_ended(&mut self, code: u8, by_itself: bool) {
        let Some(run) = &mut self.run else { return };
        let now = self.clock.now();
        run.has_ended = true;
        run.take_terminal_back();
        // The processes that the command left behind have `kill_after` to end, as the command would have had.
        run.countdown.note_end_request(now.after(GUARDS_HEAD_START));
        let CommandStage::Running(token) = self.stage else {
            info!(code, "the program has ended, as it was told");
            // The supervisor had asked the command to end. If it did so because this process is to leave, this process
            // exits with the command's code.
            self.leaving = self.leaving.map(|_| code);
            return;
        };
        self.stage = CommandStage::Ending(token);
        if !(by_itself || run.was_stopped_too_long) {
            // The supervisor had not asked the command to end, so the reason is that no renewal of the lease reached
            // the guards in time. With [`supervise`], the next lease starts the command again.
            warn!(code, "the lease was not renewed in time, so the program was told to end");
            return;
        }
        // A user who presses Ctrl-C wants the program to end, so do not restart it.
        let is_interrupted = run.terminal.is_some() && code == INTERRUPTED;
        let on_exit = if is_interrupted { OnExit::Leave } else { self.plan.on_exit };
        match after_exit(code, on_exit, self.plan.once) {
            OnExit::Leave => {
                info!(code, "the program has ended: leaving");
                self.leaving = Some(code);
            }
            OnExit::Stay => {
                info!(code, "the program has ended: leading on without it");
                run.next_stage = CommandStage::Idle { not_before: now, ended_under: Some(token) };
            }
            OnExit::Restart => {
                let delay = restart_delay(self.last_restart_delay, now.since(run.begun_at));
                self.last_restart_delay = Some(delay);
                info!(code, "the program has ended: it is started again in {delay:?}");
                run.next_stage =
                    CommandStage::Idle { not_before: now.after(delay), ended_under: None };
            }
        }
    }

    /// Drops the run, after all of its processes have died.
    fn forget_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.stage = run.next_stage;
        }
        reap();
    }

    /// Handles a signal to this process. At SIGTERM or SIGINT, ends the command and then leaves. Forwards any other
    /// signal to the command.
    fn on_signal(&mut self, signal: Signal) {
        let name = signal_name(signal);
        let is_to_leave = matches!(signal, Signal::TERM | Signal::INT);
        match &mut self.run {
            None if is_to_leave => self.leaving = Some(0),
            None => info!("{name}: no program is running to pass it on to"),
            Some(run) if is_to_leave && self.leaving.is_some() => {
                let now = self.clock.now();
                if self.same_signal_until.is_some_and(|until| now < until) {
                    return info!("{name} again: counts as the same signal");
                }
                warn!("{name} again: killing the program");
                run.kill(now);
            }
            Some(_) if is_to_leave => {
                info!("{name}: ending the program, then leaving");
                self.leaving = Some(0);
                self.same_signal_until = Some(self.clock.now().after(SAME_SIGNAL_WINDOW));
                self.end(signal);
            }
            Some(run) => {
                // A shell that puts this process into the foreground sends it SIGCONT.
                if signal == Signal::CONT {
                    run.give_terminal();
                }
                run.send(ToGuard::Signal(signal));
            }
        }
    }
}

impl Run {
    /// Returns whether neither the supervisor nor the outer guard has begun to end the run. If one of them has, it
    /// caused the death of the guard or of the command, which is then not a failure. Suppose the supervisor was frozen
    /// until the end of the lease. Then the outer guard's message about the kill may still be unread, so this function
    /// also looks at the next unread message.
    fn is_running_normally(&self) -> bool {
        let outer_guard_kills = self.outer_guard_kills
            || self.outer_link.as_ref().is_some_and(GuardLink::announces_kill);
        !self.countdown.is_ending() && !self.supervisor_kills && !outer_guard_kills
    }

    /// Gives the foreground of the terminal to the command, if this process has the foreground. Returns whether the
    /// command has the foreground now.
    fn give_terminal(&mut self) -> bool {
        if let (Some(terminal), Some(program)) =
            (ControllingTerminal::in_foreground(), self.program)
        {
            terminal.give_to(program);
            self.terminal = Some(terminal);
        }
        self.terminal.as_ref().is_some_and(|terminal| terminal.foreground() == self.program)
    }

    /// Takes the foreground of the terminal back from the command, if the command has it.
    fn take_terminal_back(&self) {
        if let (Some(terminal), Some(program)) = (&self.terminal, self.program) {
            terminal.take_back_from(program);
        }
    }

    /// Returns when to call [`check_run`](Supervisor::check_run) next.
    fn next_check_at(&self, now: Moment) -> Moment {
        let at = if self.supervisor_kills || self.outer_link.is_none() {
            now.after(RECHECK_INTERVAL)
        } else {
            self.countdown.next_step_at()
        };
        let at = self.kill_stopped_at.map_or(at, |kill_at| kill_at.min(at));
        if self.waits_for_terminal { at.min(now.after(FOREGROUND_CHECK_INTERVAL)) } else { at }
    }

    /// Asks the guards to kill the command. If they do not do so in time, the supervisor kills it.
    fn kill(&mut self, now: Moment) {
        self.countdown.schedule_kill(now.after(GUARDS_HEAD_START));
        self.send(ToGuard::Kill);
    }

    /// Sends a message to both guards.
    fn send(&mut self, message: ToGuard) {
        for link in [&self.inner_link, &self.outer_link].into_iter().flatten() {
            match link.send(message) {
                // The guard does not read its messages, so it may be frozen.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    error!("a guard reads no messages: killing the program and its guards");
                    self.supervisor_kills = true;
                }
                // Other errors mean that the guard is dead, which the next read from its link reports.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Logs the killed processes that have stayed alive for some time. Until they are dead, this process does not give
    /// up what `kept` names, leadership or the lock. The lease may end before that nevertheless.
    fn complain(&mut self, alive: io::Result<Vec<Pid>>, kept: &str, now: Moment) {
        // Killed processes may take a moment to die, so do not log them at once, but at the end of the lease at the
        // latest.
        let first = now.after(COMPLAIN_AFTER).min(self.countdown.until());
        let complain_at = *self.complain_at.get_or_insert(first);
        if now < complain_at {
            return;
        }
        self.complain_at = Some(now.after(COMPLAIN_INTERVAL));
        let what = match alive {
            Ok(alive) => {
                let numbers: Vec<_> = alive.iter().map(|pid| pid.as_raw_pid()).collect();
                format!("the processes {numbers:?} of the program were killed but are still alive")
            }
            Err(error) => format!("cannot list the program's processes in /proc: {error}"),
        };
        if now < self.countdown.until() {
            error!("{what}; {kept} is kept until they are gone: end them");
        } else {
            error!(
                "{what}, and the lease has ended: another process may act beside them. End them, or restart this machine"
            );
        }
    }
}

/// Waits for the next message of a guard, or the death of a guard.
async fn next_guard_event(run: &Option<Run>) -> GuardEvent {
    let Some(Run { outer_link, inner_link, .. }) = run else { return pending().await };
    tokio::select! {
        // Read the inner guard's report of how the command ended before the outer guard's report that nothing is left.
        biased;
        message = receive(inner_link) => message.map_or(GuardEvent::InnerGuardGone, GuardEvent::Message),
        message = receive(outer_link) => message.map_or(GuardEvent::OuterGuardGone, GuardEvent::Message),
    }
}

/// Waits for the next message; without a link, forever.
async fn receive(link: &Option<GuardLink>) -> Option<FromGuard> {
    match link {
        Some(link) => link.receive().await,
        None => pending().await,
    }
}
