//! The dependencies are what `deny.toml` lets them be: which licences, from where, and each once.
//!
//! The part of cargo-deny that matters here, for machines that do not have it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

#[test]
fn every_licence_is_one_that_may_be_given_away() {
    let policy = policy();
    let allowed = texts(&policy["licenses"]["allow"]);
    let listed = tree(&["--format", "{p} | {l}"]);
    let licences = listed.iter().map(|line| line.rsplit_once(" | ").expect("as it was asked"));
    let refused: Vec<_> = licences.filter(|(_, licence)| !may(licence, &allowed)).collect();
    assert!(refused.is_empty(), "not in deny.toml: {refused:#?}");
}

#[test]
fn all_come_from_where_they_may() {
    let policy = policy();
    let allowed = texts(&policy["sources"]["allow-registry"]);
    let lock = read("Cargo.lock");
    let packages = lock["package"].as_array().expect("a list");
    let wrong = |package: &&Value| match package["source"].as_str() {
        Some(source) => !allowed.iter().any(|url| source == format!("registry+{url}")),
        // The packages without a source are those of this repository, and those that it has patched.
        None => ![
            "bellwether",
            "bellwether-dev-server",
            "bellwether-recipes",
            "async-io",
            "async-net",
            "zookeeper-client",
        ]
        .contains(&package["name"].as_str().expect("a name")),
    };
    let others: Vec<_> = packages.iter().filter(wrong).collect();
    assert!(others.is_empty(), "{others:#?}");
}

/// Cargo says no more than a warning when a patch no longer fits the version that is wanted, and takes the original.
#[test]
fn what_is_patched_is_there_in_no_other_way() {
    let tree = tree(&["--edges", "normal"]);
    for name in ["async-io", "async-net", "zookeeper-client"] {
        let found: Vec<_> =
            tree.iter().filter(|line| line.starts_with(&format!("{name} v"))).collect();
        let ours = format!("/patches/{name})");
        assert!(matches!(&found[..], [one] if one.ends_with(&ours)), "{found:?}");
    }
}

#[test]
fn each_is_there_once() {
    let policy = policy();
    let mut rest = tree(&[]);
    for skipped in policy["bans"]["skip-tree"].as_array().expect("a list") {
        let brought = tree(&["--package", skipped["crate"].as_str().expect("it has a name")]);
        rest.retain(|package| !brought.contains(package));
    }
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for package in &rest {
        let (name, version) = package.split_once(' ').expect("as cargo writes it");
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "{versions:#?}");
}

/// What is built and run, here or with the tests, a line each.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let listed = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none", "--no-dedupe"])
        .args(arguments)
        .output()
        .expect("cargo runs this test");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("it is text");
    // There is an empty line between the crates that `cargo test` is about.
    let lines: BTreeSet<_> =
        listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    assert!(lines.len() > 50, "{lines:?}");
    lines
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
    read("deny.toml")
}

fn read(file: &str) -> Value {
    let text = fs::read_to_string(file).expect("tests run in the root of the crate");
    toml::from_str(&text).expect("it is TOML")
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}
