//! The port that answers for as long as any member runs: each connection is forwarded to one of them.

use super::follow::PATIENCE;
use super::member::{Ports, local};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long to wait before the next connection when none can be accepted, as with too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at the next free port, and forwards connections to the port that is current. Returns the port that it listens at.
pub(super) async fn serve(
    ports: &mut Ports,
    member: watch::Receiver<Option<u16>>,
) -> anyhow::Result<u16> {
    loop {
        let port = ports.next()?;
        // Another program may have taken the port since it was found to be free.
        if let Ok(listener) = TcpListener::bind(local(port)).await {
            tokio::spawn(accept(listener, member));
            return Ok(port);
        }
    }
}

async fn accept(listener: TcpListener, member: watch::Receiver<Option<u16>>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // If no member runs, the connection is closed.
        let Some(port) = *member.borrow() else { continue };
        tokio::spawn(async move {
            let connected = timeout(PATIENCE, TcpStream::connect(local(port))).await;
            if let Ok(Ok(mut member)) = connected {
                let _either_closed = copy_bidirectional(&mut client, &mut member).await;
            }
        });
    }
}
