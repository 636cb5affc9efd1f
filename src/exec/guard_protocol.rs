//! The messages between the supervisor and a guard, one packet each. When one side has exited, the other side's next read
//! returns `None`.

use crate::process::JobChange;
use recipes::Moment;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use rustix::process::{Pid, Signal};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::time::Duration;
use tokio::net::UnixStream;

/// The configuration that a guard needs before it starts the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuardConfig {
    /// When the lease ends, unless it is renewed.
    pub(super) until: Moment,
    /// How long the command may keep running after it was asked to end.
    pub(super) kill_after: Duration,
    /// The limit of open files for the command, if there is one.
    pub(super) files: Option<u64>,
    /// The supervisor's process group. If it is in the foreground of the terminal, the command's group takes its place.
    pub(super) foreground: Option<Pid>,
    /// Whether to shut down the descriptor whenever the command ends, and not only if the guards had to kill it.
    pub(super) shuts_down_descriptor: bool,
}

/// A message from the supervisor to a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToGuard {
    /// The lease now ends at this moment, unless it is renewed again.
    Renewed(Moment),
    /// Ask the command to end, with this signal.
    End(Signal),
    /// Forward this signal to the command.
    Signal(Signal),
}

/// A message from a guard to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromGuard {
    /// The command's process, which leads a group of its own.
    Started(Pid),
    /// The command has ended: by itself, or because a guard asked it to end or killed it.
    Ended { code: u8, by_itself: bool },
    /// The command was stopped or continued.
    Job(JobChange),
    /// The outer guard is about to kill the inner guard, because the time has run out.
    Kills,
    /// No process of the command is left.
    Gone,
}

/// An end of the socket between the supervisor and a guard.
pub(super) struct GuardLink(UnixStream);

/// A tag and a number, in little-endian order.
type Packet = [u8; 9];

const KILLS: u8 = b'k';

impl GuardLink {
    /// Returns the supervisor's end, and the end that becomes the guard's standard input.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::over(ours)?, theirs))
    }

    pub(super) fn over(socket: OwnedFd) -> io::Result<Self> {
        let stream = BlockingStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(stream)?))
    }

    /// Sends the configuration, the standard input for the guard's child, and the descriptor to keep open.
    pub(super) fn send_config(
        &self,
        config: GuardConfig,
        stdin: BorrowedFd<'_>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut fds = SendAncillaryBuffer::new(&mut space);
        let given: Vec<_> = [stdin].into_iter().chain(descriptor).collect();
        assert!(fds.push(SendAncillaryMessage::ScmRights(&given)), "there is space for two");
        let numbers = [
            nanos(config.until.0),
            nanos(config.kill_after),
            config.files.unwrap_or(u64::MAX),
            config.shuts_down_descriptor.into(),
            config.foreground.map_or(0, |group| group.as_raw_pid().unsigned_abs().into()),
        ];
        let bytes = numbers.map(u64::to_le_bytes).concat();
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut fds, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message to the guard. Fails if the guard has closed its end, or if its receive buffer is full.
    pub(super) fn send_to_guard(&self, message: ToGuard) -> io::Result<()> {
        self.send(match message {
            ToGuard::Renewed(until) => packet(b'r', nanos(until.0)),
            ToGuard::End(signal) => packet(b'e', number(signal)),
            ToGuard::Signal(signal) => packet(b's', number(signal)),
        })
    }

    pub(super) fn send_to_supervisor(&self, message: FromGuard) -> io::Result<()> {
        self.send(match message {
            FromGuard::Started(pid) => packet(b'p', pid.as_raw_pid().unsigned_abs().into()),
            FromGuard::Ended { code, by_itself: true } => packet(b'x', code.into()),
            FromGuard::Ended { code, by_itself: false } => packet(b't', code.into()),
            FromGuard::Job(JobChange::Stopped(signal)) => packet(b'z', signal.map_or(0, number)),
            FromGuard::Job(JobChange::Continued) => packet(b'c', 0),
            FromGuard::Kills => packet(KILLS, 0),
            FromGuard::Gone => packet(b'g', 0),
        })
    }

    /// Returns the supervisor's next message, or `None` if the supervisor is gone.
    pub(super) async fn receive_from_supervisor(&self) -> Option<ToGuard> {
        let (tag, number) = self.receive().await?;
        match tag {
            b'r' => Some(ToGuard::Renewed(Moment(Duration::from_nanos(number)))),
            b'e' => signal_of(number).map(ToGuard::End),
            b's' => signal_of(number).map(ToGuard::Signal),
            _ => None,
        }
    }

    /// Returns the guard's next message, or `None` if the guard is gone.
    pub(super) async fn receive_from_guard(&self) -> Option<FromGuard> {
        let (tag, number) = self.receive().await?;
        match tag {
            b'p' => Pid::from_raw(i32::try_from(number).ok()?).map(FromGuard::Started),
            b'x' | b't' => {
                let code = u8::try_from(number).ok()?;
                Some(FromGuard::Ended { code, by_itself: tag == b'x' })
            }
            b'z' => Some(FromGuard::Job(JobChange::Stopped(signal_of(number)))),
            b'c' => Some(FromGuard::Job(JobChange::Continued)),
            KILLS => Some(FromGuard::Kills),
            b'g' => Some(FromGuard::Gone),
            _ => None,
        }
    }

    /// Returns whether the next unread message is [`FromGuard::Kills`].
    pub(super) fn announces_kill(&self) -> bool {
        let mut packet = Packet::default();
        let peeked = recv(&self.0, &mut packet, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_ok() && packet[0] == KILLS
    }

    fn send(&self, packet: Packet) -> io::Result<()> {
        send(&self.0, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    async fn receive(&self) -> Option<(u8, u64)> {
        let mut packet = Packet::default();
        loop {
            self.0.readable().await.ok()?;
            match self.0.try_read(&mut packet) {
                Ok(9) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
        let (tag, number) = packet.split_first()?;
        Some((*tag, u64::from_le_bytes(number.try_into().ok()?)))
    }
}

/// Waits for the configuration, over a socket that is not a [`GuardLink`] yet.
pub(super) fn receive_config(
    socket: &impl AsFd,
) -> io::Result<(GuardConfig, OwnedFd, Option<OwnedFd>)> {
    let mut bytes = [0; 40];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut fds = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, into, &mut fds, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let given = fds.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => Some((fds.next(), fds.next())),
        _ => None,
    });
    let (stdin, descriptor) = given.unwrap_or_default();
    let stdin = stdin.filter(|_| received.bytes == bytes.len()).ok_or(ErrorKind::UnexpectedEof)?;
    let mut numbers = [0; 5];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    let [until_ns, kill_after_ns, files, shuts_down_descriptor, foreground] = numbers;
    let config = GuardConfig {
        until: Moment(Duration::from_nanos(until_ns)),
        kill_after: Duration::from_nanos(kill_after_ns),
        files: Some(files).filter(|files| *files != u64::MAX),
        shuts_down_descriptor: shuts_down_descriptor != 0,
        foreground: i32::try_from(foreground).ok().and_then(Pid::from_raw),
    };
    Ok((config, stdin, descriptor))
}

fn signal_of(number: u64) -> Option<Signal> {
    Signal::from_named_raw(i32::try_from(number).ok()?)
}

fn packet(tag: u8, number: u64) -> Packet {
    let mut packet = [tag; 9];
    packet[1..].copy_from_slice(&number.to_le_bytes());
    packet
}

fn number(signal: Signal) -> u64 {
    signal.as_raw().unsigned_abs().into()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a machine does not run for 584 years")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_and_the_end_of_the_other_side_is_noticed() {
        let (supervisor, socket) = GuardLink::pair().unwrap();
        for keeps in [false, true] {
            let config = GuardConfig {
                until: Moment(Duration::new(1, 5)),
                kill_after: Duration::from_secs(2),
                files: None,
                shuts_down_descriptor: keeps,
                foreground: keeps.then_some(Pid::INIT),
            };
            let stdin = io::stdin();
            let stderr = io::stderr();
            supervisor.send_config(config, stdin.as_fd(), keeps.then(|| stderr.as_fd())).unwrap();
            let (heard, _, descriptor) = receive_config(&socket).unwrap();
            assert_eq!((heard, descriptor.is_some()), (config, keeps));
        }

        let guard = GuardLink::over(socket).unwrap();
        for message in [
            ToGuard::Renewed(Moment(Duration::from_millis(7))),
            ToGuard::End(Signal::INT),
            ToGuard::Signal(Signal::HUP),
        ] {
            supervisor.send_to_guard(message).unwrap();
            assert_eq!(guard.receive_from_supervisor().await, Some(message));
        }
        let messages = [
            FromGuard::Started(Pid::INIT),
            FromGuard::Ended { code: 143, by_itself: true },
            FromGuard::Ended { code: 0, by_itself: false },
            FromGuard::Job(JobChange::Stopped(Some(Signal::TSTP))),
            FromGuard::Job(JobChange::Continued),
            FromGuard::Kills,
            FromGuard::Gone,
        ];
        messages.into_iter().for_each(|message| guard.send_to_supervisor(message).unwrap());
        drop(guard);
        for message in messages {
            assert_eq!(supervisor.announces_kill(), message == FromGuard::Kills);
            assert_eq!(supervisor.receive_from_guard().await, Some(message));
        }
        assert!(!supervisor.announces_kill());
        assert_eq!(supervisor.receive_from_guard().await, None);
    }
}
