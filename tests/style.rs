//! Counts what makes code harder to read, and allows no more of it than there is. Lower a limit whenever the count falls.

use std::fs;
use std::path::{Path, PathBuf};

// The limits are the counts of today, and only ever fall.
const TUPLE_LETS: usize = 2;
const CLOSURES: usize = 30;
const ITS: usize = 0;
const COMMENTS: usize = 34;

struct Count {
    what: &'static str,
    limit: usize,
    places: Vec<String>,
}

#[test]
fn the_style_does_not_get_worse() {
    let mut tuple_lets = Count::new("let (a, b) = (x, y): write two statements", TUPLE_LETS);
    let mut closures =
        Count::new("closures bound to a name: write them where they are used", CLOSURES);
    let mut its = Count::new("closures over |it|: name the parameter", ITS);
    let mut constants =
        Count::new("constants named TO_...: end the name in _TIMEOUT or _INTERVAL", 0);
    let mut comments = Count::new(
        "comments that begin with What, Who, Where...: begin with the noun or the verb",
        COMMENTS,
    );
    for file in sources() {
        let text = fs::read_to_string(&file).expect("a source file is readable");
        // Inline tests come last in each file.
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines: Vec<_> = code.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate() {
            let next = lines.get(n + 1).copied().unwrap_or_default();
            let is_after_comment =
                n > 0 && lines[n - 1].starts_with("//") && lines[n - 1].len() > 3;
            let place = format!("{}:{}: {line}", file.display(), n + 1);
            tuple_lets.note(is_tuple_let(line, next), &place);
            closures.note(is_named_closure(line, next), &place);
            its.note(line.contains("|it|") || line.contains("|&it|"), &place);
            constants.note(line.contains("const TO_"), &place);
            comments.note(!is_after_comment && begins_oddly(line), &place);
        }
    }
    let counts = [tuple_lets, closures, its, constants, comments];
    let excess: Vec<_> = counts.iter().filter_map(Count::excess).collect();
    assert!(excess.is_empty(), "{}", excess.join("\n"));
}

impl Count {
    fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, places: vec![] }
    }

    fn note(&mut self, is_found: bool, place: &str) {
        if is_found {
            self.places.push(place.to_owned());
        }
    }

    fn excess(&self) -> Option<String> {
        let found = self.places.len();
        let places = self.places.join("\n  ");
        (found > self.limit).then(|| {
            format!("{}: {found} where {} are allowed:\n  {places}", self.what, self.limit)
        })
    }
}

fn is_tuple_let(line: &str, next: &str) -> bool {
    let Some((names, value)) = line.strip_prefix("let (").and_then(|rest| rest.split_once(") ="))
    else {
        return false;
    };
    let value = if value.trim().is_empty() { next } else { value.trim() };
    let are_names = names.chars().all(|c| c.is_alphanumeric() || "_, ".contains(c));
    are_names && names.contains(',') && value.starts_with('(')
}

fn is_named_closure(line: &str, next: &str) -> bool {
    let Some((name, value)) = line.strip_prefix("let ").and_then(|rest| rest.split_once('='))
    else {
        return false;
    };
    let value = if value.trim().is_empty() { next } else { value.trim() };
    let is_name = name.chars().all(|c| c.is_alphanumeric() || "_ ".contains(c));
    is_name && value.strip_prefix("move ").unwrap_or(value).starts_with('|')
}

fn begins_oddly(line: &str) -> bool {
    const BEGINNINGS: [&str; 11] = [
        "What ",
        "Who ",
        "Whose ",
        "One that ",
        "Those ",
        "It ",
        "Where ",
        "For how long ",
        "How often ",
        "Since when ",
        "That which ",
    ];
    let comment = ["/// ", "//! ", "// "].iter().find_map(|start| line.strip_prefix(start));
    comment.is_some_and(|text| BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)))
}

/// Returns all files of production code.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories =
        vec![root.join("src"), root.join("crates/recipes/src"), root.join("crates/dev-server/src")];
    let mut files = vec![];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a source directory is readable") {
            let path = entry.expect("an entry is readable").path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if ["tests", "testing", "fuzzing"].contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 100, "the sources were not found");
    files
}
