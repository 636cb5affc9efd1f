//! Locks and barriers: told in examples (`scenarios/*.txt`), walked at random, and searched in every order of events
//! within small bounds.
//!
//! If a scenario fails, run with `REWRITE=1` and read the diff. Commit it only if you can say why.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the election's world uses the same sessions and faults"
)]
#![allow(clippy::print_stdout, clippy::redundant_clone, reason = "a model tells how large it was")]

#[path = "../sim/faults.rs"]
mod faults;
mod model;
mod scenarios;
#[path = "../sim/session.rs"]
mod session;
mod walks;
mod world;

use bellwether_recipes::holding::HoldingSpec;
use bellwether_recipes::lock::Mode;
use std::num::NonZeroU32;

const WRITE: HoldingSpec = HoldingSpec::Lock(Mode::Exclusive);
const READ: HoldingSpec = HoldingSpec::Lock(Mode::Shared);
const TWO_SLOTS: HoldingSpec = HoldingSpec::Lock(slots(2));
const BARRIER: HoldingSpec = HoldingSpec::Barrier(of(2));

const fn slots(slots: u32) -> Mode {
    Mode::Slots(of(slots))
}

const fn of(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}
