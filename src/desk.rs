//! The desk between the driver and everything that tells: what lies on it for all to read, and
//! what may be asked over it.

use crate::election::{Announcement, Member, Moment, Profile, SessionId, Standing, Ticket};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// What the driver lays out. Judge it at a moment; never keep the verdict.
#[derive(Clone, Debug)]
pub struct Report {
    pub standing: Standing,
    pub link: Link,
    /// When the driver last turned.
    pub turned_at: Moment,
}

/// How we stand with ZooKeeper. For people to read: nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub session: Option<(SessionId, Duration)>,
    pub connected: bool,
    /// Why we are not where we want to be.
    pub problem: Option<String>,
}

/// What may be asked of the driver.
pub enum Request {
    Members(oneshot::Sender<Result<Arc<[Entry]>, String>>),
}

/// One member's znode, as it was read.
#[derive(Clone, Debug)]
pub struct Entry {
    pub ticket: Ticket,
    /// `None` if the znode does not say: a client of another make.
    pub profile: Option<Profile>,
    pub names: Option<Announcement>,
}

/// The driver's side.
pub struct Back {
    pub report: watch::Sender<Report>,
    pub requests: mpsc::Receiver<Request>,
}

/// Everybody else's side.
#[derive(Clone)]
pub struct Front {
    pub report: watch::Receiver<Report>,
    pub requests: mpsc::Sender<Request>,
}

/// Sets up a desk with what is known before anything has happened.
pub fn set_up(member: &Member, now: Moment) -> (Back, Front) {
    let report = Report { standing: member.standing(), link: Link::default(), turned_at: now };
    let (report_in, report_out) = watch::channel(report);
    let (ask, asked) = mpsc::channel(64);
    let back = Back { report: report_in, requests: asked };
    (back, Front { report: report_out, requests: ask })
}
