//! Stands in for Kerberos in a build without it. None of this is ever made: the configuration refuses the login.

use crate::config::{ConfigError, Zookeeper};
use ::zookeeper::Connector;
use std::time::Duration;

pub(crate) enum Tickets {}

pub(crate) enum BegunLogin {}

pub(super) fn check(_settings: &Zookeeper) -> Result<(), ConfigError> {
    Ok(())
}

impl Tickets {
    pub(super) fn of(_settings: &Zookeeper) -> Option<Self> {
        None
    }

    #[expect(clippy::unused_async, reason = "as the other one")]
    pub(super) async fn begin(&self, _host: &str, _limit: Duration) -> Result<BegunLogin, String> {
        match *self {}
    }
}

impl BegunLogin {
    pub(super) fn apply(&self, _connector: Connector) -> Connector {
        match *self {}
    }

    pub(super) fn failure(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn refused(&self) -> String {
        match *self {}
    }
}
