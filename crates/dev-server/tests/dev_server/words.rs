//! The four-letter words, as scripts ask them.

use crate::client::{Client, GET_DATA, ask_word as ask, read_of};
use bellwether_dev_server::{DevServer, ServerSettings};
use std::io;

#[tokio::test]
async fn words_are_answered_in_the_form_of_the_real_server() -> io::Result<()> {
    let server = DevServer::start(ServerSettings::default()).await?;
    let address = server.address();
    let mut client = Client::connect(address).await?;
    client.create("/e", 1).await?;
    client.ask(GET_DATA, &read_of("/e", true)).await?;
    let session = format!("{:#x}", client.session);

    assert_eq!(ask(address, "ruok").await?, "imok");
    // As `echo` sends it.
    assert_eq!(ask(address, "ruok\n").await?, "imok");
    assert_eq!(ask(address, "isro").await?, "rw");
    assert_eq!(
        ask(address, "dirs").await?,
        "dirs is not executed because it is not in the whitelist.\n"
    );
    assert_eq!(ask(address, "wchc").await?, format!("{session}\n\t/e\n\n"));

    let has = async |word: &str, lines: &[&str]| {
        let text = ask(address, word).await?;
        for line in lines {
            assert!(text.lines().any(|there| there == *line), "{word} has no {line:?}: {text}");
        }
        io::Result::Ok(text)
    };
    let text = has("srvr", &["Zxid: 0x2", "Mode: standalone", "Node count: 6"]).await?;
    assert!(text.starts_with("Zookeeper version: 3.8.0"), "{text}");
    let text = has("stat", &["Clients:", "Outstanding: 0"]).await?;
    assert!(text.contains("[1](queued=0,recved=3,sent=3)"), "{text}");
    let text = has("cons", &[]).await?;
    assert!(text.contains(&format!("sid={session},")), "{text}");
    has("mntr", &["zk_znode_count\t6", "zk_watch_count\t1", "zk_ephemerals_count\t1"]).await?;
    has("envi", &["Environment:"]).await?;
    Ok(())
}
