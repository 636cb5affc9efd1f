//! The messages between the supervisor and a guard, one packet of JSON each. When one side has exited, the other side's
//! next read returns `None`.

use crate::process::JobChange;
use recipes::Moment;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};
use rustix::process::Signal;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::time::Duration;
use tokio::net::UnixStream;

/// The size in bytes of the receive buffer, more than the length of any message.
const LONGEST_MESSAGE: usize = 512;

/// The configuration that a guard needs before it starts its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GuardConfig {
    /// The end of the lease, unless it is renewed.
    #[serde(with = "moment")]
    pub(super) until: Moment,
    /// The time between asking the command to end and killing it.
    pub(super) kill_after: Duration,
    /// The limit of open files for the command; `None` if the number is not limited.
    pub(super) file_limit: Option<u64>,
    /// The supervisor's process group, if that group was in the foreground of the terminal when the run began. If it
    /// still is when the command starts, the command's group takes its place there.
    pub(super) foreground: Option<i32>,
    /// Whether the outer guard shuts down the descriptor in any case when the command is dead. Otherwise it does so
    /// only if the inner guard did not end the command in time.
    pub(super) shuts_down_descriptor: bool,
}

/// A message from the supervisor to a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToGuard {
    /// The lease was renewed, and ends at this moment unless it is renewed again.
    Renewed(#[serde(with = "moment")] Moment),
    /// Ask the command to end, with this signal.
    End(#[serde(with = "signal")] Signal),
    /// Forward this signal to the command.
    Signal(#[serde(with = "signal")] Signal),
    /// Kill the command and all processes that it has started.
    Kill,
}

/// A message from a guard to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromGuard {
    /// From the inner guard: the command has started. Its process leads a group of its own.
    Started { pid: i32 },
    /// From the inner guard: the command has ended with this exit code. `by_itself` is false if a guard asked the
    /// command to end, or killed it.
    Ended { code: u8, by_itself: bool },
    /// From the inner guard: the command was stopped or continued.
    Job(JobChange),
    /// From the outer guard: it is about to kill the inner guard, which did not end the command in time. So the
    /// supervisor does not take the death of the inner guard for a failure.
    Kills,
    /// From the outer guard: the inner guard and all processes of the command are gone.
    Gone,
}

mod moment {
    use super::*;

    pub(super) fn serialize<S: Serializer>(at: &Moment, serializer: S) -> Result<S::Ok, S::Error> {
        at.0.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        Duration::deserialize(from).map(Moment)
    }
}

mod signal {
    use super::*;

    pub(super) fn serialize<S: Serializer>(sent: &Signal, into: S) -> Result<S::Ok, S::Error> {
        sent.as_raw().serialize(into)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Signal, D::Error> {
        let number = i32::deserialize(from)?;
        Signal::from_named_raw(number).ok_or_else(|| D::Error::custom("not a signal"))
    }
}

/// One end of the socket between the supervisor and a guard.
pub(super) struct GuardLink(UnixStream);

impl GuardLink {
    /// Returns the supervisor's end, and the end that becomes the guard's standard input.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::over(ours)?, theirs))
    }

    /// Makes `socket`, an end that already exists, a nonblocking link.
    pub(super) fn over(socket: OwnedFd) -> io::Result<Self> {
        let stream = BlockingStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(stream)?))
    }

    /// Sends the configuration, the standard input for the guard's child, and the descriptor that the guard keeps open,
    /// if any.
    pub(super) fn send_config(
        &self,
        config: GuardConfig,
        stdin: BorrowedFd<'_>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut fds = SendAncillaryBuffer::new(&mut space);
        let sent: Vec<_> = [stdin].into_iter().chain(descriptor).collect();
        assert!(fds.push(SendAncillaryMessage::ScmRights(&sent)), "there is space for two");
        let bytes = serde_json::to_vec(&config)?;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut fds, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a [`ToGuard`] or a [`FromGuard`]. Fails if the other side has closed its end, or if its receive buffer is
    /// full.
    pub(super) fn send(&self, message: impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec(&message)?;
        send(&self.0, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Returns whether the next unread message is [`FromGuard::Kills`], without reading it.
    pub(super) fn announces_kill(&self) -> bool {
        let mut bytes = [0; LONGEST_MESSAGE];
        let peeked = recv(&self.0, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let message = peeked.ok().and_then(|(read, _)| serde_json::from_slice(&bytes[..read]).ok());
        message == Some(FromGuard::Kills)
    }

    /// Waits for the next message. Returns `None` if the other side has closed its end, or if reading fails.
    pub(super) async fn receive<T: DeserializeOwned>(&self) -> Option<T> {
        let mut bytes = [0; LONGEST_MESSAGE];
        loop {
            self.0.readable().await.ok()?;
            match self.0.try_read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // If the other side has closed its end, nothing is read, which is not valid JSON.
                read => return serde_json::from_slice(&bytes[..read.ok()?]).ok(),
            }
        }
    }
}

/// Blocks until the configuration arrives at the guard's end of the socket. Also returns the standard input for the
/// guard's child, and the descriptor to keep open, if one was sent.
pub(super) fn receive_config(
    socket: &impl AsFd,
) -> io::Result<(GuardConfig, OwnedFd, Option<OwnedFd>)> {
    let mut bytes = [0; LONGEST_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut fds = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(socket, into, &mut fds, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let descriptors = fds.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => Some((fds.next(), fds.next())),
        _ => None,
    });
    // If the supervisor died before it sent the configuration, no descriptor has arrived.
    let (stdin, descriptor) = descriptors.unwrap_or_default();
    let stdin = stdin.ok_or(ErrorKind::UnexpectedEof)?;
    Ok((serde_json::from_slice(&bytes[..received.bytes])?, stdin, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_and_the_end_of_the_other_side_is_noticed() {
        let (supervisor, socket) = GuardLink::pair().unwrap();
        for is_set in [false, true] {
            let config = GuardConfig {
                until: Moment(Duration::new(1, 5)),
                kill_after: Duration::from_secs(2),
                file_limit: None,
                shuts_down_descriptor: is_set,
                foreground: is_set.then_some(1),
            };
            let stdin = io::stdin();
            let stderr = io::stderr();
            supervisor.send_config(config, stdin.as_fd(), is_set.then(|| stderr.as_fd())).unwrap();
            let (received, _, descriptor) = receive_config(&socket).unwrap();
            assert_eq!((received, descriptor.is_some()), (config, is_set));
        }

        let guard = GuardLink::over(socket).unwrap();
        for message in [
            ToGuard::Renewed(Moment(Duration::from_millis(7))),
            ToGuard::End(Signal::INT),
            ToGuard::Signal(Signal::HUP),
            ToGuard::Kill,
        ] {
            supervisor.send(message).unwrap();
            assert_eq!(guard.receive().await, Some(message));
        }
        let messages = [
            FromGuard::Started { pid: 1 },
            FromGuard::Ended { code: 143, by_itself: true },
            FromGuard::Ended { code: 0, by_itself: false },
            FromGuard::Job(JobChange::Stopped { signal: Signal::TSTP.as_raw() }),
            FromGuard::Job(JobChange::Continued),
            FromGuard::Kills,
            FromGuard::Gone,
        ];
        messages.into_iter().for_each(|message| guard.send(message).unwrap());
        drop(guard);
        for message in messages {
            assert_eq!(supervisor.announces_kill(), message == FromGuard::Kills);
            assert_eq!(supervisor.receive().await, Some(message));
        }
        assert!(!supervisor.announces_kill());
        assert_eq!(supervisor.receive::<FromGuard>().await, None);
    }
}
