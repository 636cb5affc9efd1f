//! Panics of daemons' tasks, which tokio would keep to itself.

use crate::kernel;
use std::cell::RefCell;
use std::panic;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes panics from now on.
pub fn watch() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if kernel::is_simulated() {
            LAST.set(Some(panic.to_string().replace('\n', " ")));
        }
        before(panic);
    }));
}

/// Returns the last panic of the simulation's thread, once.
pub fn take() -> Option<String> {
    LAST.take()
}
