//! Random scripts of several sessions, to hold one server against another.
//!
//! A script is a list of steps; each is done by one of a few sessions, and its answer waited for. What each session hears
//! is written down, with zxids counted from the script's beginning and sessions by name, so that the transcripts of two
//! servers that do the same are the same.
//!
//! Here a dev server is held against another one, or against the real one that `ZOOKEEPER=host:port` names, which must be a
//! standalone ZooKeeper 3.8 used by nothing else, with `-Dzookeeper.extendedTypesEnabled=true`. No script has a bare check
//! or a createTTL without a TTL: both harm the real one.

mod act;
mod run;

use act::Step;
use bellwether_dev_server::{DevServer, Settings};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// A server under test.
pub(crate) trait Subject {
    fn address(&self) -> SocketAddr;
}

impl Subject for DevServer {
    fn address(&self) -> SocketAddr {
        Self::address(self)
    }
}

/// A server that runs elsewhere.
struct Elsewhere(SocketAddr);

impl Subject for Elsewhere {
    fn address(&self) -> SocketAddr {
        self.0
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_script_has_the_same_transcript_on_two_servers(script in act::script()) {
        compare(&script)?;
    }
}

/// Few scripts, unless `PROPTEST_CASES` says how many.
fn config() -> Config {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = Config { max_shrink_iters: 2000, ..Config::default() };
    if asked { config } else { Config { cases: 64, ..config } }
}

fn compare(script: &[Step]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dev = DevServer::start(Settings::default()).await.unwrap();
        // New each time, as the other server may remember what was there before.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let root = format!("/script-{now}");
        let one = run::transcript(&dev, &root, script).await.unwrap();
        let other = match std::env::var("ZOOKEEPER") {
            Ok(address) => {
                let real = Elsewhere(address.parse().expect("ZOOKEEPER is HOST:PORT, of digits"));
                run::transcript(&real, &root, script).await.unwrap()
            }
            Err(_) => {
                let another = DevServer::start(Settings::default()).await.unwrap();
                run::transcript(&another, &root, script).await.unwrap()
            }
        };
        for (one, other) in one.iter().zip(&other) {
            prop_assert_eq!(one, other);
        }
        Ok(())
    })
}
