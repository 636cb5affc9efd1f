//! One look at an election from outside: nothing is joined, and nothing written.

use super::acl;
use super::connection::{Connection, Failure, Wire, connect, is_verdict};
use super::diagnosis::diagnose;
use super::passport::Passport;
use super::wire::{self, Says};
use crate::config::security::{Login, Scheme};
use crate::config::{Settings, Zookeeper};
use recipes::election::{FencingToken, Sequence, SessionId};
use std::pin::Pin;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use zookeeper::{Error, Stat};

/// For the servers to hear that our session is not needed any more.
const TO_LEAVE: Duration = Duration::from_secs(1);

/// Where nothing is wrong that can be seen.
const ATTEMPTS: u32 = 4;

/// A znode below the election's path.
#[derive(Clone, Debug)]
pub struct Znode {
    pub name: String,
    /// Whose znode it is; `None` if it belongs to no session, and so outlives every one.
    pub session: Option<SessionId>,
    pub token: FencingToken,
    pub created_at: SystemTime,
    /// `None` if its name is no member's.
    pub sequence: Option<Sequence>,
    /// `None` if its data is no member's.
    pub says: Option<Says>,
}

/// Reads all there is below the election's path, the members first and in order. `None` if there is
/// no such path.
///
/// # Errors
/// Why ZooKeeper does not answer.
pub async fn survey(settings: &Settings) -> Result<Option<Vec<Znode>>, String> {
    let connection = let_in(&settings.zookeeper).await?;
    let read = match read(&connection.wire, settings).await {
        Ok(read) => Ok(read),
        Err(error) if is_verdict(&error) => {
            let (acl, root) = (settings.zookeeper.security.acl, &settings.root);
            Err(acl::refusal(&connection.wire, acl, root, &error).await)
        }
        Err(error) => Err(error.to_string()),
    };
    // The last client is dropped: the library closes the session, and tells.
    drop(connection.wire);
    let _left_to_expire = timeout(TO_LEAVE, connection.ended).await;
    read
}

/// Whoever asks once is told what the servers say, not what the library makes of it. Whom they show
/// the door may not hear why, as it is shut at once, and asks again.
async fn let_in(settings: &Zookeeper) -> Result<Connection, String> {
    let passport = Passport::of(settings);
    let mut vague = String::new();
    for _ in 0..ATTEMPTS {
        vague = match connect(settings, &passport, None).await {
            Ok(connection) => return Ok(connection),
            Err(Failure::Unreachable(why)) => why,
            Err(failure) => return Err(failure.told()),
        };
        let patience = settings.session_timeout / 4;
        if let Some(cause) = diagnose(settings, passport.last(), patience).await {
            return Err(cause);
        }
    }
    Err(match settings.security.login {
        Some(Login { scheme: Scheme::Sasl, .. }) => {
            format!("{vague}, though the servers run: perhaps {}", passport.refused())
        }
        Some(Login { scheme: Scheme::Digest, .. }) | None => vague,
    })
}

type Asked = Pin<Box<dyn Future<Output = Result<(Vec<u8>, Stat), Error>> + Send>>;

async fn read(wire: &Wire, settings: &Settings) -> Result<Option<Vec<Znode>>, Error> {
    let Settings { root, prefix, .. } = settings;
    // What is read behind it is as new as what the servers' leader knew.
    match wire.ask(wire.client.sync(root)).await {
        Err(error) if !is_verdict(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let names = match wire.ask(wire.client.list_children(root)).await {
        Err(Error::NoNode) => return Ok(None),
        names => names?,
    };
    // All at once: each request leaves with the call.
    let asked: Vec<(String, Option<Sequence>, Asked)> = names
        .into_iter()
        .map(|name| {
            let path = format!("{root}/{name}");
            let sequence = Sequence::of_name(&name, prefix);
            let asked: Asked = match sequence {
                Some(_) => Box::pin(wire.client.get_data(&path)),
                // A stranger may have much to say, and nobody wants to hear it.
                None => {
                    let stat = wire.client.check_stat(&path);
                    Box::pin(async { Ok((vec![], stat.await?.ok_or(Error::NoNode)?)) })
                }
            };
            (name, sequence, asked)
        })
        .collect();
    let mut znodes = vec![];
    for (name, sequence, read) in asked {
        let read = wire.ask(read).await;
        let (data, stat) = match read {
            // It has gone in the meantime.
            Err(Error::NoNode) => continue,
            read => read?,
        };
        let says = wire::decode(&data, prefix);
        znodes.push(znode(name, &stat, sequence, says));
    }
    znodes.sort_by(|a, b| {
        let place = |znode: &Znode| (znode.sequence.is_none(), znode.sequence);
        place(a).cmp(&place(b)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(Some(znodes))
}

fn znode(name: String, stat: &Stat, sequence: Option<Sequence>, says: Option<Says>) -> Znode {
    let since_epoch = Duration::from_millis(stat.ctime.try_into().unwrap_or(0));
    Znode {
        name,
        session: super::session::owner(stat),
        token: FencingToken(stat.czxid.cast_unsigned()),
        created_at: SystemTime::UNIX_EPOCH + since_epoch,
        sequence,
        says,
    }
}
