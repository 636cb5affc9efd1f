//! Ends another client's session by force, as the server itself does when no request comes for too long.
//!
//! A client that knows a session's id and password can take the session over and close it. The password is a
//! function of the id (`ZooKeeperServer.generatePasswd`), and the id is in the `Stat` of every ephemeral.

use crate::{
    servers::Server,
    wait::{LIMIT, eventually},
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

const CLOSE_SESSION: i32 = -11;
const SUPER_SECRET: i64 = 0xB341_5C00;

/// Returns when the server no longer knows the session.
pub(crate) fn expire(server: &Server, session: i64) {
    // The owner, disconnected, reconnects at once, and may win the session back before it is closed.
    eventually("the session is closed", || match take_over_and_close(server, session) {
        Ok(NoSuchSession(true)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[derive(Debug)]
struct NoSuchSession(bool);

fn take_over_and_close(server: &Server, session: i64) -> io::Result<NoSuchSession> {
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes()); // protocol version
    connect.extend(0_i64.to_be_bytes()); // last zxid seen
    connect.extend(10_000_i32.to_be_bytes()); // timeout in ms
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));

    let mut close = Vec::new();
    close.extend(1_i32.to_be_bytes()); // xid
    close.extend(CLOSE_SESSION.to_be_bytes());

    let mut stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&[framed(&connect), framed(&close)].concat())?;
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers)?;
    // Length, protocol version and timeout come first, then the id of the session, or 0.
    Ok(NoSuchSession(answers.get(12..20) == Some(&[0; 8])))
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("a short request");
    [&length.to_be_bytes(), body].concat()
}

/// Returns the bytes of `new java.util.Random(id ^ SUPER_SECRET).nextBytes(new byte[16])`.
fn password(session: i64) -> [u8; 16] {
    const MULTIPLIER: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut seed = (session ^ SUPER_SECRET ^ MULTIPLIER) & MASK;
    let mut drawn = [0; 16];
    for four in drawn.chunks_exact_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        four.copy_from_slice(&seed.to_le_bytes()[2..6]);
    }
    drawn
}
