//! The state of this member at one moment: its snapshot, evaluated by the clock. Every answer is made from it.

use super::AppState;
use super::claims::{Claim, ConnectionClaims};
use super::problem::ProblemResponse;
use crate::api::{self, Leader, LeaderState, millis};
use crate::clock::KernelTime;
use crate::problems::ProblemKind;
use crate::status::Snapshot;
use recipes::election::{Announcement, Role};
use recipes::{FencingToken, Moment};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A snapshot, and the role that follows from the snapshot at the moment `now`.
pub(super) struct Verdict {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) role: Role,
    pub(super) now: Moment,
}

impl AppState {
    /// Evaluates the snapshot at the moment of the call, not of the last event: a lease also ends while the runner
    /// handles no event, for example because the process was stopped for a while.
    pub(super) fn evaluate(&self) -> Verdict {
        let snapshot = self.status.snapshot.borrow().clone();
        let now = self.clock.now();
        let role = snapshot.standing.at(now);
        Verdict { role, snapshot, now }
    }

    /// Evaluates the snapshot for an answer, and sets the claim of the answer: if this member leads, the answer is
    /// written only while that is still true (see `claims`).
    pub(super) fn evaluate_and_claim(&self) -> Verdict {
        let verdict = self.evaluate();
        self.claim(&verdict);
        verdict
    }

    /// Sets the claim of the current answer: that this member leads, or no claim if it does not lead.
    pub(super) fn claim(&self, verdict: &Verdict) {
        ConnectionClaims::current().claim(self.claim_of(verdict));
    }

    /// Returns the claim that this member leads with its present token; `None` if it does not lead.
    pub(super) fn claim_of(&self, verdict: &Verdict) -> Option<Claim> {
        let token = verdict.role.own_term()?;
        let app = self.clone();
        Some(Box::new(move || app.leads_with(token)))
    }

    /// Returns true if this member leads with this token at this moment.
    pub(super) fn leads_with(&self, token: FencingToken) -> bool {
        let now = self.clock.now();
        let role = self.status.snapshot.borrow().standing.at(now);
        role.own_term() == Some(token)
    }

    /// Returns the leader and the lease, as in `/leader`.
    pub(super) fn state(&self, verdict: &Verdict) -> LeaderState {
        let until = self.valid_until(verdict);
        LeaderState {
            valid_for_ms: verdict.valid_for_ms(),
            valid_until_boottime_ns: until.map(|until| until.boottime_ns),
            valid_until_monotonic_ns: until.map(|until| until.monotonic_ns),
            ..self.state_without_lease(verdict.leader(), verdict.leads(), verdict.index())
        }
    }

    /// Returns the state with this leader and without a lease, as for a past term, whose lease is over.
    pub(super) fn state_without_lease(
        &self,
        leader: Option<&Announcement>,
        is_self: bool,
        index: Option<u64>,
    ) -> LeaderState {
        LeaderState {
            leader: leader.map(|leader| self.leader(leader)),
            is_self,
            valid_for_ms: None,
            valid_until_boottime_ns: None,
            valid_until_monotonic_ns: None,
            index,
        }
    }

    /// Returns the announced leader in the form that it has in answers.
    pub(super) fn leader(&self, announcement: &Announcement) -> Leader {
        Leader::of(announcement, &self.names.znodes)
    }

    /// Returns the end of the lease; `None` without a lease, or if clients of this listener cannot read the same clocks.
    pub(super) fn valid_until(&self, verdict: &Verdict) -> Option<KernelTime> {
        let lease_end = verdict.lease_end().filter(|_| !self.serves_probes)?;
        Some(self.clock.kernel_time(lease_end))
    }

    /// Waits until the index differs from `seen`. If it does already, for example because `seen` is from another
    /// member, returns at once. Returns `None` if this process ends.
    pub(super) async fn changed_since(&self, seen: Option<u64>) -> Option<Verdict> {
        self.until(|verdict| verdict.index() != seen).await
    }

    /// Waits for a verdict for which `condition` is true. Returns `None` if this process ends.
    pub(super) async fn until(&self, condition: impl Fn(&Verdict) -> bool) -> Option<Verdict> {
        let mut changes = self.status.changes.clone();
        loop {
            // Mark first, so that a snapshot that is published after the evaluation ends the wait below.
            changes.mark_unchanged();
            let verdict = self.evaluate();
            if condition(&verdict) {
                return Some(verdict);
            }
            // The end of a lease is a change without any event from the runner.
            let lease_end = verdict.snapshot.standing.changes_at(verdict.now);
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                () = self.clock.sleep_until(lease_end) => {}
            }
        }
    }

    /// Returns a permit for a client to wait for a change. Fails if too many clients wait.
    pub(super) fn waiting_permit(&self) -> Result<OwnedSemaphorePermit, ProblemResponse> {
        self.waiting.clone().try_acquire_owned().map_err(|_| {
            let why = "too many streams and blocking queries are open: close some, or poll";
            ProblemResponse::unavailable("too-many-waiting", why)
        })
    }
}

impl Verdict {
    pub(super) fn index(&self) -> Option<u64> {
        self.snapshot.standing.index_at(self.now)
    }

    pub(super) fn leader(&self) -> Option<&Announcement> {
        self.role.leader()
    }

    pub(super) fn leads(&self) -> bool {
        self.role.own_term().is_some()
    }

    /// Returns true if this member led and its lease has run out, but the election has not handled that yet.
    pub(super) fn has_lapsed(&self) -> bool {
        self.snapshot.standing.has_lapsed(self.now)
    }

    pub(super) fn follows(&self) -> bool {
        matches!(self.role, Role::Follower { .. })
    }

    pub(super) fn valid_for_ms(&self) -> Option<u64> {
        self.lease_end().map(|end| millis(end.since(self.now)))
    }

    pub(super) fn lease_end(&self) -> Option<Moment> {
        match &self.role {
            Role::Leader { left, .. } => Some(self.now.after(*left)),
            _ => None,
        }
    }

    /// Returns the role as in bodies.
    pub(super) fn role_name(&self) -> api::Role {
        api::Role::of(&self.role)
    }

    /// Explains the role of this member to operators.
    pub(super) fn reason(&self) -> String {
        match &self.role {
            Role::Leader { left, .. } => {
                format!("this member leads; its lease holds for another {} ms", millis(*left))
            }
            Role::Candidate => "first in the queue, but no quorum has lately confirmed it".into(),
            Role::Follower { leader: Some(known) } => format!("{} leads", known.leader.id),
            Role::Follower { leader: None } => {
                // A problem that may explain why no leader is known.
                let kinds =
                    [ProblemKind::EarlierLife, ProblemKind::DuplicateId, ProblemKind::UnknownZnode];
                let problem = kinds.iter().find_map(|kind| self.snapshot.problems.get(*kind));
                match problem {
                    Some(problem) => problem.text.clone(),
                    None => "in the queue, but no leader is known yet".into(),
                }
            }
            Role::Absent if self.snapshot.standing.is_paused() => {
                "not in the queue: paused, until `bellwether resume`".into()
            }
            Role::Absent if self.snapshot.standing.is_unhealthy() => {
                "not in the queue: its application is not healthy, see /status".into()
            }
            Role::Absent => match &self.snapshot.link.problem {
                Some(problem) => format!("not in the queue: {problem}"),
                None => "not in the queue".into(),
            },
        }
    }

    /// Returns the error for a request that needs a leader.
    pub(super) fn no_leader(&self) -> ProblemResponse {
        ProblemResponse::unavailable("no-leader", self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MemberFixture, problems_of};
    use super::super::tests::ask;
    use crate::problems::ProblemKind;
    use http_body_util::BodyExt;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    /// Notes that a client was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The election's thread publishes. To wake a thousand clients would delay its next request.
    #[tokio::test]
    async fn who_publishes_does_not_wake_the_clients_itself() {
        let mut scene = MemberFixture::new();
        scene.leads(4);
        let index = scene.member.standing().index_at(scene.now).unwrap();
        let path = format!("/leader?index={index}&wait=1m");
        let service = scene.service.clone();
        let mut waiting = pin!(ask(&service, &path));
        // Let the task that passes changes on begin to wait.
        tokio::task::yield_now().await;
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(woken.clone());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        scene.loses(4);
        assert!(!woken.0.load(Ordering::Relaxed));
        assert!(waiting.await.status().is_server_error(), "it is answered: no leader is known");
    }

    #[tokio::test]
    async fn a_duplicate_id_is_the_reason_in_every_answer_that_has_one() {
        let mut scene = MemberFixture::new();
        scene.enters(4, &[3, 4]);
        let duplicate = "another member leads under the id of this one";
        scene.publishes(|snapshot| {
            snapshot.problems = problems_of(&[(ProblemKind::DuplicateId, duplicate, 3)]);
        });
        for path in ["/readyz", "/is-leader", "/leader", "/status"] {
            let answer = ask(&scene.service, path).await;
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&body);
            assert!(text.contains(duplicate), "{path}: {text}");
        }
        let answer = ask(&scene.service, "/metrics").await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("bellwether_duplicate_id{election=\"/election\"} 1"), "{text}");
    }
}
