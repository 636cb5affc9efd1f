//! How a member leads, as its operator wants it.

use crate::Margins;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub margins: Margins,
    /// For how long a leader sees a member of higher priority before it hands over to it; `None`: for ever.
    pub preempt_after: Option<Duration>,
}

impl Policy {
    /// Returns the defaults, with these margins.
    pub const fn new(margins: Margins) -> Self {
        Self { margins, preempt_after: None }
    }
}
