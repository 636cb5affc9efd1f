//! Publishes the problems of this member in its own znode, for readers of the queue.
//!
//! The state is not urgent, so it is published a second after a change, and at most every five seconds. A new znode
//! reports no problems, so a member without problems has nothing to publish.

use crate::status::{MemberRequest, OwnState, StatusHandle};
use recipes::Ticket;
use std::time::Duration;
use tokio::time::sleep;

/// How long a change must last before it is published.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// The shortest time between two writes of the state.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// Publishes each change, until the runner has ended.
pub async fn publish(mut status: StatusHandle) {
    // The state that the znode of this ticket contains.
    let mut published: Option<(Ticket, OwnState)> = None;
    loop {
        if unpublished(&status, published).is_some() {
            sleep(SETTLE_TIME).await;
            // The state is read again: it may have changed back meanwhile.
            if let Some((ticket, state)) = unpublished(&status, published) {
                if status.requests.send(MemberRequest::PublishState(state)).await.is_err() {
                    return;
                }
                published = Some((ticket, state));
                sleep(MIN_INTERVAL).await;
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

/// Returns the ticket and the current state of this member, or `None` if the member's znode already contains that state, or
/// does not exist.
fn unpublished(
    status: &StatusHandle,
    published: Option<(Ticket, OwnState)>,
) -> Option<(Ticket, OwnState)> {
    let ticket = status.snapshot.borrow().standing.ticket()?;
    let hooks = status.hooks.borrow();
    let failing = hooks.records.iter().filter(|record| record.failing_since.is_some()).count();
    let state = OwnState {
        unhealthy: status.application.borrow().as_ref().is_some_and(|health| !health.healthy),
        hooks_failing: failing.try_into().unwrap_or(u32::MAX),
    };
    let known = published.filter(|(of, _)| *of == ticket).map(|(_, state)| state);
    // A newly created znode reports no problems, which is the default.
    (known.unwrap_or_default() != state).then_some((ticket, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Application;
    use crate::clock::Clock;
    use crate::status::{self, HookRecord, Hooks, StatusPublisher};
    use recipes::election::{Event, Member, Policy, Profile};
    use recipes::{FencingToken, Margins, MemberId, Moment, Sequence, SessionEvent, SessionId};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::SystemTime;
    use tokio::sync::watch;
    use tokio::time::{Instant, timeout};

    const WELL: OwnState = OwnState { unhealthy: false, hooks_failing: 0 };

    #[tokio::test(start_paused = true)]
    async fn what_has_changed_is_told_once_it_has_lasted_and_not_often() {
        let mut scene = ProblemFixture::new();
        scene.is_healthy(false);
        assert_eq!(scene.published().await, None, "it has no place");
        scene.is_healthy(true);
        scene.joins(1);
        assert_eq!(scene.published().await, None, "nothing is wrong");
        scene.is_healthy(false);
        assert_eq!(scene.published().await, Some(OwnState { unhealthy: true, ..WELL }));
        assert_eq!(scene.published().await, None, "nothing has changed");
        scene.hooks_fail(1);
        let ill = OwnState { unhealthy: true, hooks_failing: 1 };
        assert_eq!(scene.published().await, Some(ill));
        let before = Instant::now();
        scene.is_healthy(true);
        scene.hooks_fail(2);
        assert_eq!(scene.published().await, Some(OwnState { hooks_failing: 2, ..WELL }));
        assert!(before.elapsed() >= MIN_INTERVAL, "{:?}", before.elapsed());
        scene.hooks_fail(0);
        scene.hooks_fail(2);
        assert_eq!(scene.published().await, None, "it did not last");
        scene.hooks_fail(0);
        assert_eq!(scene.published().await, Some(WELL));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wrong_is_told_again_in_another_place() {
        let mut scene = ProblemFixture::new();
        scene.joins(1);
        scene.hooks_fail(2);
        let ill = OwnState { hooks_failing: 2, ..WELL };
        assert_eq!(scene.published().await, Some(ill));
        scene.step(Event::Session(SessionEvent::Lost));
        assert_eq!(scene.published().await, None, "it has no place");
        scene.joins(2);
        assert_eq!(scene.published().await, Some(ill));
    }

    struct ProblemFixture {
        member: Member,
        publisher: StatusPublisher,
        hooks: watch::Sender<Hooks>,
        application: watch::Sender<Option<Application>>,
        now: Moment,
    }

    impl ProblemFixture {
        fn new() -> Self {
            let id = MemberId::new("me").unwrap();
            let profile = Profile { id, address: None, labels: BTreeMap::new(), revision: 0 };
            let second = Duration::from_secs(1);
            let margins = Margins { heartbeat: second, half_tick: second };
            let member = Member::new(Arc::new(profile), Policy::new(margins));
            let now = Clock::system().now();
            let (publisher, status) = status::set_up(&member, now);
            let hooks = watch::Sender::default();
            let application = watch::Sender::default();
            let status = StatusHandle {
                hooks: hooks.subscribe(),
                application: application.subscribe(),
                ..status
            };
            tokio::spawn(publish(status));
            Self { member, publisher, hooks, application, now }
        }

        fn step(&mut self, event: Event) {
            self.member.step(self.now, event);
            let standing = self.member.standing();
            self.publisher.amend(|snapshot| snapshot.standing = standing);
        }

        fn joins(&mut self, number: i32) {
            let session = SessionId(number.into());
            let sent_at = self.now;
            let timeout = Duration::from_secs(60);
            let sequence = Sequence::new(number).unwrap();
            let token = FencingToken(number.unsigned_abs().into());
            self.step(Event::Session(SessionEvent::Opened { session, timeout, sent_at }));
            self.step(Event::Joined(Ticket { sequence, token }));
        }

        fn is_healthy(&self, healthy: bool) {
            self.application.send_replace(Some(Application { healthy, failure: None }));
        }

        fn hooks_fail(&self, failing: usize) {
            let failing_since = Some(SystemTime::UNIX_EPOCH);
            let record = HookRecord { failing_since, ..HookRecord::default() };
            let records = vec![record; failing];
            self.hooks.send_replace(Hooks { records, done_up_to: None });
        }

        /// Returns the state that is published within a minute.
        async fn published(&mut self) -> Option<OwnState> {
            let request = timeout(Duration::from_secs(60), self.publisher.requests.recv()).await;
            match request.ok()?? {
                MemberRequest::PublishState(state) => Some(state),
                MemberRequest::Members(_) | MemberRequest::Command(..) => panic!("unexpected"),
            }
        }
    }
}
