//! Runs a script against a server, and writes down what each session hears.

use crate::act::{Act, Request, SESSIONS, Step};
use crate::client::{
    ADD_WATCH, AUTH, Answer, CHECK, CLOSE, CREATE, CREATE_CONTAINER, CREATE_TTL, CREATE2, Client,
    DELETE, EXISTS, GET_ACL, GET_ALL_CHILDREN_NUMBER, GET_CHILDREN, GET_CHILDREN2, GET_DATA,
    GET_EPHEMERALS, MULTI, MULTI_READ, PING, SET_ACL, SET_DATA, SYNC, UNKNOWN, WHO_AM_I, ask_word,
};
use crate::wire::{Body, Rest, Stat};
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

/// What one session hears, line by line.
pub(crate) type Lines = Vec<String>;

/// What makes the numbers of two servers alike.
struct Names {
    /// The zxid at which the script begins.
    base: i64,
    sessions: HashMap<i64, String>,
}

/// Runs a script below a path that is not there yet, and says what each session has heard.
pub(crate) async fn transcript(
    address: SocketAddr,
    root: &str,
    script: &[Step],
) -> io::Result<Vec<Lines>> {
    let mut names = Names { base: 0, sessions: HashMap::new() };
    let mut clients = Vec::new();
    for number in 0..SESSIONS {
        let client = Client::connect(address).await?;
        names.sessions.insert(client.session, format!("{number}"));
        clients.push(client);
    }
    names.base = clients[0].create(root, 0).await?.zxid;
    let before = counts(address).await?;
    let mut lines: Vec<Lines> = vec![Vec::new(); SESSIONS];
    for (index, step) in script.iter().enumerate() {
        let client = &mut clients[step.session];
        let lines = &mut lines[step.session];
        match &step.act {
            Act::Ask(requests) => match ask(client, root, requests, &names).await {
                Ok(heard) => lines.extend(heard),
                Err(error) => lines.push(resume_closed(client, address, error).await?),
            },
            Act::Reconnect => {
                lines.extend(rest(client, address).await?);
                *client = client.resume(address).await?;
                lines.push(format!("resumed {}", names.session(client.session)));
            }
            Act::Guess => {
                lines.extend(rest(client, address).await?);
                let guessed = Client::open(address, client.session, &[1; 16], 10_000, 0).await?;
                lines.push(format!("guessed {}", names.session(guessed.session)));
                *client = client.resume(address).await?;
            }
            Act::Count => {
                let [znodes, ephemerals, bytes] = counts(address).await?;
                let [znodes_before, ephemerals_before, bytes_before] = before;
                lines.push(format!(
                    "{} znodes more, {} ephemeral, {} bytes",
                    znodes - znodes_before,
                    ephemerals - ephemerals_before,
                    bytes - bytes_before
                ));
            }
            Act::Close => {
                lines.extend(rest(client, address).await?);
                let (_, answer) = client.ask(CLOSE, &Body::default()).await?;
                lines.push(names.answer(CLOSE, &answer));
                *client = Client::connect(address).await?;
                names.sessions.insert(client.session, format!("{}/{index}", step.session));
            }
        }
    }
    for (client, lines) in clients.iter_mut().zip(&mut lines) {
        lines.extend(rest(client, address).await?);
        client.ask(CLOSE, &Body::default()).await?;
    }
    Ok(lines)
}

/// Sends requests without waiting in between, and writes down all that is heard up to the last one's answer.
async fn ask(
    client: &mut Client,
    root: &str,
    requests: &[Request],
    names: &Names,
) -> io::Result<Lines> {
    let mut kinds = Vec::new();
    for request in requests {
        let (kind, body) = request.encode(root, client.last_zxid);
        kinds.push((kind, client.send(kind, &body).await?));
    }
    let mut lines = Vec::new();
    for (kind, xid) in kinds {
        let answer = loop {
            match client.receive().await? {
                Ok((kind, path)) => lines.push(format!("event {kind} {path}")),
                Err(answer) => break answer,
            }
        };
        assert_eq!(answer.xid, xid, "answers come in order");
        lines.push(names.answer(kind, &answer));
        // The real server may take another request before it closes the connection, so there must be none.
        if kind == UNKNOWN || kind == AUTH && answer.error != 0 {
            client.closed().await;
        }
    }
    Ok(lines)
}

/// The notifications that are on their way: with the connection they would be lost, on one server and perhaps not on the
/// other.
async fn rest(client: &mut Client, address: SocketAddr) -> io::Result<Lines> {
    match client.ask(PING, &Body::default()).await {
        Ok((events, _)) => {
            Ok(events.iter().map(|(kind, path)| format!("event {kind} {path}")).collect())
        }
        Err(error) => Ok(vec![resume_closed(client, address, error).await?]),
    }
}

/// Takes a session over whose connection the server has closed, and says so.
async fn resume_closed(
    client: &mut Client,
    address: SocketAddr,
    error: io::Error,
) -> io::Result<String> {
    if error.kind() == io::ErrorKind::TimedOut {
        return Err(error);
    }
    *client = client.resume(address).await?;
    Ok("closed".to_owned())
}

/// How many znodes, ephemeral ones and bytes the server has: what does not depend on how soon it notices that a
/// connection is closed.
async fn counts(address: SocketAddr) -> io::Result<[i64; 3]> {
    let text = ask_word(address, "mntr").await?;
    let count = |name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    Ok(["zk_znode_count", "zk_ephemerals_count", "zk_approximate_data_size"].map(count))
}

impl Names {
    fn answer(&self, kind: i32, answer: &Answer) -> String {
        // Credentials are answered with 0.
        let zxid = self.zxid(answer.zxid);
        let mut line = format!("{kind} at {zxid}: {}", answer.error);
        let mut rest = Rest(&answer.body);
        // What a multi has done before it fails as a whole is shown all the same.
        if answer.error == 0 || matches!(kind, MULTI | MULTI_READ) && !rest.is_empty() {
            self.body(kind, &mut rest, &mut line);
        }
        if !rest.is_empty() {
            write!(line, " and {:?}", rest.0).unwrap();
        }
        line
    }

    fn body(&self, kind: i32, rest: &mut Rest<'_>, line: &mut String) {
        let written = match kind {
            CREATE => write!(line, " {}", rest.string()),
            SYNC => write!(line, " {:?}", rest.buffer().map(String::from_utf8_lossy)),
            CREATE2 | CREATE_CONTAINER | CREATE_TTL => {
                write!(line, " {} {}", rest.string(), self.stat(rest.stat()))
            }
            EXISTS | SET_DATA | SET_ACL => write!(line, " {}", self.stat(rest.stat())),
            GET_DATA => write!(line, " {:?} {}", rest.buffer(), self.stat(rest.stat())),
            GET_CHILDREN | GET_EPHEMERALS => write!(line, " {:?}", rest.strings()),
            GET_CHILDREN2 => write!(line, " {:?} {}", rest.strings(), self.stat(rest.stat())),
            GET_ACL => {
                let entries: Vec<_> =
                    (0..rest.int()).map(|_| (rest.int(), rest.string(), rest.string())).collect();
                write!(line, " {entries:?} {}", self.stat(rest.stat()))
            }
            WHO_AM_I => {
                let ids: Vec<_> = (0..rest.int()).map(|_| (rest.string(), rest.string())).collect();
                write!(line, " {ids:?}")
            }
            ADD_WATCH | GET_ALL_CHILDREN_NUMBER => write!(line, " {}", rest.int()),
            MULTI | MULTI_READ => return self.multi(rest, line),
            _ => Ok(()),
        };
        written.unwrap();
    }

    fn multi(&self, rest: &mut Rest<'_>, line: &mut String) {
        loop {
            let (kind, done, error) = (rest.int(), rest.bool(), rest.int());
            if done {
                return;
            }
            write!(line, " [{kind} {error}").unwrap();
            match kind {
                -1 => assert_eq!(rest.int(), error),
                DELETE | CHECK => {}
                _ => self.body(kind, rest, line),
            }
            line.push(']');
        }
    }

    fn stat(&self, stat: Stat) -> String {
        format!(
            "(c {} m {} p {} v {} cv {} av {} of {} with {} and {})",
            self.zxid(stat.czxid),
            self.zxid(stat.mzxid),
            self.zxid(stat.pzxid),
            stat.version,
            stat.cversion,
            stat.aversion,
            self.session(stat.ephemeral_owner),
            stat.data_length,
            stat.children,
        )
    }

    /// A zxid as seen from the beginning of the script; 0 and below are none.
    fn zxid(&self, zxid: i64) -> i64 {
        if zxid <= 0 { zxid } else { zxid - self.base }
    }

    fn session(&self, session: i64) -> &str {
        match session {
            0 => "none",
            _ => self.sessions.get(&session).map_or("unknown", String::as_str),
        }
    }
}
