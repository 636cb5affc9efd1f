//! Checks that the recipes use no IO, no clock, no chance and no log.

use std::fs;
use std::path::{Path, PathBuf};

const FORBIDDEN: &[&str] = &[
    "async",
    "await",
    "axum",
    "HashMap",
    "HashSet",
    "Instant",
    "panic!",
    "println!",
    "rand",
    "serde",
    "SystemTime",
    "tokio",
    "tracing",
    "unwrap()",
    "zookeeper",
];

#[test]
fn the_recipes_use_no_runtime_no_clock_no_chance_and_no_log() {
    let mut found = vec![];
    for file in sources(Path::new("src")) {
        let text = fs::read_to_string(&file).expect("source is text");
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]").enumerate();
        for (at, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for word in FORBIDDEN.iter().filter(|word| contains(line, word)) {
                found.push(format!("{}:{}: `{word}`", file.display(), at + 1));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Whether the line contains the word by itself, not as a part of a longer one.
fn contains(line: &str, word: &str) -> bool {
    let bounded = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
    line.match_indices(word).any(|(at, _)| {
        bounded(line[..at].chars().next_back()) && bounded(line[at + word.len()..].chars().next())
    })
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("tests run in the root of the crate");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}
