//! The log of a simulation: a line for each event, with its simulated time. The same seed gives the same log, byte by byte.

use crate::kernel;
use crate::time::{SECOND, SimTime};
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, Write};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

thread_local! {
    static NOW: Cell<SimTime> = const { Cell::new(0) };
    /// The daemon that is being stepped.
    static SPEAKER: RefCell<String> = const { RefCell::new(String::new()) };
    static JOURNAL: RefCell<Journal> =
        const {
            RefCell::new(Journal {
                is_printed: false,
                level: Level::INFO,
                lines: 0,
                hash: 0xcbf2_9ce4_8422_2325,
            })
        };
}

struct Journal {
    is_printed: bool,
    /// What daemons log is printed up to this level.
    level: Level,
    lines: u64,
    /// FNV-1a of all lines.
    hash: u64,
}

/// The length and the hash of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    pub lines: u64,
    pub hash: u64,
}

/// Begins the log, and prints it if wanted. Daemons always log all that they have, whatever of it is printed: to write a line
/// takes memory, whose addresses are part of the simulation.
pub fn begin(is_printed: bool, level: Level) {
    JOURNAL.with_borrow_mut(|journal| {
        journal.is_printed = is_printed;
        journal.level = level;
    });
    // Its memory is taken at the first use.
    io::stdout().flush().expect("standard output is open");
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_ansi(false)
        .with_max_level(Level::DEBUG)
        .with_writer(LineWriter)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("it is set once");
}

pub fn set_now(now: SimTime) {
    NOW.set(now);
}

pub fn set_speaker(name: &str) {
    SPEAKER.with_borrow_mut(|speaker| {
        speaker.clear();
        speaker.push_str(name);
    });
}

/// Writes a line.
pub fn note(text: impl Display) {
    write_line(&format!("{text}"), Level::ERROR);
}

pub fn digest() -> Digest {
    JOURNAL.with_borrow(|journal| Digest { lines: journal.lines, hash: journal.hash })
}

fn write_line(text: &str, level: Level) {
    let now = NOW.get();
    let line = format!("{:>6}.{:09} {text}\n", now / SECOND, now % SECOND);
    JOURNAL.with_borrow_mut(|journal| {
        journal.lines += 1;
        for byte in line.bytes() {
            journal.hash = (journal.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if journal.is_printed && level <= journal.level {
            io::stdout().write_all(line.as_bytes()).expect("standard output takes it");
        }
    });
}

/// Takes the lines of daemons' own logs.
struct LineWriter;

impl MakeWriter<'_> for LineWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Threads of their own, such as those that read files, are not part of the simulation.
        if kernel::is_simulated() {
            let text = String::from_utf8_lossy(bytes);
            let speaker = SPEAKER.with_borrow(String::clone);
            let text = text.trim();
            let level = text.split(' ').next().and_then(|level| level.parse().ok());
            write_line(&format!("{speaker}: {text}"), level.unwrap_or(Level::INFO));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
