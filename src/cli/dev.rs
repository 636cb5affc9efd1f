//! The command `dev`. In a build without the feature `dev`, the command explains how to get such a build.

use super::CliCommand;
#[cfg(feature = "dev")]
use crate::dev::MOST_MEMBERS;
use clap::Args;

#[cfg(feature = "dev")]
#[derive(Args)]
pub(super) struct DevArguments {
    /// How many members to start, from 1 to 26
    #[arg(long, value_name = "NUMBER", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_MEMBERS)))]
    members: u8,
    /// The first of the ports to listen on: any of the members answers there, and each has one of the next ports
    #[arg(long, value_name = "PORT", default_value = "4040", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The members' session timeout, from 2s to 40s: the time from a crash of the leader until the next member leads
    // Short, so that a crash is noticed soon. Long enough for a machine that compiles meanwhile: a heartbeat counts as missed
    // if it is 0.4 s late, and the lease survives several missed heartbeats.
    #[arg(long, value_name = "DURATION", default_value = "4s", value_parser = session_timeout)]
    session_timeout: std::time::Duration,
    /// Where the server listens; with port 0 at a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2181")]
    listen: std::net::SocketAddr,
    /// Start the server alone, print the connect string, and log to stderr
    #[arg(long, conflicts_with_all = ["members", "port", "session_timeout"])]
    only_server: bool,
}

#[cfg(feature = "dev")]
impl DevArguments {
    /// Returns the command. Never fails, unlike in a build without `dev`.
    pub(super) fn command(self) -> Result<CliCommand, String> {
        let Self { members, port, session_timeout, listen, only_server } = self;
        let members = if only_server { 0 } else { members };
        Ok(CliCommand::Dev(crate::dev::Options { members, port, session_timeout, listen }))
    }
}

#[cfg(feature = "dev")]
fn session_timeout(written: &str) -> Result<std::time::Duration, String> {
    let accepted = std::time::Duration::from_secs(2)..=crate::dev::LONGEST_SESSION;
    let timeout = humantime::parse_duration(written).ok().filter(|time| accepted.contains(time));
    timeout.ok_or_else(|| "write a duration from 2s to 40s".into())
}

#[cfg(not(feature = "dev"))]
#[derive(Args)]
pub(super) struct DevArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _any: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "dev"))]
impl DevArguments {
    /// Returns an error that says how to get a build with `dev`.
    pub(super) fn command(self) -> Result<CliCommand, String> {
        Err("this build has no `dev`, which is for trying and developing and is left out of the image and the \
             packages: run `cargo run -- dev` in a checkout, or `cargo install --locked --path .` and then \
             `bellwether dev`"
            .into())
    }
}
