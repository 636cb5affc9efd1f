//! Jute, ZooKeeper's encoding: the requests of clients, and the replies to them.
//!
//! Decoding trusts no input: a length is checked against the rest of its frame, and a count limits a loop but reserves
//! no memory. Bytes that are not UTF-8 become replacement characters in strings, as in Java.

pub(crate) mod opcode;
mod reader;
pub(crate) mod reply;
pub(crate) mod request;
mod writer;

pub(crate) use reader::{Malformed, Reader};
pub(crate) use writer::Writer;
