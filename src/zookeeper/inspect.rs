//! Reads an election from outside: does not join, and writes nothing.

use super::client::{
    Connection, Credentials, Failure, LeftServers, OpenedConnection, connect, in_words,
    is_server_answer,
};
use super::election::{decode, entries};
use super::queue::{
    MemberZnode, claim_path, foreign_name, owner, read_short, refusal, server_time, stats, sync,
    token,
};
use crate::api;
use crate::clock::Clock;
use crate::config::security::Login;
use crate::config::{Settings, Zookeeper};
use crate::status::QueueReading;
use ::zookeeper::Error;
use futures_util::future::join_all;
use recipes::Ticket;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait until the server has closed the session. After that, the session is left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of attempts to connect, as long as the cause of the failure is not known: see [`connect_or_explain`].
const ATTEMPTS: u32 = 4;

/// The znodes below the election's path.
#[derive(Default)]
pub struct Election {
    pub queue: QueueReading,
    pub claim: Option<ClaimZnode>,
    pub others: Vec<OtherZnode>,
}

/// The znode with which the leader excludes others.
#[derive(Serialize)]
pub struct ClaimZnode {
    /// The id of the leader that made the claim; null if no member wrote the znode's data.
    pub id: Option<String>,
    /// The fencing token of that leader.
    pub token: Option<u64>,
    /// The session that owns the claim; null if the znode is not ephemeral.
    pub session: Option<String>,
    /// When the claim was made, by the servers' clock.
    pub since: String,
}

/// A znode that does not belong to a member.
#[derive(Serialize)]
pub struct OtherZnode {
    pub znode: String,
    /// The client to which the znode belongs, if it is a foreign contender; `non-ephemeral` if the znode has a member's name
    /// but no session, so that members ignore it; otherwise `unknown`.
    pub is: &'static str,
    #[serde(skip)]
    pub is_foreign_contender: bool,
}

/// Reads an election. A path that does not exist is an empty election.
///
/// # Errors
/// The reason why ZooKeeper does not answer, or refuses the request.
pub async fn read_election(settings: &Settings) -> Result<Election, String> {
    let credentials = Credentials::of_command(&settings.zookeeper);
    let opened = connect_or_explain(&settings.zookeeper, &credentials).await?;
    let election = match read(&opened.connection, settings).await {
        Ok(election) => Ok(election),
        Err(error) if is_server_answer(&error) => {
            let acl = settings.zookeeper.security.acl;
            Err(refusal(&opened.connection, acl, &settings.root, &error).await)
        }
        Err(error) => Err(in_words(&error)),
    };
    close(opened).await;
    election
}

async fn close(opened: OpenedConnection) {
    // When the last client is dropped, the library closes the session and reports its end.
    drop(opened.connection);
    let _left_to_expire = timeout(CLOSE_TIMEOUT, opened.ended).await;
}

/// Connects. On failure, returns the cause rather than the library's error.
///
/// A server may refuse a login just by closing the connection, which looks like a lost connection. So the login is
/// suspected only if several attempts fail and nothing else is wrong with the servers.
async fn connect_or_explain(
    settings: &Zookeeper,
    credentials: &Arc<Credentials>,
) -> Result<OpenedConnection, String> {
    let left_servers = LeftServers::none(Clock::system());
    let mut unexplained = String::new();
    for _ in 0..ATTEMPTS {
        match connect(settings, credentials, None, &left_servers).await {
            Ok(opened) => return Ok(opened),
            Err(Failure::Unexplained(why)) => unexplained = why,
            Err(failure) => return Err(failure.reason()),
        }
    }
    Err(match settings.security.login {
        Some(Login::Sasl(_) | Login::Kerberos(_)) => {
            format!(
                "{unexplained}, though the servers run: perhaps {}",
                credentials.explain_refusal(None)
            )
        }
        Some(Login::Digest(_)) | None => unexplained,
    })
}

/// The outcome of an attempt to use one server.
#[derive(Default, Serialize)]
pub struct TriedServer {
    /// The server as it is written in `zookeeper.servers`.
    pub server: String,
    /// The version as the server reports it, if it does.
    pub version: Option<String>,
    /// The session timeout that the server grants, in milliseconds, if it opens a session.
    pub session_timeout_ms: Option<u64>,
    /// The reason why the server cannot be used.
    pub problem: Option<String>,
}

/// Opens and closes a session at each server.
pub async fn try_servers(settings: &Zookeeper) -> Vec<TriedServer> {
    let credentials = Credentials::of_command(settings);
    let tries = settings.hosts.split(',').map(async |server| {
        let alone = Zookeeper { hosts: server.to_owned(), ..settings.clone() };
        let mut tried = TriedServer { server: server.to_owned(), ..TriedServer::default() };
        match connect_or_explain(&alone, &credentials).await {
            Ok(opened) => {
                tried.version = opened.connection.version().await.map(ToString::to_string);
                // The timeout that the server grants, even if that is longer than the requested one. (Members use
                // `opened.timeout`, which is at most the requested one.)
                let granted = opened.connection.client.session_timeout();
                tried.session_timeout_ms = Some(granted.as_millis() as u64);
                close(opened).await;
            }
            Err(problem) => tried.problem = Some(problem),
        }
        tried
    });
    join_all(tries).await
}

impl fmt::Display for TriedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, version, session_timeout_ms, problem } = self;
        if let Some(problem) = problem {
            return write!(f, "{server} cannot be used: {problem}");
        }
        let version = version.as_deref().unwrap_or("of unknown version (it does not answer srvr)");
        let timeout = Duration::from_millis(session_timeout_ms.unwrap_or_default());
        write!(f, "{server} can be used: ZooKeeper {version}, a session of {timeout:?}")
    }
}

/// Reads the election over this connection.
async fn read(connection: &Connection, settings: &Settings) -> Result<Election, Error> {
    let Settings { root, znodes: naming, .. } = settings;
    // Without a sync, a server that lags behind the others would show an old state.
    sync(connection, root).await?;
    let (mut names, stat) = match connection.request(connection.client.get_children(root)).await {
        Err(Error::NoNode) => return Ok(Election::default()),
        listed => listed?,
    };
    naming.remember_all(&names);
    names.sort_by(|a, b| (naming.sequence(a), a).cmp(&(naming.sequence(b), b)));
    let (numbered, unnumbered): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| naming.sequence(name).is_some());
    let mut members = vec![];
    let mut others = vec![];
    for (znode, read) in numbered.iter().zip(read_short(connection, &paths(root, &numbered)).await?)
    {
        // Without a stat, the znode was deleted after the listing.
        let (Some((data, stat)), Some(sequence)) = (read, naming.sequence(znode)) else { continue };
        let Some(session) = owner(&stat) else {
            let znode = znode.clone();
            others.push(OtherZnode { znode, is: "non-ephemeral", is_foreign_contender: false });
            continue;
        };
        let ticket = Ticket { sequence, token: token(&stat) };
        members.push(MemberZnode { ticket, session, data, created_ms: stat.ctime });
    }
    let claim_path = claim_path(root, naming);
    for (znode, stat) in unnumbered.iter().zip(stats(connection, &paths(root, &unnumbered)).await?)
    {
        let Some(stat) = stat.filter(|_| format!("{root}/{znode}") != claim_path) else { continue };
        // An ephemeral znode with a name such as those of another client's contenders.
        let client = foreign_name(znode, naming).filter(|_| owner(&stat).is_some());
        others.push(OtherZnode {
            znode: znode.clone(),
            is: client.map_or("unknown", |(client, _)| client.name()),
            is_foreign_contender: client.is_some(),
        });
    }
    let claim = match connection.request(connection.client.get_data(&claim_path)).await {
        // There is no claim, or the members' ACL keeps us from reading it.
        Err(Error::NoNode | Error::NoAuth) => None,
        read => {
            let (data, stat) = read?;
            let leader = decode(&data, naming).and_then(|data| data.znode.announcement);
            Some(ClaimZnode {
                id: leader.as_ref().map(|leader| leader.leader.id.to_string()),
                token: leader.map(|leader| leader.ticket.token.0),
                session: owner(&stat).map(|session| session.to_string()),
                since: api::date(server_time(stat.ctime)),
            })
        }
    };
    let index = stat.pzxid.cast_unsigned();
    let queue = QueueReading { index, members: entries(members, naming).into() };
    Ok(Election { queue, claim, others })
}

/// Returns the paths of the znodes with these names.
fn paths(root: &str, names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("{root}/{name}")).collect()
}
