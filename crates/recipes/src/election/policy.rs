//! How a member leads, as its operator wants it.

use crate::Margins;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub margins: Margins,
    /// A leader hands over to a member of higher priority after it has seen it for this long; `None`: never.
    pub preempt_after: Option<Duration>,
}

impl Policy {
    /// Returns the defaults, with these margins.
    pub const fn new(margins: Margins) -> Self {
        Self { margins, preempt_after: None }
    }
}
