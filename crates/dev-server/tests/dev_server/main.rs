//! The server as clients meet it: over TCP, in the bytes of the protocol, by a client that shares no code with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "the differential tests use the rest")]
#[path = "../common/client.rs"]
mod client;
#[allow(dead_code, reason = "the differential tests use the rest")]
#[path = "../common/wire.rs"]
mod wire;

mod over_tcp;
mod words;
