//! Replaces Kerberos in a build without it. The configuration refuses `zookeeper.auth = "kerberos"`, so the types here
//! have no values, and their methods are never called.

use crate::config::{ConfigError, Zookeeper};
use ::zookeeper::Connector;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) enum Tickets {}

pub(crate) enum BegunLogin {}

/// In a build with Kerberos, this checks the keytab.
pub(super) fn check(_settings: &Zookeeper) -> Result<(), ConfigError> {
    Ok(())
}

impl Tickets {
    pub(super) fn of(_settings: &Zookeeper) -> Option<Arc<Self>> {
        None
    }

    pub(super) fn end_at(&self) -> SystemTime {
        match *self {}
    }

    pub(super) fn problem(&self, _now: SystemTime, _is_connected: bool) -> Option<String> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "as in a build with Kerberos")]
    pub(super) async fn begin(&self, _host: &str, _limit: Duration) -> Result<BegunLogin, String> {
        match *self {}
    }
}

impl BegunLogin {
    pub(super) fn apply(&self, _connector: Connector) -> Connector {
        match *self {}
    }

    pub(super) fn explain_refusal(&self) -> String {
        match *self {}
    }

    pub(super) fn failure(&self, _server: &str) -> Option<String> {
        match *self {}
    }
}
