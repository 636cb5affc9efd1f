//! The steps that an election mostly consists of: which member handles which event, the outcome, and what it costs.

#![allow(dead_code, unreachable_pub, reason = "each binary judges its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use recipes::election::*;
use recipes::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub struct Step {
    pub name: &'static str,
    /// Made anew for each step, since comparing and freeing the event is part of what a step costs.
    pub set: fn() -> (Member, Moment, Event),
    pub outcome: &'static str,
    /// As tests are built.
    pub instructions: u64,
    pub allocations: u64,
}

pub const STEPS: [Step; 9] = [
    Step {
        name: "the leader wakes",
        set: || (leader(), at(500), Event::Woke),
        outcome: "renew, leads, token 1, for 6.39s yet",
        instructions: 836,
        allocations: 1,
    },
    Step {
        name: "the leader's renewal is committed",
        set: || {
            let mut leader = leader();
            leader.step(at(500), Event::Woke);
            (leader, at(510), Event::Committed { sent_at: at(500) })
        },
        outcome: "leads, token 1, for 6.88s yet",
        instructions: 786,
        allocations: 0,
    },
    Step {
        name: "a follower wakes",
        set: || (follower(), at(1_000), Event::Woke),
        outcome: "read the head, #1, follows «app-1 leads, token 1»",
        instructions: 1331,
        allocations: 1,
    },
    Step {
        name: "a follower's question to the head is answered",
        set: || {
            let mut follower = follower();
            follower.step(at(1_000), Event::Woke);
            (follower, at(1_010), head_read(at(1_000)))
        },
        outcome: "follows «app-1 leads, token 1»",
        instructions: 2253,
        allocations: 0,
    },
    Step {
        name: "a follower's predecessor has news",
        set: || (in_queue(&[1, 2, 3]), at(10), predecessor_read()),
        outcome: "relay «app-1 leads, token 1», follows «app-1 leads, token 1»",
        instructions: 950,
        allocations: 1,
    },
    Step {
        name: "a follower's predecessor is gone",
        set: || {
            let mut second = in_queue(&[1, 2]);
            second.step(at(10), head_read(at(0)));
            (second, at(20), gone(1))
        },
        outcome: "claim «app-2 leads, token 2», is first, does not lead",
        instructions: 1669,
        allocations: 1,
    },
    Step {
        name: "the last of 3 reads the queue",
        set: || (arrived(3), at(0), queue(1..=3)),
        outcome: "watch #2, read the head, #1, follows, knows no leader",
        instructions: 764,
        allocations: 1,
    },
    Step {
        name: "the last of 500 reads the queue",
        set: || (arrived(500), at(0), queue(1..=500)),
        outcome: "watch #499, read the head, #1, follows, knows no leader",
        instructions: 1019,
        allocations: 1,
    },
    Step {
        name: "a claim is committed",
        set: || (in_queue(&[1]), at(10), Event::Committed { sent_at: at(0) }),
        outcome: "leads, token 1, for 6.88s yet",
        instructions: 679,
        allocations: 0,
    },
];

fn leader() -> Member {
    let mut member = in_queue(&[1]);
    member.step(at(10), Event::Committed { sent_at: at(0) });
    member
}

/// Returns the last of three, which has read in its predecessor's znode and in the head's that the first leads.
fn follower() -> Member {
    let mut member = in_queue(&[1, 2, 3]);
    member.step(at(10), predecessor_read());
    member.step(at(10), head_read(at(0)));
    member
}

/// Returns the member with the last of these numbers, which has just read that they are the queue.
fn in_queue(numbers: &[i32]) -> Member {
    let mut member = arrived(numbers[numbers.len() - 1]);
    member.step(at(0), queue(numbers.iter().copied()));
    member
}

/// Returns a member that has joined with this ticket, and has read nothing yet.
fn arrived(number: i32) -> Member {
    let second = Duration::from_secs(1);
    let margins = Margins { heartbeat: second, half_tick: second };
    let mut member = Member::new(profile(number), Policy::new(margins));
    let (session, timeout) = (SessionId(1), 10 * second);
    member.step(at(0), Event::Session(SessionEvent::Opened { session, timeout, sent_at: at(0) }));
    member.step(at(0), Event::Joined(ticket(number)));
    member
}

fn predecessor_read() -> Event {
    Event::PredecessorRead { predecessor: ticket(2), announcement: Some(leads(1)), distance: None }
}

fn gone(number: i32) -> Event {
    let Ticket { sequence, token } = ticket(number);
    Event::PredecessorGone { predecessor: sequence, token: Some(token) }
}

fn head_read(sent_at: Moment) -> Event {
    Event::HeadRead { head: ticket(1), announcement: Some(leads(1)), sent_at }
}

fn queue(numbers: impl Iterator<Item = i32>) -> Event {
    Event::QueueRead(numbers.map(|number| ticket(number).sequence).collect())
}

fn leads(number: i32) -> Announcement {
    Announcement { leader: profile(number), ticket: ticket(number) }
}

fn ticket(number: i32) -> Ticket {
    let token = FencingToken(number.unsigned_abs().into());
    Ticket { sequence: Sequence::new(number).unwrap(), token }
}

fn profile(number: i32) -> Arc<Profile> {
    let id = MemberId::new(&format!("app-{number}")).unwrap();
    let address = Some(format!("app-{number}.app:8080"));
    let labels = BTreeMap::from([("zone".to_owned(), "eu-1".to_owned())]);
    Arc::new(Profile { id, address, labels, revision: 0 })
}

fn at(ms: u64) -> Moment {
    Moment(Duration::from_millis(ms))
}
