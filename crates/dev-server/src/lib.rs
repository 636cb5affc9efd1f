//! An in-memory ZooKeeper server for trying, developing and testing; **never for production**.
//!
//! This is the client port of one standalone ZooKeeper 3.8, as clients use it: requests and their answers,
//! results, stats, the order of errors and of events, is the real one's. Its state is in memory only.
//!
//! ```
//! use bellwether_dev_server::{DevServer, ServerSettings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = DevServer::start(ServerSettings::default()).await?;
//! println!("connect to {}", server.address());
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is there
//!
//! - Sessions: connect, resume with the password, ping, negotiated timeouts, expiry in buckets of a tick, close.
//! - create, create2, createContainer, createTTL; delete, exists, getData, setData, getChildren and getChildren2, getACL,
//!   setACL, sync, multi with check, multiRead, whoAmI, getEphemerals, getAllChildrenNumber.
//! - Watches: one-shot, persistent and recursive; setWatches and setWatches2, addWatch, checkWatches, removeWatches. A
//!   session is notified only of what it may read, as since CVE-2024-23944 was mended, in Debian's 3.8.0 too.
//! - ACLs with the schemes world, digest, auth and ip.
//! - The four-letter words conf, cons, dump, envi, isro, mntr, ruok, srvr, stat, wchc, wchp and wchs.
//! - [`Knobs`] with which tests inject faults.
//!
//! With [`ServerSettings::keeper`] it behaves like ClickHouse Keeper instead, in what matters to clients that hold leases.
//! That mode follows Keeper's source, and was never compared with a running Keeper.
//!
//! # How it differs from a real server
//!
//! - Nothing is stored on disk. After a restart it begins with zxid 1, and refuses clients that have seen later ones, as a
//!   real server does whose disk was wiped.
//! - There is one server: no ensemble, no read-only mode, no reconfig (refused as in a real one where it is not enabled).
//! - No quotas; no SASL (a token is answered as by a real server without it); no super user; no other providers of
//!   authentication.
//! - TLS is rustls' and not Java's, and there is one port, with it or without ([`ServerSettings::tls`]): what Java's own takes of
//!   protocols and certificates, and how it refuses others, has to be tried on a real server. A certificate of a client's is
//!   checked as the given configuration says, and is not an identity for ACLs.
//! - A frame whose body cannot be decoded is answered with MarshallingError, as by the real one, and then the connection
//!   is closed.
//! - A `check` outside of a multi is refused with Unimplemented. ZooKeeper 3.8.0 takes it, and destroys its log with it.
//! - A createTTL whose flags say nothing of a TTL is refused with BadArguments; the real server ends. deleteContainer and
//!   createSession, which are not for clients, are unknown operations.
//! - Znodes with a TTL are on by default: [`ServerSettings::extended_types`].
//! - Requests are handled one after the other. A real server decides on a request while earlier ones are still on their
//!   way. That shows at the end of a sequence counter, where pipelined creates are given numbers below zero, and behind a
//!   pipelined setACL, where the old list may still count, or createContainer with the flags of an ephemeral znode, which
//!   may still be one, or a multi with the flags of a TTL in another create, of which the first operations may still
//!   count.
//! - An addWatch on null is answered and watches nothing. The real server fails to forget it when its connection ends.
//! - A client that does not read what it is sent is not read from either, and closed when 16 MiB wait for it. A multiRead
//!   of more than 16 MiB is refused with MarshallingError, and an ACL of more than 65,536 entries with InvalidACL.
//! - Latencies are 0 in the answers to words, and some lines of `mntr` and `dump` are missing.
//!
//! # What it is held against
//!
//! - A real server: random scripts of several sessions have the same transcript on both (`tests/differential`).
//! - Other clients, with their own recipes: kazoo, Curator and ZooKeeper's shell (`tests/clients`).
//! - kazoo's own tests: of the 312 of kazoo 2.11.0 that need neither eventlet, gevent nor PureSASL, 304 pass, and 305 on one
//!   real 3.8.0. Of the other 8, three need reconfig, two several servers or a read-only one, one TLS, and two a server that
//!   comes back with its data (`tests/clients/kazoo_suite.py`).
//!
//! # How it is made
//!
//! `State` has all that the server knows, and is pure: frames in, frames out. One lock guards it, so each frame is handled
//! to its end before the next. Each connection is a task that reads, hands over, and sends what waits in its `Outbox`.

#![forbid(unsafe_code)]

mod acl;
mod admin_commands;
mod connection;
mod error;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod java;
mod knobs;
mod mode;
mod outbox;
mod path;
mod prepare;
mod server;
mod sessions;
mod settings;
mod shared;
mod stat;
mod state;
mod tree;
mod watches;
mod wire;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use fuzz::feed;
pub use knobs::Knobs;
pub use server::DevServer;
pub use settings::{Keeper, ServerSettings};
