//! Other processes: starting, waiting, killing, and reading `/proc`.
//!
//! - `command`: a process that becomes a command, and dies with the process that started it.
//! - `controlling_terminal`: the process group in the foreground of the terminal.
//! - `children`: the sidecar's children, each waited for by process id.
//! - `offspring`: a guard's command, and every process that it started.
//! - `procfs`: information about processes from `/proc`.

mod children;
mod command;
mod controlling_terminal;
mod offspring;
mod procfs;

pub use children::{
    Child, alive_with_adopted, is_alive, kill_with_adopted, reap, spare_existing_children, spawn,
};
pub use command::{become_command, command_for, this_program};
pub use controlling_terminal::{ControllingTerminal, keep_writing_in_background};
pub use offspring::{JobChange, Offspring, Reaped, kill_children, reap_children};
pub use procfs::is_stopped;
use std::io::IsTerminal;

/// Returns whether the log, on standard error, has colours: at a terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub fn log_has_colours() -> bool {
    std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|no_color| no_color.is_empty())
}
