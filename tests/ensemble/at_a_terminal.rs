//! Programs that `exec`, `lock` and `barrier` run at a terminal: they read from it, get the signals of its keys, and what is
//! stopped does not hold a lock for ever.

use crate::{
    command::{PROGRAM, url},
    group::started_in_order,
    member::{Member, Setup, ok},
    process::signal,
    pseudoterminal::{ASKS, Pseudoterminal, reads_from_the_terminal},
    servers::Servers,
    wait::eventually,
};
use rustix::process::Signal;

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

#[test]
fn a_program_reads_from_the_terminal_and_gives_it_back() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    reads_from_the_terminal(PROGRAM, &servers, &url(&member));
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
    terminal.shows("uses the terminal in the background");
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
    terminal.shows("uses the terminal in the background");
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
