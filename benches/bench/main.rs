//! Bellwether measured against its peers and against what no protocol can do without: `scripts/bench`
//! runs this, and tells how.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it reports as it goes")]

// The parts of the report.
mod chain;
mod footprint;
mod handover;
mod idle;
mod locks;
mod scale;
mod standby;
mod web;

// What they are made of.
mod bare;
mod contest;
mod crowd;
mod report;
mod restart;
mod scene;

// What elections cost by formula, and how the recipes' tests hold that against members in memory.
#[path = "../../crates/recipes/tests/scale/formulas.rs"]
mod formulas;

// The tests' own servers and members.
#[allow(dead_code)]
#[path = "../../tests/ensemble/host.rs"]
mod host;
#[allow(dead_code)]
#[path = "../../tests/ensemble/member.rs"]
mod member;
#[allow(dead_code)]
#[path = "../../tests/ensemble/ports.rs"]
mod ports;
#[allow(dead_code)]
#[path = "../../tests/ensemble/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "../../tests/ensemble/servers.rs"]
mod servers;
#[allow(dead_code)]
#[path = "../../tests/ensemble/wait.rs"]
mod wait;

use bare::Floor;
use report::Section;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scene::Scene;
use std::{env, fmt::Debug, fs, path::Path, str::FromStr};

type Pictures = Vec<(&'static str, String)>;
type Part = fn(&Scene) -> (Section, Pictures);

const PARTS: [(&str, Part); 9] = [
    ("handover", |scene| (handover::handover(scene), vec![])),
    ("standby", |scene| (standby::standby(scene), vec![])),
    ("idle", |scene| (idle::idle(scene), vec![])),
    ("crash", |scene| (handover::crash(scene), vec![])),
    ("locks", |scene| (locks::locks(scene), vec![])),
    ("chain", chain::chain),
    ("scale", |scene| (scale::scale(scene), vec![])),
    ("footprint", |scene| (footprint::footprint(scene), vec![])),
    ("web", |scene| (web::web(scene), vec![])),
];

fn main() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("a process may raise its limit");
    let arguments: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [floor @ ("notification" | "write"), port, servers, path, _, before, ..] => {
            let floor = if floor == "write" { Floor::Write } else { Floor::Notification };
            bare::contend(floor, port, servers, path, before == "0");
        }
        ["constant", body, ref head @ ..] => web::constant(body, head),
        ["host", servers, first, count, size] => {
            let number = |word: &str| word.parse().expect("a number");
            scale::host(servers, number(first), number(count), number(size));
        }
        _ => measure(&words),
    }
}

/// `--quick`, `--into DIRECTORY`, `--members N,N...`, `--servers N,N...`, `--program FILE`, and which parts: all of them
/// if none is named.
fn measure(words: &[&str]) {
    let mut scene = Scene::new();
    let mut into = None;
    let mut wanted = vec![];
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || *rest.next().expect("it has a value");
        match *word {
            "--quick" => scene.quick = true,
            "--into" => into = Some(Path::new(value())),
            "--members" => scene.members = Some(numbers(value())),
            "--servers" => scene.servers = numbers(value()),
            "--program" => scene.program = Some(value().to_owned()),
            part => wanted.push(part),
        }
    }
    for (name, part) in PARTS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        eprintln!("== bench: {name}");
        let (section, pictures) = part(&scene);
        println!("{}", section.text());
        let Some(into) = into else { continue };
        fs::write(into.join(format!("{name}.md")), section.text()).expect("it can be written");
        for (file, picture) in pictures {
            fs::write(into.join(file), picture).expect("it can be written");
        }
    }
}

fn numbers<T: FromStr<Err: Debug>>(list: &str) -> Vec<T> {
    list.split(',')
        .map(|number| number.parse().expect("numbers with commas between them"))
        .collect()
}
