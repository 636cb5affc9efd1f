//! An election as ZooKeeper has it: the queue, the leader that each member announces, and what is wrong.
//!
//! A lease cannot be seen from outside. The member at the head leads if all members announce it, unless
//! it is frozen or cut off.

use super::table::{Cell, pairs, table};
use super::views::{BAD, GOOD, ODD, PLAIN, labels};
use super::{Form, Trouble, print, print_json};
use crate::api;
use crate::clock::Clock;
use crate::config::Settings;
use crate::zookeeper::{MemberData, Znode, inspect as read_election};
use recipes::FencingToken;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// What scripts read.
#[derive(Serialize)]
struct Report<'a> {
    /// With the connect string's chroot.
    path: &'a str,
    /// Whether the head of the queue is announced by itself and by all behind it.
    healthy: bool,
    /// For people.
    verdict: String,
    /// The id of the member at the head, if its znode has one.
    head: Option<&'a str>,
    line: Vec<Place<'a>>,
    /// Named like a member's, but of no session: members pass over them.
    impostors: Vec<&'a str>,
    /// Not named like a member's.
    strangers: Vec<&'a str>,
}

#[derive(Serialize)]
struct Place<'a> {
    znode: &'a str,
    sequence: i32,
    session: String,
    /// The fencing token with which it leads, or would.
    token: u64,
    created: String,
    age_ms: u64,
    /// Null if its data is no member's.
    id: Option<&'a str>,
    address: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    version: Option<&'a str>,
    names: Option<Named<'a>>,
}

/// The leader that a member announces.
#[derive(Serialize)]
struct Named<'a> {
    id: &'a str,
    token: u64,
    is: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Standing {
    Head,
    /// In the queue, but not at its head.
    Behind,
    /// No longer in the queue.
    Gone,
}

pub(super) async fn inspect(
    settings: &Settings,
    patience: Duration,
    clock: Clock,
    form: Form,
) -> Result<(), Trouble> {
    let unanswered = |why: &str| {
        let hosts = &settings.zookeeper.hosts;
        Trouble::Unanswered(format!("ZooKeeper at {hosts} gives no answer: {why}"))
    };
    let znodes = match timeout(patience, read_election(settings)).await {
        Ok(read) => read.map_err(|why| unanswered(&why))?,
        Err(_) => return Err(unanswered(&format!("not within {patience:?}"))),
    };
    let report = Report::of(&settings.root, znodes.as_deref(), clock.date());
    match form {
        Form::People => print(&report.shown())?,
        Form::Scripts => print_json(&api::json(&report))?,
    }
    // The verdict says it already; it is repeated for readers of the complaints alone.
    if report.healthy { Ok(()) } else { Err(Trouble::No(report.verdict)) }
}

impl<'a> Report<'a> {
    fn of(path: &'a str, znodes: Option<&'a [Znode]>, now: SystemTime) -> Self {
        let exists = znodes.is_some();
        let znodes = znodes.unwrap_or_default();
        let stands = |znode: &&Znode| znode.sequence.is_some() && znode.session.is_some();
        let tokens: Vec<_> = znodes.iter().filter(stands).map(|znode| znode.token).collect();
        let line: Vec<_> =
            znodes.iter().filter_map(|znode| Place::of(znode, &tokens, now)).collect();
        let named = |wanted: fn(&Znode) -> bool| {
            znodes.iter().filter(|znode| wanted(znode)).map(|znode| &*znode.name).collect()
        };
        let (healthy, verdict) = judged(exists, &line);
        Self {
            path,
            healthy,
            verdict,
            head: line.first().and_then(|place| place.id),
            impostors: named(|znode| znode.sequence.is_some() && znode.session.is_none()),
            strangers: named(|znode| znode.sequence.is_none()),
            line,
        }
    }

    fn shown(&self) -> String {
        let verdict = Cell::new(&self.verdict).style(if self.healthy { GOOD } else { BAD });
        let mut text = pairs(vec![("election", Cell::new(self.path)), ("verdict", verdict)]);
        if !self.line.is_empty() {
            let heading =
                ["ID", "NAMES", "ZNODE", "SESSION", "TOKEN", "AGE", "ADDRESS", "VERSION", "LABELS"];
            text.push('\n');
            text += &table(heading, self.line.iter().map(Place::row).collect());
        }
        let impostors =
            self.impostors.iter().map(|name| (*name, "of no session, passed over: delete it", BAD));
        let strangers = self.strangers.iter().map(|name| (*name, "a stranger", ODD));
        let others: Vec<_> = impostors
            .chain(strangers)
            .map(|(name, is, style)| [Cell::new(name), Cell::new(is).style(style)])
            .collect();
        if !others.is_empty() {
            text.push('\n');
            text += &table(["NO MEMBER", "IS"], others);
        }
        text
    }
}

fn judged(exists: bool, line: &[Place<'_>]) -> (bool, String) {
    let Some(head) = line.first() else {
        let why = if exists { "nobody stands in the line" } else { "there is no such path" };
        return (false, why.into());
    };
    let Some(leader) = head.id else {
        return (false, format!("{} stands at the head and does not say who it is", head.znode));
    };
    let is_named = |place: &&Place<'_>| place.is_of_one_mind();
    let by = line.iter().filter(is_named).count();
    let all = line.len();
    match by {
        _ if !head.is_of_one_mind() => {
            (false, format!("{leader} stands at the head and does not say that it leads"))
        }
        by if by == all => (true, format!("{leader} leads, named by all {all}")),
        by => (false, format!("{leader} leads, named by {by} of {all}")),
    }
}

impl<'a> Place<'a> {
    fn of(znode: &'a Znode, line: &[FencingToken], now: SystemTime) -> Option<Self> {
        let (sequence, session) = (znode.sequence?, znode.session?);
        let data = znode.data.as_ref();
        let profile = data.map(|data| &data.profile);
        let age = now.duration_since(znode.created_at).unwrap_or_default();
        Some(Self {
            znode: &znode.name,
            sequence: sequence.number(),
            session: session.to_string(),
            token: znode.token.0,
            created: api::date(znode.created_at),
            age_ms: age.as_millis().try_into().unwrap_or(u64::MAX),
            id: profile.map(|profile| profile.id.as_str()),
            address: profile.and_then(|profile| profile.address.as_deref()),
            labels: profile
                .into_iter()
                .flat_map(|p| &p.labels)
                .map(|(k, v)| (&**k, &**v))
                .collect(),
            version: data.and_then(|data| data.version.as_deref()),
            names: data.and_then(|data| Named::by(data, line)),
        })
    }

    fn is_of_one_mind(&self) -> bool {
        self.names.as_ref().is_some_and(|named| named.is == Standing::Head)
    }

    fn row(&self) -> [Cell; 9] {
        let named = match &self.names {
            Some(Named { id, is: Standing::Head, .. }) => Cell::new(id),
            Some(Named { id, is: Standing::Behind, .. }) => {
                Cell::new(&format!("{id} (not the head)")).style(BAD)
            }
            Some(Named { id, is: Standing::Gone, .. }) => {
                Cell::new(&format!("{id} (gone)")).style(BAD)
            }
            None => Cell::new("nobody").style(ODD),
        };
        let leads =
            self.is_of_one_mind() && self.names.as_ref().is_some_and(|n| n.token == self.token);
        let id = match self.id {
            Some(id) => Cell::new(id).style(if leads { GOOD } else { PLAIN }),
            None => Cell::new("(a stranger)").style(ODD),
        };
        let labels: BTreeMap<String, String> =
            self.labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let age = Duration::from_secs(self.age_ms / 1000);
        [
            id,
            named,
            Cell::new(self.znode),
            Cell::new(&self.session),
            Cell::new(&self.token.to_string()),
            Cell::new(&humantime::format_duration(age).to_string()),
            Cell::of(self.address),
            Cell::of(self.version),
            Cell::new(&self::labels(&labels)),
        ]
    }
}

impl<'a> Named<'a> {
    fn by(data: &'a MemberData, line: &[FencingToken]) -> Option<Self> {
        let named = data.announcement.as_ref()?;
        let token = named.ticket.token;
        let is = match line.iter().position(|stands| *stands == token) {
            Some(0) => Standing::Head,
            Some(_) => Standing::Behind,
            None => Standing::Gone,
        };
        Some(Self { id: named.leader.id.as_str(), token: token.0, is })
    }
}
