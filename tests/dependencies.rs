//! The dependencies are what `deny.toml` lets them be: which licences, from where, and each once.
//!
//! The part of cargo-deny that matters here, for those who do not have it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

#[test]
fn every_licence_is_one_that_may_be_given_away() {
    let policy = policy();
    let allowed: Vec<&str> = texts(&policy["licenses"]["allow"]);
    let mut refused = vec![];
    for package in packages(&metadata()) {
        let written = package["license"].as_str().unwrap_or("(none)");
        if !may(written, &allowed) {
            refused.push(format!("{}: {written}", name(package)));
        }
    }
    assert!(refused.is_empty(), "not in deny.toml: {refused:#?}");
}

#[test]
fn all_come_from_where_they_may() {
    let policy = policy();
    let allowed = texts(&policy["sources"]["allow-registry"]);
    let metadata = metadata();
    let sources: BTreeSet<&str> =
        packages(&metadata).filter_map(|package| package["source"].as_str()).collect();
    let allowed = allowed.iter().map(|url| format!("registry+{url}")).collect::<Vec<_>>();
    let others: Vec<_> =
        sources.iter().filter(|source| !allowed.iter().any(|it| it == *source)).collect();
    assert!(!sources.is_empty() && others.is_empty(), "{others:?}");
    // And what is no package of a registry is this one.
    let own = packages(&metadata).filter(|package| package["source"].is_null());
    assert_eq!(own.map(name).collect::<Vec<_>>(), ["bellwether"]);
}

#[test]
fn each_is_there_once() {
    let policy = policy();
    let metadata = metadata();
    let nodes: BTreeMap<&str, Vec<&str>> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("the graph is resolved")
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), texts(&node["dependencies"])))
        .collect();
    let roots = policy["bans"]["skip-tree"].as_array().expect("there are some").iter();
    let roots: Vec<&str> = roots.map(|skipped| skipped["crate"].as_str().unwrap()).collect();
    let mut skipped = BTreeSet::new();
    let mut next: Vec<&str> = packages(&metadata)
        .filter(|package| roots.contains(&name(package)))
        .map(|package| package["id"].as_str().unwrap())
        .collect();
    assert_eq!(next.len(), roots.len(), "deny.toml skips what is not there");
    while let Some(id) = next.pop() {
        if skipped.insert(id) {
            next.extend(&nodes[id]);
        }
    }
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for package in packages(&metadata) {
        let id = package["id"].as_str().unwrap();
        // What is there for other systems only is in no graph.
        if nodes.contains_key(id) && !skipped.contains(id) {
            versions.entry(name(package)).or_default().push(package["version"].as_str().unwrap());
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "{versions:#?}");
}

/// Whether an SPDX expression comes down to what is allowed.
fn may(written: &str, allowed: &[&str]) -> bool {
    // As it was written before there was SPDX.
    let spaced = written.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (may, rest) = either(&words, allowed);
    may && rest.is_empty()
}

fn either<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    let (mut may, mut rest) = both(words, allowed);
    while let ["OR", others @ ..] = rest {
        let (other, after) = both(others, allowed);
        (may, rest) = (may || other, after);
    }
    (may, rest)
}

fn both<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    let (mut may, mut rest) = one(words, allowed);
    while let ["AND", others @ ..] = rest {
        let (other, after) = one(others, allowed);
        (may, rest) = (may && other, after);
    }
    (may, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (may, rest) = either(inner, allowed);
            (may, rest.strip_prefix(&[")"]).expect("what is opened is closed"))
        }
        [licence, "WITH", exception, rest @ ..] => {
            (allowed.contains(&&*format!("{licence} WITH {exception}")), rest)
        }
        [licence, rest @ ..] => (allowed.contains(licence), rest),
        [] => (false, words),
    }
}

#[test]
fn an_expression_is_read_as_spdx_means_it() {
    let may = |written| may(written, &["MIT", "ISC", "A WITH e"]);
    for yes in ["MIT", "GPL OR MIT", "GPL/MIT", "MIT AND (GPL OR ISC)", "A WITH e AND MIT"] {
        assert!(may(yes), "{yes}");
    }
    for no in ["", "GPL", "MIT AND GPL", "(GPL OR MIT) AND GPL", "A", "MIT WITH e", "MIT ISC"] {
        assert!(!may(no), "{no}");
    }
}

fn policy() -> Value {
    let text = std::fs::read_to_string("deny.toml").expect("tests run in the root of the crate");
    toml::from_str(&text).expect("it is TOML")
}

fn metadata() -> Value {
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs this test");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    serde_json::from_slice(&asked.stdout).expect("it is JSON")
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().expect("there are some").iter()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("each has a name")
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}
