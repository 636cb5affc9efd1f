//! A session that is kept alive over several connections. This module does not know the recipes: it reports the state of the
//! session in its own events, and gives its users access to the current connection.
//!
//! A session is a [`SessionTask`]; any number of users share it, each with a clone of its [`SessionHandle`]. Commands that
//! inspect an election from outside call [`connect`] instead, which opens a session without a task that keeps it alive.

mod connection;
mod credentials;
mod diagnosis;
mod failure_reporter;
#[cfg(feature = "kerberos")]
mod kerberos;
#[cfg(not(feature = "kerberos"))]
#[path = "no_kerberos.rs"]
mod kerberos;
mod server_version;
mod session;
mod session_file;
mod tls_errors;

pub(crate) use connection::{
    Connection, Failure, LeftServers, OpenedConnection, TransactionResult, connect, in_words,
    is_server_answer,
};
pub use credentials::{Credentials, check};
pub(crate) use session::{
    DELAY_AFTER_CLOSE, SessionHandle, SessionSettings, SessionTask, UnclosedSession, close_session,
    rejoin_delay,
};
pub use session_file::{OpenedSessionFile, SavedSession, SessionFile};

/// Sends an event to the owner of a session, through the channel from which the owner receives its other events as
/// well, so that all of them arrive in order.
pub(crate) type EventSender<E> = Box<dyn Fn(E) + Send + Sync>;
