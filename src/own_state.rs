//! Tells how this member is, in its own znode, for those who look at the whole election.
//!
//! It is told late and seldom rather than in the way of anything: a second after it has changed, and at most every five.

use crate::clock::Clock;
use crate::status::{OwnState, Request, StatusHandle};
use recipes::Ticket;
use recipes::election::Role;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// A change that does not last is not told.
const SETTLED: Duration = Duration::from_secs(1);
/// The shortest time between two that are told.
const PAUSE: Duration = Duration::from_secs(5);

/// Tells each change until the rest of the daemon is gone.
pub async fn tell(mut status: StatusHandle, clock: Clock) {
    let mut place = Place::default();
    let mut told = None;
    loop {
        if place.state(&status, &clock).is_some_and(|state| told != Some(state)) {
            sleep(SETTLED).await;
            let state = place.state(&status, &clock).filter(|state| told != Some(*state));
            if let Some(state) = state {
                if status.requests.send(Request::Tell(state)).await.is_err() {
                    return;
                }
                told = Some(state);
                sleep(PAUSE).await;
                continue;
            }
        }
        let StatusHandle { snapshot, hooks, application, .. } = &mut status;
        let is_over = tokio::select! {
            changed = snapshot.changed() => changed.is_err(),
            Ok(()) = hooks.changed() => false,
            Ok(()) = application.changed() => false,
        };
        if is_over {
            return;
        }
    }
}

/// In which place the member was seen last, and since when.
#[derive(Default)]
struct Place {
    seen: Option<(Ticket, bool, SystemTime)>,
}

impl Place {
    /// Returns how the member is; `None` while it has no place in the queue.
    fn state(&mut self, status: &StatusHandle, clock: &Clock) -> Option<OwnState> {
        let (ticket, leads, term_began) = {
            let snapshot = status.snapshot.borrow();
            let ticket = snapshot.standing.ticket()?;
            let role = snapshot.standing.at(clock.now());
            let terms = snapshot.recent_changes.iter().rev();
            let own = terms.take_while(|it| it.change.view().own_term() == Some(ticket.token));
            (ticket, matches!(role, Role::Leader { .. }), own.last().map(|it| it.at))
        };
        let since = match self.seen {
            Some((seen, led, since)) if (seen, led) == (ticket, leads) => since,
            Some(_) | None => term_began.filter(|_| leads).unwrap_or_else(|| clock.date()),
        };
        self.seen = Some((ticket, leads, since));
        let since_ms = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let hooks = status.hooks.borrow();
        let failing = hooks.records.iter().filter(|it| it.failing_since.is_some()).count();
        Some(OwnState {
            leads,
            since_ms: since_ms.try_into().unwrap_or(u64::MAX),
            healthy: status.application.borrow().as_ref().map(|it| it.healthy),
            hooks_failing: failing.try_into().unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{self, Application, HookRecord, Hooks, StatusPublisher};
    use recipes::election::{Event, Member, Policy, Profile};
    use recipes::{FencingToken, Margins, MemberId, Moment, Sequence, SessionId};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tokio::sync::watch;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn what_has_changed_is_told_once_it_has_lasted_and_not_often() {
        let mut scene = Scene::new();
        assert_eq!(scene.told().await, None, "it has no place");
        scene.joins(1);
        let first = scene.told().await.expect("it has a place");
        assert_eq!((first.leads, first.healthy, first.hooks_failing), (false, None, 0));
        assert_eq!(scene.told().await, None, "nothing has changed");
        scene.is_healthy(true);
        let healthy = scene.told().await.expect("its health is known");
        assert_eq!(healthy, OwnState { healthy: Some(true), ..first });
        let before = Instant::now();
        scene.is_healthy(false);
        scene.hooks_fail(2);
        let ill = scene.told().await.expect("it is not healthy");
        assert_eq!(ill, OwnState { healthy: Some(false), hooks_failing: 2, ..first });
        assert!(before.elapsed() >= PAUSE, "{:?}", before.elapsed());
        scene.hooks_fail(0);
        scene.hooks_fail(2);
        assert_eq!(scene.told().await, None, "it did not last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_changes_is_told_of_anew() {
        let mut scene = Scene::new();
        scene.joins(1);
        let first = scene.told().await.expect("it has a place");
        let sent_at = scene.now;
        scene.step(Event::QueueRead([scene.number].into_iter().collect()));
        scene.step(Event::Committed { sent_at });
        let leads = scene.told().await.expect("it leads");
        assert!(leads.leads);
        scene.step(Event::SessionLost);
        assert_eq!(scene.told().await, None, "it has no place");
        scene.joins(2);
        let again = scene.told().await.expect("it has another place");
        assert!(!again.leads && again.since_ms >= first.since_ms);
    }

    struct Scene {
        member: Member,
        publisher: StatusPublisher,
        hooks: watch::Sender<Hooks>,
        application: watch::Sender<Option<Application>>,
        now: Moment,
        number: Sequence,
    }

    impl Scene {
        fn new() -> Self {
            let id = MemberId::new("me").unwrap();
            let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
            let second = Duration::from_secs(1);
            let margins = Margins { heartbeat: second, half_tick: second };
            let member = Member::new(Arc::new(profile), Policy::new(margins));
            let clock = Clock::system();
            let now = clock.now();
            let (publisher, status) = status::set_up(&member, now);
            let (hooks, application) = (watch::Sender::default(), watch::Sender::default());
            let status = StatusHandle {
                hooks: hooks.subscribe(),
                application: application.subscribe(),
                ..status
            };
            tokio::spawn(tell(status, clock));
            let number = Sequence::new(1).unwrap();
            Self { member, publisher, hooks, application, now, number }
        }

        fn step(&mut self, event: Event) {
            self.member.step(self.now, event);
            let standing = self.member.standing();
            self.publisher.snapshot.send_modify(|snapshot| snapshot.standing = standing);
        }

        fn joins(&mut self, number: i32) {
            let (session, sent_at) = (SessionId(number.into()), self.now);
            let timeout = Duration::from_secs(60);
            self.number = Sequence::new(number).unwrap();
            let token = FencingToken(number.unsigned_abs().into());
            self.step(Event::SessionOpened { session, timeout, sent_at });
            self.step(Event::Joined(Ticket { sequence: self.number, token }));
        }

        fn is_healthy(&self, healthy: bool) {
            self.application.send_replace(Some(Application { healthy, failure: None }));
        }

        fn hooks_fail(&self, failing: usize) {
            let record = HookRecord {
                what: "h".into(),
                on: vec![],
                runs: 1,
                failures: 1,
                cut_short: 0,
                spent: Duration::ZERO,
                running: None,
                last: None,
                failing_since: Some(SystemTime::UNIX_EPOCH),
            };
            let records = vec![record; failing];
            self.hooks.send_replace(Hooks { records, told: 0 });
        }

        /// Returns what is told within a minute.
        async fn told(&mut self) -> Option<OwnState> {
            let request = timeout(Duration::from_secs(60), self.publisher.requests.recv()).await;
            match request.ok()?? {
                Request::Tell(state) => Some(state),
                Request::Members(_) | Request::Carry(..) => panic!("it only tells"),
            }
        }
    }
}
