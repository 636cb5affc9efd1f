//! What is shipped for monitoring, judged by promtool: that alerts fire when they should, and that the dashboard asks
//! only for what there is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const ALERTS: &str = "deploy/monitoring/alerts.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    promtool(&["check", "rules", ALERTS]);
    promtool(&["test", "rules", "tests/monitoring/alerts.test.yaml"]);
}

#[test]
fn every_alert_is_seen_to_fire_and_is_documented() {
    let (alerts, tests) = (text(ALERTS), text("tests/monitoring/alerts.test.yaml"));
    let alerts: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
        assert!(text("docs/reference/metrics.md").contains(&format!("| `{alert}` |")), "{alert}");
    }
}

/// Who gets one is a click away from what to do.
#[test]
fn every_alert_leads_to_its_paragraph_in_the_operators_guide() {
    let anchors: BTreeSet<String> = text("docs/operations.md")
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches(['#', ' '])))
        .collect();
    let alerts = text(ALERTS);
    let rules = alerts.split("- alert: ").skip(1);
    for rule in rules {
        let name = rule.lines().next().unwrap();
        let links: Vec<_> =
            rule.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
        let [link] = links[..] else { panic!("{name}: {links:?}") };
        assert_eq!(link, format!("docs/operations.md#{}", anchor(name)));
        assert!(anchors.contains(&anchor(name)), "docs/operations.md has no heading {name}");
    }
}

/// The end of the URL by which a heading of Markdown is reached.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn every_question_of_the_dashboard_is_promql() {
    let questions = questions();
    assert!(questions.len() > 15, "{questions:?}");
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (n, question) in questions.iter().enumerate() {
        let question = Value::from(filled_in(question));
        rules.push_str(&format!("  - record: question_{n}\n    expr: {question}\n"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), rules).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}

#[test]
fn panels_show_what_was_whichever_members_come_and_go() {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.map(|panel| (&panel["title"], &panel["targets"][0]["expr"]));
    let marks = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let marks = marks.map(|mark| (&mark["name"], &mark["expr"]));
    let mut tests = text("tests/monitoring/dashboard.test.yaml");
    for (title, question) in panels.chain(marks) {
        let question = Value::from(filled_in(question.as_str().unwrap()));
        tests = tests.replace(&format!("<{}>", title.as_str().unwrap()), &question.to_string());
    }
    let unknown = tests.lines().find(|line| line.contains("expr: <"));
    assert!(unknown.is_none(), "no panel has that title: {unknown:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), tests).unwrap();
    promtool(&["test", "rules", file.path().to_str().unwrap()]);
}

/// Pods that are replaced have other addresses, and an operator looks for names.
#[test]
fn what_each_member_says_is_shown_by_its_pods_name() {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array());
    let mut by_member = 0;
    for target in targets.flatten() {
        let [question, legend] =
            ["expr", "legendFormat"].map(|key| target[key].as_str().unwrap().to_owned());
        assert!(!legend.contains("{{instance}}") && !legend.contains("{{pod}}"), "{target}");
        let knows = question
            .ends_with(r#", "member", "$1", "instance", "(.+)"), "member", "$1", "pod", "(.+)")"#);
        assert_eq!(knows, legend.contains("{{member}}"), "{target}");
        by_member += u8::from(knows);
    }
    assert!(by_member > 5, "{by_member}");
}

/// A real scrape has what the table has: the ensemble's tests compare them.
#[test]
fn only_metrics_that_are_there_are_asked_for() {
    let told = documented();
    let asked = [questions(), vec![text(ALERTS)]].concat();
    let asked: BTreeSet<String> = asked.iter().flat_map(|text| metrics_in(text)).collect();
    assert!(asked.is_subset(&told), "{:?}", asked.difference(&told));
    let idle: Vec<_> = told.difference(&asked).collect();
    assert!(idle.is_empty(), "neither an alert nor the dashboard needs {idle:?}");
}

#[test]
fn panels_have_names_and_numbers_of_their_own_and_overlap_nowhere() {
    let dashboard: Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut known = BTreeSet::new();
    for panel in panels {
        assert!(known.insert(panel["id"].as_u64().unwrap().to_string()), "{panel}");
        assert!(known.insert(panel["title"].as_str().unwrap().to_owned()), "{panel}");
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn promtool(arguments: &[&str]) {
    let run = Command::new("promtool").args(arguments).output();
    let run = run.expect("promtool, which scripts/test unpacks");
    assert!(run.status.success(), "promtool {arguments:?}: {run:?}");
}

/// As Grafana would ask it.
fn filled_in(question: &str) -> String {
    let question = question
        .replace("$__rate_interval", "1m")
        .replace("$__interval", "1m")
        .replace("$__range", "6h")
        .replace("$job", "shop")
        .replace("$namespace", ".*")
        .replace("$election", "/e");
    // That of a regular expression is meant as it is.
    assert!(!question.replace("\"$1\"", "").contains('$'), "{question}");
    question
}

/// Every expression in the dashboard, wherever it is.
fn questions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let expression = fields.get("expr").and_then(Value::as_str);
                found.extend(expression.map(str::to_owned));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = vec![];
    collect(&serde_json::from_str(&text(DASHBOARD)).unwrap(), &mut found);
    found
}

/// The names in the table of docs/reference/metrics.md.
fn documented() -> BTreeSet<String> {
    let docs = text("docs/reference/metrics.md");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let is_metric =
        |kind: &str| ["gauge", "counter", "histogram"].iter().any(|k| kind.starts_with(k));
    rows.filter(|(_, rest)| is_metric(rest)).map(|(name, _)| name.to_owned()).collect()
}

fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words
        .filter(|word| word.starts_with("bellwether_") || word.starts_with("leader_election_"));
    let parts = ["_bucket", "_sum", "_count"];
    let whole = |word: &str| {
        parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word).to_owned()
    };
    ours.map(whole).collect()
}
