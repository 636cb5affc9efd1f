//! Runs the program to its end, as one does at a terminal.

use crate::member::Member;
use std::{
    env,
    process::{Command, Stdio},
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bellwether");

// What a command exits with besides what its own command does.
pub(crate) const NOT_IN_TIME: i32 = 124;
pub(crate) const FAILED: i32 = 125;

/// How it ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn ran(words: &[&str]) -> Said {
    let mut command = Command::new(PROGRAM);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"BELLWETHER_") {
            command.env_remove(name);
        }
    }
    let output = command.args(words).stdin(Stdio::null()).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    let code = output.status.code().expect("it exits by itself");
    Said { code, out: text(output.stdout), err: text(output.stderr) }
}

pub(crate) fn url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.port())
}
