//! Checks values against each other: whether the session timeout leaves a lease, and whether the lease leaves time to end a
//! command.

use super::error::ConfigError;
use super::sources::Values;
use super::{Config, KILL_MARGIN, table};
use crate::znode_names::ZnodeNames;
use recipes::{LeaseDuration, Margins};
use std::time::Duration;

/// The minimum heartbeat interval. Answers of ZooKeeper may take longer than a shorter interval, and late heartbeats
/// earn only a shorter lease, or none.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(20);

/// Returns the margins by which a lease is shorter than the session timeout, and checks that this timeout leaves a
/// useful lease.
pub(super) fn lease_margins(
    values: &Values,
    session_timeout: Duration,
) -> Result<Margins, ConfigError> {
    let tick_time = values.get(&table::TICK_TIME)?;
    let heartbeat = values.get_optional(&table::HEARTBEAT)?.unwrap_or(session_timeout / 10);
    let margins = Margins { heartbeat, half_tick: tick_time / 2 };
    if heartbeat < SHORTEST_HEARTBEAT {
        let problem = format!(
            "is shorter than {SHORTEST_HEARTBEAT:?}, and an answer of ZooKeeper may take longer"
        );
        return Err(ConfigError::new(table::HEARTBEAT.key(), problem)
            .found(heartbeat)
            .remedy(format!("raise it, or {}", table::SESSION_TIMEOUT.key())));
    }
    if margins.lease_duration(session_timeout).is_none() {
        let inputs = lease_inputs(session_timeout, &margins);
        return Err(ConfigError::new(inputs, "leave no useful lease")
            .remedy("raise the first, or lower the others, if the servers allow it"));
    }
    Ok(margins)
}

/// Describes the values on which the lease depends.
fn lease_inputs(session_timeout: Duration, margins: &Margins) -> String {
    let [session, tick, beat] =
        [table::SESSION_TIMEOUT.key(), table::TICK_TIME.key(), table::HEARTBEAT.key()];
    let tick_time = 2 * margins.half_tick;
    let heartbeat = margins.heartbeat;
    format!("{session} = {session_timeout:?}, {tick} = {tick_time:?} and {beat} = {heartbeat:?}")
}

/// Returns how the members' znodes are named. In another client's election, that client determines the names, so settings
/// that conflict with it are errors.
pub(super) fn znodes(values: &Values) -> Result<ZnodeNames, ConfigError> {
    let Some(client) = values.get_optional(&table::COMPATIBLE_WITH)? else {
        return Ok(ZnodeNames::from(&*values.get(&table::PREFIX)?));
    };
    for row in [&table::PREFIX.row, &table::PRIORITY.row, &table::PREEMPT_AFTER.row] {
        let written = &values.value(row).text;
        // Users may copy the defaults from `check-config`, so these are accepted.
        if written != row.default.text() {
            let key = table::COMPATIBLE_WITH.key();
            let name = client.name();
            let problem = format!("is only for an election of our own, and {key} = {name:?}");
            return Err(ConfigError::new(row.key, problem)
                .found(written)
                .remedy("leave one of them out"));
        }
    }
    let path = values.get(&table::PATH)?;
    if let Some(root) = values.get(&table::RECIPES_ROOT)?
        && format!("{root}/").starts_with(&format!("{path}/"))
    {
        let problem = format!(
            "is in {} = {path:?}, where {client} takes every znode for a contender",
            table::PATH.key()
        );
        return Err(ConfigError::new(table::RECIPES_ROOT.key(), problem)
            .found(root)
            .remedy("give it a path elsewhere, or switch recipes off with \"\""));
    }
    Ok(ZnodeNames::of_family(client))
}

impl Config {
    /// Reserves a part of the lease for ending the command of `exec`, and checks that enough of the lease is left.
    ///
    /// # Errors
    /// A sentence that names the keys, the problem and the remedy.
    pub fn with_command(mut self) -> Result<Self, ConfigError> {
        if self.health.is_some() {
            let problem = "is for an application that runs all the time";
            return Err(ConfigError::new(table::HEALTH_CHECK.key(), problem)
                .remedy("leave it out: exec sees by itself when its command ends"));
        }
        let kill_after = self.exec.kill_after;
        self.reserve = kill_after + KILL_MARGIN;
        let lease = self.longest_lease().map_or(Duration::ZERO, |lease| lease.0);
        // `kill_after` must be shorter than this. The lease also has to cover the time until killed processes are gone,
        // and one heartbeat: with less than that left, it could end before it is renewed.
        let room = lease.saturating_sub(self.policy.margins.heartbeat + KILL_MARGIN);
        if kill_after < room {
            return Ok(self);
        }
        let inputs = lease_inputs(self.settings.zookeeper.session_timeout, &self.policy.margins);
        let problem = format!("leaves too little of the lease to end a command, with {inputs}");
        let session = table::SESSION_TIMEOUT.key();
        Err(ConfigError::new(table::KILL_AFTER.key(), problem)
            .found(kill_after)
            .remedy(format!("it must be less than {room:?}, or {session} longer")))
    }

    /// Returns the lease, assuming that the servers grant the requested session timeout. Not `None`, because a
    /// configuration without a useful lease is invalid.
    pub fn longest_lease(&self) -> Option<LeaseDuration> {
        self.policy.margins.lease_duration(self.settings.zookeeper.session_timeout)
    }
}
