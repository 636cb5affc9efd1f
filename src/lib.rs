//! A sidecar that stands in line for leadership and tells its application where it stands.
//!
//! # The rooms
//!
//! - [`recipes`]: the protocol, a crate of its own. Pure: events in, actions out.
//! - [`mod@zookeeper`]: runs the member: a session kept over connections (`client`), a place in the queue
//!   (`queue`), what an election adds to it (`election`), and the loop (`runner`).
//! - [`api`]: the JSON bodies of the HTTP API and of hooks, and the paths that clients ask. Plain data.
//! - [`http`]: tells the application. Reads one watch channel and the clock; changes nothing.
//! - [`exec`]: runs a command only while this member leads. Reads the same channel and the clock.
//! - [`notify`]: runs the operator's hooks at each change. Reads the same channel and the clock.
//! - [`checkup`]: asks the application whether it is healthy, and tells the election.
//! - [`caller`]: asks the application one thing over HTTP, or Kubernetes over HTTPS.
//! - [`children`]: the one place that waits for other processes.
//! - [`processes`]: what the kernel says of other processes.
//! - [`systemd`]: tells the service manager.
//! - [`desk`]: what passes between those who do and those who tell.
//! - [`tally`]: what is counted and measured, for `/metrics`.
//! - [`config`]: what the operator wrote. Plain data, with its relations checked.
//! - [`cli`]: the commands and their arguments, and where each value came from.
//! - [`terminal`]: for people and scripts. Asks a sidecar over HTTP, and prints.
//! - [`reload`]: reads what the operator wrote again, while the member runs.
//! - [`log`]: what a line of the log looks like.
//! - [`clock`]: the one place that knows what time it is.
//!
//! `main.rs` opens the doors between them. Who may import whom is written, and checked, in
//! `tests/architecture.rs`.

pub mod api;
pub mod caller;
pub mod checkup;
pub mod children;
pub mod cli;
pub mod clock;
pub mod config;
pub mod desk;
pub mod exec;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod log;
pub mod notify;
pub mod processes;
pub mod reload;
pub mod systemd;
pub mod tally;
pub mod terminal;
pub mod zookeeper;
