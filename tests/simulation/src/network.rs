//! The connections between daemons and servers, as they are under way.

use crate::time::{MILLISECOND, SimTime};
use fastrand::Rng;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

/// One connection.
pub struct Link {
    pub machine: usize,
    pub server: usize,
    /// The other end of the daemon's socket; none when either side has closed it.
    peer: Option<File>,
    /// The server has taken it in.
    pub is_open: bool,
    /// What is sent in one direction arrives in order: when the last of it does.
    to_server_at: SimTime,
    to_daemon_at: SimTime,
    /// What the daemon's socket had no room for.
    unsent: VecDeque<u8>,
    /// One direction is dead, and neither side is told.
    pub is_deaf: bool,
    pub is_mute: bool,
    /// The server does not read from it before this.
    pub unread_until: SimTime,
}

/// The way between one daemon and one server.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The shortest and the longest time that a packet takes, in microseconds.
    pub latency_us: (u64, u64),
    /// Nothing arrives before these.
    pub to_server_blocked_until: SimTime,
    pub to_daemon_blocked_until: SimTime,
    pub refuses_until: SimTime,
}

/// What a daemon has sent.
pub struct Sent {
    pub bytes: Vec<u8>,
    pub has_ended: bool,
}

impl Path {
    pub const GOOD: Self = Self {
        latency_us: (50, 1500),
        to_server_blocked_until: 0,
        to_daemon_blocked_until: 0,
        refuses_until: 0,
    };

    fn delay(&self, random: &mut Rng) -> SimTime {
        let (shortest, longest) = self.latency_us;
        random.u64(shortest..=longest) * (MILLISECOND / 1000)
    }
}

impl Link {
    pub fn new(machine: usize, server: usize, peer: OwnedFd) -> Self {
        Self {
            machine,
            server,
            peer: Some(File::from(peer)),
            is_open: false,
            to_server_at: 0,
            to_daemon_at: 0,
            unsent: VecDeque::new(),
            is_deaf: false,
            is_mute: false,
            unread_until: 0,
        }
    }

    /// Returns when something that is sent to the server now arrives.
    pub fn arrives_at_server(&mut self, path: &Path, now: SimTime, random: &mut Rng) -> SimTime {
        let at = now.max(path.to_server_blocked_until) + path.delay(random);
        self.to_server_at = at.max(self.to_server_at + 1);
        self.to_server_at
    }

    /// Returns when something that is sent to the daemon now arrives.
    pub fn arrives_at_daemon(&mut self, path: &Path, now: SimTime, random: &mut Rng) -> SimTime {
        let at = now.max(path.to_daemon_blocked_until) + path.delay(random);
        self.to_daemon_at = at.max(self.to_daemon_at + 1);
        self.to_daemon_at
    }

    /// Reads what the daemon has written.
    pub fn read(&mut self) -> Sent {
        let mut sent = Sent { bytes: vec![], has_ended: false };
        let Some(peer) = &mut self.peer else { return sent };
        let mut block = [0; 16 * 1024];
        loop {
            match peer.read(&mut block) {
                Ok(0) => sent.has_ended = true,
                Ok(length) => {
                    sent.bytes.extend_from_slice(&block[..length]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => sent.has_ended = true,
            }
            break;
        }
        if sent.has_ended {
            self.peer = None;
        }
        sent
    }

    /// Hands to the daemon what has arrived for it, as far as its socket has room.
    pub fn write(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
        let Some(peer) = &mut self.peer else { return };
        while !self.unsent.is_empty() {
            let written = peer.write(self.unsent.make_contiguous());
            match written {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.unsent.clear(),
            }
        }
    }

    /// Closes it at the daemon's side.
    pub fn close(&mut self) {
        self.peer = None;
    }

    pub fn is_closed(&self) -> bool {
        self.peer.is_none()
    }
}
