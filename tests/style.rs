//! Counts what makes code harder to read, and allows no more of it than there is; lower a limit whenever the count falls. And the
//! documents: each is in the summary, and their links lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

// The limits are the counts of today, and only ever fall.
const TUPLE_LETS: usize = 1;
const CLOSURES: usize = 24;
const ITS: usize = 0;
const COMMENTS: usize = 10;

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

/// Pages in the summary, by which `scripts/site` makes the site; and the links between them, which GitHub follows too.
#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages(root);
    let docs = root.join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the summary is readable");
    let listed: Vec<PathBuf> =
        links(&summary).iter().map(|link| normal(&docs.join(link))).collect();
    let mut flaws = vec![];
    for page in &pages {
        let times = listed.iter().filter(|listed| *listed == page).count();
        if times != 1 && !page.ends_with("docs/SUMMARY.md") {
            flaws.push(format!("{} is {times} times in docs/SUMMARY.md", page.display()));
        }
        let text = fs::read_to_string(page).expect("a page is readable");
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let directory = page.parent().expect("a page is in a directory");
            let target = if path.is_empty() { page.clone() } else { normal(&directory.join(path)) };
            let has_anchor = || {
                let text = fs::read_to_string(&target).unwrap_or_default();
                anchors(&text).iter().any(|found| found == anchor)
            };
            if !target.exists() || (!anchor.is_empty() && !has_anchor()) {
                flaws.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
}

/// Returns all documents of the project, in the directories that may have any.
fn pages(root: &Path) -> Vec<PathBuf> {
    let directories = [
        "",
        "docs",
        "docs/reference",
        "examples",
        "deploy",
        "fuzz",
        "benches",
        "patches/zookeeper-client",
    ];
    let files = directories.iter().flat_map(|directory| {
        fs::read_dir(root.join(directory)).expect("a directory of documents is readable")
    });
    let paths = files.map(|entry| normal(&entry.expect("an entry is readable").path()));
    let pages: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    assert!(pages.len() > 20, "the documents were not found");
    pages
}

/// Returns the targets of a page's links: of `[text](target)`, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = vec![];
    for prose in prose(text) {
        // Of what is between backticks every second piece is code, which has no links.
        let without_code: String = prose.split('`').step_by(2).collect();
        let targets = without_code.split("](").skip(1);
        found.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    found
}

/// Returns the anchors that GitHub and mdbook make of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Returns the lines that are in no block of code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
        .collect()
}

/// Returns a path without `..` in it.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        if part.as_os_str() == ".." {
            path.pop();
        } else {
            path.push(part);
        }
        path
    })
}
