//! The server as clients meet it: over TCP, in the bytes of the protocol, by a client that shares no code with it.

mod client;
mod over_tcp;
mod script;
mod wire;
mod words;
