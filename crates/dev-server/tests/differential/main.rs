//! Random scripts of several sessions, to hold the server against the real one.
//!
//! A script is a list of steps; each is done by one of a few sessions, and its answer waited for. What each session hears
//! is written down, with zxids counted from the script's beginning and sessions by name, so that the transcripts of two
//! servers that do the same are the same.
//!
//! The real server is a standalone ZooKeeper 3.8 of Debian's package that the test starts itself. It and the dev server are
//! told the same from their beginning, so that even the root and the counts of all znodes are the same. No script has a bare
//! check or a createTTL without a TTL: both harm the real one.
//!
//! `SCRIPTS` says how many random scripts there are to be, `SCRIPT_SEED` which is the first: the one of seed 7 is the same
//! each time. What a failure prints has both.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../common/client.rs"]
mod client;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../common/wire.rs"]
mod wire;

mod act;
mod kept;
mod outlived;
mod real;
mod run;

use crate::client::Client;
use act::Step;
use bellwether_dev_server::{DevServer, ServerSettings};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use real::RealServer;
use std::cell::RefCell;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How many random scripts there are, unless `SCRIPTS` says so.
const SCRIPTS: u64 = 300;

/// For how long they are run at most, as the machine may be busy; not if `SCRIPTS` says how many there are to be.
const LIMIT: Duration = Duration::from_secs(45);

#[test]
fn random_scripts_have_the_same_transcript_on_the_real_server() {
    let asked = setting("SCRIPTS");
    let first = setting("SCRIPT_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let pair = RefCell::new(Pair::start());
    let begun = Instant::now();
    let mut scripts = 0;
    while scripts < asked.unwrap_or(SCRIPTS) && (asked.is_some() || begun.elapsed() < LIMIT) {
        let seed = first.wrapping_add(scripts);
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 500,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let outcome = TestRunner::new_with_rng(config, random).run(&act::script(), |script| {
            pair.borrow_mut().compare(&script).map_err(TestCaseError::fail)
        });
        match outcome {
            Ok(()) => scripts += 1,
            Err(TestError::Fail(why, script)) => panic!(
                "SCRIPTS=1 SCRIPT_SEED={seed} shows it again, or, if it needs what was before, SCRIPTS={} \
                 SCRIPT_SEED={first}. {why}\nThe shortest such script: {script:#?}\n\
                 The end of the real server's log:\n{}",
                scripts + 1,
                pair.borrow().real.end_of_log()
            ),
            Err(error) => panic!("{error}"),
        }
    }
    let requests = pair.borrow().requests;
    println!("{scripts} scripts from seed {first} on, {requests} requests, {:?}", begun.elapsed());
}

#[test]
fn kept_scripts_have_the_same_transcript_on_the_real_server() {
    let mut pair = Pair::start();
    for (name, script) in kept::scripts() {
        if let Err(why) = pair.compare(&script) {
            panic!("{name}: {why}");
        }
    }
}

#[test]
fn timeouts_are_negotiated_as_by_the_real_server() {
    let pair = Pair::start();
    let asked_ms = [i32::MIN, -1, 0, 1, 3999, 4000, 4001, 10_000, 40_000, 40_001, i32::MAX];
    let granted = |address| {
        pair.runtime.block_on(async move {
            let mut granted_ms = Vec::new();
            for timeout_ms in asked_ms {
                let client = Client::open(address, 0, &[0; 16], timeout_ms, 0).await.unwrap();
                granted_ms.push(client.timeout_ms);
            }
            let ahead = Client::open(address, 0, &[0; 16], 10_000, i64::MAX).await;
            assert!(ahead.is_err(), "a client that has seen more is refused");
            granted_ms
        })
    };
    assert_eq!(granted(pair.dev.address()), granted(pair.real.address()));
}

#[test]
fn what_is_outlived_is_deleted_as_by_the_real_server() {
    let pair = Pair::looking_for_containers_each(Duration::from_millis(200));
    let answers = |address| pair.runtime.block_on(outlived::answers(address)).unwrap();
    assert_eq!(answers(pair.dev.address()), answers(pair.real.address()));
}

/// A dev server and a real one that were always told the same.
struct Pair {
    runtime: Runtime,
    dev: DevServer,
    real: RealServer,
    scripts: usize,
    requests: usize,
}

impl Pair {
    fn start() -> Self {
        // Neither of them looks for containers while a script runs: the two would not do so at the same moment.
        Self::looking_for_containers_each(Duration::from_secs(24 * 3600))
    }

    fn looking_for_containers_each(container_check_interval: Duration) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let settings = ServerSettings { container_check_interval, ..ServerSettings::default() };
        let dev = runtime.block_on(DevServer::start(settings)).unwrap();
        let real = RealServer::start(container_check_interval);
        Self { runtime, dev, real, scripts: 0, requests: 0 }
    }

    /// Runs a script against both, and says where they differ.
    fn compare(&mut self, script: &[Step]) -> Result<(), String> {
        let root = format!("/script-{:06}", self.scripts);
        self.scripts += 1;
        self.requests += script.iter().map(Step::requests).sum::<usize>();
        let addresses = [self.dev.address(), self.real.address()];
        let [dev, real] = addresses.map(|address| {
            let lines = self.runtime.block_on(run::transcript(address, &root, script));
            lines.map_err(|error| format!("{address}: {error}"))
        });
        let (dev, real) = (dev?, real?);
        for (session, (dev, real)) in dev.iter().zip(&real).enumerate() {
            let different = (0..dev.len().max(real.len())).find(|n| dev.get(*n) != real.get(*n));
            if let Some(n) = different {
                let (dev, real) = (dev.get(n), real.get(n));
                return Err(format!(
                    "session {session}\nhears here  {dev:?}\nand there   {real:?}"
                ));
            }
        }
        Ok(())
    }
}

/// A number from the environment, if it has one of this name.
fn setting(name: &str) -> Option<u64> {
    let text = env::var_os(name)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name} is {text:?}, and should be a number")))
}
