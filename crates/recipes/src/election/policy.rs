//! The configuration of a member by its operator.

use crate::Margins;
use std::time::Duration;

/// The margins of the leases that a member uses, and when it preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub margins: Margins,
    /// How long a leader must see a member of higher priority before it hands over to that member. With `None`, a
    /// leader does so only while it has the lowest priority.
    pub preempt_after: Option<Duration>,
}

impl Policy {
    /// Returns the default policy with these margins.
    pub const fn new(margins: Margins) -> Self {
        Self { margins, preempt_after: None }
    }
}
