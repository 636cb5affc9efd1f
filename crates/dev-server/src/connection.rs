//! Reads the frames of one connection, and sends frames over it.

use crate::admin_commands;
use crate::outbox::Outbox;
use crate::shared::ServerHandle;
use crate::watches::ConnectionId;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// The maximum time until a client requests a session (`zookeeper.nio.sessionlessCnxnTimeout`).
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for a client to read the last frames before its connection is closed.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum wait for a client to close its side of a connection after the server has closed its own.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The next input from a client.
#[derive(Debug)]
enum Incoming {
    Frame(Vec<u8>),
    AdminCommand(String),
}

/// Serves a connection until it is closed. The stream may be TCP or TLS.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite>(
    stream: S,
    shared: Arc<ServerHandle>,
    id: ConnectionId,
    outbox: Arc<Outbox>,
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let all_are_sent = tokio::select! {
        () = outbox.wait_for_abort() => false,
        () = receive(&mut reader, &shared, id, &outbox) => false,
        sent = send(&mut writer, &outbox) => sent.is_ok(),
    };
    shared.forget_connection(id);
    // Read the rest of the input: closing a connection with unread input resets it, and the last frames might be lost.
    if all_are_sent && writer.shutdown().await.is_ok() {
        let mut rest = [0; 1024];
        let drain = async { while matches!(reader.read(&mut rest).await, Ok(1..)) {} };
        let _timed_out = timeout(CLOSE_TIMEOUT, drain).await;
    }
}

/// Reads and handles frames, each completely before the next, until the client has closed the connection. Once the outbox has
/// ended, stops reading, and returns only after a delay, so that [`send`] can first send the last frames.
async fn receive(
    reader: &mut (impl AsyncRead + Unpin),
    shared: &ServerHandle,
    id: ConnectionId,
    outbox: &Outbox,
) {
    let max = shared.settings.max_frame;
    let mut first = true;
    while outbox.wait_for_room().await {
        let incoming = if first {
            timeout(FIRST_FRAME_TIMEOUT, read_input(reader, max, first)).await.unwrap_or(Ok(None))
        } else {
            read_input(reader, max, first).await
        };
        match incoming {
            Ok(Some(Incoming::Frame(frame))) if first => {
                first = false;
                let connected = shared.with_state(|state, now| state.connect(now, id, &frame));
                if let Err(refused) = connected {
                    info!(connection = id.0, "refusing a session: {refused}");
                    outbox.finish();
                }
            }
            Ok(Some(Incoming::Frame(frame))) => {
                let handled = shared.with_state(|state, now| state.request(now, id, &frame));
                if let Err(malformed) = handled {
                    warn!(connection = id.0, "closing: {malformed}");
                    outbox.finish();
                }
            }
            Ok(Some(Incoming::AdminCommand(word))) => shared.answer_admin_command(id, &word),
            Ok(None) => return,
            Err(error) => {
                debug!(connection = id.0, "closed: {error}");
                return;
            }
        }
    }
    sleep(LAST_FRAMES_TIMEOUT).await;
}

/// Sends the frames, until the outbox is closed.
async fn send(writer: &mut (impl AsyncWrite + Unpin), outbox: &Outbox) -> io::Result<()> {
    while let Some(frame) = outbox.next().await {
        writer.write_all(&frame).await?;
        writer.flush().await?;
    }
    Ok(())
}

/// Reads the next input from a client. Returns `None` if the stream ends before the end of a frame, or if the announced
/// length is negative or larger than `max`. Only the first input may be a four-letter word.
async fn read_input(
    reader: &mut (impl AsyncRead + Unpin),
    max: usize,
    first: bool,
) -> io::Result<Option<Incoming>> {
    let mut head = [0; 4];
    if let Err(error) = reader.read_exact(&mut head).await {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        };
    }
    if first && let Some(word) = admin_commands::parse(head) {
        return Ok(Some(Incoming::AdminCommand(word)));
    }
    let announced = i32::from_be_bytes(head);
    let Some(length) = usize::try_from(announced).ok().filter(|length| *length <= max) else {
        warn!(announced, max, "closing: no frame may have this length");
        return Ok(None);
    };
    let frame = read_up_to(reader, length).await?;
    Ok((frame.len() == length).then_some(Incoming::Frame(frame)))
}

/// Reads `length` bytes, or fewer if the stream ends early.
async fn read_up_to(reader: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<Vec<u8>> {
    // The buffer grows with the received bytes, not with the announced length.
    let mut bytes = Vec::new();
    reader.take(length as u64).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::runtime::Builder;

    /// Announced lengths: lengths that a frame may have, and lengths that are too large or negative.
    fn length() -> impl Strategy<Value = i32> {
        prop_oneof![0..3000_i32, any::<i32>(), Just(i32::MAX), Just(-1)]
    }

    proptest! {
        #[test]
        fn a_frame_is_as_long_as_announced_and_takes_memory_for_what_came_alone(
            announced in length(),
            max in prop_oneof![0..3000_usize, Just(0x7fff_ffff)],
            sent in vec(any::<u8>(), 0..3000),
        ) {
            let runtime = Builder::new_current_thread().build().expect("one more runtime");
            let bytes = [&announced.to_be_bytes()[..], &sent].concat();
            let read = runtime.block_on(read_input(&mut &bytes[..], max, false));
            let allowed = usize::try_from(announced).ok().filter(|length| *length <= max);
            match (read.expect("memory can be read"), allowed) {
                (None, None) => {}
                (Some(Incoming::Frame(frame)), Some(length)) => {
                    prop_assert_eq!(Some(&frame[..]), sent.get(..length));
                }
                (None, Some(length)) => {
                    prop_assert!(sent.len() < length);
                    let read = runtime.block_on(read_up_to(&mut &sent[..], length));
                    let read = read.expect("memory can be read");
                    prop_assert_eq!(&read, &sent);
                    prop_assert!(read.capacity() <= 2 * sent.len() + 64, "{}", read.capacity());
                }
                (other, _) => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
