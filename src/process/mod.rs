//! Other processes: how they are started, waited for and killed, and what the kernel says of them.
//!
//! - `command`: a process that becomes a command, and dies with the one that started it.
//! - `controlling_terminal`: which process group is in the foreground of the terminal.
//! - `children`: the sidecar's children, each waited for by number.
//! - `offspring`: the one command of a guard, and all that it started.
//! - `procfs`: what the kernel says of processes.

mod children;
mod command;
mod controlling_terminal;
mod offspring;
mod procfs;

pub use children::{
    Child, is_alive, kill_with_all_left_to_us, left_to_us, reap, spare_those_left_to_us, spawn,
};
pub use command::{become_command, ourselves, started_by_us};
pub use controlling_terminal::{ControllingTerminal, keep_writing_in_background};
pub use offspring::{JobChange, Offspring, Reaped, is_all_gone, kill_children};
use std::io::IsTerminal;

/// Tells whether the log, on standard error, is to have colours: at a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
pub fn log_has_colours() -> bool {
    std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|no_color| no_color.is_empty())
}
