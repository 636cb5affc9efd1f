//! Other processes: how they are started, waited for and killed, and what the kernel says of them.
//!
//! - `command`: a process that becomes a command, and dies with the one that started it.
//! - `children`: the sidecar's children, each waited for by number.
//! - `offspring`: the one command of a guard, and all that it started.
//! - `procfs`: what the kernel says of processes.

mod children;
mod command;
mod offspring;
mod procfs;

pub use children::{
    Child, is_alive, kill_with_all_left_to_us, left_to_us, reap, spare_those_left_to_us, spawn,
};
pub use command::{become_command, ourselves, started_by_us};
pub use offspring::{Offspring, Reaped, is_all_gone, kill_children};
