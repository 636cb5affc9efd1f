//! The ensemble layer: the real binary against real ZooKeeper servers, seen from outside.
//!
//! Tests that would show the same with any server, as they are about the sidecar itself, run on the in-memory one alone
//! (`on_dev_server.rs`). Those of the recipes run on both.
//!
//! Each test starts servers and members of its own and leaves nothing behind. Limits are generous and
//! assertions are about order and the protocol's bounds, so that a busy machine makes no difference.

#![allow(clippy::print_stderr, reason = "a failing test prints the logs of what it ran")]
#![allow(dead_code, reason = "the tests on the in-memory server use the rest")]

// The tests, by theme.
mod barriers;
mod clients;
mod configuration;
mod confined;
mod counter;
mod election;
mod families;
mod faults;
mod first_process;
mod identities;
mod idle;
mod image;
#[cfg(feature = "kerberos")]
mod kerberos;
mod leaving;
mod load;
mod lock_observer;
mod locks;
mod lost;
mod margins;
mod members;
mod mixed_versions;
mod monitoring;
mod never_two;
mod offspring;
mod one_of_three;
mod openapi;
mod orders;
mod page;
mod partitions;
mod places;
mod priority;
mod races;
mod restart;
mod routes;
mod security;
mod silence;
mod soak;
mod standby;
mod transfer;
mod unknown_clients;
mod versions;
mod webhook;

// What they are made of.
mod asker;
mod browser;
mod catalogue;
mod certificates;
mod cgroup;
#[path = "../check_log/mod.rs"]
mod check_log;
mod command;
mod contender;
mod described;
mod expire;
mod first_join;
mod frames;
mod group;
mod hook_notes;
mod host;
mod member;
mod names;
mod network;
mod observer;
mod ports;
mod process;
mod program;
mod proxy;
mod pseudoterminal;
mod rejecting_proxy;
mod requests;
mod sampler;
mod scrape;
mod servers;
mod task;
mod testbed;
mod transaction_log;
mod wait;
mod witness;
