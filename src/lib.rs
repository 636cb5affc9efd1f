//! A sidecar that takes part in a leader election on ZooKeeper and tells its application who leads.
//!
//! # The modules
//!
//! - [`recipes`]: the protocol, a crate of its own. Pure: events in, actions out.
//! - [`mod@zookeeper`]: runs the member: a session kept over connections (`client`), a place in the queue
//!   (`queue`), what an election adds to it (`election`), and the loop (`runner`), the locks and barriers of applications
//!   (`holdings`), and the values that they share (`shared_config`).
//! - [`api`]: the JSON bodies of the HTTP API and of hooks, and the paths that clients ask. Plain data.
//! - [`http`]: tells the application, from the published snapshot and the clock; passes on its commands, locks, barriers and
//!   values.
//! - [`exec`]: runs a command only while this member leads, or a lock is held. Reads the same snapshot and the clock.
//! - [`notify`]: runs the operator's hooks at each change, and keeps values of the shared configuration as files. Reads the
//!   same snapshot and the clock.
//! - [`health`]: asks the application whether it is healthy, and tells the election.
//! - [`http_client`]: asks the application or a sidecar one thing over HTTP, or Kubernetes over HTTPS.
//! - [`files`]: reads the small files that an operator names.
//! - [`process`]: starts other processes, waits for them, kills them.
//! - [`status`]: the snapshot that the runner publishes, and the requests that it takes.
//! - [`transfer`]: moves leadership to a chosen member, by the runner's commands.
//! - [`preemption`]: moves leadership to a member of higher priority, when the election says that it is time.
//! - [`problems`]: the problems of this member, each with its start, for `/status`, the page and the log.
//! - [`own_state`]: tells what is wrong with this member, in its own znode.
//! - [`znode_names`]: how members' znodes are named.
//! - [`holdings`]: the channels between the runner of locks and barriers and those who ask for them.
//! - [`shared_config`]: the channels between the runner of the shared configuration and those who read and write it.
//! - [`counters`]: what is counted and measured, for `/metrics`.
//! - [`config`]: what the operator wrote. Plain data, with its relations checked.
//! - [`cli`]: the commands and their arguments, and where each value came from.
//! - [`terminal`]: for people and scripts. Asks a sidecar over HTTP, and prints, or runs a command while a lock is held.
//! - [`byte_budget`]: the memory that all requests, answers and watched values share.
//! - `random`: the one place that asks for numbers that no other process can guess.
//! - [`runtime`]: the one place that builds tokio runtimes.
//! - [`clock`]: the one place that knows what time it is.
//! - [`daemon`]: builds all of this, runs it, and shuts it down in order.
//! - `dev`: an in-memory ZooKeeper and members as processes, for trying and developing. A feature; nothing knows of it.
//!
//! `main.rs` parses the command line and dispatches it. `tests/architecture.rs` has, and checks, which module may
//! import which.

pub mod api;
pub mod byte_budget;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counters;
pub mod daemon;
#[cfg(feature = "dev")]
pub mod dev;
pub mod exec;
pub mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod health;
pub mod holdings;
pub mod http;
pub mod http_client;
pub mod notify;
pub mod own_state;
pub mod preemption;
pub mod problems;
pub mod process;
mod random;
pub mod runtime;
pub mod shared_config;
pub mod status;
pub mod terminal;
pub mod transfer;
pub mod znode_names;
pub mod zookeeper;
