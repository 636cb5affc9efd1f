//! Several members of one election: started in order, asked together.

use crate::{
    member::{Member, Setup},
    observer::{Observer, Znode},
    wait::eventually,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The leader that a member names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) id: String,
    pub(crate) znode: String,
    pub(crate) token: u64,
}

/// Starts members one after another, so that they are in the queue in the order of their names.
pub(crate) fn started_in_order<const N: usize>(setup: &Setup, ids: [&str; N]) -> [Member; N] {
    ids.map(|id| {
        let member = setup.start(id);
        eventually("a member that just started knows a leader", || ready(&member));
        member
    })
}

/// Waits until all of these members name the same leader, and only that member answers that it leads.
#[track_caller]
pub(crate) fn agreed<'a>(members: impl IntoIterator<Item = &'a Member>) -> Named {
    agreed_on(members, |_| true)
}

/// Waits as `agreed` does, and for another leader than this one.
#[track_caller]
pub(crate) fn agreed_after<'a>(
    old: &Named,
    members: impl IntoIterator<Item = &'a Member>,
) -> Named {
    agreed_on(members, |leader| leader != old)
}

/// Waits until they agree, all follow but one, and every znode in the queue announces it. Returns leader and queue.
#[track_caller]
pub(crate) fn settled<'a>(
    members: impl IntoIterator<Item = &'a Member>,
    observer: &Observer,
) -> (Named, Vec<Znode>) {
    let members: Vec<&Member> = members.into_iter().collect();
    eventually("the announcement has reached all", || look_settled(&members, observer))
}

/// Looks once whether they are settled.
pub(crate) fn look_settled(
    members: &[&Member],
    observer: &Observer,
) -> Result<(Named, Vec<Znode>), String> {
    let leader = look_agreed(members)?;
    let queue = observer.queue("/election", "leader_");
    let agrees = |znode: &Znode| znode.told_leader().as_ref() == Some(&leader.znode);
    if queue.len() != members.len() || queue[0].name != leader.znode || !queue.iter().all(agrees) {
        return Err(format!("{leader:?} in {queue:?}"));
    }
    for member in members {
        has_role(member, if member.id == leader.id { "leader" } else { "follower" })?;
    }
    Ok((leader, queue))
}

/// Returns what this member answers to `/leader`, also when it knows no leader.
pub(crate) fn leader_of(member: &Member) -> Value {
    member.get("/leader").json()
}

pub(crate) fn role_of(member: &Member) -> String {
    member.status()["role"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn has_role(member: &Member, role: &str) -> Result<(), String> {
    let status = member.status();
    if status["role"] == role { Ok(()) } else { Err(format!("{}: {status}", member.id)) }
}

pub(crate) fn ready(member: &Member) -> Result<(), String> {
    let answer = member.get("/readyz");
    if answer.status == 200 { Ok(()) } else { Err(format!("{}: {answer:?}", member.id)) }
}

impl Named {
    pub(crate) fn read(leader: &Value) -> Option<Self> {
        Some(Self {
            id: leader["id"].as_str()?.to_owned(),
            znode: leader["znode"].as_str()?.to_owned(),
            token: leader["token"].as_u64()?,
        })
    }
}

#[track_caller]
fn agreed_on<'a>(
    members: impl IntoIterator<Item = &'a Member>,
    wanted: impl Fn(&Named) -> bool,
) -> Named {
    let members: Vec<&Member> = members.into_iter().collect();
    eventually("all members name the same leader", || {
        let leader = look_agreed(&members)?;
        if wanted(&leader) { Ok(leader) } else { Err(format!("{leader:?}")) }
    })
}

fn look_agreed(members: &[&Member]) -> Result<Named, String> {
    let answers: Vec<(&str, Value)> =
        members.iter().map(|member| (&*member.id, leader_of(member))).collect();
    let named: BTreeSet<Option<Named>> =
        answers.iter().map(|(_, answer)| Named::read(&answer["leader"])).collect();
    match named.first().cloned().flatten() {
        Some(leader) if named.len() == 1 && claims_fit(&answers, &leader.id) => Ok(leader),
        _ => Err(format!("{answers:?}")),
    }
}

fn claims_fit(answers: &[(&str, Value)], leader: &str) -> bool {
    answers.iter().all(|(id, answer)| answer["is_self"] == (*id == leader))
}
