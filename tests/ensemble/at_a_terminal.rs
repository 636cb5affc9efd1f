//! Programs that `exec`, `lock` and `barrier` run at a terminal: they read from it, get the signals of its keys, and what is
//! stopped does not hold a lock for ever.

use crate::{
    group::started_in_order,
    http::ok,
    lock_command::{PROGRAM, url},
    member::{Member, Setup},
    process::{Process, signal, tied_to_this_thread},
    servers::Servers,
    wait::eventually,
};
use rustix::process::Signal;
use std::{
    io::{Read, Write},
    process::{ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
};

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

/// Asks for a name, as many programs do, and says its process id.
const ASKS: &str = "echo \"I am $$.\"; read -r name; echo \"Hello, $name.\"";

#[test]
fn a_program_reads_from_the_terminal_and_gives_it_back() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    reads_from_the_terminal(PROGRAM, &servers, &url(&member));
}

/// Of each of the commands that run one.
pub(crate) fn reads_from_the_terminal(program: &str, servers: &Servers, url: &str) {
    let zookeeper = servers.connect_string();
    for command in [
        format!("lock m --url {url}"),
        format!("lock m --zookeeper {zookeeper}"),
        format!("barrier b --size 1 --url {url}"),
        format!("exec --id x --election /exec --listen 127.0.0.1:0 --zookeeper {zookeeper}"),
    ] {
        let line =
            format!("{program} {command} -- sh -c '{ASKS}'; read -r back; echo \"Again, $back.\"");
        let mut terminal = Pseudoterminal::running(&line);
        terminal.shows("I am ");
        terminal.types("Ada\n");
        terminal.shows("Hello, Ada.");
        terminal.types("Grace\n");
        terminal.shows("Again, Grace.");
        assert_eq!(terminal.ends(), 0);
    }
}

#[test]
fn ctrl_c_reaches_the_program_and_ends_the_command_with_it() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let (url, zookeeper) = (url(&member), servers.connect_string());
    for command in [
        format!("lock m --url {url}"),
        format!(
            "exec --on-exit restart --id x --election /exec --listen 127.0.0.1:0 --zookeeper {zookeeper}"
        ),
    ] {
        let mut terminal = Pseudoterminal::running(&format!(
            "{PROGRAM} {command} -- sh -c 'echo here; sleep 1000'"
        ));
        terminal.shows("here");
        terminal.types(CTRL_C);
        assert_eq!(terminal.ends(), 130, "{command}");
    }
    is_released(&member);
}

#[test]
fn a_program_that_is_stopped_is_told_of_and_goes_on_where_it_was() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let command = format!("{PROGRAM} lock m --url {} -- sh -c '{ASKS}'", url(&member));
    let mut terminal = Pseudoterminal::running(&command);
    terminal.shows("I am ");
    let program = terminal.number_behind("I am ");
    terminal.types(CTRL_Z);
    terminal.shows(&format!("kill -CONT {program}"));
    signal(program, Signal::CONT);
    terminal.types("Ada\n");
    terminal.shows("Hello, Ada.");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_program_that_is_stopped_for_too_long_is_killed_and_the_lock_released() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    for stop in [Some(Signal::STOP), None] {
        let options = format!("--stopped-for 300ms --url {}", url(&member));
        let mut terminal =
            Pseudoterminal::running(&format!("{PROGRAM} lock m {options} -- sh -c '{ASKS}'"));
        terminal.shows("I am ");
        match stop {
            Some(stop) => signal(terminal.number_behind("I am "), stop),
            None => terminal.types(CTRL_Z),
        }
        terminal.shows("is stopped");
        terminal.shows("stopped for too long");
        assert_eq!(terminal.ends(), 137);
    }
    is_released(&member);
}

#[test]
fn a_program_in_the_background_that_reads_from_the_terminal_is_told_of() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let command = format!("{PROGRAM} lock m --stopped-for 300ms --url {}", url(&member));
    // With job control, so that what follows `&` is in the background.
    let line = format!(
        "set -m; {command} -- sh -c 'read -r name </dev/tty' & wait $!; echo \"ended with $?\""
    );
    let terminal = Pseudoterminal::running(&line);
    terminal.shows("reads from the terminal in the background");
    terminal.shows("ended with 137");
    assert_eq!(terminal.ends(), 0);
}

#[test]
fn a_program_that_waits_for_the_terminal_goes_on_in_the_foreground() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let command = format!("{PROGRAM} lock m --url {}", url(&member));
    let line = format!(
        "set -m; {command} -- sh -c 'read -r name </dev/tty; echo \"got $name\"' & read -r go </dev/tty; fg"
    );
    let mut terminal = Pseudoterminal::running(&line);
    terminal.shows("reads from the terminal in the background");
    terminal.types("go\n");
    terminal.types("it\n");
    terminal.shows("got it");
    assert_eq!(terminal.ends(), 0);
}

#[track_caller]
fn is_released(member: &Member) {
    eventually("the lock is released", || {
        let queue = ok(member, "/locks/m");
        let holders = queue["holders"].as_array().expect("a list");
        if holders.is_empty() { Ok(()) } else { Err(queue.to_string()) }
    });
}

/// A shell at a terminal of its own, by `script`.
struct Pseudoterminal {
    process: Process,
    keyboard: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Pseudoterminal {
    fn running(line: &str) -> Self {
        let mut command = tied_to_this_thread("script");
        command.args(["-qec", line, "/dev/null"]).env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let keyboard = process.child().stdin.take().expect("it is piped");
        let mut screen = process.child().stdout.take().expect("it is piped");
        let shown = Arc::<Mutex<String>>::default();
        let collected = shown.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                collected.lock().expect("no thread panics while holding it").push_str(&text);
            }
        });
        Self { process, keyboard, shown }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it runs");
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        eventually(&format!("the terminal shows {text:?}"), || {
            let shown = self.shown();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }

    fn shown(&self) -> String {
        self.shown.lock().expect("no thread panics while holding it").clone()
    }

    fn number_behind(&self, text: &str) -> i32 {
        let shown = self.shown();
        let (_, behind) = shown.split_once(text).expect("it is shown");
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("the number of a process")
    }

    /// Waits until it ends, and returns the exit code.
    fn ends(mut self) -> i32 {
        self.process.wait().0.code().expect("it exits by itself")
    }
}
