//! Scripts that are kept: each is one in which the two servers differed once, or for which chance is too slow.

use super::act::Step;

/// All of them, by name.
pub(crate) fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    Vec::new()
}
