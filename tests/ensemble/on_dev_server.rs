//! The tests that need but one server and nothing besides Rust: the real binary on an in-memory server. Those that are about
//! the sidecar itself run here alone, and those of the recipes on real servers as well (`main.rs`).

#![allow(clippy::print_stderr, reason = "a failing test prints the logs of what it ran")]
#![allow(dead_code, reason = "the tests on real servers use the rest")]

// The tests, by theme.
mod answers;
mod application;
mod at_a_terminal;
mod barrier_command;
mod barriers;
mod configuration;
mod election;
mod exec;
mod foreign;
mod hooks;
mod hostile;
mod hostile_server;
mod http;
mod identities;
mod keeper;
mod labels;
mod leaving;
mod listeners;
mod lock_command;
mod locks;
mod logs;
mod member_problems;
mod members;
mod memory;
mod metrics;
mod orders;
mod pipes;
mod places;
mod priority;
mod protocol;
mod races;
mod service;
mod silence;
mod standby;
mod terminal;
mod transfer;
mod unknown_clients;
mod wakeups;

// What they are made of.
mod asker;
mod certificates;
#[path = "../check_log/mod.rs"]
mod check_log;
mod command;
mod described;
mod first_join;
mod frames;
mod group;
mod hook_notes;
mod host;
mod member;
mod observer;
mod ports;
mod process;
mod program;
mod proxy;
mod pseudoterminal;
mod rejecting_proxy;
mod sampler;
mod scrape;
#[path = "dev_servers.rs"]
mod servers;
mod task;
mod wait;

mod expire {
    pub(crate) use crate::servers::expire;
}
