//! Znodes that the server itself deletes, told by another session.

use crate::client::{
    ADD_WATCH, CREATE_CONTAINER, CREATE_TTL, Client, DELETE, EXISTS, GET_CHILDREN2, create, read_of,
};
use crate::wire::{Body, Rest};
use std::io;
use std::net::SocketAddr;

const DELETED: i32 = 2;
const TTL_MS: i64 = 300;

/// Has the server delete one znode after the other, and says what another session hears meanwhile, and how the root is then.
pub(crate) async fn answers(address: SocketAddr) -> io::Result<Vec<String>> {
    let (mut actor, mut other) = (Client::connect(address).await?, Client::connect(address).await?);
    let recursive = 1;
    other.ask(ADD_WATCH, &Body::default().string("/").int(recursive)).await?;
    let mut heard = Vec::new();

    actor.ask(CREATE_CONTAINER, &create("/unused", 4)).await?;
    actor.ask(CREATE_CONTAINER, &create("/box", 4)).await?;
    actor.create("/box/a", 0).await?;
    delete(&mut actor, "/box/a").await?;
    until_deleted(&mut other, "/box", &mut heard).await?;

    actor.ask(CREATE_CONTAINER, &create("/box", 4)).await?;
    actor.create("/box/e", 1).await?;
    delete(&mut actor, "/box/e").await?;
    until_deleted(&mut other, "/box", &mut heard).await?;

    actor.ask(CREATE_TTL, &create("/with-child", 5).long(TTL_MS)).await?;
    actor.create("/with-child/a", 0).await?;
    let (_, answer) = actor.ask(CREATE_TTL, &create("/short-", 6).long(TTL_MS)).await?;
    until_deleted(&mut other, &Rest(&answer.body).string(), &mut heard).await?;
    // Its time was up before, so it is not deleted while it has a child.
    for path in ["/with-child", "/unused"] {
        let (_, answer) = actor.ask(EXISTS, &read_of(path, false)).await?;
        heard.push(format!("{path}: {}", answer.error));
    }
    delete(&mut actor, "/with-child/a").await?;
    until_deleted(&mut other, "/with-child", &mut heard).await?;

    let (_, answer) = actor.ask(GET_CHILDREN2, &read_of("/", false)).await?;
    let mut rest = Rest(&answer.body);
    heard.push(format!("{:?} {:?}", rest.strings(), rest.stat()));
    Ok(heard)
}

async fn delete(client: &mut Client, path: &str) -> io::Result<()> {
    let (_, answer) = client.ask(DELETE, &Body::default().string(path).int(-1)).await?;
    assert_eq!(answer.error, 0, "{path}");
    Ok(())
}

async fn until_deleted(client: &mut Client, path: &str, heard: &mut Vec<String>) -> io::Result<()> {
    loop {
        let (kind, there) = client.receive().await?.expect("nothing was asked");
        heard.push(format!("event {kind} {there}"));
        if (kind, there.as_str()) == (DELETED, path) {
            return Ok(());
        }
    }
}
