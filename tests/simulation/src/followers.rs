//! Clients that follow `GET /events`, and so know at each moment whether their member leads.

use crate::daemon::EventStream;
use crate::judge::Violation;
use crate::world::World;
use axum::http::Method;
use serde_json::Value;

/// One client of each daemon.
pub struct Followers(Vec<Option<Follower>>);

struct Follower {
    stream: EventStream,
    /// How many events were looked at.
    seen: usize,
    /// What the last one says; `None` before the first.
    leads: Option<bool>,
}

impl Followers {
    pub fn new(machines: usize) -> Self {
        Self((0..machines).map(|_| None).collect())
    }

    /// Forgets the client of a daemon that was killed.
    pub fn forget(&mut self, machine: usize) {
        self.0[machine] = None;
    }

    /// Ends all clients.
    pub fn close(&mut self) {
        for follower in self.0.iter_mut().filter_map(Option::take) {
            follower.stream.close();
        }
    }
}

/// Has a client follow a daemon, unless one does.
pub fn follow(world: &mut World, machine: usize) {
    let Some(daemon) = &world.machines[machine].daemon else { return };
    let follower = &mut world.clients.followers.0[machine];
    if follower.is_none() {
        let stream = daemon.open(Method::GET, "/events");
        *follower = Some(Follower { stream, seen: 0, leads: None });
        world.wake(machine);
    }
}

/// Judges what the client of a daemon knows by the end of a step.
pub fn look(world: &mut World, machine: usize) {
    let claims = world.leadership.of(machine, world.now).is_some();
    let Some(follower) = &mut world.clients.followers.0[machine] else { return };
    let received = follower.stream.received.borrow().clone();
    for chunk in &received[follower.seen..] {
        for event in chunk.split("\n\n").filter(|event| event.contains("event: ")) {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            let data: Value = serde_json::from_str(data.unwrap_or_default()).unwrap_or_default();
            if let Some(is_self) = data["is_self"].as_bool() {
                follower.leads = Some(is_self);
            }
        }
    }
    follower.seen = received.len();
    if follower.stream.has_ended.get() {
        world.clients.followers.0[machine] = None;
    } else if follower.leads.is_some_and(|leads| leads != claims) {
        let id = &world.machines[machine].settings.id;
        let told = follower.leads;
        let violation = format!("{id}: the events say {told:?}, and it leads: {claims}");
        world.fail(Violation(violation));
    }
}
