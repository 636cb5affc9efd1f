//! A terminal at which a command runs, and programs that read from it.

use crate::{
    process::{Process, tied_to_this_thread},
    servers::Servers,
    wait::eventually,
};
use std::{
    io::{Read, Write},
    process::{ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
};

/// Asks for a name, as many programs do, and says its process id.
pub(crate) const ASKS: &str = "echo \"I am $$.\"; read -r name; echo \"Hello, $name.\"";

/// Checks that the program that each of the commands runs reads from the terminal, and gives it back.
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

/// A shell at a terminal of its own, by `script`.
pub(crate) struct Pseudoterminal {
    process: Process,
    keyboard: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Pseudoterminal {
    pub(crate) fn running(line: &str) -> Self {
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

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it runs");
    }

    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("the terminal shows {text:?}"), || {
            let shown = self.shown();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().expect("no thread panics while holding it").clone()
    }

    pub(crate) fn number_behind(&self, text: &str) -> i32 {
        let shown = self.shown();
        let (_, behind) = shown.split_once(text).expect("it is shown");
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("the number of a process")
    }

    /// Waits until it ends, and returns the exit code.
    pub(crate) fn ends(mut self) -> i32 {
        self.process.wait().0.code().expect("it exits by itself")
    }
}
