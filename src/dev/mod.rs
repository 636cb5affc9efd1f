//! `bellwether dev`: an in-memory ZooKeeper and members on this machine, for trying, developing and testing.
//!
//! - `election`: the server and the members, and the actions on them.
//! - `member`: a member's process, from its port to its end.
//! - `front`: the port that answers for as long as any member runs.
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

/// The maximum number of members: each is named by a letter.
pub const MOST_MEMBERS: u8 = 26;

/// The exit code if the server cannot listen, or a member cannot start.
const BROKEN: u8 = 1;

/// Short, so that the server grants sessions of a few seconds, and ends them soon after they expire.
const TICK: Duration = Duration::from_millis(500);
/// As long as with the default tick of a real server, so that clients that are tested here get the timeouts that they
/// request.
pub const LONGEST_SESSION: Duration = Duration::from_secs(40);

/// The options of `dev`.
pub struct Options {
    /// The number of members. With 0, only the server runs.
    pub members: u8,
    /// The first port: any member answers there, and the members have the next ones.
    pub port: u16,
    pub session_timeout: Duration,
    /// The address the server listens on.
    pub listen: SocketAddr,
}

/// Runs the server and the members until a signal or a key ends it. Returns the exit code.
///
/// # Errors
/// The exit code, the problem and the remedy.
pub fn run(options: &Options) -> Result<u8, (u8, String)> {
    match runtime::run(live(options)) {
        Ok(()) => Ok(0),
        // The reader of the pipe has closed it on purpose.
        Err(error) if is_broken_pipe(&error) => Ok(0),
        Err(error) => Err((BROKEN, format!("{error:#}"))),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Runs the server and the members.
async fn live(options: &Options) -> anyhow::Result<()> {
    let mut signals = SignalListener::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
    if options.members == 0 {
        return serve(options.listen, &mut signals).await;
    }
    let mut election = LocalElection::open(options).await?;
    let acted = election.act(options, &mut signals).await;
    election.close(&mut signals).await;
    acted
}

/// Runs only the server.
async fn serve(listen: SocketAddr, signals: &mut SignalListener) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt().with_writer(io::stderr);
    log.with_max_level(Level::INFO).with_ansi(process::log_has_colours()).init();
    let server = start_server(listen).await?;
    if let Some(warning) = warning(server.address()) {
        warn!("{warning}");
    }
    say(&on_this_machine(server.address()).to_string())?;
    signals.next().await;
    server.stop().await;
    Ok(())
}

async fn start_server(listen: SocketAddr) -> anyhow::Result<DevServer> {
    let settings = ServerSettings {
        listen,
        tick: TICK,
        max_session_timeout: Some(LONGEST_SESSION),
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
fn warning(address: SocketAddr) -> Option<String> {
    let is_open = !address.ip().is_loopback();
    is_open.then(|| format!("open to all who reach {address}, and it asks no one who they are"))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}
