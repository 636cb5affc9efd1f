//! The HTTP listeners: a port or a Unix socket for the application, and optionally a port for probes.

use crate::config::{self, Listen, SocketAccess};
use crate::http::{self, ConnectionLimits, Services};
use anyhow::{Context, bail};
use std::fs::{self, Permissions};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::info;

/// The number of connections that may wait in the kernel to be accepted. The client of a further connection retries after a
/// second.
const BACKLOG: u32 = 1024;

/// Listeners that are bound, but not served yet.
pub(super) struct Listeners {
    listen: Listen,
    /// The listener of the application's API.
    api: ApiListener,
    /// The file of the Unix socket, to be removed at the end.
    socket: Option<PathBuf>,
    /// The listener for probes only.
    probes: Option<TcpListener>,
}

enum ApiListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The server for the application. The probe port is served until the process ends.
pub(super) struct Server {
    pub(super) close: oneshot::Sender<()>,
    /// Completes when the server has finished its requests.
    pub(super) done: JoinHandle<()>,
    /// The file of the Unix socket. It is removed before the listener is closed: afterwards, it may be that of the next
    /// process.
    pub(super) socket: Option<PathBuf>,
}

impl Listeners {
    pub(super) async fn open(
        listen: &Listen,
        access: &SocketAccess,
        probe: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let (api, socket) = match listen {
            Listen::Tcp(address) => (ApiListener::Tcp(bind("http.listen", *address)?), None),
            Listen::Unix(path) => {
                let listener = bind_socket(listen, path, access).await?;
                (ApiListener::Unix(listener), Some(path.clone()))
            }
        };
        let probes = probe.map(|address| bind("http.probe_listen", address)).transpose()?;
        Ok(Self { listen: listen.clone(), api, socket, probes })
    }

    /// Returns the URL at which processes on this machine reach the application's API.
    pub(super) fn url(&self) -> io::Result<String> {
        let ApiListener::Tcp(listener) = &self.api else { return Ok(self.listen.to_string()) };
        Ok(format!("http://{}", config::on_this_machine(listener.local_addr()?)))
    }

    /// Starts serving.
    pub(super) fn serve(self, services: Services, limits: ConnectionLimits) -> io::Result<Server> {
        let Self { listen, api, socket, probes } = self;
        let probe_limits = ConnectionLimits::for_probes(limits.budget().clone());
        if let Some(listener) = probes {
            info!("probes answered on {}", listener.local_addr()?);
            // This task ends with the process, so a member that leaves answers probes until the end.
            tokio::spawn(http::serve(listener, services.probes, probe_limits, pending()));
        }
        let (close, closed) = oneshot::channel::<()>();
        let closing = async { drop(closed.await) };
        let done = match api {
            ApiListener::Tcp(listener) => {
                info!("listening on {}", listener.local_addr()?);
                tokio::spawn(http::serve(listener, services.api, limits, closing))
            }
            ApiListener::Unix(listener) => {
                info!("listening on {listen}");
                tokio::spawn(http::serve(listener, services.api, limits, closing))
            }
        };
        Ok(Server { close, done, socket })
    }
}

/// Binds a port. An error names `key`.
fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    listener(address)
        .with_context(|| format!("cannot serve at {address} ({key}): is it in use, or not ours?"))
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Without this, a restarted process would have to wait until the kernel forgets the connections of the previous one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a Unix socket, and replaces the file of a dead process.
async fn bind_socket(
    listen: &Listen,
    path: &Path,
    access: &SocketAccess,
) -> anyhow::Result<UnixListener> {
    let cannot = || format!("cannot serve at {listen} (http.listen)");
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            bail!("{}: a file that is not a socket exists there", cannot());
        }
        // A killed process leaves its socket file behind, and that file prevents `bind`. The kernel refuses a connection
        // only if no process listens, so then the file can be removed.
        Ok(_) => match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).with_context(cannot)?;
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{}: the socket that is there is another user's: {error}", cannot());
            }
            Ok(_) | Err(_) => bail!("{}: another process serves there", cannot()),
        },
        Err(_) => {}
    }
    let cannot = || format!("{}: is its directory there, and ours to write in?", cannot());
    let socket = UnixSocket::new_stream()?;
    socket.bind(path).with_context(cannot)?;
    // Set these before listening, so that no client gets in through the permissions of a new file.
    if access.group.is_some() {
        let key = "http.socket_group";
        chown(path, None, access.group).with_context(|| {
            format!("cannot give {listen} to its group ({key}): is this process in it?")
        })?;
    }
    fs::set_permissions(path, Permissions::from_mode(access.mode)).with_context(cannot)?;
    socket.listen(BACKLOG).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getgid;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    /// None of these is accepted.
    #[tokio::test]
    async fn no_client_of_many_at_once_has_to_try_again() {
        let listener = bind("key", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = vec![];
        for _ in 0..BACKLOG / 2 {
            let connected = timeout(Duration::from_secs(30), TcpStream::connect(address)).await;
            clients.push(connected.expect("there is room for it").unwrap());
        }
    }

    #[tokio::test]
    async fn a_socket_is_for_those_whom_its_mode_and_group_let_in() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("socket");
        let listen = Listen::Unix(path.clone());
        let own = getgid().as_raw();
        for (mode, group) in [(0o666, None), (0o660, Some(own))] {
            let access = SocketAccess { mode, group };
            let listener = bind_socket(&listen, &path, &access).await.unwrap();
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mode() & 0o777, found.gid()), (mode, own));
            UnixStream::connect(&path).await.expect("it listens");
            drop(listener);
        }
    }
}
