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

/// The number of connections that may wait in the kernel until this process accepts them. If more clients connect at once,
/// their kernels retry after a second.
const BACKLOG: u32 = 1024;

/// Listeners that are bound, but not served yet.
pub(super) struct Listeners {
    /// The value of `http.listen`.
    listen: Listen,
    /// The listener of the application's API.
    api: ApiListener,
    /// The path of the Unix socket, if the API is served there. The file is removed at shutdown.
    socket: Option<PathBuf>,
    /// The listener of `http.probe_listen`, which serves only probes.
    probes: Option<TcpListener>,
}

/// The listener of the application's API, as `http.listen` requires.
enum ApiListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The running server of the application's API. The port for probes is not part of it, because probes are answered until
/// the process ends.
pub(super) struct Server {
    /// Sent to at shutdown. The server then accepts no further connections.
    pub(super) close: oneshot::Sender<()>,
    /// Completes when the server has finished the requests in progress.
    pub(super) done: JoinHandle<()>,
    /// The path of the Unix socket. The file is removed before the listener is closed, because the next process may create
    /// its own socket at this path as soon as no process listens.
    pub(super) socket: Option<PathBuf>,
}

impl Listeners {
    /// Binds the listeners of the API and, if `probe` is given, of the probes.
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

    /// Returns the URL at which processes on this machine reach the application's API: `unix:` and the path for a
    /// socket.
    pub(super) fn url(&self) -> io::Result<String> {
        let ApiListener::Tcp(listener) = &self.api else { return Ok(self.listen.to_string()) };
        Ok(format!("http://{}", config::on_this_machine(listener.local_addr()?)))
    }

    /// Starts the servers of the API and of the probes.
    pub(super) fn serve(self, services: Services, limits: ConnectionLimits) -> io::Result<Server> {
        let Self { listen, api, socket, probes } = self;
        let probe_limits = ConnectionLimits::for_probes(limits.budget().clone());
        if let Some(listener) = probes {
            info!("probes answered on {}", listener.local_addr()?);
            // No one closes this server, so a member answers probes also while it leaves.
            tokio::spawn(http::serve(listener, services.probes, probe_limits, pending()));
        }
        let (close, closed) = oneshot::channel::<()>();
        // Completes when `close` is sent or dropped.
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

/// Binds the TCP port of the setting `key`, and names the setting in the error.
fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    listener(address)
        .with_context(|| format!("cannot serve at {address} ({key}): is it in use, or not ours?"))
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Without this option, a restarted process cannot bind the port until the kernel has forgotten the connections of the
    // previous process, a minute later.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a Unix socket at `path`. Replaces a socket file that a dead process left behind.
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
        // A killed process leaves its socket file behind, and `bind` fails while the file exists. The kernel refuses a
        // connection only if no process listens at the socket, so a file that refuses can be removed.
        Ok(_) => match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).with_context(cannot)?;
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{}: the socket that is there is another user's: {error}", cannot());
            }
            Ok(_) | Err(_) => bail!("{}: another process serves there", cannot()),
        },
        // There is no file at the path. If there is another problem, `bind` reports it.
        Err(_) => {}
    }
    let cannot = || format!("{}: is its directory there, and ours to write in?", cannot());
    let socket = UnixSocket::new_stream()?;
    socket.bind(path).with_context(cannot)?;
    // Set the group and the mode before listening. Otherwise a client could connect with the default permissions of the
    // file.
    if access.group.is_some() {
        let key = "http.socket_group";
        chown(path, None, access.group).with_context(|| {
            format!("cannot give {listen} to its group ({key}): is this process a member of it?")
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

    /// The server accepts none of these connections, so all of them wait in the kernel.
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
