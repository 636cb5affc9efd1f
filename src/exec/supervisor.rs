//! The supervisor: starts the command under a lease, of leadership or of a lock, and has it ended before that is given
//! up, be it for an operator, the application or a signal.

use super::countdown::{AGAIN, Countdown, KillStep};
use super::decide::{CommandLease, CommandStage, CommandStep, OnCommandExit, after, decide, rest};
use super::guard_protocol::{FromGuard, GuardConfig, GuardLink, ToGuard};
use super::{INNER_GUARD_KILLS, SUPERVISOR_KILLS};
use crate::clock::{Alarm, Clock};
use crate::config::{HOOKS_VARIABLE, KILL_MARGIN, OnExit};
use crate::process::{self, ControllingTerminal, JobChange, ourselves, reap};
use crate::status::{self, MemberRequest, ReplyTo, StatusHandle};
use recipes::election::{self, Role};
use recipes::{FencingToken, Moment};
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use std::ffi::OsString;
use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

/// The command to run, and how to run it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub command: Vec<OsString>,
    /// Names what the lease is for: leadership, or the lock.
    pub under: &'static str,
    pub kill_after: Duration,
    /// How long it may be stopped, as by Ctrl-Z, until it is killed.
    pub stopped_for: Duration,
    pub on_exit: OnExit,
    /// Leave when it has ended well.
    pub once: bool,
    /// How many files it may open, if there is a limit: as many as we might before we raised it.
    pub files: Option<u64>,
    /// Environment variables about this member, besides the token.
    pub environment: Vec<(&'static str, String)>,
    /// A descriptor that the guards keep open until the command is dead.
    pub kept: Option<Arc<OwnedFd>>,
    /// Have the guards end that when the command is dead, whoever else has it open. Else only where they had to kill it.
    pub ends_kept: bool,
    /// A process before this one may have run the command, and its guards may have been killed with it.
    pub after_restart: bool,
}

/// The receiver of requests that would otherwise go to the runner directly.
pub type Requests = mpsc::Receiver<MemberRequest>;

/// The process that started this one may pass on a signal that this one also got itself. Within this time the second
/// signal counts as the same, not as a demand to hurry.
const SAME_SIGNAL: Duration = Duration::from_millis(250);
/// The interval for checking whether this process is in the foreground, while the program is stopped for using the terminal
/// in the background.
const FOREGROUND_CHECK: Duration = Duration::from_millis(250);
/// How long the guards have to finish what they have begun before the supervisor does it.
const GUARDS_HAVE: Duration = INNER_GUARD_KILLS.checked_sub(SUPERVISOR_KILLS).unwrap();
/// The exit code, by the shell's convention, of a program that SIGINT ended.
const INTERRUPTED: u8 = 128 + 2;
/// From the killing of processes to a complaint that they live, and between two complaints.
const COMPLAIN_AFTER: Duration = Duration::from_secs(1);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Runs the command whenever this member leads, until it is to leave. Returns its exit code.
///
/// # Errors
/// The operating system refuses a process or a socket, or the election died.
pub async fn supervise(
    plan: Plan,
    clock: Clock,
    mut status: StatusHandle,
    mut requests: Requests,
) -> io::Result<u8> {
    // A command whose guards are all dead is killed by the kernel, which may take as long.
    let not_before =
        clock.now().after(if plan.after_restart { KILL_MARGIN } else { Duration::ZERO });
    let mut supervisor = Supervisor::begin(plan, clock, not_before)?;
    // Commands for the member (resign, hand over, pause, then resume) that wait until the program has ended.
    let mut held: Vec<(election::Command, ReplyTo)> = vec![];
    loop {
        supervisor.watch(clock.now());
        if supervisor.run.is_none() {
            if let Some(code) = supervisor.leaving {
                return Ok(code);
            }
            for (command, caller) in held.drain(..) {
                carry(&status, command, caller).await;
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
            // The guards kill the command when the lease that they know of ends.
            () = status.lease_moved.notified() => {}
            Some(request) = requests.recv() => match request {
                MemberRequest::Carry(command, caller)
                    if status::caller_expired(&command, &caller, clock.now()) =>
                {
                    info!("dropped {command:?}: its caller timed out");
                }
                // A resume does not overtake the commands that wait.
                MemberRequest::Carry(command @ election::Command::Resume, caller) if !held.is_empty() => {
                    held.push((command, caller));
                }
                MemberRequest::Carry(
                    command @ (election::Command::Resign
                    | election::Command::HandOver(_)
                    | election::Command::Pause),
                    caller,
                ) => {
                    if supervisor.run.is_some() {
                        info!("told to give up its place: ending the program first");
                        supervisor.end(Signal::TERM);
                    }
                    held.push((command, caller));
                }
                other @ (MemberRequest::Carry(..) | MemberRequest::Members(_) | MemberRequest::Tell(_)) => {
                    let _receiver_gone = status.requests.send(other).await;
                }
            },
        }
    }
}

fn lease_of(role: &Role, now: Moment) -> Option<CommandLease> {
    match role {
        Role::Leader { announcement, left } => {
            Some(CommandLease { token: announcement.ticket.token, until: now.after(*left) })
        }
        _ => None,
    }
}

/// Runs the command once, under a lease that is published beside other things. Returns its exit code; `None` if the
/// command was ended since the lease was over, or not begun since it was too short.
///
/// # Errors
/// The operating system refuses a process or a socket, or nothing is published any more.
pub async fn run_under<T>(
    plan: Plan,
    clock: Clock,
    mut published: watch::Receiver<T>,
    lease: impl Fn(&T) -> Option<CommandLease>,
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
        supervisor.watch(clock.now());
        // The program is not restarted.
        if supervisor.run.is_none() {
            return Ok(supervisor.leaving);
        }
    }
}

/// Passes the command on to the member, and returns when it has been carried out: no program is started meanwhile.
async fn carry(status: &StatusHandle, command: election::Command, caller: ReplyTo) {
    let (ours, when_done) = caller.on_behalf();
    let _receiver_gone = status.requests.send(MemberRequest::Carry(command, ours)).await;
    if let Ok(confirmed) = when_done.await {
        caller.tell(confirmed);
    }
}

struct Supervisor {
    plan: Plan,
    clock: Clock,
    deaths: Signals,
    signals: SignalListener,
    alarm: Alarm,
    stage: CommandStage,
    run: Option<Run>,
    /// The delay of the last restart of the command.
    last_rest: Option<Duration>,
    /// The exit code with which to leave as soon as the command has ended.
    leaving: Option<u8>,
    /// Before this moment, another signal to leave is the same one, passed on twice.
    patient_until: Option<Moment>,
}

/// One run of the command.
struct Run {
    begun_at: Moment,
    outer_guard: Pid,
    /// `None` once that guard is gone: the supervisor ends what is left of the run.
    outer_link: Option<GuardLink>,
    inner_link: Option<GuardLink>,
    has_ended: bool,
    /// The command's process, once it is known.
    program: Option<Pid>,
    /// The terminal of which the command has the foreground.
    terminal: Option<ControllingTerminal>,
    /// The moment at which the command is killed unless it is continued, if it is stopped.
    kill_at: Option<Moment>,
    /// Whether it is stopped for using the terminal in the background, so that it goes on in the foreground.
    wants_terminal: bool,
    /// Whether this killed it, as it was stopped for too long.
    was_stopped_too_long: bool,
    /// The guards have not done their work in time.
    is_ours_to_kill: bool,
    /// The outer guard has said that it kills the inner one, as no time is left.
    outer_guard_kills: bool,
    /// When to complain next that something of it lives although it was killed.
    complain_at: Option<Moment>,
    /// The supervisor's stage once nothing is left of it.
    next_stage: CommandStage,
    /// Later than the guards': it runs down only if they do not do their work.
    countdown: Countdown,
}

/// A message over one of the links to the guards; `None` if that guard is gone.
enum GuardMessage {
    Inner(Option<FromGuard>),
    Outer(Option<FromGuard>),
}

impl Supervisor {
    /// Begins without a run, which is not to start before this moment.
    fn begin(plan: Plan, clock: Clock, not_before: Moment) -> io::Result<Self> {
        let deaths = signal(SignalKind::child())?;
        let signals = SignalListener::new()?;
        // Processes that killed guards leave behind become children of this process, and not of process 1.
        set_child_subreaper(Some(getpid()))?;
        process::spare_those_left_to_us()?;
        Ok(Self {
            plan,
            clock,
            deaths,
            signals,
            alarm: Alarm::new()?,
            stage: CommandStage::Idle { not_before, spent: None },
            run: None,
            last_rest: None,
            leaving: None,
            patient_until: None,
        })
    }

    /// Starts the command, passes on a renewal or ends the command, as the lease has it at this moment. Returns when to
    /// look again.
    fn follow(&mut self, lease: Option<CommandLease>, now: Moment) -> io::Result<Option<Moment>> {
        let time_to_end = self.plan.kill_after + KILL_MARGIN;
        let (step, again) = decide(self.stage, lease, now, time_to_end);
        match step {
            CommandStep::Start(token, until) => self.start(token, until)?,
            CommandStep::Renew(until) => self.renew(until),
            CommandStep::End => {
                info!("{} is over: ending the program", self.plan.under);
                self.end(Signal::TERM);
            }
            CommandStep::Nothing => {}
        }
        let look_at = self.run.as_ref().map(|run| run.look_at(now));
        Ok(again.into_iter().chain(look_at).min())
    }

    /// Waits until this moment, or for a guard, a signal or a death, and handles that.
    async fn next_event(&mut self, wake_at: Option<Moment>) {
        let Self { run, signals, deaths, alarm, .. } = &mut *self;
        let asleep = async {
            match wake_at {
                Some(moment) => alarm.ring_at(moment).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            message = next_message(run) => self.on_message(message),
            signal = signals.next() => self.on_signal(signal),
            _ = deaths.recv() => reap(),
            () = asleep => {}
        }
    }

    fn start(&mut self, token: FencingToken, until: Moment) -> io::Result<()> {
        let (outer_link, outer_socket) = GuardLink::pair()?;
        let (inner_link, inner_socket) = GuardLink::pair()?;
        let guard = process::spawn(
            ourselves(&["exec-outer-guard"], &self.plan.command)
                .envs(self.plan.environment.iter().map(|(name, value)| (name, value)))
                .env("BELLWETHER_TOKEN", token.0.to_string())
                // This process may have been started by a hook, but the command is not.
                .env_remove(HOOKS_VARIABLE)
                .stdin(Stdio::from(outer_socket)),
        )?;
        let kill_after = self.plan.kill_after;
        let terminal = ControllingTerminal::in_foreground();
        let greeting = GuardConfig {
            until,
            kill_after,
            files: self.plan.files,
            foreground: terminal.as_ref().map(ControllingTerminal::group),
            ends_kept: self.plan.ends_kept,
        };
        let kept = self.plan.kept.as_ref().map(|kept| kept.as_fd());
        outer_link.greet(greeting, inner_socket.as_fd(), kept)?;
        inner_link.greet(greeting, io::stdin().as_fd(), kept)?;
        info!(token = token.0, "starting the program under {}", self.plan.under);
        self.run = Some(Run {
            begun_at: self.clock.now(),
            outer_guard: guard.pid(),
            outer_link: Some(outer_link),
            inner_link: Some(inner_link),
            has_ended: false,
            program: None,
            terminal,
            kill_at: None,
            wants_terminal: false,
            was_stopped_too_long: false,
            is_ours_to_kill: false,
            outer_guard_kills: false,
            complain_at: None,
            next_stage: CommandStage::Idle { not_before: self.clock.now(), spent: None },
            countdown: Countdown::new(kill_after, SUPERVISOR_KILLS, until),
        });
        self.stage = CommandStage::Runs(token);
        Ok(())
    }

    fn renew(&mut self, until: Moment) {
        if let Some(run) = &mut self.run
            && run.countdown != run.countdown.renewed(until)
        {
            run.countdown = run.countdown.renewed(until);
            run.send(ToGuard::Renewed(until));
        }
    }

    fn end(&mut self, signal: Signal) {
        if let (Some(run), CommandStage::Runs(token)) = (&mut self.run, self.stage) {
            run.countdown = run.countdown.told(self.clock.now().after(GUARDS_HAVE));
            run.send(ToGuard::End(signal));
            self.stage = CommandStage::Ends(token);
        }
    }

    /// Takes the terminal while the command is stopped, so that keys reach this process, and gives it back afterwards.
    fn on_job_change(&mut self, change: JobChange) {
        let Some(run) = &mut self.run else { return };
        let Some(program) = run.program else { return };
        let under = self.plan.under;
        match change {
            // A program that was just continued may read from the terminal before that is given to it.
            JobChange::Stopped(Some(Signal::TTIN | Signal::TTOU)) if run.give_terminal() => {
                run.send(ToGuard::Signal(Signal::CONT));
            }
            JobChange::Stopped(signal) => {
                run.kill_at =
                    run.kill_at.or_else(|| Some(self.clock.now().after(self.plan.stopped_for)));
                run.take_terminal_back();
                run.wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
                let limit = humantime::format_duration(self.plan.stopped_for);
                let why = match signal {
                    Some(Signal::TTIN) => ", as it reads from the terminal in the background",
                    Some(Signal::TTOU) => ", as it writes to the terminal in the background",
                    _ => "",
                };
                warn!(
                    "the program is stopped{why}: continue it with kill -CONT {}. It is killed, and {under} given up, if it \
                     is stopped for {limit} (--stopped-for)",
                    program.as_raw_pid()
                );
            }
            JobChange::Continued => {
                run.kill_at = None;
                run.wants_terminal = false;
                info!("the program goes on");
                run.give_terminal();
            }
        }
    }

    /// Checks that the guards kill in time, or kills in their place.
    fn watch(&mut self, now: Moment) {
        let Some(run) = &mut self.run else { return };
        if run.kill_at.is_some_and(|at| at <= now) {
            error!("the program was stopped for too long: killing it");
            run.kill_at = None;
            run.was_stopped_too_long = true;
            run.kill(now);
        }
        // A shell that puts a running job into the foreground sends it no signal.
        if run.wants_terminal && run.give_terminal() {
            run.wants_terminal = false;
            run.send(ToGuard::Signal(Signal::CONT));
        }
        let step;
        (run.countdown, step) = run.countdown.at(now);
        // A guard that is dead may have left messages that are still to be read.
        let is_late = step == Some(KillStep::Kill)
            && (run.outer_link.is_none() || process::is_alive(run.outer_guard));
        if is_late && !run.is_ours_to_kill {
            error!("the guards of the program have not ended it in time: killing what is left");
            run.is_ours_to_kill = true;
        }
        let looked = if run.is_ours_to_kill {
            process::kill_with_all_left_to_us(run.outer_guard, HOOKS_VARIABLE)
        } else if run.outer_link.is_none() {
            process::left_to_us(run.outer_guard, HOOKS_VARIABLE)
        } else {
            return;
        };
        match looked {
            Ok(alive) if alive.is_empty() => {}
            alive => return run.complain(alive, self.plan.under, now),
        }
        // While there is a link, messages that a guard sent before it died are still to be read.
        if run.outer_link.is_none() {
            self.ended_with_its_guard("the guards of the program died, and with them the program");
            self.forget_run();
        }
    }

    fn on_message(&mut self, message: GuardMessage) {
        let Some(run) = &mut self.run else { return };
        match message {
            GuardMessage::Inner(Some(FromGuard::Started(pid))) => {
                run.program = Some(pid);
                info!(pid = pid.as_raw_pid(), "the program runs");
            }
            GuardMessage::Inner(Some(FromGuard::Job(change))) => self.on_job_change(change),
            GuardMessage::Inner(Some(FromGuard::Ended { code, by_itself })) => {
                self.ended(code, by_itself)
            }
            GuardMessage::Inner(None) => {
                run.inner_link = None;
                self.ended_with_its_guard("a guard of the program died, and with it the program");
            }
            GuardMessage::Outer(Some(FromGuard::Kills)) => run.outer_guard_kills = true,
            GuardMessage::Outer(Some(FromGuard::Gone)) => self.forget_run(),
            GuardMessage::Outer(None) => {
                self.ended_with_its_guard(
                    "the outer guard of the program died: the program is killed",
                );
                let Some(run) = &mut self.run else { return };
                run.outer_link = None;
                // The inner guard sees that the link is closed, and kills. It is let do so first: were it
                // killed meanwhile, only the supervisor would be left to do it.
                run.inner_link = None;
                run.countdown = run.countdown.given_up(self.clock.now().after(GUARDS_HAVE));
            }
            GuardMessage::Inner(Some(FromGuard::Kills | FromGuard::Gone))
            | GuardMessage::Outer(Some(
                FromGuard::Started(_) | FromGuard::Ended { .. } | FromGuard::Job(_),
            )) => {
                error!("a guard of the program says what is not for it to say: killing all");
                run.is_ours_to_kill = true;
            }
        }
    }

    /// Handles that a guard is gone: unless it has reported how the command ended, counts that as a kill. Logs it once.
    fn ended_with_its_guard(&mut self, what: &str) {
        let Some(run) = &self.run else { return };
        if run.has_ended {
            return;
        }
        // At the end of a lease the outer guard or the supervisor kills the inner guard: no failure of the command. A
        // supervisor that was frozen until then has not looked at the time yet, nor read what the outer guard said.
        let by_itself = run.is_well();
        if by_itself {
            error!("{what}");
        }
        self.ended(128 + 9, by_itself);
    }

    /// The command has ended; what it has left behind may not.
    fn ended(&mut self, code: u8, by_itself: bool) {
        let (Some(run), now) = (&mut self.run, self.clock.now()) else { return };
        run.has_ended = true;
        run.take_terminal_back();
        // The processes left behind get as long as the command would have had.
        run.countdown = run.countdown.told(now.after(GUARDS_HAVE));
        let CommandStage::Runs(token) = self.stage else {
            info!(code, "the program has ended, as it was told");
            self.leaving = self.leaving.map(|_| code);
            return;
        };
        self.stage = CommandStage::Ends(token);
        if !(by_itself || run.was_stopped_too_long) {
            warn!(code, "the lease was not renewed in time, so the program was told to end");
            return;
        }
        // Whoever interrupts it by Ctrl-C wants to have it ended, and not started again.
        let is_interrupted = run.terminal.is_some() && code == INTERRUPTED;
        let on_exit = if is_interrupted { OnExit::Leave } else { self.plan.on_exit };
        match after(code, on_exit, self.plan.once) {
            OnCommandExit::Leave => {
                info!(code, "the program has ended: leaving");
                self.leaving = Some(code);
            }
            OnCommandExit::Stay => {
                info!(code, "the program has ended: leading on without it");
                run.next_stage = CommandStage::Idle { not_before: now, spent: Some(token) };
            }
            OnCommandExit::Restart => {
                let rest = rest(self.last_rest, now.since(run.begun_at));
                self.last_rest = Some(rest);
                info!(code, "the program has ended: it is started again in {rest:?}");
                run.next_stage = CommandStage::Idle { not_before: now.after(rest), spent: None };
            }
        }
    }

    /// Forgets the run, of which nothing is left.
    fn forget_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.stage = run.next_stage;
        }
        reap();
    }

    fn on_signal(&mut self, signal: Signal) {
        let name = name(signal);
        let ends_us = matches!(signal, Signal::TERM | Signal::INT);
        match &mut self.run {
            None if ends_us => self.leaving = Some(0),
            None => info!("{name}: no program is running to pass it on to"),
            Some(run) if ends_us && self.leaving.is_some() => {
                let now = self.clock.now();
                if self.patient_until.is_some_and(|until| now < until) {
                    return info!("{name} again");
                }
                warn!("{name} again: killing the program");
                run.kill(now);
            }
            Some(_) if ends_us => {
                info!("{name}: ending the program, then leaving");
                self.leaving = Some(0);
                self.patient_until = Some(self.clock.now().after(SAME_SIGNAL));
                self.end(signal);
            }
            Some(run) => {
                // A shell continues this process as it puts it into the foreground.
                if signal == Signal::CONT {
                    run.give_terminal();
                }
                run.send(ToGuard::Signal(signal));
            }
        }
    }
}

impl Run {
    /// Whether nothing has yet begun to end it.
    fn is_well(&self) -> bool {
        let outer_guard_kills = self.outer_guard_kills
            || self.outer_link.as_ref().is_some_and(GuardLink::says_that_it_kills);
        self.countdown.runs() && !self.is_ours_to_kill && !outer_guard_kills
    }

    /// Puts the command into the foreground of the terminal, if this process is there. Returns whether the command is.
    fn give_terminal(&mut self) -> bool {
        if let (Some(terminal), Some(program)) =
            (ControllingTerminal::in_foreground(), self.program)
        {
            terminal.give_to(program);
            self.terminal = Some(terminal);
        }
        self.terminal.as_ref().is_some_and(|terminal| terminal.foreground() == self.program)
    }

    fn take_terminal_back(&self) {
        if let (Some(terminal), Some(program)) = (&self.terminal, self.program) {
            terminal.take_back_from(program);
        }
    }

    fn look_at(&self, now: Moment) -> Moment {
        let look_at = if self.is_ours_to_kill || self.outer_link.is_none() {
            now.after(AGAIN)
        } else {
            self.countdown.look_at()
        };
        let look_at = self.kill_at.map_or(look_at, |kill_at| kill_at.min(look_at));
        if self.wants_terminal { look_at.min(now.after(FOREGROUND_CHECK)) } else { look_at }
    }

    /// Has the guards kill it, or does so itself if they do not in time.
    fn kill(&mut self, now: Moment) {
        self.countdown = self.countdown.given_up(now.after(GUARDS_HAVE));
        self.send(ToGuard::Signal(Signal::KILL));
    }

    fn send(&mut self, message: ToGuard) {
        for link in [&self.inner_link, &self.outer_link].into_iter().flatten() {
            match link.tell_guard(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    error!("a guard of the program hears nothing: killing all");
                    self.is_ours_to_kill = true;
                }
                // If the guard is gone, reading the link shows it.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Logs what is alive of the run: nothing is given up before it is dead, but a lease ends by itself.
    fn complain(&mut self, alive: io::Result<Vec<Pid>>, under: &str, now: Moment) {
        // Killed processes may take a moment to die.
        let first = now.after(COMPLAIN_AFTER).min(self.countdown.until());
        let complain_at = *self.complain_at.get_or_insert(first);
        if now < complain_at {
            return;
        }
        self.complain_at = Some(now.after(COMPLAIN_EVERY));
        let what = match alive {
            Ok(alive) => {
                let numbers: Vec<_> = alive.iter().map(|pid| pid.as_raw_pid()).collect();
                format!("the processes {numbers:?} of the program were killed but are still alive")
            }
            Err(error) => format!("cannot list the program's processes in /proc: {error}"),
        };
        if now < self.countdown.until() {
            error!("{what}; {under} is kept until they are gone: end them");
        } else {
            error!(
                "{what}, and the lease has ended: another may act beside them. End them, or restart this machine"
            );
        }
    }
}

async fn next_message(run: &Option<Run>) -> GuardMessage {
    let Some(Run { outer_link, inner_link, .. }) = run else { return pending().await };
    tokio::select! {
        // The inner guard reports how the command ended, the outer one that nothing is left: read in this order.
        biased;
        message = receive(inner_link) => GuardMessage::Inner(message),
        message = receive(outer_link) => GuardMessage::Outer(message),
    }
}

async fn receive(link: &Option<GuardLink>) -> Option<FromGuard> {
    match link {
        Some(link) => link.heard_from_guard().await,
        None => pending().await,
    }
}

/// The signals that are passed on.
struct SignalListener(Vec<(Signal, Signals)>);

impl SignalListener {
    fn new() -> io::Result<Self> {
        let passed_on = [
            Signal::TERM,
            Signal::INT,
            Signal::HUP,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
            Signal::WINCH,
            Signal::CONT,
        ];
        let mut streams = vec![];
        for number in passed_on {
            streams.push((number, signal(SignalKind::from_raw(number.as_raw()))?));
        }
        Ok(Self(streams))
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let received = self.0.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn name(signal: Signal) -> String {
    match signal {
        Signal::TERM => "SIGTERM".into(),
        Signal::INT => "SIGINT".into(),
        other => format!("signal {}", other.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor that was frozen reads first that the inner guard is gone.
    #[tokio::test]
    async fn a_guard_that_is_killed_as_no_time_is_left_is_told_from_one_that_died() {
        let (outer_link, outer_socket) = GuardLink::pair().unwrap();
        let outer_guard = GuardLink::over(outer_socket).unwrap();
        let now = Clock::system().now();
        let until = now.after(Duration::from_secs(60));
        let mut run = Run {
            begun_at: now,
            outer_guard: Pid::INIT,
            outer_link: Some(outer_link),
            inner_link: None,
            has_ended: false,
            program: None,
            terminal: None,
            kill_at: None,
            wants_terminal: false,
            was_stopped_too_long: false,
            is_ours_to_kill: false,
            outer_guard_kills: false,
            complain_at: None,
            next_stage: CommandStage::Idle { not_before: now, spent: None },
            countdown: Countdown::new(Duration::ZERO, SUPERVISOR_KILLS, until),
        };
        assert!(run.is_well());
        outer_guard.tell_supervisor(FromGuard::Kills).unwrap();
        assert!(!run.is_well());
        assert_eq!(receive(&run.outer_link).await, Some(FromGuard::Kills));
        run.outer_guard_kills = true;
        outer_guard.tell_supervisor(FromGuard::Gone).unwrap();
        assert!(!run.is_well());
    }
}
