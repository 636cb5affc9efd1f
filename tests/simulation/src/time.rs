//! The simulator's own time, and daemons' clocks, which may run faster or slower.

use std::time::Duration;

/// Nanoseconds since the simulation began.
pub type SimTime = u64;

pub const MILLISECOND: SimTime = 1_000_000;
pub const SECOND: SimTime = 1_000 * MILLISECOND;

/// A machine was booted this long before a simulation begins, so that no moment is before its boot.
const UPTIME: u64 = 1_000 * SECOND;

/// The clock of a machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock {
    /// How much faster than the simulator's, in parts per million.
    rate_ppm: i64,
    /// How much longer ago it was booted.
    offset: u64,
}

impl MachineClock {
    pub fn new(rate_ppm: i64, offset: u64) -> Self {
        Self { rate_ppm, offset }
    }

    /// Returns its reading, in nanoseconds since boot.
    pub fn at(&self, now: SimTime) -> u64 {
        UPTIME + self.offset + scaled(now, 1_000_000 + self.rate_ppm, 1_000_000)
    }

    /// Returns the moment at which it reads this, or right after it.
    pub fn moment(&self, reading: u64) -> SimTime {
        let since = reading.saturating_sub(UPTIME + self.offset);
        scaled(since, 1_000_000, 1_000_000 + self.rate_ppm) + 1
    }

    /// Returns how long it takes for this clock to move on by a span.
    pub fn span(&self, span: Duration) -> SimTime {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4);
        scaled(span, 1_000_000, 1_000_000 + self.rate_ppm) + 1
    }
}

fn scaled(time: u64, by: i64, of: i64) -> u64 {
    let scaled = i128::from(time) * i128::from(by) / i128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX / 2)
}
