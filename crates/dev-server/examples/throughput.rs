//! How many requests a second servers answer, each client with a hundred under way:
//! `cargo run --release -p bellwether-dev-server --example throughput -- 127.0.0.1:2181 ...`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it measures, and says what")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/common/client.rs"]
mod client;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/common/wire.rs"]
mod wire;

use client::{CREATE, Client, GET_DATA, SET_DATA, create, read_of};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::task::JoinSet;
use wire::Body;

const REQUESTS: usize = 20_000;
const UNDER_WAY: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    println!("| server | clients | creates/s | sets/s | gets/s |\n|---|--:|--:|--:|--:|");
    for address in std::env::args().skip(1) {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        for clients in [1, 10] {
            let root = format!("/throughput-{clients}");
            Client::connect(address).await?.create(&root, 0).await?;
            print!("| {address} | {clients} |");
            for kind in [CREATE, SET_DATA, GET_DATA] {
                print!(" {:.0} |", measured(address, &root, clients, kind).await?);
            }
            println!();
        }
    }
    Ok(())
}

/// Returns the requests a second of so many clients, each with a part of the paths.
async fn measured(address: SocketAddr, root: &str, clients: usize, kind: i32) -> io::Result<f64> {
    let mut ready = Vec::new();
    for _ in 0..clients {
        ready.push(Client::connect(address).await?);
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, client) in ready.into_iter().enumerate() {
        let prefix = format!("{root}/{number}-");
        tasks.spawn(ask_all(client, prefix, kind, REQUESTS / clients));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap()?;
    }
    Ok(REQUESTS as f64 / begun.elapsed().as_secs_f64())
}

async fn ask_all(mut client: Client, prefix: String, kind: i32, count: usize) -> io::Result<()> {
    for number in 0..count + UNDER_WAY {
        if number < count {
            let path = format!("{prefix}{number}");
            let body = match kind {
                CREATE => create(&path, 0),
                SET_DATA => Body::default().string(&path).buffer(&[7; 100]).int(-1),
                _ => read_of(&path, false),
            };
            client.send(kind, &body).await?;
        }
        if number >= UNDER_WAY {
            let answer = client.receive().await?.expect_err("nothing is watched");
            assert_eq!(answer.error, 0, "{prefix}");
        }
    }
    Ok(())
}
