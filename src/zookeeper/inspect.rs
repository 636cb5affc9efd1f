//! Reads an election from outside: does not join, and writes nothing.

use super::client::{
    Connection, Credentials, Failure, LeftServers, OpenedConnection, connect, in_words,
    is_server_answer,
};
use super::election::{MemberData, contender, decode};
use super::queue::{
    claim_path, foreign_name, owner, refusal, server_time, stats_and_short_data, sync, token,
};
use crate::clock::Clock;
use crate::config::security::Login;
use crate::config::{Settings, Zookeeper};
use crate::znode_names::ZnodeNames;
use ::zookeeper::{Error, Stat};
use futures_util::future::join_all;
use recipes::{FencingToken, ForeignClient, Sequence, SessionId, Ticket};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// How long to wait until the server has closed the session. After that, the session is left to expire.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of attempts to connect, as long as the cause of the failure is not known: see [`connect_or_explain`].
const ATTEMPTS: u32 = 4;

/// A znode below the election's path.
#[derive(Clone, Debug)]
pub struct Znode {
    pub name: String,
    /// The session that owns the znode; `None` if the znode is not ephemeral, and so outlives every session.
    pub session: Option<SessionId>,
    pub token: FencingToken,
    pub created_at: SystemTime,
    /// The number in the name; `None` if the name is not one of a znode in the queue.
    pub sequence: Option<Sequence>,
    /// `None` if the data was not written by a member. In an election that is shared with another client, a contender's
    /// znode has only an id, and the rest is filled in.
    pub data: Option<MemberData>,
    /// The client to which the znode belongs, if the znode is a foreign contender; otherwise `None`.
    pub foreign: Option<ForeignClient>,
}

/// The znodes below the election's path.
#[derive(Clone, Debug)]
pub struct Election {
    /// All znodes except the claim: first those in the queue, in the order of their numbers, then the others, by name.
    pub znodes: Vec<Znode>,
    /// The claim, if there is one. Its data describes the leader as of the time of the claim.
    pub claim: Option<Znode>,
}

/// Reads an election. Returns `None` if its path does not exist.
///
/// # Errors
/// The reason why ZooKeeper does not answer, or refuses the request.
pub async fn read_election(settings: &Settings) -> Result<Option<Election>, String> {
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

/// Reads the election over this connection. Returns `None` if its path does not exist.
async fn read(connection: &Connection, settings: &Settings) -> Result<Option<Election>, Error> {
    let Settings { root, znodes: naming, .. } = settings;
    // Without a sync, a server that lags behind the others would show an old state.
    sync(connection, root).await?;
    let names = match connection.request(connection.client.list_children(root)).await {
        Err(Error::NoNode) => return Ok(None),
        names => names?,
    };
    let mut znodes = read_all(connection, root, naming, names).await?;
    znodes.sort_by(|a, b| {
        let members_first = a.sequence.is_none().cmp(&b.sequence.is_none());
        members_first.then(a.sequence.cmp(&b.sequence)).then_with(|| a.name.cmp(&b.name))
    });
    let claim_path = claim_path(root, naming);
    let claim = match naming.family() {
        // The claim is a child of the path, so it is among the znodes that were read.
        None => {
            let index =
                znodes.iter().position(|znode| format!("{root}/{}", znode.name) == claim_path);
            index.map(|index| znodes.remove(index))
        }
        // The election is shared with another client, whose contenders write no announcements. `contender` has given each
        // of them one that names itself. The head leads, so all znodes get the head's.
        Some(_) => {
            let head =
                znodes.iter().find(|znode| znode.sequence.is_some() && znode.session.is_some());
            let announcement =
                head.and_then(|znode| znode.data.as_ref()?.znode.announcement.clone());
            for data in znodes.iter_mut().filter_map(|znode| znode.data.as_mut()) {
                data.znode.announcement.clone_from(&announcement);
            }
            match connection.request(connection.client.get_data(&claim_path)).await {
                // There is no claim, or the members' ACL keeps us from reading it.
                Err(Error::NoNode | Error::NoAuth) => None,
                read => {
                    let (data, stat) = read?;
                    Some(znode(claim_path, &stat, None, decode(&data, naming)))
                }
            }
        }
    };
    Ok(Some(Election { znodes, claim }))
}

/// Reads the znodes with these names. [`Znode::data`] is also `None` if the data is too long for a member's, or if it is
/// protected by an ACL and the znode is not in the queue.
async fn read_all(
    connection: &Connection,
    root: &str,
    naming: &ZnodeNames,
    names: Vec<String>,
) -> Result<Vec<Znode>, Error> {
    let paths: Vec<_> = names.iter().map(|name| format!("{root}/{name}")).collect();
    let stats_and_requests = stats_and_short_data(connection, &paths).await?;
    let mut znodes = vec![];
    for (name, (stat, data_request)) in names.into_iter().zip(stats_and_requests) {
        // The znode does not exist any longer.
        let Some(stat) = stat else { continue };
        let sequence = naming.sequence(&name);
        let answer = match data_request {
            Some(request) => connection.request(request).await.map(|(data, _)| data),
            // The data is too long for a member's: list the znode without it.
            None => Ok(vec![]),
        };
        let data = match answer {
            // The znode is not in the queue: list it without its data.
            Err(Error::NoAuth) if sequence.is_none() => vec![],
            // The znode was deleted meanwhile.
            Err(Error::NoNode) => continue,
            answer => answer?,
        };
        let member = match (naming.family(), sequence) {
            // In an election that is shared with another client, our members write only their id, as that client's
            // contenders do. The name is noted because the znode's path is made from it later.
            (Some(_), Some(sequence)) => {
                naming.remember(&name);
                Some(contender(&data, Ticket { sequence, token: token(&stat) }, naming))
            }
            _ => decode(&data, naming),
        };
        // An ephemeral znode with a name such as those of another client's contenders: note the family of clients.
        let foreign = foreign_name(&name, naming).filter(|_| owner(&stat).is_some());
        let foreign = foreign.map(|(family, _)| family);
        znodes.push(Znode { foreign, ..znode(name, &stat, sequence, member) });
    }
    Ok(znodes)
}

fn znode(name: String, stat: &Stat, sequence: Option<Sequence>, data: Option<MemberData>) -> Znode {
    Znode {
        name,
        session: owner(stat),
        token: token(stat),
        created_at: server_time(stat.ctime),
        sequence,
        data,
        foreign: None,
    }
}
