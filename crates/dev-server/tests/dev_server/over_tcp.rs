//! What the server does with connections, beyond answering single frames.

use crate::client::{
    ADD_WATCH, CLOSE, CREATE2, Client, EXISTS, GET_CHILDREN, GET_DATA, PING, SET_DATA, create,
    read_of,
};
use crate::wire::{Body, Rest};
use bellwether_dev_server::{DevServer, ServerSettings};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

async fn server() -> DevServer {
    DevServer::start(ServerSettings::default()).await.unwrap()
}

/// A server whose sessions end soon.
async fn hasty_server() -> DevServer {
    let tick = Duration::from_millis(100);
    DevServer::start(ServerSettings { tick, ..ServerSettings::default() }).await.unwrap()
}

#[tokio::test]
async fn a_session_is_made_used_and_closed() -> io::Result<()> {
    let server = server().await;
    let mut client = Client::connect(server.address()).await?;
    assert_ne!(client.session, 0);
    let (_, answer) = client.ask(CREATE2, &create("/a", 1)).await?;
    let mut rest = Rest(&answer.body);
    assert_eq!(rest.string(), "/a");
    let stat = rest.stat();
    assert_eq!((stat.czxid, stat.ephemeral_owner), (answer.zxid, client.session));
    assert!(rest.is_empty());
    client.ask(CLOSE, &Body::default()).await?;
    client.closed().await;
    let mut other = Client::connect(server.address()).await?;
    assert_eq!(other.ask(EXISTS, &read_of("/a", false)).await?.1.error, -101);
    server.stop().await;
    Ok(())
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() -> io::Result<()> {
    let server = server().await;
    let mut client = Client::connect(server.address()).await?;
    client.create("/a", 0).await?;
    let mut xids = Vec::new();
    for _ in 0..500 {
        xids.push(client.send(GET_DATA, &read_of("/a", false)).await?);
    }
    for xid in xids {
        assert_eq!(client.receive().await?.unwrap_err().xid, xid);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_outlives_its_connection_and_is_resumed() -> io::Result<()> {
    let server = server().await;
    let mut client = Client::connect(server.address()).await?;
    client.create("/e", 1).await?;
    // No frame may have this length.
    client.send_raw(&[0x80, 0, 0, 0]).await?;
    client.closed().await;
    let mut resumed = client.resume(server.address()).await?;
    assert_eq!(resumed.session, client.session);
    assert_eq!(resumed.ask(EXISTS, &read_of("/e", false)).await?.1.error, 0);
    Ok(())
}

#[tokio::test]
async fn a_resumed_session_closes_its_older_connection() -> io::Result<()> {
    let server = server().await;
    let mut old = Client::connect(server.address()).await?;
    let mut new = old.resume(server.address()).await?;
    old.closed().await;
    assert_eq!(new.ask(PING, &Body::default()).await?.1.error, 0);
    Ok(())
}

#[tokio::test]
async fn a_session_without_pings_expires_and_one_with_pings_lives() -> io::Result<()> {
    let server = hasty_server().await;
    let mut silent = Client::open(server.address(), 0, &[0; 16], 300, 0).await?;
    let mut lively = Client::open(server.address(), 0, &[0; 16], 2000, 0).await?;
    assert_eq!((silent.timeout_ms, lively.timeout_ms), (300, 2000));
    let persistent = 0;
    lively.ask(ADD_WATCH, &Body::default().string("/e").int(persistent)).await?;
    let began = Instant::now();
    silent.create("/e", 1).await?;
    assert_eq!(lively.receive().await?, Ok((1, "/e".to_owned())));
    assert_eq!(lively.receive().await?, Ok((2, "/e".to_owned())));
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    silent.closed().await;
    assert_eq!(silent.resume(server.address()).await?.session, 0);
    assert_eq!(server.knobs().sessions(), [lively.session]);
    Ok(())
}

#[tokio::test]
async fn a_session_can_be_expired_at_once() -> io::Result<()> {
    let server = server().await;
    let mut client = Client::connect(server.address()).await?;
    assert!(server.knobs().expire(client.session));
    client.closed().await;
    assert_eq!(client.resume(server.address()).await?.session, 0);
    assert!(!server.knobs().expire(client.session));
    Ok(())
}

#[tokio::test]
async fn an_address_has_only_so_many_connections() -> io::Result<()> {
    let settings = ServerSettings { max_connections_per_address: 2, ..ServerSettings::default() };
    let server = DevServer::start(settings).await?;
    let first = Client::connect(server.address()).await?;
    let _second = Client::connect(server.address()).await?;
    assert!(Client::connect(server.address()).await.is_err());
    drop(first);
    let again = async {
        while Client::connect(server.address()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), again).await.expect("there is room again");
    Ok(())
}

#[tokio::test]
async fn frames_that_no_client_sends_close_their_connection_alone() -> io::Result<()> {
    let server = server().await;
    let mut other = Client::connect(server.address()).await?;
    let hostile: [&[u8]; 5] = [
        // Lengths beyond jute.maxbuffer, and below zero.
        &[0, 0x10, 0, 0],
        &[0x80, 0, 0, 0],
        // No header.
        &[0, 0, 0, 2, 0, 0],
        // A string, and a list, with more than there is.
        &[0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 4, 0x7f, 255, 255, 255],
        &[0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 255, 255, 255],
    ];
    for bytes in hostile {
        let mut client = Client::connect(server.address()).await?;
        client.send_raw(bytes).await?;
        client.closed().await;
    }
    // The same instead of a first frame.
    for bytes in hostile {
        let mut stream = TcpStream::connect(server.address()).await?;
        stream.write_all(bytes).await?;
        let mut buffer = [0; 16];
        let read = timeout(Duration::from_secs(5), stream.read(&mut buffer)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    }
    other.ask(PING, &Body::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_frame_may_have_as_many_bytes_as_are_allowed() -> io::Result<()> {
    let settings = ServerSettings { max_frame: 1000, ..ServerSettings::default() };
    let server = DevServer::start(settings).await?;
    let mut client = Client::connect(server.address()).await?;
    // 8 of header, 5 of path, 4 of length, 4 of version.
    let set = |length: usize| Body::default().string("/").buffer(&vec![0; length]).int(-1);
    assert_eq!(client.ask(SET_DATA, &set(1000 - 21)).await?.1.error, 0);
    client.send(SET_DATA, &set(1001 - 21)).await?;
    client.closed().await;
    Ok(())
}

#[tokio::test]
async fn several_servers_know_nothing_of_each_other() -> io::Result<()> {
    let (one, two) = (server().await, server().await);
    assert_ne!(one.address(), two.address());
    Client::connect(one.address()).await?.create("/one", 0).await?;
    let mut client = Client::connect(two.address()).await?;
    let (_, answer) = client.ask(GET_CHILDREN, &read_of("/", false)).await?;
    assert_eq!(Rest(&answer.body).strings(), ["zookeeper"]);
    Ok(())
}

#[tokio::test]
async fn a_stopped_server_closes_all_and_frees_its_port() -> io::Result<()> {
    let server = server().await;
    let address = server.address();
    let mut client = Client::connect(address).await?;
    server.stop().await;
    client.closed().await;
    let again =
        DevServer::start(ServerSettings { listen: address, ..ServerSettings::default() }).await?;
    assert_eq!(again.address(), address);
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from() -> io::Result<()> {
    let server = server().await;
    let mut lazy = Client::connect(server.address()).await?;
    let set = Body::default().string("/").buffer(&vec![7; 500_000]).int(-1);
    lazy.ask(SET_DATA, &set).await?;
    // 100 MB of answers, if the server took all of it.
    for _ in 0..200 {
        lazy.send(GET_DATA, &read_of("/", false)).await?;
    }
    let mut other = Client::connect(server.address()).await?;
    other.ask(PING, &Body::default()).await?;
    for _ in 0..200 {
        assert_eq!(lazy.receive().await?.unwrap_err().error, 0);
    }
    Ok(())
}
