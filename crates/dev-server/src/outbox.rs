//! The frames that wait to be sent over one connection.
//!
//! The handling of a frame never waits until a client reads: the frames to send are put into the client's outbox. The
//! size of an outbox is limited. The server stops reading from a client that does not read, so that no further answers
//! are added. When too many notifications wait for the client, its connection is closed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// With this many bytes waiting, the server stops reading from the client.
const FULL: usize = 1 << 20;
/// With this many bytes waiting, the connection is closed.
const OVERFULL: usize = 16 << 20;

/// The frames that wait to be sent over a connection, and whether it is to be closed.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: Mutex<FrameQueue>,
    /// Wakes [`Outbox::next`].
    filled: Notify,
    /// Wakes [`Outbox::wait_for_room`].
    emptied: Notify,
    /// Wakes [`Outbox::wait_for_abort`].
    aborted: Notify,
}

/// The frames of an outbox, and their total length in bytes.
#[derive(Debug, Default)]
struct FrameQueue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// If true, no further frames are added. The waiting frames are still sent.
    has_ended: bool,
}

impl Outbox {
    /// Adds a frame. An outbox that has ended ignores the frame. Returns false only if too many bytes are waiting already,
    /// and then drops the connection.
    #[must_use]
    pub(crate) fn push(&self, frame: Vec<u8>) -> bool {
        let mut queue = self.queue();
        if queue.has_ended {
            return true;
        }
        if queue.bytes >= OVERFULL {
            drop(queue);
            self.abort();
            return false;
        }
        queue.bytes += frame.len();
        queue.frames.push_back(frame);
        self.filled.notify_one();
        true
    }

    /// Closes the connection once all frames have been sent.
    pub(crate) fn finish(&self) {
        self.queue().has_ended = true;
        self.filled.notify_one();
        self.emptied.notify_one();
    }

    /// Closes the connection at once, and discards the waiting frames. Need not wake [`next`](Self::next) and
    /// [`wait_for_room`](Self::wait_for_room): the task of the connection abandons them when it is woken to close.
    pub(crate) fn abort(&self) {
        let mut queue = self.queue();
        queue.has_ended = true;
        queue.frames.clear();
        queue.bytes = 0;
        self.aborted.notify_one();
    }

    /// Waits for the next frame to send. Returns `None` once the outbox has ended and is empty. Only one task may wait.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut queue = self.queue();
                if let Some(frame) = queue.frames.pop_front() {
                    queue.bytes -= frame.len();
                    self.emptied.notify_one();
                    return Some(frame);
                }
                if queue.has_ended {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Waits until more may be read from the client. Returns false once the outbox has ended. Only one task may wait.
    pub(crate) async fn wait_for_room(&self) -> bool {
        loop {
            {
                let queue = self.queue();
                if queue.has_ended || queue.bytes < FULL {
                    return !queue.has_ended;
                }
            }
            self.emptied.notified().await;
        }
    }

    /// Waits until the connection is to be closed at once. Only one task may wait.
    pub(crate) async fn wait_for_abort(&self) {
        self.aborted.notified().await;
    }

    fn queue(&self) -> MutexGuard<'_, FrameQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_pushed_before_the_end_is_sent() {
        let outbox = Outbox::default();
        assert!(outbox.push(vec![1]));
        outbox.finish();
        assert!(outbox.push(vec![2]));
        assert_eq!(outbox.next().await, Some(vec![1]));
        assert_eq!(outbox.next().await, None);
        assert!(!outbox.wait_for_room().await);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped_at_last() {
        let outbox = Outbox::default();
        let pushed = (0..100).take_while(|_| outbox.push(vec![0; FULL])).count();
        assert_eq!(pushed, 16);
        outbox.wait_for_abort().await;
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn a_full_outbox_has_room_again_once_it_was_emptied() {
        let outbox = Outbox::default();
        assert!(outbox.push(vec![0; FULL]));
        let (room, frame) = tokio::join!(outbox.wait_for_room(), outbox.next());
        assert!(room);
        assert!(frame.is_some());
    }
}
