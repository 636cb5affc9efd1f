//! Jute, ZooKeeper's encoding: what clients send, and what they are answered.
//!
//! Decoding trusts nothing: a length is held against the rest of its frame, and a count only ends a loop, it reserves no
//! memory. A string that is not UTF-8 becomes one with replacement characters, as in Java.

pub(crate) mod opcode;
mod reader;
pub(crate) mod reply;
pub(crate) mod request;
mod writer;

pub(crate) use reader::{Malformed, Reader};
pub(crate) use writer::Writer;
