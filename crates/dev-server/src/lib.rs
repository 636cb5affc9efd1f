//! An in-memory ZooKeeper server for trying out, developing and testing; **never for production**.
//!
//! The server provides the client port of one standalone ZooKeeper 3.8: requests and their answers, results, stats, and
//! the order of errors and of events are those of the real server. Its state is in memory only.
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
//! # Features
//!
//! - Sessions: connect, resume with the password, ping, negotiated timeouts, expiry at multiples of a tick, close.
//! - create, create2, createContainer, createTTL; delete, exists, getData, setData, getChildren and getChildren2,
//!   getACL, setACL, sync, multi with check, multiRead, whoAmI, getEphemerals, getAllChildrenNumber.
//! - Watches: one-shot, persistent and recursive; setWatches and setWatches2, addWatch, checkWatches, removeWatches. A
//!   session is notified only about znodes that it may read, as in real servers since the fix of CVE-2024-23944, which
//!   Debian's 3.8.0 includes.
//! - ACLs with the schemes world, digest, auth and ip.
//! - The four-letter words cons, envi, isro, mntr, ruok, srvr, stat and wchc.
//! - [`Knobs`], with which tests end sessions.
//!
//! With [`ServerSettings::keeper`], it behaves like ClickHouse Keeper instead, as far as this matters to clients that
//! hold leases. That mode follows Keeper's source, and was never compared with a running Keeper.
//!
//! # Differences from a real server
//!
//! - Nothing is stored on disk. After a restart, the server begins with zxid 1 and refuses clients that have seen later
//!   zxids, like a real server whose disk was wiped.
//! - There is only one server: no ensemble, no read-only mode, no reconfig (refused as by a real server where it is not
//!   enabled).
//! - No quotas; no SASL (a token gets the answer of a real server without SASL); no super user; no other authentication
//!   providers.
//! - TLS is implemented by rustls and not by Java, and there is a single port, with TLS or without
//!   ([`ServerSettings::tls`]). The protocols and certificates that Java accepts, and how it refuses others, must be
//!   tested with a real server. A client's certificate is checked as the given configuration says, but is not an
//!   identity for ACLs.
//! - A frame whose body cannot be decoded is answered with MarshallingError, as by a real server. But then the
//!   connection is closed, which a real server keeps open.
//! - A `check` outside of a multi is refused with Unimplemented. ZooKeeper 3.8.0 accepts it, and writes it to its
//!   transaction log as an entry that it cannot read when it restarts.
//! - A createTTL whose flags contain no TTL is refused with BadArguments; a real server terminates. deleteContainer and
//!   createSession, which are not for clients, are unknown operations.
//! - Znodes with a TTL are enabled by default: [`ServerSettings::extended_types`].
//! - Requests are handled one after the other. A real server decides on a request while earlier ones are still under
//!   way. A client that sends several requests without waiting for the answers may therefore see results of a real
//!   server that it never sees here. In a real server, creates at the end of a sequence counter get negative numbers.
//!   For requests right after a setACL, the old list may still apply. Right after a createContainer with the flags of
//!   an ephemeral znode, the znode may still count as ephemeral. Right after a multi that fails because a create other
//!   than createTTL has the flags of a TTL, the multi's first operations may still count.
//! - An addWatch on null is answered but watches nothing. A real server fails to remove this watch when the connection
//!   ends.
//! - The server stops reading from a client that does not read, and closes the connection when 16 MiB wait to be sent.
//!   A multiRead of more than 16 MiB is refused with MarshallingError, and an ACL of more than 65,536 entries with
//!   InvalidACL.
//! - The answers to four-letter words report latencies of 0, and `mntr`, `cons` and `envi` contain fewer
//!   values.
//!
//! # How it is tested
//!
//! - Against a real server: random scripts of several sessions have the same transcript on both (`tests/differential`).
//! - With other clients and their own recipes: kazoo, Curator and ZooKeeper's shell (`tests/clients`).
//! - With kazoo's own tests: of the 312 tests of kazoo 2.11.0 that need neither eventlet, gevent nor PureSASL, 304
//!   pass, and 305 pass on a real 3.8.0. Of the other 8, three need reconfig, two need several servers or a read-only
//!   one, one needs TLS, and two need a server that comes back with its data (`tests/clients/kazoo_suite.py`).
//!
//! # Design
//!
//! `ServerState` holds everything that the server knows, and is pure: frames in, frames out. One lock guards it, so
//! each frame is handled completely before the next. Each connection is a task that reads frames, passes them to the
//! state, and sends the frames that wait in its `Outbox`.

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
mod replica;
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
pub use replica::{Replica, ReplicaZnode};
pub use server::DevServer;
pub use settings::{Keeper, ServerSettings};
pub use state::{Now, Output};
