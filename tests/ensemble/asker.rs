//! Asks a member again and again over one connection, and reads the clocks by which its answers hold.

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Returns the time of this clock as an application reads it, in nanoseconds.
pub(crate) fn now(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let nanos = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    u64::try_from(nanos).expect("time goes on from boot")
}

/// A client that asks over one connection.
pub(crate) struct Asker(BufReader<TcpStream>);

impl Asker {
    pub(crate) fn at(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn ask(&mut self, path: &str) -> io::Result<(u16, Value)> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().expect("a length");
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, serde_json::from_slice(&body).expect("JSON")))
    }
}
