//! Checks values against each other: whether the session timeout leaves a lease, and whether the lease leaves time to end a
//! command.

use super::error::ConfigError;
use super::sources::Values;
use super::{Config, KILL_MARGIN, table};
use crate::znode_names::ZnodeNames;
use recipes::election::Priority;
use recipes::{LeaseDuration, Margins};
use std::time::Duration;

/// The minimum heartbeat interval. Answers cannot be expected any faster.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(20);

/// The margins of the lease.
pub(super) struct LeaseMargins {
    pub(super) margins: Margins,
    /// Whether the heartbeat is a tenth of the session timeout, because it was not set.
    pub(super) heartbeat_is_a_tenth: bool,
}

impl LeaseMargins {
    /// Returns the margins, and checks that a session of this length leaves a useful lease.
    pub(super) fn new(values: &Values, session_timeout: Duration) -> Result<Self, ConfigError> {
        let tick_time = values.get(&table::TICK_TIME)?;
        let written = values.written(&table::HEARTBEAT)?;
        let heartbeat = written.unwrap_or(session_timeout / 10);
        let [session, tick, beat] =
            [table::SESSION_TIMEOUT.key(), table::TICK_TIME.key(), table::HEARTBEAT.key()];
        if heartbeat < SHORTEST_HEARTBEAT {
            let problem = format!(
                "is shorter than {SHORTEST_HEARTBEAT:?}, sooner than which no answer can be counted on"
            );
            return Err(ConfigError::new(beat, problem)
                .found(heartbeat)
                .remedy(format!("raise it, or {session}")));
        }
        let margins = Margins { heartbeat, half_tick: tick_time / 2 };
        let margins = Self { margins, heartbeat_is_a_tenth: written.is_none() };
        if margins.margins.lease_duration(session_timeout).is_none() {
            let problem = format!(
                "leaves no useful lease with {tick} = {tick_time:?} and {beat} = {heartbeat:?}"
            );
            let least = margins.least(Duration::ZERO);
            return Err(ConfigError::new(session, problem).found(session_timeout).remedy(format!(
                "it must be at least {least:?} (or lower the others, if the servers allow it)"
            )));
        }
        Ok(margins)
    }

    /// Returns the smallest session timeout, in whole milliseconds, whose lease is longer than a heartbeat and `reserve`.
    fn least(&self, reserve: Duration) -> Duration {
        let would_do = |ms: u64| {
            let timeout = Duration::from_millis(ms);
            let tenth = timeout / 10;
            let heartbeat = if self.heartbeat_is_a_tenth { tenth } else { self.margins.heartbeat };
            let lease = Margins { heartbeat, ..self.margins }.lease_duration(timeout);
            heartbeat >= SHORTEST_HEARTBEAT
                && lease.is_some_and(|lease| lease.0 > heartbeat + reserve)
        };
        let mut too_little = 0;
        let mut enough = 1;
        while !would_do(enough) {
            (too_little, enough) = (enough, 2 * enough);
        }
        while enough - too_little > 1 {
            let between = too_little.midpoint(enough);
            if would_do(between) { enough = between } else { too_little = between }
        }
        Duration::from_millis(enough)
    }
}

/// Returns how the members' znodes are named. In another client's election, that client determines the names, so settings
/// that conflict with it are errors.
pub(super) fn znodes(values: &Values) -> Result<ZnodeNames, ConfigError> {
    let Some(family) = values.get(&table::COMPATIBLE_WITH)? else {
        return Ok(ZnodeNames::from(&*values.get(&table::PREFIX)?));
    };
    let prefix = values.get(&table::PREFIX)?;
    if prefix != table::PREFIX.row.default.words() {
        let problem = format!(
            "names znodes in our own way, and {} = {:?} in that of {family}",
            table::COMPATIBLE_WITH.key(),
            family.name()
        );
        return Err(ConfigError::new(table::PREFIX.key(), problem)
            .found(prefix)
            .remedy("leave one of them out"));
    }
    let ours_alone = |key: &'static str, found: String| {
        let problem = format!(
            "is for an election of our own, and {} = {:?}: {family} knows of no priority",
            table::COMPATIBLE_WITH.key(),
            family.name()
        );
        ConfigError::new(key, problem).found(found).remedy("leave one of them out")
    };
    let priority = values.get(&table::PRIORITY)?;
    if priority != Priority::default() {
        return Err(ours_alone(table::PRIORITY.key(), priority.number().to_string()));
    }
    if let Some(wait) = values.get(&table::PREEMPT_AFTER)? {
        return Err(ours_alone(table::PREEMPT_AFTER.key(), format!("{wait:?}")));
    }
    let path = values.get(&table::PATH)?;
    let root = values.get(&table::RECIPES_ROOT)?;
    if let Some(root) = root.filter(|root| format!("{root}/").starts_with(&format!("{path}/"))) {
        let problem = format!(
            "is in {} = {path:?}, where {family} takes all that stands there for contenders",
            table::PATH.key()
        );
        let remedy = "give it a path elsewhere, or switch recipes off with \"\"";
        return Err(ConfigError::new(table::RECIPES_ROOT.key(), problem)
            .found(root)
            .remedy(remedy));
    }
    Ok(ZnodeNames::of_family(family))
}

impl Config {
    /// Checks the configuration for running a command: the lease must leave time to end it.
    ///
    /// # Errors
    /// A sentence that names the keys, the problem and the remedy.
    pub fn with_command(mut self) -> Result<Self, ConfigError> {
        if self.health.is_some() {
            let problem = "is for an application that runs all the time";
            return Err(ConfigError::new(table::HEALTH_CHECK.key(), problem)
                .remedy("leave it out with exec, whose command tells by its end how it is"));
        }
        self.reserve = self.exec.kill_after + KILL_MARGIN;
        let Margins { heartbeat, half_tick } = self.policy.margins;
        let session_timeout = self.settings.zookeeper.session_timeout;
        let lease = self.policy.margins.lease_duration(session_timeout);
        let room =
            lease.map_or(Duration::ZERO, |lease| lease.0.saturating_sub(heartbeat + KILL_MARGIN));
        if self.exec.kill_after < room {
            return Ok(self);
        }
        let [session, tick, beat] =
            [table::SESSION_TIMEOUT.key(), table::TICK_TIME.key(), table::HEARTBEAT.key()];
        let problem = format!(
            "leaves no room to end a command before its lease with {session} = {session_timeout:?}, \
             {tick} = {:?} and {beat} = {heartbeat:?}",
            2 * half_tick
        );
        let heartbeat_is_a_tenth = self.heartbeat_is_a_tenth;
        let margins = LeaseMargins { margins: self.policy.margins, heartbeat_is_a_tenth };
        let least = margins.least(self.reserve);
        Err(ConfigError::new(table::KILL_AFTER.key(), problem)
            .found(self.exec.kill_after)
            .remedy(format!("it must be less than {room:?}, or {session} at least {least:?}")))
    }

    /// Returns the lease, assuming that the servers grant the requested session timeout.
    pub fn longest_lease(&self) -> Option<LeaseDuration> {
        self.policy.margins.lease_duration(self.settings.zookeeper.session_timeout)
    }
}
