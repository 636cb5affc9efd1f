//! Feeds arbitrary client input to a server, for the fuzz target and for a test.

use crate::settings::ServerSettings;
use crate::state::{Now, Output, ServerState};
use crate::watches::ConnectionId;
use std::net::{Ipv4Addr, SocketAddr};

/// Passes `bytes` to a server as frames, over one connection after the other. Each frame follows its length in two
/// bytes.
///
/// # Panics
///
/// Panics if the server sends a frame whose length prefix is wrong.
pub fn feed(bytes: &[u8]) {
    let mut state = ServerState::new(ServerSettings::default().limits(), [7; 16], 1);
    let mut rest = bytes;
    let mut connection = None;
    let mut count = 0;
    let mut elapsed_ms = 0;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (frame, after) = after.split_at(length);
        rest = after;
        elapsed_ms += 100;
        let now = Now { wall_ms: 1, elapsed_ms };
        let served = match connection {
            None => {
                count += 1;
                let id = ConnectionId(count);
                state.accept(id, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), now);
                connection = Some(id);
                // A connection without a valid first frame is closed, and few inputs contain one. So replace a frame
                // that is too short by a valid one, which requests a new session.
                let valid = [&[0; 12][..], &[0, 0, 16, 0], &[0; 8], &[0, 0, 0, 0]].concat();
                let first = if frame.len() < 28 { valid.as_slice() } else { frame };
                state.connect(now, id, first).is_ok()
            }
            Some(id) => state.request(now, id, frame).is_ok(),
        };
        let mut closed = !served;
        for (_, output) in state.take_outputs() {
            match output {
                Output::Frame(frame) => {
                    let head = frame.first_chunk().map(|head| i32::from_be_bytes(*head));
                    let body = i32::try_from(frame.len() - 4).ok();
                    assert!(head.is_some() && head == body, "{frame:?}");
                }
                Output::Close | Output::Drop => closed = true,
            }
        }
        if closed {
            if let Some(id) = connection.take() {
                state.disconnect(id);
            }
            state.expire_due(now);
            state.delete_outlived(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::feed;
    use crate::wire::opcode;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn no_file_of_the_corpus_does_harm() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/dev_server");
        let files = fs::read_dir(corpus).expect("the corpus is kept");
        let fed = files.map(|file| feed(&fs::read(file.expect("an entry").path()).expect("bytes")));
        assert!(fed.count() >= 7);
    }

    /// A frame, mostly of a known operation, with an arbitrary body.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop_oneof![
            1..=opcode::MULTI_READ,
            opcode::AUTH..=opcode::WHO_AM_I,
            Just(opcode::CLOSE_SESSION),
            any::<i32>(),
        ];
        let piece = prop_oneof![
            4 => Just(vec![0_u8, 0, 0, 2, b'/', b'a']),
            2 => Just(vec![255_u8; 4]),
            2 => Just(vec![0_u8; 4]),
            2 => Just(vec![0_u8, 0, 0, 1]),
            1 => proptest::collection::vec(any::<u8>(), 0..9),
            1 => Just(vec![0x7f_u8, 255, 255, 255]),
        ];
        let body = proptest::collection::vec(piece, 0..8);
        (any::<i32>(), kinds, body).prop_map(|(xid, kind, body)| {
            let mut frame = xid.to_be_bytes().to_vec();
            frame.extend(kind.to_be_bytes());
            frame.extend(body.concat());
            frame
        })
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_does_harm(
            frames in proptest::collection::vec(frame(), 0..40),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = Vec::new();
            for frame in frames {
                bytes.extend((frame.len() as u16).to_be_bytes());
                bytes.extend(frame);
            }
            bytes.extend(noise);
            feed(&bytes);
        }
    }
}
