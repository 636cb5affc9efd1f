//! Serves until it is ended: `cargo run -p bellwether-dev-server --example serve -- 127.0.0.1:2181`.

#![allow(clippy::print_stdout, reason = "it says where it listens")]

use bellwether_dev_server::{DevServer, ServerSettings};
use std::net::SocketAddr;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = ServerSettings::default();
    if let Some(listen) = std::env::args().nth(1) {
        settings.listen = listen.parse::<SocketAddr>().map_err(|error| {
            format!("where to listen, {listen:?}: {error}; give an IP and a port")
        })?;
    }
    let server = DevServer::start(settings).await?;
    println!("an in-memory ZooKeeper for development listens on {}", server.address());
    std::future::pending().await
}
