//! The version of a server, as it reports it to any client (`srvr`).

use super::credentials::server_name;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

/// The first version with `create2` and containers, which this program needs.
const REQUIRED: [u32; 3] = [3, 5, 0];
/// The first version with `whoAmI`. Older servers close the connection at this request.
const WHO_AM_I: [u32; 3] = [3, 7, 0];
/// The first version that refuses DIGEST-MD5 in FIPS mode (ZOOKEEPER-5043), which is the default since 3.9.0.
const FIPS: [u32; 3] = [3, 9, 6];

/// The version that a server has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerVersion {
    /// The version as the server writes it.
    text: String,
    /// Major, minor and patch; `None` if the server is not ZooKeeper, but speaks its protocol.
    number: Option<[u32; 3]>,
}

impl ServerVersion {
    /// Asks the server at `host:port`. Returns `None` if its answer has no version, for example because `srvr` is not
    /// on its whitelist. Fails without an answer.
    pub(super) async fn of(
        server: &str,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Option<Self>> {
        let answer = ask_srvr(server, TcpStream::connect(server).await?, tls).await?;
        if answer.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Self::parse(&String::from_utf8_lossy(&answer)))
    }

    /// Parses the beginning of the answer to `srvr`, `Zookeeper version: 3.9.6-<commit>, built on <day>`. Returns
    /// `None` for an answer without a version.
    fn parse(answer: &str) -> Option<Self> {
        let (name, version) = answer.lines().next()?.split_once(" version: ")?;
        let text = version.split(['-', ',', ' ']).next().unwrap_or(version).to_owned();
        let mut parts = text.split('.').map(str::parse);
        let number = match (parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) if name == "Zookeeper" => {
                Some([major, minor, patch])
            }
            _ => None,
        };
        Some(Self { text, number })
    }

    /// Describes the problem if the server, `host:port`, is too old. A server other than ZooKeeper is never too old.
    pub(crate) fn too_old(&self, server: &str) -> Option<String> {
        if self.number? >= REQUIRED {
            return None;
        }
        Some(format!("ZooKeeper 3.5 or newer is required: {server} runs {}", self.text))
    }

    pub(crate) fn is_zookeeper(&self) -> bool {
        self.number.is_some()
    }

    pub(crate) fn has_who_am_i(&self) -> bool {
        self.number.is_some_and(|number| number >= WHO_AM_I)
    }

    /// Returns true if the server may refuse DIGEST-MD5, whatever the password. A server other than ZooKeeper may.
    pub(crate) fn may_refuse_digest_md5(&self) -> bool {
        self.number.is_none_or(|number| number >= FIPS)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Sends the four-letter command `srvr` to the server at `host:port`, over this connection, and returns the beginning of the
/// answer, or nothing if the server closes the connection without one. ZooKeeper answers with text even if the command is not
/// allowed.
pub(super) async fn ask_srvr(
    server: &str,
    mut tcp: TcpStream,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Vec<u8>> {
    let Some(config) = tls else { return ask_over(&mut tcp).await };
    let name = server_name(server).map_err(io::Error::other)?;
    ask_over(&mut TlsConnector::from(config.clone()).connect(name, tcp).await?).await
}

async fn ask_over(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Vec<u8>> {
    // The newline makes the command long enough for a TLS server to recognize that it is not TLS.
    stream.write_all(b"srvr\n").await?;
    stream.flush().await?;
    let mut answer = vec![0; 64];
    let length = match stream.read(&mut answer).await {
        // The TLS library's error if the server closes the connection without ending TLS: no answer.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
        length => length?,
    };
    answer.truncate(length);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_servers_answer() {
        let of = |answer: &str| ServerVersion::parse(answer);
        let old = of("Zookeeper version: 3.4.13-5+deb11u1--1, built on 2023").unwrap();
        assert_eq!(
            old.too_old("zk:2181").unwrap(),
            "ZooKeeper 3.5 or newer is required: zk:2181 runs 3.4.13"
        );
        let before_who_am_i = of("Zookeeper version: 3.6.3--6401e4ad2087061bc6b9f80d").unwrap();
        assert!(before_who_am_i.too_old("").is_none() && !before_who_am_i.has_who_am_i());
        let newer = of("Zookeeper version: 3.10.0-SNAPSHOT, built on 2026").unwrap();
        assert!(newer.has_who_am_i() && newer.may_refuse_digest_md5());
        let keeper = of("ClickHouse Keeper version: v25.3.1.1-stable").unwrap();
        assert!(!keeper.has_who_am_i() && !keeper.is_zookeeper() && keeper.too_old("").is_none());
        for silent in ["", "srvr is not executed because it is not in the whitelist.", "HTTP/1.1"] {
            assert_eq!(of(silent), None);
        }
    }
}
