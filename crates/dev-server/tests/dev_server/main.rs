//! The server as clients meet it: over TCP, in the bytes of the protocol, by a client that shares no code with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;
mod over_tcp;
mod script;
mod wire;
mod words;
