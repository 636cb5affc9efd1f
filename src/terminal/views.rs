//! Shows a sidecar's answers to people.

use super::table::{Cell, pairs, table};
use super::text::visible;
use crate::api::{
    BarrierNames, BarrierState, ConfigNames, Done, History, Leader, LeaderEvent, LeaderState,
    LockMode, LockNames, LockPlace, LockQueue, Members, QueueMember, Standby, Status, Transferred,
};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// An answer's body that can be shown to people.
pub trait HumanView: DeserializeOwned {
    /// Returns the text to print; with `is_wide`, all columns of a table.
    fn view(&self, is_wide: bool) -> String;
}

/// The style of a leader, of a holder of a lock, and of a healthy election.
const GOOD: Style = colour(AnsiColor::Green);
/// The style of an unusual state, which may be a problem.
const ODD: Style = colour(AnsiColor::Yellow);
/// The style of a problem.
const BAD: Style = colour(AnsiColor::Red);
const PLAIN: Style = Style::new();

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
        // Only the leader's own sidecar knows how long the lease is still valid.
        rows.extend(self.valid_for_ms.map(|ms| ("valid for", Cell::new(&span(ms)))));
        pairs(rows)
    }
}

impl HumanView for Status {
    fn view(&self, _: bool) -> String {
        let body = serde_json::to_value(self).expect("a body has string keys only");
        let mut rows = vec![];
        // A list gets a row for each of its items. A field that is null gets none.
        for key in STATUS_ROWS.split(' ') {
            match &body[key] {
                Value::Array(items) => {
                    rows.extend(items.iter().map(|item| (key, Cell::new(&in_line(item)))));
                }
                Value::Null => {}
                value => rows.push((key, Cell::new(&in_line(value)))),
            }
        }
        pairs(rows)
    }
}

/// The fields of [`Status`] that are shown, in this order.
const STATUS_ROWS: &str = "id role path paused znode predecessor standby leader valid_for_ms session problems \
                           application hooks locks barriers config version";

/// Shows a JSON value in one line: an object as `key=value` pairs, without the fields that are null.
pub(super) fn in_line(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(in_line).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| match value {
                Value::Object(_) => format!("{key}=({})", in_line(value)),
                _ => format!("{key}={}", in_line(value)),
            });
            fields.collect::<Vec<_>>().join(" ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

impl HumanView for Members {
    fn view(&self, is_wide: bool) -> String {
        let leader = self.members.iter().find(|member| member.is_leader);
        let heading = [
            "ID", "IS", "ZNODE", "NAMES", "ADDRESS", "VERSION", "WRONG", "TOKEN", "PRIORITY",
            "SINCE", "SESSION", "LABELS",
        ];
        let rows = self.members.iter().map(|member| {
            let QueueMember { is_leader, is_self, .. } = *member;
            let style = if is_leader { GOOD } else { PLAIN };
            // A member that names another leader, or none, is highlighted.
            let names_leader = leader.is_some_and(|leader| member.names == leader.id);
            vec![
                Cell::of(member.id.as_deref()).style(style),
                Cell::new(&marks(is_leader, member.standby.as_ref(), is_self)).style(style),
                Cell::new(&member.znode),
                Cell::of(member.names.as_deref()).style(if names_leader { PLAIN } else { ODD }),
                Cell::of(member.address.as_deref()),
                Cell::of(member.version.as_deref()),
                reported_problems(member.unhealthy, member.hooks_failing),
                Cell::new(&member.token.to_string()),
                Cell::new(&member.priority.to_string()),
                Cell::of(member.since.as_deref()),
                Cell::new(&member.session),
                Cell::new(&labels(&member.labels)),
            ]
        });
        // The columns from WRONG on are shown only with `is_wide`.
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

/// Describes the problems that a member reports in its znode, for the column WRONG.
fn reported_problems(unhealthy: bool, hooks_failing: u32) -> Cell {
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
        rows(&["from", "to", "id", "is_self", "token", "ended"], &self.terms)
    }
}

/// Shows these JSON fields of each item in a table.
pub(super) fn rows(keys: &[&str], items: &[impl Serialize]) -> String {
    let heading: Vec<_> = keys.iter().map(|key| key.to_uppercase()).collect();
    let heading: Vec<_> = heading.iter().map(String::as_str).collect();
    let items = items.iter().map(|item| {
        let item = serde_json::to_value(item).expect("a body has string keys only");
        keys.iter().map(|key| Cell::new(&in_line(&item[key]))).collect()
    });
    table(&heading, items)
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
        rows(&["member", "process", "inside", "token", "since", "znode"], &self.members)
    }
}

/// Returns the mode of a lock without spaces, for scripts that split at spaces.
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
    // The longest name of an event, `lost-leadership`, has 15 characters.
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
        let Self { done, znode, .. } = self;
        let place = match (znode, &self.predecessor) {
            (None, _) if done == "resumed" => "it joins the queue".to_owned(),
            (None, _) if done == "paused" => {
                "it stays out of the queue until `bellwether resume`".to_owned()
            }
            (None, _) => "it is not in the queue".to_owned(),
            (Some(znode), None) => format!("it is the first in the queue, as {znode}"),
            (Some(znode), Some(predecessor)) => {
                format!("it is in the queue as {znode}, behind {predecessor}")
            }
        };
        visible(&format!("this member has {done}: {place}")) + "\n"
    }
}

impl HumanView for Transferred {
    fn view(&self, _: bool) -> String {
        let leads = sentence(&self.leader, false);
        format!("{leads}; there was no leader for {} at most\n", span(self.leaderless_ms))
    }
}

/// Describes a member's role without spaces, such as `standby,self`, for scripts that split at spaces.
fn marks(is_leader: bool, standby: Option<&Standby>, is_self: bool) -> String {
    // A standby may lead already while its predecessor's znode still exists. Mark it only as the leader.
    let standby = standby.filter(|_| !is_leader).map(|standby| match standby.ready {
        true => "standby",
        false => "standby-not-ready",
    });
    let marks = [is_leader.then_some("leader"), standby, is_self.then_some("self")];
    marks.into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn labels(labels: &BTreeMap<impl Display, impl Display>) -> String {
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
    fn the_status_has_a_row_for_each_field_and_each_item_of_a_list() {
        let told = shown::<Status>(&json!({
            "id": "a", "role": "absent", "election": "/e", "path": "/c/e", "znode": null, "sequence": null,
            "token": null, "predecessor": null, "standby": null, "leader": null, "valid_for_ms": null,
            "priority": 50, "paused": true, "index": 1, "version": "0", "uptime_ms": 1,
            "session": {"id": null, "timeout_ms": null, "connected": false, "server": null,
                        "problem": "no server answers"},
            "problems": [{"kind": "paused", "problem": "it is paused", "since": "T"},
                         {"kind": "hook", "problem": "a hook \u{1b}fails", "since": "T"}],
            "hooks": [{"hook": "run notify", "on": ["leader-lost"], "runs": 2, "failures": 1, "cut_short": 0,
                       "running": null,
                       "last": {"change": "leader-lost", "at": "T", "took_ms": 1, "failure": "exit code 7"}}],
            "clock": {"boot_id": null, "time_namespace": null},
        }));
        let text = "\
id        a
role      absent
path      /c/e
paused    true
session   connected=false problem=no server answers
problems  kind=paused problem=it is paused since=T
problems  kind=hook problem=a hook \\u{1b}fails since=T
hooks     cut_short=0 failures=1 hook=run notify last=(at=T change=leader-lost failure=exit code 7 took_ms=1) on=leader-lost runs=2
version   0
";
        assert_eq!(told, text);
    }

    #[test]
    fn a_command_is_confirmed_in_one_sentence() {
        let done = |done: &str, znode: Value, predecessor: Value| {
            shown::<Done>(&json!({
                "done": done, "role": "follower", "znode": znode, "predecessor": predecessor
            }))
        };
        let null = Value::Null;
        for (done, expected) in [
            (
                done("resigned", json!("n_2"), json!("n_1")),
                "resigned: it is in the queue as n_2, behind n_1",
            ),
            (
                done("paused", null.clone(), null.clone()),
                "paused: it stays out of the queue until `bellwether resume`",
            ),
            (done("resumed", null.clone(), null.clone()), "resumed: it joins the queue"),
            (done("drained", null.clone(), null.clone()), "drained: it is not in the queue"),
            (done("resumed", json!("n_1"), null), "resumed: it is the first in the queue, as n_1"),
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
                "unhealthy": false, "hooks_failing": u32::from(id == "c"), "token": 7,
                "session": "0x1",
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
        for shown in ["k=v", "WRONG", "1 hook fails", "TOKEN", "0x1", "70"] {
            assert!(wide.contains(shown), "{shown}: {wide}");
        }
        let mut ill = line(true);
        ill["problems"] = json!(["a hook of c fails"]);
        let ill = shown::<Members>(&ill);
        assert_eq!(ill, format!("problem  a hook of c fails\n\n{text}"));
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
MEMBER  PROCESS  INSIDE  TOKEN  SINCE  ZNODE
a       -        true    4      T      size-2-0000000001
a       -        false   4      T      size-2-0000000001
";
        assert_eq!(shown::<BarrierState>(&barrier), text);
        assert_eq!(shown::<BarrierNames>(&json!({"barriers": ["deploy"]})), "BARRIER\ndeploy\n");
    }

    fn shown<T: HumanView>(body: &Value) -> String {
        let body: T = serde_json::from_value(body.clone()).unwrap();
        strip_str(&body.view(false)).to_string()
    }
}
