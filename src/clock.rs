//! What time it is. Nothing else in this crate may ask the system.

use crate::election::Moment;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy, Debug)]
pub struct Clock(());

impl Clock {
    pub fn system() -> Self {
        Self(())
    }

    /// Time since boot, suspended time included: a lease must not outlive a nap of its machine,
    /// and `std::time::Instant` sleeps when the machine does.
    pub fn now(&self) -> Moment {
        let since_boot = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(
            since_boot.tv_sec.try_into().expect("boot was not before boot"),
            since_boot.tv_nsec.try_into().expect("less than a second"),
        ))
    }

    /// The calendar's time, for people to read. It may jump: nothing is decided by it.
    pub fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Sleeps until the moment, or for ever if there is none.
    pub async fn sleep_until(&self, moment: Option<Moment>) {
        match moment {
            Some(moment) => tokio::time::sleep(moment.since(self.now())).await,
            None => std::future::pending().await,
        }
    }
}
