//! The password of a session, which the client library keeps to itself.
//!
//! The library sends it to servers, and takes it from them, with each handshake. So for one handshake on the loopback
//! interface this takes the servers' part: to hear the password of a session, or to give the library a session that
//! another process opened. The timeout in the handshake is a random number, which identifies the library.

use super::connection::LibraryTasks;
use ::zookeeper::{Client, SessionInfo};
use secrecy::{ExposeSecret, SecretSlice};
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

pub(crate) type Password = SecretSlice<u8>;

const LIMIT: Duration = Duration::from_secs(2);
/// A request with a password of sixteen bytes has 45.
const LONGEST_REQUEST: u32 = 256;
/// No password that was heard is longer.
pub(super) const LONGEST: usize = LONGEST_REQUEST as usize;

/// Its length, its number (-2), the last transaction (none) and no error.
const HEARTBEAT_ANSWER: [u8; 20] =
    [0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The relevant part of a client's request for a session.
struct ConnectRequest {
    timeout_ms: u32,
    password: Password,
}

/// Returns the password of a session.
pub(crate) async fn of(session: SessionInfo) -> io::Result<Password> {
    let (listener, number) = listen().await?;
    let address = listener.local_addr()?.to_string();
    let tasks = LibraryTasks::default();
    let connector = Client::connector().with_session(session).with_fail_eagerly();
    let connecting = connector.with_session_timeout(number.timeout()).connect(&address);
    let heard = async {
        tokio::select! {
            heard = number.heard(&listener) => heard.map(|(_, password)| password),
            _ = tasks.run(connecting) => Err(io::Error::other("the handshake has ended too soon")),
        }
    };
    timeout(LIMIT, heard).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Returns the session with this number and password, for the library to go on with.
pub(crate) async fn session(id: i64, password: &Password) -> io::Result<SessionInfo> {
    let (listener, number) = listen().await?;
    let address = listener.local_addr()?.to_string();
    let tasks = LibraryTasks::default();
    let connector = Client::connector().with_detached().with_fail_eagerly();
    let connecting = connector.with_session_timeout(number.timeout()).connect(&address);
    let answering = async {
        let (mut library, _) = number.heard(&listener).await?;
        library.write_all(&number.answer(id, password)).await?;
        // The library waits for one heartbeat more.
        frame(&mut library).await?;
        library.write_all(&HEARTBEAT_ANSWER).await?;
        io::Result::Ok(library)
    };
    let both = async { tokio::join!(answering, tasks.run(connecting)) };
    let (answered, connected) =
        timeout(LIMIT, both).await.map_err(|_| io::Error::from(ErrorKind::TimedOut))?;
    let _still_open: TcpStream = answered?;
    Ok(connected.map_err(io::Error::other)?.session().clone())
}

/// The mark that distinguishes the library's handshake from others.
#[derive(Clone, Copy)]
struct Number(u32);

async fn listen() -> io::Result<(TcpListener, Number)> {
    let number = Number(fastrand::u32(1 << 20..1 << 31));
    Ok((TcpListener::bind(("127.0.0.1", 0)).await?, number))
}

impl Number {
    fn timeout(self) -> Duration {
        Duration::from_millis(self.0.into())
    }

    /// Waits for the library's request, and passes over all others.
    async fn heard(self, listener: &TcpListener) -> io::Result<(TcpStream, Password)> {
        loop {
            let (mut stream, _) = listener.accept().await?;
            if let Ok(Ok(request)) = timeout(LIMIT / 4, request(&mut stream)).await
                && request.timeout_ms == self.0
            {
                return Ok((stream, request.password));
            }
        }
    }

    fn answer(self, id: i64, password: &Password) -> Vec<u8> {
        let password = password.expose_secret();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("it is short").to_be_bytes();
        let body = [
            &0_u32.to_be_bytes()[..],
            &self.0.to_be_bytes(),
            &id.to_be_bytes(),
            &length(password),
            password,
            &[0],
        ]
        .concat();
        [&length(&body)[..], &body].concat()
    }
}

async fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > LONGEST_REQUEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn request(stream: &mut TcpStream) -> io::Result<ConnectRequest> {
    let bytes = frame(stream).await?;
    if bytes.len() < 28 {
        return Err(ErrorKind::InvalidData.into());
    }
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    // The protocol's version, what was seen last, the timeout, the session, and the password's length come before it.
    let timeout_ms = number(12);
    let length = number(24) as usize;
    let password = bytes.get(28..28 + length).ok_or(ErrorKind::InvalidData)?;
    Ok(ConnectRequest { timeout_ms, password: password.to_vec().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_made_of_its_number_and_password_and_gives_them_back() {
        let password = Password::from(b"sixteen bytes!!!".to_vec());
        let made = session(0x0100_0000_0000_0007, &password).await.unwrap();
        assert_eq!((made.id().0, made.is_readonly()), (0x0100_0000_0000_0007, false));
        assert_eq!(of(made).await.unwrap().expose_secret(), password.expose_secret());
    }

    #[tokio::test]
    async fn an_unknown_client_that_connects_is_told_nothing() {
        let (listener, number) = listen().await.unwrap();
        let mut unknown_client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut guess = number.answer(1, &b"guess".to_vec().into());
        guess.resize(4 + 45, 0);
        unknown_client.write_all(&guess).await.unwrap();
        let waiting = timeout(LIMIT / 2, number.heard(&listener)).await;
        assert!(waiting.is_err(), "no other is the library");
        let mut told = vec![];
        assert_eq!(unknown_client.read_to_end(&mut told).await.unwrap_or(0), 0);
    }
}
