//! The command `dev`. In a build without it, the command explains how to get it.

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
    /// How many elections to start, each with so many members; together at most 26
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_MEMBERS)))]
    elections: u8,
    /// Where the server listens; with port 0 at a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2181")]
    listen: std::net::SocketAddr,
    /// Start the server alone, print the connect string, and log to stderr
    #[arg(long, conflicts_with_all = ["members", "elections"])]
    only_server: bool,
}

#[cfg(feature = "dev")]
impl DevArguments {
    pub(super) fn command(self) -> Result<CliCommand, String> {
        let Self { members, elections, listen, only_server } = self;
        if u16::from(members) * u16::from(elections) > MOST_MEMBERS.into() {
            return Err(format!(
                "--elections {elections} with --members {members} each are more than the {MOST_MEMBERS} members that \
                 have a letter as their name"
            ));
        }
        let members = if only_server { 0 } else { members };
        Ok(CliCommand::Dev(crate::dev::Options { members, elections, listen }))
    }
}

#[cfg(not(feature = "dev"))]
#[derive(Args)]
pub(super) struct DevArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _any: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "dev"))]
impl DevArguments {
    pub(super) fn command(self) -> Result<CliCommand, String> {
        Err("this build has no `dev`, which is for trying and developing and is left out of the image and the \
             packages: run `cargo run -- dev` in a checkout, or `cargo install --locked --path .` and then \
             `bellwether dev`"
            .into())
    }
}
