//! The ensemble layer: the real binary against real ZooKeeper servers, seen from outside.
//!
//! Each test starts servers and members of its own and leaves nothing behind. Limits are generous and
//! assertions are about order and the protocol's bounds, so that a busy machine makes no difference.

#![allow(clippy::print_stderr, reason = "a failing test prints the logs of what it ran")]

// The tests, by theme.
mod answers;
mod application;
mod at_a_terminal;
mod barrier_command;
mod barriers;
mod clients;
mod configuration;
mod confined;
mod counter;
mod election;
mod exec;
mod families;
mod faults;
mod first_process;
mod foreign;
mod hooks;
mod hostile;
mod hostile_server;
mod http;
mod identities;
mod image;
#[cfg(feature = "kerberos")]
mod kerberos;
mod labels;
mod leaving;
mod listeners;
mod load;
mod lock_command;
mod lock_observer;
mod locks;
mod logs;
mod lost;
mod margins;
mod member_problems;
mod members;
mod metrics;
mod mixed_versions;
mod monitoring;
mod never_two;
mod offspring;
mod one_of_three;
mod openapi;
mod orders;
mod page;
mod partitions;
mod pipes;
mod places;
mod priority;
mod races;
mod restart;
mod routes;
mod security;
mod service;
mod silence;
mod soak;
mod standby;
mod terminal;
mod transfer;
mod unknown_clients;
mod versions;
mod wakeups;
mod webhook;

// What they are made of.
mod browser;
mod catalogue;
mod certificates;
mod cgroup;
mod contender;
mod described;
mod expire;
mod frames;
mod group;
mod host;
mod member;
mod names;
mod network;
mod observer;
mod ports;
mod process;
mod program;
mod proxy;
mod rejecting_proxy;
mod requests;
mod sampler;
mod servers;
mod task;
mod testbed;
mod transaction_log;
mod wait;
mod witness;
