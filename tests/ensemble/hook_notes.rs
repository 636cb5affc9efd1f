//! Hooks that note down what they are told, and an application that keeps what it is sent.

use crate::{
    group::{role_of, started_in_order},
    member::Setup,
    servers::Servers,
    wait::eventually,
};
use serde_json::json;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};
use tempfile::TempDir;

/// A directory for a configuration with hooks, and for what they note down.
pub(crate) struct Home(TempDir);

/// What a hook noted down when it began or ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) hook: String,
    pub(crate) what: String,
    pub(crate) change: String,
    pub(crate) token: String,
    pub(crate) address: String,
    /// Seconds since boot.
    pub(crate) at: f64,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Has members run these hooks.
    pub(crate) fn with(&self, setup: Setup, hooks: &[String]) -> Setup {
        self.write(&hooks.concat());
        setup.option("--config", self.path("config.toml").to_str().expect("a path of text"))
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path("config.toml"), text).expect("a file");
    }

    /// Returns a hook that notes down when it begins and ends, and does this in between.
    pub(crate) fn noting(&self, name: &str, on: &str, does: &str) -> String {
        let diary = self.path("diary");
        let note = |what: &str| {
            format!(
                "read up idle < /proc/uptime; echo {name} {what} $BELLWETHER_CHANGE \
                 ${{BELLWETHER_TOKEN:-none}} ${{BELLWETHER_LEADER_ADDRESS:-none}} $up >> {}",
                diary.display()
            )
        };
        let script = format!("{}; {does}; {}", note("begins"), note("ends"));
        format!(
            "[[hook]]\non = {on}\ntimeout = \"60s\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
        )
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        let note = |line: &str| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("six words").to_owned();
            let (hook, what, change) = (word(), word(), word());
            let (token, address) = (word(), word());
            Note { hook, what, change, token, address, at: word().parse().expect("seconds") }
        };
        self.text("diary").lines().map(note).collect()
    }

    /// Waits for a note, from the given one on; returns it and the number of the next.
    #[track_caller]
    pub(crate) fn noted(&self, from: usize, hook: &str, what: &str, change: &str) -> (Note, usize) {
        eventually(&format!("{hook} {what} {change}"), || {
            let notes = self.notes();
            let is_it = |it: &Note| it.hook == hook && it.what == what && it.change == change;
            let found = notes.iter().skip(from).position(is_it);
            found
                .map(|at| (notes[from + at].clone(), from + at + 1))
                .ok_or_else(|| format!("{notes:?}"))
        })
    }
}

/// A request's head and body.
pub(crate) type Post = (Vec<String>, String);

/// An application that answers as it is told to, and keeps what it was sent.
pub(crate) struct Application {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<Post>>>,
}

impl Application {
    /// Gives the first clients these answers; later clients get none.
    pub(crate) fn answering(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let heard = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&heard);
        thread::spawn(move || {
            let mut hung = vec![];
            for (visitor, n) in listener.incoming().map_while(Result::ok).zip(0..) {
                kept.lock().expect("the test lives").push(read(&visitor));
                match answers.get(n) {
                    Some(answer) => {
                        let mut visitor = &visitor;
                        let _ = write!(visitor, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
                    }
                    None => hung.push(visitor),
                }
            }
        });
        Self { port, heard }
    }

    pub(crate) fn heard(&self, enough: usize) -> Vec<Post> {
        eventually("it was told", || {
            let heard = self.heard.lock().expect("no thread panics while holding it").clone();
            if heard.len() >= enough { Ok(heard) } else { Err(format!("{heard:?}")) }
        })
    }
}

fn read(visitor: &TcpStream) -> Post {
    let mut reader = BufReader::new(visitor);
    let head = reader.by_ref().lines().map_while(Result::ok);
    let head: Vec<String> = head.take_while(|line| !line.is_empty()).collect();
    let length = header(&head, "content-length").parse().expect("a length");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    (head, String::from_utf8(body).expect("a body of text"))
}

pub(crate) fn header<'a>(head: &'a [String], name: &str) -> &'a str {
    let value = head.iter().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name));
    value.unwrap_or_else(|| panic!("{name} in {head:?}")).1
}

/// `exec` waits for all children, and must not take the exit status of a hook's command from the hook.
#[track_caller]
pub(crate) fn hooks_know_how_theirs_ended(adapt: impl FnOnce(Setup) -> Setup) {
    let servers = Servers::standalone();
    let home = Home::new();
    let codes: Vec<u8> = (1..=20).collect();
    let hooks: Vec<_> = codes
        .iter()
        .map(|code| home.noting("x", r#"["became-leader"]"#, &format!("exit {code}")))
        .collect();
    let last = home.noting("last", r#"["became-leader"]"#, "true");
    let setup = home.with(Setup::of(&servers), &[hooks, vec![last]].concat());
    let setup = adapt(setup.executing(&["sh", "-c", "while :; do sleep 0.02; done"]));
    let [member] = started_in_order(&setup, ["a"]);
    home.noted(0, "last", "ends", "became-leader");
    let hooks = member.status()["hooks"].clone();
    for code in &codes {
        let failure = &hooks[usize::from(code - 1)]["last"]["failure"];
        assert_eq!(failure, &json!(format!("exit code {code}")), "{hooks}");
    }
    assert_eq!(role_of(&member), "leader");
}
