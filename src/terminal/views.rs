//! Shows a sidecar's answers to people.

use super::table::{Cell, pairs, table};
use super::text::visible;
use crate::api::{
    BarrierNames, BarrierRole, BarrierState, ConfigNames, Done, History, Hook, HookRun, Leader,
    LeaderEvent, LeaderState, LockMode, LockNames, LockPlace, LockQueue, LockState, Members,
    OwnBarrier, OwnLock, OwnProblem, QueueMember, Restart, Role, Standby, Status, SyncedFile,
    SyncedFileStatus, Transferred,
};
use anstyle::{AnsiColor, Style};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// An answer's body that can be shown to people.
pub(super) trait HumanView: DeserializeOwned {
    /// Returns the text to print; with `is_wide`, all columns of a table.
    fn view(&self, is_wide: bool) -> String;
}

pub(super) const GOOD: Style = colour(AnsiColor::Green);
pub(super) const ODD: Style = colour(AnsiColor::Yellow);
pub(super) const BAD: Style = colour(AnsiColor::Red);
pub(super) const PLAIN: Style = Style::new();

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

impl HumanView for LeaderState {
    fn view(&self, _: bool) -> String {
        let Some(leader) = &self.leader else { return "no member leads\n".into() };
        let mut rows = vec![
            ("leader", Cell::new(&leader.id).style(GOOD)),
            ("address", Cell::of(leader.address.as_deref())),
            ("labels", Cell::new(&labels(&leader.labels))),
            ("znode", Cell::new(&leader.znode)),
            ("token", Cell::new(&leader.token.to_string())),
        ];
        rows.extend(lease(self.is_self, self.valid_for_ms));
        pairs(rows)
    }
}

impl HumanView for Status {
    fn view(&self, _: bool) -> String {
        let Self { id, role, path, session, .. } = self;
        let leads = *role == Role::Leader;
        let stands = if leads || *role == Role::Follower { GOOD } else { ODD };
        let mut rows = vec![
            ("id", Cell::new(id)),
            ("role", Cell::new(role.name()).style(stands)),
            ("election", Cell::new(path)),
            ("znode", Cell::of(self.znode.as_deref())),
            ("predecessor", Cell::of(self.predecessor.as_deref())),
        ];
        rows.extend(self.standby.as_ref().map(|standby| match standby.ready {
            true => ("standby", Cell::new("yes, ready to lead at once")),
            false => ("standby", Cell::new("yes, but it has to claim first").style(ODD)),
        }));
        rows.extend([
            ("leader", Cell::of(self.leader.as_ref().map(|leader| &*leader.id))),
            ("token", Cell::new(&token(self.leader.as_ref()))),
        ]);
        rows.extend(lease(leads, self.valid_for_ms));
        let timeout = session.timeout_ms.map(|ms| format!(", times out after {}", span(ms)));
        let session_id = session.id.as_deref().unwrap_or("none");
        rows.push(("session", Cell::new(&format!("{session_id}{}", timeout.unwrap_or_default()))));
        rows.push(match session.connected {
            true => ("connected", Cell::new("yes")),
            false => ("connected", Cell::new("no").style(BAD)),
        });
        if let Some(restart) = &session.restart {
            let Restart { down_for_ms, restarts } = restart;
            let resumed =
                format!("after {} at most, {restarts} in this session", span(*down_for_ms));
            rows.push(("restarted", Cell::new(&resumed)));
        }
        if let Some(problem) = &session.problem
            && !self.problems.iter().any(|own| own.problem.contains(problem))
        {
            rows.push(("problem", Cell::new(problem).style(BAD)));
        }
        for OwnProblem { problem, since, .. } in &self.problems {
            let problem = format!("{problem} (since {since})");
            rows.push(("problem", Cell::new(&problem).style(BAD)));
        }
        rows.extend(self.application.as_ref().map(|application| {
            let cell = match (application.healthy, &application.failure) {
                (true, None) => Cell::new("healthy"),
                (true, Some(failure)) => Cell::new(&format!("healthy: {failure}")),
                (false, _) => Cell::new("not healthy").style(BAD),
            };
            ("application", cell)
        }));
        for Hook { hook, running, last, .. } in &self.hooks {
            let (does, style) = match (running, last) {
                (Some(change), _) => (format!("runs: {change}"), PLAIN),
                (None, None) => ("has not run yet".into(), PLAIN),
                (None, Some(HookRun { change, failure: Some(failure), .. })) => {
                    (format!("{change}: {failure}"), BAD)
                }
                (None, Some(HookRun { change, took_ms, failure: None, .. })) => {
                    (format!("{change}: done in {}", span(*took_ms)), PLAIN)
                }
            };
            rows.push(("hook", Cell::new(&format!("{hook}: {does}")).style(style)));
        }
        for OwnLock { lock, state, token, .. } in &self.locks {
            let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
            let (is, style) = match state {
                LockState::Held => ("held", GOOD),
                LockState::Waiting => ("waited for", PLAIN),
                LockState::Unknown => ("asked for", PLAIN),
            };
            rows.push(("lock", Cell::new(&format!("{lock}: {is}{token}")).style(style)));
        }
        for OwnBarrier { barrier, size, state, token, .. } in &self.barriers {
            let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
            let (is, style) = match state {
                BarrierRole::Inside => ("inside", GOOD),
                BarrierRole::Waiting => ("waited for", PLAIN),
                BarrierRole::Leaving => ("left, others have not", PLAIN),
                BarrierRole::Unknown => ("asked for", PLAIN),
            };
            let shown = format!("{barrier}, of {size}: {is}{token}");
            rows.push(("barrier", Cell::new(&shown).style(style)));
        }
        for SyncedFile { name, file, version, state, problem } in &self.config {
            let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
            let (is, style) = match state {
                SyncedFileStatus::Current => ("current", GOOD),
                SyncedFileStatus::Away => ("as it was: ZooKeeper is away", BAD),
                SyncedFileStatus::Absent => ("unchanged: the value does not exist", BAD),
                SyncedFileStatus::Unwritten => ("not written", BAD),
                SyncedFileStatus::Unknown => ("kept", PLAIN),
            };
            let why = problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
            let told = format!("{name} in {file}: {is}{version}{why}");
            rows.push(("config", Cell::new(&told).style(style)));
        }
        rows.push(("version", Cell::new(&self.version)));
        rows.push(("up for", Cell::new(&span(self.uptime_ms / 1000 * 1000))));
        pairs(rows)
    }
}

impl HumanView for Members {
    fn view(&self, is_wide: bool) -> String {
        let leader = self.members.iter().find(|member| member.is_leader);
        let heading = [
            "ID", "IS", "ZNODE", "NAMES", "ADDRESS", "VERSION", "WRONG", "PRIORITY", "SINCE",
            "LABELS",
        ];
        let rows = self.members.iter().map(|member| {
            let QueueMember { is_leader, is_self, .. } = *member;
            let style = if is_leader { GOOD } else { PLAIN };
            let agrees = leader.is_some_and(|leader| member.names == leader.id);
            vec![
                Cell::of(member.id.as_deref()).style(style),
                Cell::new(&marks(is_leader, member.standby.as_ref(), is_self)).style(style),
                Cell::new(&member.znode),
                Cell::of(member.names.as_deref()).style(if agrees { PLAIN } else { ODD }),
                Cell::of(member.address.as_deref()),
                Cell::of(member.version.as_deref()),
                condition(member.unhealthy, member.hooks_failing),
                Cell::new(&member.priority.to_string()),
                Cell::of(member.since.as_deref()),
                Cell::new(&labels(&member.labels)),
            ]
        });
        let columns = if is_wide { heading.len() } else { 6 };
        let queue = table(&heading[..columns], rows);
        if self.problems.is_empty() {
            return queue;
        }
        let problems = self.problems.iter();
        let problems = pairs(problems.map(|problem| ("problem", Cell::new(problem).style(BAD))));
        format!("{problems}\n{queue}")
    }
}

/// Describes a member's problems, as reported by the member.
pub(super) fn condition(unhealthy: bool, hooks_failing: u32) -> Cell {
    let hooks = match hooks_failing {
        0 => None,
        1 => Some("1 hook fails".to_owned()),
        failing => Some(format!("{failing} hooks fail")),
    };
    let health = unhealthy.then(|| "not healthy".to_owned());
    let words: Vec<_> = health.into_iter().chain(hooks).collect();
    Cell::new(&words.join(", ")).style(BAD)
}

impl HumanView for History {
    fn view(&self, _: bool) -> String {
        let rows = self.terms.iter().map(|term| {
            let lasts = term.to.is_none();
            vec![
                Cell::new(&term.from),
                Cell::new(term.to.as_deref().unwrap_or("now")),
                Cell::new(&term.id).style(if lasts { GOOD } else { PLAIN }),
                Cell::new(if term.is_self { "self" } else { "" }),
                Cell::new(&term.token.to_string()),
                Cell::of(term.ended.as_deref()),
            ]
        });
        table(&["FROM", "TO", "ID", "IS", "TOKEN", "ENDED"], rows)
    }
}

impl HumanView for LockNames {
    fn view(&self, _: bool) -> String {
        names("LOCK", &self.locks)
    }
}

impl HumanView for ConfigNames {
    fn view(&self, _: bool) -> String {
        names("NAME", &self.names)
    }
}

impl HumanView for BarrierNames {
    fn view(&self, _: bool) -> String {
        names("BARRIER", &self.barriers)
    }
}

fn names(heading: &str, names: &[String]) -> String {
    table(&[heading], names.iter().map(|name| vec![Cell::new(name)]))
}

impl HumanView for LockQueue {
    fn view(&self, _: bool) -> String {
        let holders = self.holders.iter().map(|place| (place, true));
        let places = holders.chain(self.waiting.iter().map(|place| (place, false)));
        let rows = places.map(|(place, holds)| {
            let style = if holds { GOOD } else { PLAIN };
            vec![
                Cell::of(place.member.as_deref()).style(style),
                Cell::of(place.process.as_deref()),
                Cell::new(if holds { "holds" } else { "waits" }).style(style),
                Cell::new(&mode(place)),
                Cell::new(&place.token.to_string()),
                Cell::new(&place.since),
                Cell::new(&place.znode),
            ]
        });
        table(&["MEMBER", "PROCESS", "IS", "MODE", "TOKEN", "ASKED", "ZNODE"], rows)
    }
}

impl HumanView for BarrierState {
    fn view(&self, _: bool) -> String {
        let rows = self.members.iter().map(|present| {
            let style = if present.inside { GOOD } else { PLAIN };
            vec![
                Cell::of(present.member.as_deref()).style(style),
                Cell::of(present.process.as_deref()),
                Cell::new(if present.inside { "inside" } else { "waits" }).style(style),
                Cell::new(&present.token.to_string()),
                Cell::new(&present.since),
                Cell::new(&present.znode),
            ]
        });
        table(&["MEMBER", "PROCESS", "IS", "TOKEN", "ASKED", "ZNODE"], rows)
    }
}

/// Returns the mode as a single word without spaces, for scripts that split at spaces.
fn mode(place: &LockPlace) -> String {
    match (place.mode, place.slots) {
        (LockMode::Exclusive, _) => "exclusive".into(),
        (LockMode::Shared, _) => "shared".into(),
        (LockMode::Slots, Some(slots)) => format!("slots={slots}"),
        (LockMode::Slots, None) => "slots".into(),
        (LockMode::Unknown, _) => "unknown".into(),
    }
}

/// Returns one line for an event.
pub(super) fn event(name: &str, event: &LeaderEvent) -> String {
    let LeaderEvent { state, at, cause, .. } = event;
    let style = match name {
        "became-leader" => GOOD,
        "lost-leadership" | "leader-lost" => ODD,
        _ => PLAIN,
    };
    let what = match &state.leader {
        Some(leader) => sentence(leader, state.is_self),
        None => "no leader is known".into(),
    };
    let cause = cause.as_ref().map(|cause| format!(": {}", visible(cause))).unwrap_or_default();
    let at = visible(at);
    let name = visible(name);
    format!("{at}  {style}{name:<15}{style:#}  {what}{cause}\n")
}

/// Describes the leader in a sentence.
pub(super) fn sentence(leader: &Leader, is_self: bool) -> String {
    let at = leader.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
    let own = if is_self { ", this member," } else { "" };
    visible(&format!("{}{own} leads{at} with token {}", leader.id, leader.token))
}

impl HumanView for Done {
    fn view(&self, _: bool) -> String {
        let place = match (&self.znode, &self.predecessor) {
            _ if self.done == "begun to leave" => "its process ends".to_owned(),
            _ if self.done == "resumed" && self.znode.is_none() => "it joins the queue".to_owned(),
            (None, _) if self.done == "resigned" => {
                "it has no new place in the queue yet".to_owned()
            }
            (None, _) => "it stays out of the queue until `bellwether resume`".to_owned(),
            (Some(znode), None) => format!("it is {} as {znode}", with_article(self.role)),
            (Some(znode), Some(predecessor)) => {
                format!("it is {} as {znode}, behind {predecessor}", with_article(self.role))
            }
        };
        visible(&format!("this member has {}: {place}", self.done)) + "\n"
    }
}

impl HumanView for Transferred {
    fn view(&self, _: bool) -> String {
        let leads = sentence(&self.leader, false);
        format!("{leads}; there was no leader for {} at most\n", span(self.leaderless_ms))
    }
}

/// Returns the name of the role with its article.
fn with_article(role: Role) -> String {
    match role {
        Role::Leader => "the leader".into(),
        Role::Candidate | Role::Follower | Role::Absent | Role::Unknown => {
            format!("a {}", role.name())
        }
    }
}

/// Describes a member's role in a single word without spaces, for scripts that split at spaces.
pub(super) fn marks(is_leader: bool, standby: Option<&Standby>, is_self: bool) -> String {
    // A standby may lead already while its predecessor's znode still exists. Mark it only as the leader.
    let standby = standby.filter(|_| !is_leader).map(|standby| match standby.ready {
        true => "standby",
        false => "standby-not-ready",
    });
    let marks = [is_leader.then_some("leader"), standby, is_self.then_some("self")];
    marks.into_iter().flatten().collect::<Vec<_>>().join(",")
}

/// Returns a row with the remaining lease, if this member leads.
fn lease(is_self: bool, valid_for_ms: Option<u64>) -> Option<(&'static str, Cell)> {
    // Only the leader knows its lease.
    is_self.then(|| ("valid for", Cell::new(&valid_for_ms.map(span).unwrap_or_default())))
}

fn token(leader: Option<&Leader>) -> String {
    leader.map(|leader| leader.token.to_string()).unwrap_or_default()
}

pub(super) fn labels(labels: &BTreeMap<impl Display, impl Display>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn span(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use serde_json::{Value, json};

    #[test]
    fn only_the_leader_shows_its_lease() {
        let view = |is_self, valid_for_ms: Value| {
            shown::<LeaderState>(&json!({
                "leader": {"id": "a", "address": null, "labels": {"k": "\u{1b}[5m"},
                           "znode": "leader_0000000000", "token": 4},
                "is_self": is_self, "valid_for_ms": valid_for_ms, "index": 1, "new": 1,
            }))
        };
        let text = "leader     a\n\
                    address    -\n\
                    labels     k=\\u{1b}[5m\n\
                    znode      leader_0000000000\n\
                    token      4\n\
                    valid for  2s 623ms\n";
        assert_eq!(view(true, json!(2623)), text);
        assert!(!view(false, Value::Null).contains("valid for"));
    }

    #[test]
    fn the_status_has_each_problem_once() {
        let problem =
            |kind: &str| json!({"kind": kind, "problem": format!("<{kind}>"), "since": "T"});
        let kinds = ["paused", "unhealthy", "foreign", "no-leader", "duplicate-id", "hook", "new"];
        let problems: Vec<_> = kinds.iter().map(|kind| problem(kind)).collect();
        let mut status = json!({
            "id": "a", "role": "absent", "election": "/election", "znode": null, "sequence": null,
            "token": null, "predecessor": null, "standby": null, "leader": null, "valid_for_ms": null,
            "priority": 50, "paused": true, "index": 1, "version": "0", "uptime_ms": 1,
            "session": {"id": null, "timeout_ms": null, "connected": false, "server": null,
                        "problem": "<zookeeper>"},
            "problems": problems,
            "application": {"healthy": false, "failure": "the answer is 500"},
            "hooks": [{"hook": "run notify", "on": [], "runs": 2, "failures": 1, "cut_short": 0, "running": null,
                       "last": {"change": "became-leader", "at": "T", "took_ms": 1, "failure": "exit code 7"}}],
            "clock": {"boot_id": null, "time_namespace": null},
        });
        let told = shown::<Status>(&status);
        for kind in kinds {
            assert_eq!(told.matches(&format!("<{kind}> (since T)")).count(), 1, "{kind} in {told}");
        }
        assert_eq!(told.matches("<zookeeper>").count(), 1, "{told}");
        assert!(told.contains("application  not healthy\n"), "{told}");
        assert!(told.contains("run notify: became-leader: exit code 7\n"), "{told}");
        status["session"]["problem"] = json!("<duplicate-id>");
        let told = shown::<Status>(&status);
        assert_eq!(told.matches("<duplicate-id>").count(), 1, "{told}");
    }

    #[test]
    fn a_command_is_confirmed_in_one_sentence() {
        let done = |word: &str, role: &str, znode: Value, predecessor: Value| {
            let body =
                json!({"done": word, "role": role, "znode": znode, "predecessor": predecessor});
            shown::<Done>(&body)
        };
        let null = Value::Null;
        for (done, expected) in [
            (
                done("resigned", "follower", json!("n_2"), json!("n_1")),
                "resigned: it is a follower as n_2, behind n_1",
            ),
            (
                done("resigned", "absent", null.clone(), null.clone()),
                "resigned: it has no new place in the queue yet",
            ),
            (
                done("paused", "absent", null.clone(), null.clone()),
                "paused: it stays out of the queue until `bellwether resume`",
            ),
            (done("resumed", "absent", null.clone(), null.clone()), "resumed: it joins the queue"),
            (done("resumed", "leader", json!("n_1"), null), "resumed: it is the leader as n_1"),
        ] {
            assert_eq!(done, format!("this member has {expected}\n"));
        }
    }

    #[test]
    fn a_transfer_is_confirmed_in_one_sentence() {
        let leader = json!({"id": "b", "address": "h:2", "labels": {}, "znode": "n_2", "token": 7});
        let text = "b leads at h:2 with token 7; there was no leader for 12ms at most\n";
        let shown = shown::<Transferred>(&json!({"leader": leader, "leaderless_ms": 12}));
        assert_eq!(shown, text);
    }

    #[test]
    fn an_event_is_a_line() {
        let leader = json!({"id": "b", "address": null, "labels": {}, "znode": "n_1", "token": 4});
        let body = json!({
            "leader": leader, "is_self": false, "valid_for_ms": null, "index": 1,
            "role": "follower", "at": "T", "cause": "why",
        });
        let line = event("leader-changed", &serde_json::from_value(body).unwrap());
        assert_eq!(strip_str(&line).to_string(), "T  leader-changed   b leads with token 4: why\n");
    }

    #[test]
    fn the_standby_is_shown_with_whether_it_is_ready() {
        let member = |id: &str, is_leader, standby: Value| {
            json!({
                "id": id, "znode": format!("n_{id}"), "sequence": 1, "address": null,
                "labels": {"k": "v"}, "is_leader": is_leader, "is_self": id == "b",
                "standby": standby, "names": "a", "version": "1", "priority": 70, "since": "T",
                "unhealthy": false, "hooks_failing": u32::from(id == "c"),
            })
        };
        let line = |ready: bool| {
            let standby = json!({"ready": ready});
            let members = [
                member("a", true, Value::Null),
                member("b", false, standby),
                member("c", false, Value::Null),
            ];
            json!({"members": members, "problems": [], "index": 1})
        };
        let text = "ID  IS            ZNODE  NAMES  ADDRESS  VERSION\n\
                    a   leader        n_a    a      -        1\n\
                    b   standby,self  n_b    a      -        1\n\
                    c   -             n_c    a      -        1\n";
        assert_eq!(shown::<Members>(&line(true)), text);
        assert!(shown::<Members>(&line(false)).contains("b   standby-not-ready,self"));
        let wide: Members = serde_json::from_value(line(true)).unwrap();
        let wide = strip_str(&wide.view(true)).to_string();
        for shown in ["k=v", "WRONG", "1 hook fails", "70"] {
            assert!(wide.contains(shown), "{shown}: {wide}");
        }
        let mut ill = line(true);
        ill["problems"] = json!(["a hook of c fails"]);
        let ill = shown::<Members>(&ill);
        assert_eq!(ill, format!("problem  a hook of c fails\n\n{text}"));
        let standby = |is: Value| {
            let clock = json!({"boot_id": null, "time_namespace": null});
            shown::<Status>(&json!({
                "id": "b", "role": "follower", "election": "/e", "znode": "n_b", "sequence": 1,
                "token": 1, "predecessor": "n_a", "standby": is, "leader": null,
                "valid_for_ms": null, "priority": 50, "paused": false,
                "session": {"id": null, "timeout_ms": null, "connected": true, "server": null},
                "index": 1, "clock": clock, "version": "1", "uptime_ms": 1,
            }))
        };
        assert!(
            standby(json!({"ready": true})).contains("standby      yes, ready to lead at once")
        );
        assert!(standby(json!({"ready": false})).contains("yes, but it has to claim first"));
        assert!(!standby(Value::Null).contains("standby"));
    }

    #[test]
    fn who_holds_a_lock_stands_above_those_who_wait_for_it() {
        let place = |member: Value, mode: &str, slots: Value, token: u64| {
            let znode = format!("{mode}-{token:010}");
            json!({
                "member": member, "process": "web-3:47", "mode": mode, "slots": slots, "token": token, "znode": znode,
                "since": "T",
            })
        };
        let queue = json!({
            "holders": [place(json!("a"), "slots", json!(3), 4)],
            "waiting": [place(Value::Null, "shared", Value::Null, 5)],
        });
        let text = "MEMBER  PROCESS   IS     MODE     TOKEN  ASKED  ZNODE\n\
                    a       web-3:47  holds  slots=3  4      T      slots-0000000004\n\
                    -       web-3:47  waits  shared   5      T      shared-0000000005\n";
        assert_eq!(shown::<LockQueue>(&queue), text);
        assert_eq!(shown::<LockNames>(&json!({"locks": ["migrate"]})), "LOCK\nmigrate\n");
        let present = |inside: bool| json!({"member": "a", "process": null, "inside": inside, "token": 4, "znode": "size-2-0000000001", "since": "T"});
        let barrier = json!({"size": 2, "open": true, "members": [present(true), present(false)]});
        let text = "\
MEMBER  PROCESS  IS      TOKEN  ASKED  ZNODE
a       -        inside  4      T      size-2-0000000001
a       -        waits   4      T      size-2-0000000001
";
        assert_eq!(shown::<BarrierState>(&barrier), text);
        assert_eq!(shown::<BarrierNames>(&json!({"barriers": ["deploy"]})), "BARRIER\ndeploy\n");
    }

    fn shown<T: HumanView>(body: &Value) -> String {
        let body: T = serde_json::from_value(body.clone()).unwrap();
        strip_str(&body.view(false)).to_string()
    }
}
