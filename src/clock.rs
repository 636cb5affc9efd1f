//! The time. Nothing else in this crate may ask the system for it.

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

/// Identifies the kernel and the time namespace whose clocks this process reads: another process can see
/// whether it reads the same. `None` where the kernel does not tell.
#[derive(Clone, Debug)]
pub struct ClockIdentity {
    /// As `/proc/sys/kernel/random/boot_id` has it.
    pub boot_id: Option<String>,
    /// As `readlink /proc/self/ns/time` has it.
    pub time_namespace: Option<String>,
}

impl ClockIdentity {
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

#[derive(Clone, Copy, Debug)]
pub struct Clock(());

/// A moment as other programs on this machine can read it off the kernel's clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// By `CLOCK_BOOTTIME`.
    pub boottime_ns: u64,
    /// By `CLOCK_MONOTONIC`, which stands still while the machine is suspended: if it was not since
    /// this was read, the same moment or one just before it.
    pub monotonic_ns: u64,
}

impl Clock {
    pub fn system() -> Self {
        Self(())
    }

    /// Returns the time since boot, suspended time included: a lease must run out while its machine is suspended,
    /// and `std::time::Instant` stands still then.
    pub fn now(&self) -> Moment {
        Moment(since_zero(ClockId::Boottime))
    }

    pub fn kernel_time(&self, moment: Moment) -> KernelTime {
        // In this order, time that passes between the two readings makes the answer earlier, and not later.
        let monotonic = since_zero(ClockId::Monotonic);
        let suspended = self.now().0.saturating_sub(monotonic);
        fn nanos(span: Duration) -> u64 {
            u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
        }
        let boottime_ns = nanos(moment.0);
        KernelTime { boottime_ns, monotonic_ns: nanos(moment.0.saturating_sub(suspended)) }
    }

    /// The calendar's time, for people to read. It may jump: nothing is decided by it.
    pub fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Returns what the calendar would have said at a past moment, had it run as the clock did.
    pub fn date_of(&self, past: Moment) -> Option<SystemTime> {
        self.date().checked_sub(self.now().since(past))
    }

    /// Sleeps until the moment; without one it never returns.
    pub async fn sleep_until(&self, moment: Option<Moment>) {
        match moment {
            Some(moment) => tokio::time::sleep(moment.since(self.now())).await,
            None => std::future::pending().await,
        }
    }
}

fn since_zero(clock: ClockId) -> Duration {
    let read = clock_gettime(clock);
    Duration::new(
        read.tv_sec.try_into().expect("boot was not before boot"),
        read.tv_nsec.try_into().expect("less than a second"),
    )
}

/// Wakes at a moment also if the machine was suspended before it, when a sleep goes on for as long
/// as it had yet to go.
///
/// Wakes exactly once: tokio's own timers are first kept in coarse slots, and wake twice.
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    /// When the alarm rings, if that is still to come.
    set_to: Cell<Option<Moment>>,
}

impl Alarm {
    /// # Errors
    /// No more files may be opened.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(deprecated, reason = "the other is unsafe, for types that are not an OwnedFd")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, set_to: Cell::new(None) })
    }

    /// Waits until this moment; returns at once if it has passed. It may return early: callers ask the clock again.
    pub async fn ring_at(&self, moment: Moment) {
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
        // A timer that is set to zero is disarmed, and would never ring.
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
