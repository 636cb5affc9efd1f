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

/// Tells whether the user wants colours at a terminal: see <https://no-color.org>.
pub fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|no_color| no_color.is_empty())
}

pub use children::{
    Child, is_alive, kill_with_all_left_to_us, left_to_us, reap, spare_those_left_to_us, spawn,
};
pub use command::{become_command, ourselves, started_by_us};
pub use controlling_terminal::{ControllingTerminal, keep_writing_in_background};
pub use offspring::{JobChange, Offspring, Reaped, is_all_gone, kill_children};
