//! The clocks. No other module of this crate may read the time from the system.

use crate::api::LeaseClock;
use recipes::Moment;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};
use std::{fs, io};
use tokio::io::unix::AsyncFd;

impl LeaseClock {
    /// Identifies the kernel clocks that this process reads. A field is `None` if the kernel does not report it.
    pub fn read() -> Self {
        let boot_id = fs::read("/proc/sys/kernel/random/boot_id").ok();
        let boot_id = boot_id.and_then(|id| String::from_utf8(id).ok());
        let namespace = fs::read_link("/proc/self/ns/time").ok();
        Self {
            boot_id: boot_id.map(|id| id.trim().to_owned()),
            time_namespace: namespace
                .and_then(|namespace| namespace.into_os_string().into_string().ok()),
        }
    }
}

/// Reads the system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock(());

/// A moment in nanoseconds of two kernel clocks, which other programs on this machine can compare with their own readings of
/// these clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// The moment on `CLOCK_BOOTTIME`, which includes the time for which the machine was suspended.
    pub boottime_ns: u64,
    /// The moment on `CLOCK_MONOTONIC`, which stops while the machine is suspended: the same moment or slightly earlier,
    /// unless the machine is suspended after this was computed.
    pub monotonic_ns: u64,
}

impl Clock {
    pub fn system() -> Self {
        Self(())
    }

    /// Returns the time since boot, including suspended time: a lease must run out while its machine is suspended, but
    /// `std::time::Instant` stops then.
    pub fn now(&self) -> Moment {
        Moment(read_clock(ClockId::Boottime))
    }

    /// Converts a moment to the kernel's clocks.
    pub fn kernel_time(&self, moment: Moment) -> KernelTime {
        // Read `CLOCK_MONOTONIC` first: time that passes between the two readings makes the result earlier, never
        // later. An application may act as the leader until this moment, so a later one would be unsafe.
        let monotonic = read_clock(ClockId::Monotonic);
        let suspended = self.now().0.saturating_sub(monotonic);
        fn nanos(span: Duration) -> u64 {
            u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
        }
        let boottime_ns = nanos(moment.0);
        KernelTime { boottime_ns, monotonic_ns: nanos(moment.0.saturating_sub(suspended)) }
    }

    /// Returns the wall-clock time, for people to read. It may jump, so no decision may depend on it.
    pub fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Returns the wall-clock time of a past moment, as if the wall clock had run evenly since.
    pub fn date_of(&self, past: Moment) -> Option<SystemTime> {
        self.date().checked_sub(self.now().since(past))
    }

    /// Sleeps until the moment; never returns if it is `None`. Sleeps longer if the machine is suspended meanwhile.
    pub async fn sleep_until(&self, moment: Option<Moment>) {
        match moment {
            Some(moment) => tokio::time::sleep(moment.since(self.now())).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the time that a clock of the kernel shows.
fn read_clock(clock: ClockId) -> Duration {
    let read = clock_gettime(clock);
    Duration::new(
        read.tv_sec.try_into().expect("the clock began at zero"),
        read.tv_nsec.try_into().expect("less than a second"),
    )
}

/// A timer that also runs while the machine is suspended, unlike the timers of tokio.
///
/// The timer wakes its task exactly once: tokio's own timers start in coarse slots, and wake the task twice.
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    /// The moment at which the timer rings; `None` if it has rung, or was never set.
    set_to: Cell<Option<Moment>>,
}

impl Alarm {
    /// # Errors
    /// Fails if the process has too many open files.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(deprecated, reason = "its replacement is an unsafe fn; an OwnedFd is sound here")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, set_to: Cell::new(None) })
    }

    /// Waits until `moment`. Returns at once if `moment` has passed, and never if it is `None`. May return early, at
    /// the moment of an earlier call whose future was dropped, so callers must read the clock again.
    pub async fn ring_at(&self, moment: impl Into<Option<Moment>>) {
        let Some(moment) = moment.into() else { return std::future::pending().await };
        // A call for the same moment, whose future was dropped, may have set the timer already.
        if self.set_to.get() != Some(moment) {
            self.set(moment);
        }
        if let Ok(mut ready) = self.timer.readable().await {
            ready.clear_ready();
        }
        self.set_to.set(None);
    }

    fn set(&self, moment: Moment) {
        self.set_to.set(Some(moment));
        // Setting a timer to zero disarms it, and it would never ring.
        let moment = moment.0.max(Duration::from_nanos(1));
        let no_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: moment.as_secs().try_into().expect("a machine does not run for so long"),
            tv_nsec: moment.subsec_nanos().into(),
        };
        let when = Itimerspec { it_interval: no_interval, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &when).expect("a moment is valid");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_at_its_moment_and_again_at_the_next() {
        let clock = Clock::system();
        let alarm = Alarm::new().unwrap();
        for _ in 0..3 {
            let moment = clock.now().after(Duration::from_millis(20));
            while clock.now() < moment {
                alarm.ring_at(moment).await;
            }
        }
        let never = alarm.ring_at(clock.now().after(Duration::from_secs(3600)));
        assert!(tokio::time::timeout(Duration::from_millis(50), never).await.is_err());
    }
}
