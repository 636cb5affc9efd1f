//! Which module may name which. The table is the architecture; the test keeps it true.

use std::fs;
use std::path::{Path, PathBuf};

/// A module, and the modules that it may name. `main.rs` may name all. A part of a module, behind a slash, may name
/// fewer.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("byte_budget", &[]),
    ("random", &[]),
    ("clock", &["recipes", "api"]),
    ("cached", &["recipes", "clock"]),
    ("files", &[]),
    ("runtime", &[]),
    ("znode_names", &["recipes"]),
    ("http_client", &["files"]),
    // Bodies are made of what the recipes judge, and do not depend on how they are asked for.
    ("api", &["recipes", "problems", "znode_names"]),
    // What children are not to see in their environment is the configuration's to know.
    ("process", &["config"]),
    ("health", &["recipes", "api", "config", "status", "http_client", "process"]),
    // The lease's formula is the election's: the check of an operator's values calls it.
    ("config", &["recipes", "files", "holdings", "znode_names"]),
    // It turns a command line into one of the terminal's commands, or into what `dev` starts.
    ("cli", &["recipes", "api", "config", "dev", "terminal"]),
    // Members are processes to it, which it starts and asks as a person would. Nothing that a member runs knows of it.
    ("dev", &["api", "clock", "config", "exec", "process", "recipes", "runtime", "terminal"]),
    ("counters", &["recipes"]),
    ("holdings", &["recipes", "api", "counters"]),
    ("shared_config", &["recipes", "byte_budget", "counters", "holdings"]),
    ("problems", &[]),
    ("status", &["recipes", "api", "counters", "holdings", "problems", "shared_config"]),
    ("queue_report", &["recipes", "api", "status", "znode_names"]),
    ("transfer", &["recipes", "clock", "counters", "status"]),
    ("preemption", &["clock", "status", "transfer"]),
    ("own_state", &["recipes", "status"]),
    (
        "zookeeper",
        &[
            "recipes",
            "api",
            "byte_budget",
            "cached",
            "clock",
            "config",
            "problems",
            "status",
            "files",
            "random",
            "runtime",
            "counters",
            "holdings",
            "shared_config",
            "znode_names",
        ],
    ),
    // It builds, runs and shuts down all that there is.
    (
        "daemon",
        &[
            "recipes",
            "api",
            "health",
            "cli",
            "byte_budget",
            "clock",
            "config",
            "status",
            "exec",
            "http",
            "holdings",
            "notify",
            "own_state",
            "preemption",
            "process",
            "runtime",
            "shared_config",
            "zookeeper",
            "znode_names",
        ],
    ),
    ("daemon/listeners", &["config", "http"]),
    ("daemon/log_line", &[]),
    ("daemon/logging", &["config", "process"]),
    ("daemon/reload", &["recipes", "config", "cli", "status", "znode_names"]),
    ("daemon/resources", &[]),
    ("daemon/secrets", &["config", "zookeeper"]),
    ("daemon/shutdown", &["recipes", "cli", "clock", "exec"]),
    ("daemon/signals", &[]),
    ("daemon/systemd", &["clock", "status"]),
    // How much a member may say of itself is the configuration's rule, also where a request changes it.
    (
        "http",
        &[
            "recipes",
            "api",
            "byte_budget",
            "cached",
            "clock",
            "config",
            "problems",
            "status",
            "counters",
            "holdings",
            "queue_report",
            "random",
            "shared_config",
            "transfer",
            "znode_names",
        ],
    ),
    // A sidecar is asked over HTTP, like any other process; only `inspect` looks into ZooKeeper.
    // But `lock` may hold one by itself, and runs its command as `exec` does.
    (
        "terminal",
        &[
            "recipes",
            "api",
            "byte_budget",
            "clock",
            "config",
            "exec",
            "http_client",
            "holdings",
            "queue_report",
            "shared_config",
            "znode_names",
            "zookeeper",
        ],
    ),
    ("exec", &["recipes", "clock", "config", "status", "process", "runtime"]),
    // In tests and for a fuzzer only: it throws bytes at all that reads any.
    (
        "fuzzing",
        &[
            "recipes",
            "byte_budget",
            "clock",
            "config",
            "status",
            "http",
            "cli",
            "runtime",
            "znode_names",
            "zookeeper",
        ],
    ),
    (
        "notify",
        &[
            "recipes",
            "api",
            "clock",
            "config",
            "status",
            "files",
            "http_client",
            "process",
            "random",
            "shared_config",
            "znode_names",
        ],
    ),
];

/// The layers of a module, each with the words that it may not name: a layer knows only those below it.
/// Times and sessions are any layer's to know, wherever the recipes keep them.
const LAYERS: &[(&str, &[&str])] = &[
    ("zookeeper/client", &["queue", "election", "super::super", "crate::zookeeper"]),
    ("zookeeper/queue", &["super::election", "zookeeper::election", "Announcement", "Profile"]),
    (
        "zookeeper/holdings",
        &["zookeeper::election", "zookeeper::runner", "Announcement", "Profile"],
    ),
    (
        "zookeeper/shared_config",
        &["zookeeper::election", "zookeeper::runner", "zookeeper::holdings"],
    ),
    ("zookeeper/election", &["super::runner", "zookeeper::runner", "Standing"]),
];

/// Crates and calls that only one module may use, or two.
const LIVES_IN: &[(&str, &[&str])] = &[
    ("axum", &["http", "fuzzing"]),
    ("clock_gettime", &["clock"]),
    // The words of the settings are derived as those of the command line are.
    ("clap", &["cli", "config", "terminal"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("anstream", &["terminal"]),
    ("dev_server", &["dev"]),
    ("termios", &["dev", "process"]),
    ("nix", &["process"]),
    ("tokio_rustls", &["zookeeper", "http_client"]),
    ("expose_secret", &["zookeeper"]),
    ("hmac", &["notify"]),
    ("http1::handshake", &["http_client"]),
    ("prometheus", &["counters", "http"]),
    ("new_current_thread", &["runtime"]),
    ("new_multi_thread", &[]),
    // What it returns locks what it was read from.
    ("wait_for", &["status", "zookeeper"]),
    ("env::var", &["cli"]),
    // A log that `dev` has had written is its own.
    ("fs::read_to_string", &["cli", "dev"]),
    // A file that an operator names is read by `files`; the others are the kernel's.
    ("fs::read", &["clock", "process"]),
    ("File::open", &["files"]),
    ("SystemTime::now", &["clock"]),
    ("Instant::now", &[]),
];

#[test]
fn modules_know_only_those_they_may() {
    let mut wrong = vec![];
    for (module, known) in MAY_KNOW {
        for (file, line, code) in code_of(module) {
            for (other, _) in MAY_KNOW.iter().filter(|(other, _)| other != module) {
                if says(&code, &format!("crate::{other}")) && !known.contains(other) {
                    wrong.push(format!("{file}:{line}: {module} may not know {other}"));
                }
            }
            if says(&code, "recipes") && !known.contains(&"recipes") {
                wrong.push(format!("{file}:{line}: {module} may not know the recipes"));
            }
            let names_library = code.contains("use zookeeper::") || code.contains(" ::zookeeper::");
            if *module != "zookeeper" && names_library {
                wrong.push(format!("{file}:{line}: the client library lives in zookeeper"));
            }
            for (word, homes) in LIVES_IN.iter().filter(|(_, homes)| !homes.contains(module)) {
                if says(&code, word) {
                    wrong.push(format!("{file}:{line}: `{word}` lives in {homes:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn layers_know_only_those_below() {
    let mut wrong = vec![];
    for (layer, words) in LAYERS {
        let code = code_of(layer);
        assert!(!code.is_empty(), "{layer} has moved");
        for (file, line, code) in code {
            let code = code.replace("recipes::election::{", "recipes::{");
            for word in words.iter().filter(|word| says(&code, word)) {
                wrong.push(format!("{file}:{line}: {layer} may not name `{word}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_module_is_in_the_table() {
    let mut modules: Vec<_> = fs::read_dir("src")
        .expect("tests run in the root of the crate")
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|module| module != "lib" && module != "main")
        .collect();
    modules.sort();
    // A module of a file and a directory is one module.
    modules.dedup();
    let table = MAY_KNOW.iter().map(|(module, _)| (*module).to_owned());
    let (parts, mut table): (Vec<_>, Vec<_>) = table.partition(|module| module.contains('/'));
    table.sort();
    assert_eq!(modules, table);
    for part in parts {
        assert!(!code_of(&part).is_empty(), "{part} has moved");
    }
}

fn says(code: &str, word: &str) -> bool {
    let bounded = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    code.match_indices(word).any(|(at, _)| {
        bounded(code[..at].chars().next_back()) && bounded(code[at + word.len()..].chars().next())
    })
}

/// Lines of code in a module, comments and unit tests left out.
fn code_of(module: &str) -> Vec<(String, usize, String)> {
    let mut files = vec![];
    for start in [format!("src/{module}"), format!("src/{module}.rs")] {
        collect(Path::new(&start), &mut files);
    }
    let lines = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("source is text");
        let name = file.display().to_string();
        let all: Vec<_> = text.lines().collect();
        // A module of tests in a file of its own may be declared anywhere; code follows it.
        let begins_tests =
            |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {");
        let end = all.windows(2).position(begins_tests).unwrap_or(all.len());
        let code = all.into_iter().take(end).enumerate();
        code.filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(i, line)| (name.clone(), i + 1, line.to_owned()))
            .collect::<Vec<_>>()
    };
    files.iter().flat_map(lines).collect()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory can be read") {
            collect(&entry.expect("an entry can be read").path(), files);
        }
    } else if path.is_file() {
        files.push(path.to_owned());
    }
}
