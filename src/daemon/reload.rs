//! Reads the configuration again while the member runs, and changes what can change in flight.

use super::logging::Level;
use super::secrets;
use crate::cli::{self, Command, Effective};
use crate::config::{self, Hook};
use crate::desk::{Caller, Front, Request};
use recipes::election;
use recipes::election::Profile;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// What is in force, key by key, as it was written.
pub(super) struct InForce {
    values: BTreeMap<&'static str, String>,
    prefix: String,
    hooks: Arc<[Hook]>,
}

impl InForce {
    pub(super) fn of(effective: &Effective) -> Self {
        let values = effective.origins.iter().map(|(key, value, _)| (*key, value.clone()));
        let (prefix, hooks) = (&effective.config.settings.prefix, &effective.config.hooks);
        let (values, hooks) = (values.collect(), hooks.clone().into());
        Self { values, prefix: prefix.clone(), hooks }
    }

    /// Takes over what can be taken over, and says what cannot. What makes no sense changes
    /// nothing.
    pub(super) async fn reload(
        &mut self,
        desk: &Front,
        hooks: &watch::Sender<Arc<[Hook]>>,
        level: &Level,
    ) {
        let new = match cli::read() {
            Ok(Command::Run(new) | Command::CheckConfig(new)) => new,
            // No other command listens for SIGHUP.
            Ok(_) => return,
            Err(error) => return error!("SIGHUP: {error}; all stays as it was"),
        };
        if new.config.has_secrets() {
            secrets::hide().iter().for_each(|warning| warn!("{warning}"));
        }
        let changed = self.changed(&new);
        let rehooked = *self.hooks != *new.config.hooks;
        if rehooked {
            self.hooks = new.config.hooks.clone().into();
            hooks.send_replace(self.hooks.clone());
            info!("SIGHUP: the hooks are those of the file now, {} of them", self.hooks.len());
        }
        if changed.is_empty() && !rehooked {
            return info!("SIGHUP: nothing in the configuration has changed");
        }
        if changed.contains_key("log.level") {
            match level.set(&new.log_level) {
                Ok(()) => self.take("log.level", &changed),
                Err(error) => error!("SIGHUP: {error}; the level stays as it was"),
            }
        }
        self.describe(desk, &new.config.profile, &changed).await;
        for (key, value) in changed.iter().filter(|(key, _)| !CHANGEABLE.contains(key)) {
            let [old, value] = [&self.values[key], value].map(|it| cli::shown(key, it));
            warn!("SIGHUP: {key} is {value:?} now, which takes a restart: still {old:?}");
        }
    }

    /// What differs from what is in force.
    fn changed(&self, new: &Effective) -> BTreeMap<&'static str, String> {
        let new = new.origins.iter().map(|(key, value, _)| (*key, value));
        let differs = |(key, value): &(&str, &String)| self.values.get(key) != Some(*value);
        new.filter(differs).map(|(key, value)| (key, value.clone())).collect()
    }

    /// What was changed by `PATCH /member` stays, unless the file says something else than before.
    async fn describe(
        &mut self,
        desk: &Front,
        new: &Profile,
        changed: &BTreeMap<&'static str, String>,
    ) {
        let told = desk.report.borrow().standing.profile().as_ref().clone();
        let [moved, relabelled] = PROFILE.map(|key| changed.contains_key(key));
        if !moved && !relabelled {
            return;
        }
        let address = if moved { new.address.clone() } else { told.address.clone() };
        let labels = if relabelled { new.labels.clone() } else { told.labels.clone() };
        let profile = Profile { address, labels, ..told };
        if let Err(error) = config::fits(&profile, &self.prefix) {
            return error!("SIGHUP: {error}; address and labels stay as they were");
        }
        let Profile { address, labels, .. } = profile;
        let (caller, _) = Caller::patient();
        let order = Request::Carry(election::Command::UpdateProfile { address, labels }, caller);
        if desk.requests.send(order).await.is_err() {
            return error!("SIGHUP: the election has ended");
        }
        PROFILE.into_iter().for_each(|key| self.take(key, changed));
    }

    fn take(&mut self, key: &'static str, changed: &BTreeMap<&'static str, String>) {
        if let Some(value) = changed.get(key) {
            info!("SIGHUP: {key} is {value:?} now");
            self.values.insert(key, value.clone());
        }
    }
}

const PROFILE: [&str; 2] = ["member.address", "member.labels"];
const CHANGEABLE: [&str; 3] = ["member.address", "member.labels", "log.level"];
