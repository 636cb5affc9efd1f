//! The loop: hear, step, do, tell.

use super::journal::{Journal, Weight};
use super::keeper::Leftover;
use super::passport::Passport;
use super::session::{Session, Told};
use crate::clock::{Alarm, Clock};
use crate::config::Settings;
use crate::desk::{Back, Chronicle, Entry, Link, Order, Recorded, Report, Request};
use crate::tally::Tally;
use recipes::election::{Action, Event, Member, Moment, Standing, changes};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::info;

/// The line is read for people at most this often, however many ask.
const ROLL_KEEPS: Duration = Duration::from_secs(1);
/// The driver turns at least this often, and says so: a watchdog's food.
const TURN: Duration = Duration::from_secs(5);

type Answer = oneshot::Sender<Result<Arc<[Entry]>, String>>;

/// What was last read of the line for people, and who waits for the next reading.
#[derive(Default)]
struct Roll {
    read: Option<(Moment, Arc<[Entry]>)>,
    under_way: Option<oneshot::Receiver<Result<Vec<Entry>, zookeeper::Error>>>,
    waiting: Vec<Answer>,
}

/// Drives the member until it has been told to stop. Returns whether it has surely left the line.
pub async fn run(
    mut member: Member,
    settings: Settings,
    clock: Clock,
    mut desk: Back,
    mut stop: oneshot::Receiver<()>,
) -> bool {
    let (link_in, mut link) = watch::channel(Link::default());
    let passport = Passport::of(&settings.zookeeper);
    let warned = Arc::<Mutex<Option<String>>>::default();
    let mut session: Option<Session> = None;
    let mut leftover: Leftover = None;
    let mut roll = Roll::default();
    let mut actions = member.start();
    let mut chronicle = Arc::<Chronicle>::default();
    let mut tally = Tally::begun(clock.now());
    let mut journal = Journal::of(&settings);
    let mut orders: Vec<oneshot::Sender<bool>> = vec![];
    let mut stopping = false;
    let alarm = Alarm::new().expect("one more file can be opened");
    let mut standing = member.standing();
    loop {
        // Whoever gives something up tells it first. Whoever claims something first sends for it.
        let gives_up = actions.iter().any(Action::ends_session);
        if !gives_up && let Some(session) = &mut session {
            let sends = !actions.is_empty();
            actions.drain(..).for_each(|action| session.perform(action));
            if sends {
                tokio::task::yield_now().await;
            }
        }
        let report = Report {
            standing: standing.clone(),
            link: describe(&standing, link.borrow().clone()),
            turned_at: clock.now(),
            chronicle: chronicle.clone(),
            tally,
        };
        // Nobody is woken for a sign of life.
        desk.report.send_if_modified(|told| {
            let is_news = told.standing != report.standing
                || told.link != report.link
                || !Arc::ptr_eq(&told.chronicle, &report.chronicle);
            *told = report;
            is_news
        });
        journal.write(&standing);
        let makes_way = actions.contains(&Action::CloseSession);
        for action in actions.drain(..) {
            // Whoever opens another has lost the one before, if it is still here.
            if let Some(before) = session.take() {
                leftover = before.close().await;
            }
            roll.give_up();
            link_in.send_modify(Link::forget_session);
            if action == Action::OpenSession {
                let profile = standing.profile().clone();
                let (meter, warned) = (desk.meter.clone(), warned.clone());
                let told = Told { link: link_in.clone(), meter, warned };
                let leftover = leftover.take();
                let (settings, passport) = (&settings, &passport);
                session = Some(Session::open(
                    settings, passport, profile, clock, told, leftover, makes_way,
                ));
            }
        }
        if stopping {
            return leftover.is_none();
        }
        for carried_out in orders.drain(..) {
            let _nobody_waits = carried_out.send(leftover.is_none());
        }
        let wake_at = member.wake_at();
        let turn_at = clock.now().after(TURN);
        let event = tokio::select! {
            biased;
            _ = &mut stop => Event::Stop,
            event = heard(&mut session) => event,
            () = alarm.ring_at(wake_at.map_or(turn_at, |at| at.min(turn_at))) => match wake_at {
                Some(at) if at <= clock.now() => Event::Woke,
                Some(_) | None => continue,
            },
            Some(request) = desk.requests.recv() => match request {
                Request::Carry(order, answer) if order.comes_too_late(&answer) => {
                    info!("not done, as nobody waits for it any more: {order:?}");
                    continue;
                }
                Request::Members(answer) => {
                    roll.ask(answer, &mut session, clock.now());
                    continue;
                }
                Request::Carry(order, answer) => {
                    orders.push(answer);
                    match order {
                        Order::Resign => Event::Resign,
                        Order::Pause => Event::Pause,
                        Order::Unpause => Event::Unpause,
                        Order::Acknowledge(token) => Event::Acknowledge(token),
                        Order::Healthy(true) => Event::Healthy,
                        Order::Healthy(false) => Event::Unhealthy,
                        Order::Describe { address, labels } => Event::Describe { address, labels },
                    }
                }
            },
            read = roll.read() => {
                roll.answer(read, clock.now());
                continue;
            }
            _ = link.changed() => continue,
        };
        stopping = event == Event::Stop;
        journal.hear(&event);
        let now = clock.now();
        let lapsed = standing.has_lapsed(now);
        let late = standing.is_overdue(now);
        let routine = matches!(
            event,
            Event::Woke
                | Event::Committed { .. }
                | Event::HeadRead { .. }
                | Event::PredecessorRead { .. }
        );
        tally.hears(&event);
        actions = member.step(now, event.clone());
        let before = std::mem::replace(&mut standing, member.standing());
        tally.stands(&standing, now);
        let told = || match (lapsed, late) {
            (true, _) => format!("{LAPSED}; {event}"),
            (false, true) => format!("{OVERDUE}; {event}"),
            (false, false) => event.to_string(),
        };
        let changes = changes(&chronicle.view(), &standing.at(now));
        for change in changes.iter().cloned() {
            let (index, at, cause) = (standing.index_at(now), clock.date(), told());
            Arc::make_mut(&mut chronicle).push(Recorded { change, index, at, cause });
        }
        let usual = |action: &Action| {
            matches!(action, Action::Renew { .. } | Action::ReadHead { .. } | Action::ReadLine)
        };
        let weight = match (routine && actions.iter().all(usual), lapsed || late) {
            (true, _) => Weight::Routine,
            (false, true) => Weight::Alarming,
            (false, false) => Weight::Worthwhile,
        };
        let told = || if stopping { format!("{}: leaving the line", told()) } else { told() };
        journal.note(event.name(), told, &actions, changes, weight, now);
        if standing.is_refused() && !before.is_refused() {
            journal.alarm(REFUSED);
        }
    }
}

const LAPSED: &str = "the lease ran out, as no answer of ZooKeeper's came in time";

const OVERDUE: &str = "the application did not acknowledge in time that it leads";

const REFUSED: &str = "the session timeout that the servers grant leaves no useful lease, so this \
    member will not lead: raise maxSessionTimeout on the servers, or lower lease.heartbeat, \
    zookeeper.tick_time or, where a command is run, exec.kill_after";

fn describe(standing: &Standing, link: Link) -> Link {
    if standing.is_refused() {
        return Link { problem: Some(REFUSED.into()), ..link };
    }
    link
}

async fn heard(session: &mut Option<Session>) -> Event {
    match session {
        Some(session) => session.heard().await,
        None => std::future::pending().await,
    }
}

impl Roll {
    fn ask(&mut self, answer: Answer, session: &mut Option<Session>, now: Moment) {
        if let Some((at, entries)) = &self.read
            && now.since(*at) < ROLL_KEEPS
        {
            let _nobody_waits = answer.send(Ok(entries.clone()));
            return;
        }
        let Some(session) = session else {
            let _nobody_waits = answer.send(Err("there is no session with ZooKeeper".into()));
            return;
        };
        self.waiting.retain(|waiting| !waiting.is_closed());
        self.waiting.push(answer);
        if self.under_way.is_none() {
            let (read, reading) = oneshot::channel();
            session.read_members(read);
            self.under_way = Some(reading);
        }
    }

    async fn read(&mut self) -> Result<Vec<Entry>, String> {
        let Some(reading) = &mut self.under_way else { return std::future::pending().await };
        match reading.await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err("the session with ZooKeeper ended".into()),
        }
    }

    fn give_up(&mut self) {
        self.under_way = None;
        for waiting in self.waiting.drain(..) {
            let _nobody_waits = waiting.send(Err("the session with ZooKeeper ended".into()));
        }
    }

    fn answer(&mut self, read: Result<Vec<Entry>, String>, now: Moment) {
        self.under_way = None;
        let read = read.map(Arc::from);
        self.read = read.as_ref().ok().map(|entries: &Arc<[Entry]>| (now, entries.clone()));
        for waiting in self.waiting.drain(..) {
            let _nobody_waits = waiting.send(read.clone());
        }
    }
}
