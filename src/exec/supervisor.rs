//! The supervisor: starts the command when this member leads, and has it ended before this member
//! gives leadership up, whoever wants that.

use super::countdown::{Blow, Countdown};
use super::guard::OURSELVES;
use super::link::{FromGuard, Greeting, Link, ToGuard};
use super::plan::{After, Stage, Step, after, decide};
use crate::children::{self, reap};
use crate::clock::{Alarm, Clock};
use crate::config::{OnExit, TO_DIE};
use crate::desk::{self, Front, Request};
use recipes::election;
use recipes::{FencingToken, Moment};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub command: Vec<OsString>,
    pub kill_after: Duration,
    pub on_exit: OnExit,
    /// Leave when it has ended well.
    pub once: bool,
    /// How many files it may open, if there is a limit: as many as we might before we raised it.
    pub files: Option<u64>,
    /// What it is told of this member besides the token.
    pub environment: Vec<(&'static str, String)>,
}

/// Where requests come by before the driver hears of them.
pub type Orders = mpsc::Receiver<Request>;

/// Whoever starts us may pass a signal on that we got ourselves: that is no hurry.
const SAME_SIGNAL: Duration = Duration::from_millis(250);
/// From the end of a command to its restart.
const REST: Duration = Duration::from_secs(1);

/// Runs the command whenever this member leads, until it is to leave. Returns its exit code.
///
/// # Errors
/// The machine does not give us what we need, or the election died.
pub async fn supervise(plan: Plan, clock: Clock, desk: Front, orders: Orders) -> io::Result<u8> {
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Ears::new()?;
    let room = plan.kill_after + TO_DIE;
    let alarm = Alarm::new()?;
    let mut shop = Shop {
        plan,
        clock,
        stage: Stage::Idle { not_before: clock.now(), spent: None },
        run: None,
        held: vec![],
        leaving: None,
        patient_until: None,
    };
    let (mut desk, mut orders) = (desk, orders);
    loop {
        if shop.run.is_none() {
            if let Some(code) = shop.leaving {
                return Ok(code);
            }
            for (order, answer) in shop.held.drain(..) {
                carry(&desk, order, answer).await;
            }
        }
        let standing = desk.report.borrow_and_update().standing.clone();
        let now = clock.now();
        let (step, again) = decide(shop.stage, &standing.at(now), now, room);
        match step {
            Step::Start(token, until) => shop.start(token, until)?,
            Step::Renew(until) => shop.renew(until),
            Step::End => {
                info!("this member leads no more: ending the command");
                shop.end(Signal::TERM);
            }
            Step::Nothing => {}
        }
        let watched = shop.watch(clock.now());
        let again = again.into_iter().chain(watched).min();
        let asleep = async {
            match again {
                Some(moment) => alarm.ring_at(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            word = word_of(&shop.run) => shop.hear(word).await,
            signal = signals.hear() => shop.heed(signal),
            _ = deaths.recv() => reap(),
            changed = desk.report.changed() => {
                changed.map_err(|_| io::Error::other("the election died, see the log"))?;
            }
            Some(request) = orders.recv() => match request {
                Request::Carry(order, answer) if desk::comes_too_late(&order, &answer) => {
                    info!("not done, as nobody waits for it any more: {order:?}");
                }
                Request::Carry(order @ (election::Command::Resign | election::Command::Pause), answer) => {
                    if shop.run.is_some() {
                        info!("told to give up its place: ending the command first");
                        shop.end(Signal::TERM);
                    }
                    shop.held.push((order, answer));
                }
                other @ (Request::Carry(..) | Request::Members(_)) => {
                    let _answers_nobody_if_it_died = desk.requests.send(other).await;
                }
            },
            () = asleep => {}
        }
    }
}

/// Passes the order on, and returns when it has been carried out: nothing is started meanwhile.
async fn carry(desk: &Front, order: election::Command, answer: oneshot::Sender<bool>) {
    let (done, when_done) = oneshot::channel();
    let _answers_nobody_if_it_died = desk.requests.send(Request::Carry(order, done)).await;
    if let Ok(confirmed) = when_done.await {
        let _nobody_waits = answer.send(confirmed);
    }
}

struct Shop {
    plan: Plan,
    clock: Clock,
    stage: Stage,
    run: Option<Run>,
    /// Orders that wait for the end of the command.
    held: Vec<(election::Command, oneshot::Sender<bool>)>,
    /// With this exit code, as soon as the command has ended.
    leaving: Option<u8>,
    /// Before this moment, another signal to leave is the same one, passed on twice.
    patient_until: Option<Moment>,
}

/// One run of the command.
struct Run {
    guard: Pid,
    link: Link,
    command: Option<Pid>,
    has_ended: bool,
    /// What comes when nothing is left of it.
    then: Stage,
    /// Later than the guard's: it runs down only if the guard does not do its work.
    countdown: Countdown,
}

impl Shop {
    fn start(&mut self, token: FencingToken, until: Moment) -> io::Result<()> {
        let (link, socket) = Link::pair()?;
        let guard = children::spawn(
            Command::new(OURSELVES)
                .arg0("bellwether")
                .args(["exec-guard", "--"])
                .args(&self.plan.command)
                .envs(self.plan.environment.iter().map(|(name, value)| (name, value)))
                .env("BELLWETHER_TOKEN", token.0.to_string())
                .stdin(Stdio::from(socket)),
        )?;
        let (kill_after, files) = (self.plan.kill_after, self.plan.files);
        link.greet(Greeting { until, kill_after, files }, io::stdin().as_fd())?;
        let guard = guard.pid();
        let countdown = Countdown::new(kill_after, TO_DIE / 2, until);
        info!(token = token.0, "this member leads: starting the command");
        let then = Stage::Idle { not_before: self.clock.now(), spent: None };
        self.run = Some(Run { guard, link, command: None, has_ended: false, then, countdown });
        self.stage = Stage::Runs(token);
        Ok(())
    }

    fn renew(&mut self, until: Moment) {
        if let Some(run) = &mut self.run
            && run.countdown != run.countdown.renewed(until)
        {
            run.countdown = run.countdown.renewed(until);
            run.say(ToGuard::Renewed(until));
        }
    }

    fn end(&mut self, signal: Signal) {
        if let (Some(run), Stage::Runs(token)) = (&mut self.run, self.stage) {
            // The guard has first until `kill_after`, and then until it has surely killed.
            run.countdown = run.countdown.told(self.clock.now().after(TO_DIE / 2));
            run.say(ToGuard::End(signal));
            self.stage = Stage::Ends(token);
        }
    }

    /// Sees to it that the guard does its work. Returns when to look again.
    fn watch(&mut self, now: Moment) -> Option<Moment> {
        let run = self.run.as_mut()?;
        let (next, blow) = run.countdown.at(now);
        run.countdown = next;
        if blow == Some(Blow::Kill) {
            run.kill();
        }
        Some(next.look_at())
    }

    async fn hear(&mut self, word: Option<FromGuard>) {
        match (word, &mut self.run) {
            (Some(FromGuard::Started(pid)), Some(run)) => {
                info!(pid = pid.as_raw_pid(), "the command runs");
                run.command = Some(pid);
            }
            (Some(FromGuard::Ended { code, by_itself }), Some(_)) => self.ended(code, by_itself),
            (Some(FromGuard::Gone), Some(_)) => self.gone(),
            (None, Some(run)) => {
                error!("the guard of the command died: killing the command");
                run.kill();
                run.is_dead().await;
                if !run.has_ended {
                    self.ended(128 + 9, true);
                }
                self.gone();
            }
            (_, None) => {}
        }
    }

    /// The command has ended; what it has left behind may not.
    fn ended(&mut self, code: u8, by_itself: bool) {
        let (Some(run), now) = (&mut self.run, self.clock.now()) else { return };
        run.has_ended = true;
        let Stage::Runs(token) = self.stage else {
            info!(code, "the command has ended, as it was told");
            self.leaving = self.leaving.map(|_| code);
            return;
        };
        self.stage = Stage::Ends(token);
        if !by_itself {
            warn!(code, "the lease was not renewed in time, so the command was told to end");
            return;
        }
        match after(code, self.plan.on_exit, self.plan.once) {
            After::Leave => {
                info!(code, "the command has ended: leaving");
                self.leaving = Some(code);
            }
            After::Stay => {
                info!(code, "the command has ended: leading on without it");
                run.then = Stage::Idle { not_before: now, spent: Some(token) };
            }
            After::Restart => {
                info!(code, "the command has ended: it is started again");
                run.then = Stage::Idle { not_before: now.after(REST), spent: None };
            }
        }
    }

    fn gone(&mut self) {
        if let Some(run) = self.run.take() {
            self.stage = run.then;
        }
        reap();
    }

    fn heed(&mut self, signal: Signal) {
        let name = name(signal);
        let ends_us = matches!(signal, Signal::TERM | Signal::INT);
        match &self.run {
            None if ends_us => self.leaving = Some(0),
            None => info!("{name}: there is no command to pass it on to"),
            Some(run) if ends_us && self.leaving.is_some() => {
                let now = self.clock.now();
                if self.patient_until.is_some_and(|until| now < until) {
                    return info!("{name} again");
                }
                warn!("{name} again: killing the command");
                run.say(ToGuard::Signal(Signal::KILL));
            }
            Some(_) if ends_us => {
                info!("{name}: ending the command, then leaving");
                self.leaving = Some(0);
                self.patient_until = Some(self.clock.now().after(SAME_SIGNAL));
                self.end(signal);
            }
            Some(run) => run.say(ToGuard::Signal(signal)),
        }
    }
}

impl Run {
    fn say(&self, word: ToGuard) {
        match self.link.tell_guard(word) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                error!("the guard of the command hears nothing: killing both");
                self.kill();
            }
            // If it is gone, that is heard.
            Ok(()) | Err(_) => {}
        }
    }

    /// The command dies with its guard, and the rest of its group by this.
    fn kill(&self) {
        let _dead_already = kill_process(self.guard, Signal::KILL);
        if let Some(group) = self.command {
            let _dead_already = kill_process_group(group, Signal::KILL);
        }
    }

    /// For as long as somebody of the group is not, it may act, and leadership is not to be given up.
    async fn is_dead(&self) {
        while let Some(group) = self.command
            && test_kill_process_group(group).is_ok()
        {
            reap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn word_of(run: &Option<Run>) -> Option<FromGuard> {
    match run {
        Some(run) => run.link.heard_from_guard().await,
        None => std::future::pending().await,
    }
}

/// The signals that are passed on.
struct Ears(Vec<(Signal, Signals)>);

impl Ears {
    fn new() -> io::Result<Self> {
        let heard = [
            Signal::TERM,
            Signal::INT,
            Signal::HUP,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
            Signal::WINCH,
        ];
        let open = |heard: Signal| Ok((heard, signal(SignalKind::from_raw(heard.as_raw()))?));
        heard.into_iter().map(open).collect::<io::Result<_>>().map(Self)
    }

    async fn hear(&mut self) -> Signal {
        poll_fn(|context| {
            let mut ears = self.0.iter_mut();
            let heard =
                ears.find_map(|(signal, ear)| ear.poll_recv(context).is_ready().then_some(*signal));
            heard.map_or(Poll::Pending, Poll::Ready)
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
