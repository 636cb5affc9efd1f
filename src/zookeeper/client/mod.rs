//! A session kept over connections. It knows no recipe: it says in its own events what became of the
//! session, and lends out the connection of the moment.
//!
//! A session is [`SessionTask`]; any number of users share it, each by a clone of its [`SessionHandle`].
//! [`connect`] alone is for a look from outside.

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
    Connection, Failure, LeaveServerOutcome, LeftServers, OpenedConnection, TransactionResult,
    connect, in_words, is_verdict,
};
pub(crate) use credentials::Credentials;
pub use credentials::check;
pub(crate) use diagnosis::diagnose;
pub(crate) use session::{
    PreviousEnd, SessionEvent, SessionHandle, SessionSettings, SessionTask, UnclosedSession,
    close_limit, delay_after_force, end_former,
};
pub use session_file::{OpenedSessionFile, SavedSession, SessionFile};

/// Reports events to an owner, in order with all its other events.
pub(crate) type Tell<E> = Box<dyn Fn(E) + Send + Sync>;
