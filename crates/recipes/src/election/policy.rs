//! How a member leads, as its operator wants it.

use crate::Margins;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub margins: Margins,
    pub activation: Activation,
    /// For how long a leader sees a member of higher priority before it hands over to it; `None`: for ever.
    pub preempt_after: Option<Duration>,
}

/// When the application of a new leader counts as active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    #[default]
    AtOnce,
    /// When it has acknowledged. If it does not within this time, its member leaves the queue.
    OnAcknowledgement { within: Duration },
}

impl Policy {
    /// Returns the defaults, with these margins.
    pub const fn new(margins: Margins) -> Self {
        Self { margins, activation: Activation::AtOnce, preempt_after: None }
    }
}
