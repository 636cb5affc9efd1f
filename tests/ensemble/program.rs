//! A program that talks to members as an application does, and what it says.

use crate::{
    process::{Process, tied_to_this_thread},
    wait::eventually,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

pub(crate) struct Program {
    name: String,
    process: Process,
    said: Lines,
    complained: Lines,
}

/// Each with when it was read.
type Lines = Arc<Mutex<Vec<(Instant, String)>>>;

impl Program {
    /// Starts it, in a process group of its own: it may start others.
    pub(crate) fn start<'a>(
        name: &str,
        command: impl IntoIterator<Item = &'a str>,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut words = command.into_iter();
        let mut command = with_group(words.next().expect("a command has a name"));
        command.args(words).envs(environment.iter().copied());
        let mut process = Process::start(&mut command);
        let child = process.child();
        let said = collected(child.stdout.take().expect("it is piped"));
        let complained = collected(child.stderr.take().expect("it is piped"));
        Self { name: name.to_owned(), process, said, complained }
    }

    /// The lines of its standard output.
    pub(crate) fn said(&self) -> Vec<String> {
        let said = self.said.lock().expect("no thread panics while holding it");
        said.iter().map(|(_, line)| line.clone()).collect()
    }

    /// Returns when it said the line with this number.
    pub(crate) fn said_at(&self, number: usize) -> Instant {
        self.said.lock().expect("no thread panics while holding it")[number].0
    }

    /// Waits until there is such a line on its standard error.
    #[track_caller]
    pub(crate) fn complains(&self, is_it: impl Fn(&str) -> bool) {
        eventually(&format!("{} complains", self.name), || {
            let complained = self.complained.lock().expect("no thread panics while holding it");
            let found = complained.iter().any(|(_, line)| is_it(line));
            if found { Ok(()) } else { Err(format!("{complained:?}")) }
        });
    }

    /// Waits until it has said such a line, from the given line on; returns the number of the next.
    #[track_caller]
    pub(crate) fn says(&self, from: usize, is_it: impl Fn(&str) -> bool) -> usize {
        eventually(&format!("{} says so", self.name), || {
            let said = self.said();
            let found = said.iter().skip(from).position(|line| is_it(line));
            found.map(|at| from + at + 1).ok_or_else(|| format!("{said:?}"))
        })
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.process.ended().is_none()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Not after it was waited for: its number may be another's by then.
        if self.runs() {
            let group = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
            let group = group.expect("the number of a process");
            let _gone_already = kill_process_group(group, Signal::KILL);
        }
        if thread::panicking() {
            let complained = self.complained.lock().expect("no thread panics while holding it");
            eprintln!("--- {} said: {:#?} and {complained:#?}", self.name, self.said());
        }
    }
}

fn with_group(program: &str) -> Command {
    let mut command = tied_to_this_thread(program);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    // No proxy knows the members.
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command
}

fn collected(pipe: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let collected = Arc::clone(&lines);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            collected
                .lock()
                .expect("no thread panics while holding it")
                .push((Instant::now(), line));
        }
    });
    lines
}
