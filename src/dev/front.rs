//! The port that answers for as long as any member runs: each connection is forwarded to a running member.

use super::follow::ANSWER_TIMEOUT;
use super::member::{Ports, local};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The pause after a connection could not be accepted, for example because this process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at the next free port, and forwards each connection to the port in `target`, that of a running member.
/// Returns the port at which this process listens.
pub(super) async fn serve(
    ports: &mut Ports,
    target: watch::Receiver<Option<u16>>,
) -> anyhow::Result<u16> {
    loop {
        let port = ports.next()?;
        // Another program may have taken the port since it was found to be free.
        if let Ok(listener) = TcpListener::bind(local(port)).await {
            tokio::spawn(accept(listener, target));
            return Ok(port);
        }
    }
}

async fn accept(listener: TcpListener, target: watch::Receiver<Option<u16>>) {
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // If no member runs, the connection is closed.
        let Some(port) = *target.borrow() else { continue };
        tokio::spawn(async move {
            let connected = timeout(ANSWER_TIMEOUT, TcpStream::connect(local(port))).await;
            if let Ok(Ok(mut member)) = connected {
                // An error means that the client or the member has closed the connection.
                let _ = copy_bidirectional(&mut client, &mut member).await;
            }
        });
    }
}
