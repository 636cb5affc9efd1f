//! `bellwether dev`: an in-memory ZooKeeper and members on this machine, for trying, developing and testing.
//!
//! - `election`: the server and the members, and the actions on them.
//! - `member`: a member's process, from its port to its end.
//! - `front`: the port that answers for as long as any member runs, by forwarding connections to a running member.
//! - `follow`: asks a member for the current leader.
//! - `timeline`: turns the members' answers into lines about the leader. Pure.
//! - `keys`: keys that the user presses.

mod election;
mod follow;
mod front;
mod keys;
mod member;
mod timeline;

use self::election::LocalElection;
use crate::config::on_this_machine;
use crate::exec::SignalListener;
use crate::{process, runtime};
use anyhow::anyhow;
use dev_server::{DevServer, ServerSettings};
use rustix::process::Signal;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::time::Duration;
use tracing::{Level, warn};

/// The maximum number of members. The id of each member is one letter.
pub const MOST_MEMBERS: u8 = 26;

/// The exit code if the server cannot listen, or a member cannot start.
const CANNOT_START: u8 = 1;

/// The tick time of the server. A short tick lets the server grant session timeouts of a few seconds, and end sessions
/// soon after they expire.
const TICK: Duration = Duration::from_millis(500);
/// The longest session timeout that the server grants: that of a real server with the default tick time. With its own
/// short tick, the server would by default grant 10 s, and tested clients would get shorter timeouts than they request.
pub const LONGEST_SESSION: Duration = Duration::from_secs(40);

/// The options of `dev`.
pub struct Options {
    /// The number of members. With 0, only the server runs.
    pub members: u8,
    /// The port at which any running member answers. The members themselves listen at the ports after it.
    pub port: u16,
    pub session_timeout: Duration,
    /// The address at which the server listens.
    pub listen: SocketAddr,
}

/// Runs the server and the members until a signal or a key ends it. Returns the exit code.
///
/// # Errors
/// The exit code, the problem and the remedy.
pub fn run(options: &Options) -> Result<u8, (u8, String)> {
    match runtime::run(run_until_ended(options)) {
        Ok(()) => Ok(0),
        // The process that reads the output has closed the pipe on purpose, so this is not a failure.
        Err(error) if is_broken_pipe(&error) => Ok(0),
        Err(error) => Err((CANNOT_START, format!("{error:#}"))),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Runs the server and the members, or only the server, until a signal or a key ends the run.
async fn run_until_ended(options: &Options) -> anyhow::Result<()> {
    let mut signals = SignalListener::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
    if options.members == 0 {
        return serve(options.listen, &mut signals).await;
    }
    let mut election = LocalElection::open(options).await?;
    let result = election.run(options, &mut signals).await;
    election.close(&mut signals).await;
    result
}

/// Runs only the server, until a signal arrives.
async fn serve(listen: SocketAddr, signals: &mut SignalListener) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt().with_writer(io::stderr);
    log.with_max_level(Level::INFO).with_ansi(process::log_has_colours()).init();
    let server = start_server(listen).await?;
    if let Some(warning) = exposure_warning(server.address()) {
        warn!("{warning}");
    }
    print_line(&on_this_machine(server.address()).to_string())?;
    signals.next().await;
    server.stop().await;
    Ok(())
}

async fn start_server(listen: SocketAddr) -> anyhow::Result<DevServer> {
    let settings = ServerSettings {
        listen,
        tick: TICK,
        max_session_timeout: Some(LONGEST_SESSION),
        // No limit, because all clients may run on this machine.
        max_connections_per_address: 0,
        ..ServerSettings::default()
    };
    DevServer::start(settings).await.map_err(|error| {
        anyhow!(
            "cannot listen at {listen} (--listen): {error}; end what listens there, such as a ZooKeeper or another \
             `bellwether dev`, or choose another, such as --listen 127.0.0.1:0 for a free port"
        )
    })
}

/// Returns a warning if other machines can reach the server.
fn exposure_warning(address: SocketAddr) -> Option<String> {
    let is_open = !address.ip().is_loopback();
    is_open.then(|| format!("anyone who can reach {address} can use it: no login is required"))
}

/// Prints a line to standard output at once, even into a pipe.
fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}
