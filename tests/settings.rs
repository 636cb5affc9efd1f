//! The table of settings, held against what is written about them: the sample file, the document, the help and the
//! manual pages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use bellwether::config::table::ALL;
use bellwether::config::{DefaultValue, Row, Scope};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Output};

const SAMPLE: &str = include_str!("../config/bellwether.toml");
const DOCUMENT: &str = include_str!("../docs/reference/settings.md");

const COMMANDS: [(&str, Scope); 6] = [
    ("run", Scope::Member),
    ("exec", Scope::Exec),
    ("check-config", Scope::Exec),
    ("inspect", Scope::Election),
    ("lock", Scope::Lease),
    ("barrier", Scope::Lease),
];

#[test]
fn the_sample_file_has_every_setting_with_its_default_and_no_other() {
    let sample = sampled();
    for Sampled { key, .. } in &sample {
        assert!(ALL.iter().any(|row| row.key == key), "{key} is no setting");
    }
    for row in ALL {
        let lines: Vec<_> = sample.iter().filter(|line| line.key == row.key).collect();
        assert!(!lines.is_empty(), "{} is missing", row.key);
        let counting = lines.iter().find(|line| line.counts).map(|line| line.value);
        let expected = match row.default {
            DefaultValue::Text(text) if text.parse::<u32>().is_ok() && !text.starts_with('0') => {
                Some(text.to_owned())
            }
            DefaultValue::Text(text) => Some(format!("{text:?}")),
            // Without a fixed default there is only an example.
            DefaultValue::Nothing | DefaultValue::Derived(_) => None,
        };
        assert_eq!(counting, expected.as_deref(), "{}", row.key);
    }
}

/// A line `name = value` of the sample file.
struct Sampled {
    key: String,
    value: &'static str,
    /// Whether it is not commented out.
    counts: bool,
}

/// All but those of hooks, and of values that are kept as files.
fn sampled() -> Vec<Sampled> {
    let mut table = "";
    let mut lines = vec![];
    for line in SAMPLE.lines() {
        let (counts, text) = match line.strip_prefix("# ") {
            Some(text) => (false, text),
            None => (true, line),
        };
        if text == "[[hook]]" || text == "[[config]]" || counts && text.starts_with('[') {
            table = text.trim_matches(['[', ']']);
        }
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if let Some((name, value)) = text.split_once(" = ").filter(|(name, _)| is_name(name))
            && table != "hook"
            && table != "config"
        {
            lines.push(Sampled { key: format!("{table}.{name}"), value, counts });
        }
    }
    lines
}

#[test]
fn the_document_has_a_row_for_every_setting_and_no_other() {
    let rows: Vec<_> = DOCUMENT.lines().filter(|line| line.starts_with('|')).collect();
    let keys = rows.iter().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    for key in keys.filter(|key| !["[[hook]]", "[[config]]"].contains(key)) {
        assert!(ALL.iter().any(|row| row.key == key), "{key} is no setting");
    }
    for Row { key, flag, variable, default, .. } in ALL {
        let told = |line: &&str| {
            let has = |word: &str| line.contains(&format!("`{word}`"));
            let has_flag = has(&format!("--{flag}")) || line.contains(&format!("`--{flag} "));
            let has_default = match default {
                DefaultValue::Text(text) => has(text),
                DefaultValue::Nothing => line.contains("none"),
                DefaultValue::Derived(_) => true,
            };
            has(key) && has_flag && has(variable) && has_default
        };
        assert!(rows.iter().any(told), "{key}, {variable:?}, {default:?}");
    }
}

#[test]
fn the_document_has_a_row_for_every_key_of_a_hook_and_no_other() {
    // Each kind of hook, with what it cannot do without.
    let kinds = [
        "on = [\"leader-lost\"]\ncommand = [\"true\"]",
        "on = [\"leader-lost\"]\nurl = \"http://h/\"",
        "on = [\"leader-lost\"]\nsignal = \"SIGHUP\"\npid_file = \"/p\"",
        "file = \"/f\"",
        "pod_label = \"l\"",
        "endpoint_slice = \"s\"",
    ];
    let mut known = BTreeSet::new();
    for kind in kinds {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "[[hook]]\n{kind}\nno_such_key = 1\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        command.args(["check-config", "--config"]).arg(file.path()).env("POD_IP", "10.0.0.7");
        command.env("KUBERNETES_SERVICE_HOST", "h").env("KUBERNETES_SERVICE_PORT", "443");
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        let keys = said.split("expected one of ").nth(1).unwrap_or_else(|| panic!("{said}"));
        known.extend(keys.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    let rows = include_str!("../docs/hooks.md").lines();
    let rows = rows.skip_while(|line| !line.starts_with("| key of a `[[hook]]`")).skip(2);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next());
    let told = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
    assert_eq!(told.collect::<BTreeSet<_>>(), known);
}

#[test]
fn the_document_says_what_changes_without_restart() {
    assert!(DOCUMENT.contains("What has a `*` above changes in flight"));
    for row in ALL {
        let marked = DOCUMENT.contains(&format!("| `{}` * |", row.key));
        assert_eq!(marked, row.changes_without_restart, "{}", row.key);
    }
}

#[test]
fn the_help_of_a_command_has_the_settings_that_it_takes() {
    for (command, scope) in COMMANDS {
        let help = printed(&[command, "--help"]);
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in ALL {
            let key = format!("[key: {}]", row.key);
            if !scope.takes(row.scope) {
                assert!(!help.contains(&key), "{command} does not take {}", row.key);
                continue;
            }
            let flag = format!("--{} <{}>", row.flag, row.placeholder);
            let default = match row.default {
                DefaultValue::Nothing => "[default: none]".to_owned(),
                default => format!("[default: {}]", default.text()),
            };
            let variable = format!("[env: {}]", row.variable);
            for words in [&*flag, row.help, &*default, &*key, &*variable] {
                assert!(help.contains(words), "{command}: {words} of {}: {help}", row.key);
            }
        }
    }
}

#[test]
fn the_manual_page_of_a_command_has_the_settings_that_it_takes() {
    let pages = tempfile::tempdir().unwrap();
    printed(&["man", "--to", pages.path().to_str().unwrap()]);
    for (command, scope) in COMMANDS {
        let page = pages.path().join(format!("bellwether-{command}.1"));
        let page = fs::read_to_string(page).unwrap().replace("\\-", "-");
        for row in ALL.iter().filter(|row| scope.takes(row.scope)) {
            let flag = format!("--{}", row.flag);
            let key = format!("[key: {}]", row.key);
            for words in [&*flag, &*key, row.variable] {
                assert!(page.contains(words), "{command}: {words}: {page}");
            }
        }
    }
}

fn printed(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    let Output { status, stdout, stderr } = command.env_clear().args(args).output().unwrap();
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}
