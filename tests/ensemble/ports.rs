//! Free ports, and what is asked at the port of a server.

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    net::{Shutdown, SocketAddrV4, TcpListener, TcpStream},
    time::Duration,
};

/// Ports below the range from which the kernel serves outgoing connections, so that a server which is
/// down for a moment finds its port free when it comes back.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let mut held: Vec<TcpListener> = Vec::new();
    while held.len() < N {
        let random = RandomState::new().hash_one(held.len()) % 20_000;
        let port = 10_000 + u16::try_from(random).expect("20 000 is a u16");
        held.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    std::array::from_fn(|n| held[n].local_addr().expect("a bound address").port())
}

/// Sends a four-letter word and reads the answer.
pub(crate) fn ask(server: SocketAddrV4, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
