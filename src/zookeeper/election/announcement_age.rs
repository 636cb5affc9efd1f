//! Measures the age of a leader's announcement at the time when this member relays it, by the servers' clock, which stamps
//! each write of each member.

use crate::counters::Meter;
use recipes::election::Announcement;
use std::sync::Arc;
use std::time::Duration;

/// The last writes of the leader and of this member, and their times.
pub(super) struct AnnouncementAge {
    meter: Arc<Meter>,
    ours: Option<Relayed>,
    /// The announcement in the leader's own znode at its last read, and when it was written.
    leaders: Option<(Announcement, i64)>,
}

/// An announcement in our own znode.
struct Relayed {
    announcement: Announcement,
    written_ms: i64,
    /// When our znode was created.
    joined_ms: i64,
    is_measured: bool,
}

impl AnnouncementAge {
    pub(super) fn measured_by(meter: Arc<Meter>) -> Self {
        Self { meter, ours: None, leaders: None }
    }

    /// Notes a write to our own znode, and its time. An announcement that the znode already had was relayed before.
    pub(super) fn we_wrote(&mut self, announcement: Announcement, joined_ms: i64, written_ms: i64) {
        if self.ours.as_ref().is_none_or(|ours| ours.announcement != announcement) {
            self.ours = Some(Relayed { announcement, written_ms, joined_ms, is_measured: false });
            self.measure();
        }
    }

    /// Notes the announcement in the leader's own znode, and when it was written there.
    pub(super) fn leader_wrote(&mut self, announcement: &Announcement, written_ms: i64) {
        self.leaders = Some((announcement.clone(), written_ms));
        self.measure();
    }

    /// Compares the two times, unless the leader wrote before this member joined: then nothing was relayed. The clock of a
    /// server that has just become the ensemble's leader may differ, so an announcement that seems to be relayed before it
    /// was written is not counted.
    fn measure(&mut self) {
        let (Some(ours), Some((announcement, announced_ms))) = (&mut self.ours, &self.leaders)
        else {
            return;
        };
        if ours.announcement != *announcement {
            return;
        }
        let is_to_be_counted = !ours.is_measured && *announced_ms >= ours.joined_ms;
        ours.is_measured = true;
        if is_to_be_counted && let Ok(age) = u64::try_from(ours.written_ms - announced_ms) {
            self.meter.announcement_lag.observe(Duration::from_millis(age).as_secs_f64());
        }
    }
}
