//! A sidecar that takes part in a leader election on ZooKeeper and reports to its application who leads.
//!
//! # The modules
//!
//! - [`recipes`]: the protocol, in its own crate. Pure: events in, actions out.
//! - [`mod@zookeeper`]: runs the member: its session, kept alive over connections (`client`), its place in the queue
//!   (`queue`), the election on top of that (`election`), and the loop (`runner`); also the locks and barriers of
//!   applications (`holdings`), and the values that they share (`shared_config`).
//! - [`api`]: the JSON bodies of the HTTP API and of hooks, and the paths that clients request. Plain data.
//! - [`http`]: answers the application from the published snapshot and the clock; forwards its commands and its requests for
//!   locks, barriers and values.
//! - [`exec`]: runs a command only while this member leads, or a lock is held. Reads the published snapshot and the clock.
//! - [`notify`]: runs the operator's hooks at each change, and writes values of the shared configuration to files. Reads the
//!   published snapshot and the clock.
//! - [`health`]: checks the health of the application, and reports it to the election.
//! - [`http_client`]: sends single HTTP requests to the application or a sidecar, and HTTPS requests to Kubernetes.
//! - [`files`]: reads the small files that an operator names.
//! - [`process`]: starts other processes, waits for them, kills them.
//! - [`status`]: the snapshot that the runner publishes, and the requests that it accepts.
//! - [`transfer`]: moves leadership to a chosen member, through commands to the runner.
//! - [`preemption`]: moves leadership to a member of higher priority, when the election says that this is due.
//! - [`problems`]: the problems of this member, each with its start time, for `/status`, the web page and the log.
//! - [`own_state`]: publishes the problems of this member in its own znode, for other members and for `inspect`.
//! - [`queue_report`]: the queue of an election, as `/members` and `bellwether inspect` show it.
//! - [`znode_names`]: the names of members' znodes: a prefix and a number, or the names that another client uses.
//! - [`holdings`]: the channels between the runner of locks and barriers and its callers.
//! - [`shared_config`]: the channels between the runner of the shared configuration and its readers and writers.
//! - [`counters`]: the counters and measurements for `/metrics`.
//! - [`config`]: the operator's settings. Plain data, with the relations between settings checked.
//! - [`cli`]: the commands and their arguments, and the source of each value.
//! - [`terminal`]: for people and scripts. Sends requests to a sidecar and prints the answers, or runs a command while a
//!   lock is held.
//! - [`byte_budget`]: the limit for the memory of all requests, answers and watched values.
//! - `cached`: readings of ZooKeeper that several callers share.
//! - `random`: the only source of secret random numbers, which no other process can guess.
//! - [`runtime`]: the one place that builds tokio runtimes.
//! - [`clock`]: the one place that reads the system's clocks.
//! - [`daemon`]: starts the tasks of a member, and ends them in order.
//! - `dev`: an in-memory ZooKeeper and members as processes, for trying out and development. A feature; no other module uses
//!   it.
//!
//! `main.rs` parses the command line and dispatches it. `tests/architecture.rs` lists, and checks, which module may import
//! which.

pub mod api;
pub mod byte_budget;
mod cached;
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
pub mod queue_report;
mod random;
pub mod runtime;
pub mod shared_config;
pub mod status;
pub mod terminal;
pub mod transfer;
pub mod znode_names;
pub mod zookeeper;
