//! Reads the configuration again at run time, and applies the changes that need no restart.

use super::logging::Level;
use super::secrets;
use crate::cli::{self, CliCommand, Effective};
use crate::config::{self, HookConfig, Row, SettingValue, SyncedFileConfig, table};
use crate::status::{MemberRequest, ReplyTo, StatusHandle};
use crate::znode_names::ZnodeNames;
use recipes::election::{Command, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// The active configuration, key by key, as it was written.
pub(super) struct ActiveConfig {
    values: BTreeMap<&'static str, String>,
    znodes: ZnodeNames,
    hooks: Arc<[HookConfig]>,
    synced_files: Vec<SyncedFileConfig>,
}

impl ActiveConfig {
    pub(super) fn of(effective: &Effective) -> Self {
        let values = effective.values.iter().map(|value| (value.row.key, value.text.clone()));
        let znodes = &effective.config.settings.znodes;
        let hooks = &effective.config.hooks;
        let values = values.collect();
        let hooks = hooks.clone().into();
        Self { values, znodes: znodes.clone(), hooks, synced_files: effective.config.kept.clone() }
    }

    /// Reads the configuration. Applies changes that need no restart, and logs the others. A configuration with an error
    /// changes nothing.
    pub(super) async fn reload(
        &mut self,
        status: &StatusHandle,
        hooks: &watch::Sender<Arc<[HookConfig]>>,
        level: &Level,
    ) {
        let new = match cli::read() {
            Ok(CliCommand::Run(new) | CliCommand::CheckConfig { effective: new, .. }) => new,
            // Only the daemon handles SIGHUP, so there cannot be another command.
            Ok(_) => return,
            Err(errors) => {
                let errors = errors.replace('\n', "; ");
                return error!("SIGHUP: {errors}; all stays as it was");
            }
        };
        if new.config.has_secrets() {
            secrets::hide().iter().for_each(|warning| warn!("{warning}"));
        }
        let changed = self.changed(&new);
        let hooks_changed = *self.hooks != *new.config.hooks;
        if hooks_changed {
            self.hooks = new.config.hooks.clone().into();
            hooks.send_replace(self.hooks.clone());
            info!("SIGHUP: the hooks are those of the file now, {} of them", self.hooks.len());
        }
        let files_changed = self.synced_files != new.config.kept;
        if files_changed {
            warn!("SIGHUP: [[config]] has changed, which takes a restart: still what it was");
        }
        if changed.is_empty() && !hooks_changed && !files_changed {
            return info!("SIGHUP: nothing in the configuration has changed");
        }
        if let Some(changed_level) = among(&changed, &table::LOG_LEVEL.row) {
            match level.set(&new.config.log_level) {
                Ok(()) => self.take(changed_level),
                Err(error) => error!("SIGHUP: {error}; the level stays as it was"),
            }
        }
        self.update_profile(status, &new.config.profile, &changed).await;
        // A priority set with `PATCH /member` is kept, unless the file's value has changed.
        if let Some(priority) = among(&changed, &table::PRIORITY.row)
            && send(status, Command::SetPriority(new.config.priority)).await
        {
            self.take(priority);
        }
        for value in changed.iter().filter(|value| !value.row.changes_in_flight) {
            let key = value.row.key;
            let old = value.row.shown(&self.values[key]);
            let new = value.shown();
            warn!("SIGHUP: {key} is {new:?} now, which takes a restart: still {old:?}");
        }
    }

    /// Returns the values that differ from the active ones.
    fn changed<'a>(&self, new: &'a Effective) -> Vec<&'a SettingValue> {
        new.values
            .iter()
            .filter(|value| self.values.get(value.row.key) != Some(&value.text))
            .collect()
    }

    /// Sends the new profile to the member. Changes made with `PATCH /member` are kept, unless the file's value has
    /// changed.
    async fn update_profile(
        &mut self,
        status: &StatusHandle,
        new: &Profile,
        changed: &[&SettingValue],
    ) {
        let address = among(changed, &table::ADDRESS.row);
        let labels = among(changed, &table::LABELS.row);
        if address.is_none() && labels.is_none() {
            return;
        }
        let mut profile = status.snapshot.borrow().standing.profile().as_ref().clone();
        if address.is_some() {
            profile.address.clone_from(&new.address);
        }
        if labels.is_some() {
            profile.labels.clone_from(&new.labels);
        }
        if let Err(error) = config::fits(&profile, &self.znodes) {
            return error!("SIGHUP: {error}; address and labels stay as they were");
        }
        let command = Command::UpdateProfile { address: profile.address, labels: profile.labels };
        if send(status, command).await {
            address.into_iter().chain(labels).for_each(|value| self.take(value));
        }
    }

    /// Notes that this setting's new value is active.
    fn take(&mut self, value: &SettingValue) {
        info!("SIGHUP: {} is {:?} now", value.row.key, value.shown());
        self.values.insert(value.row.key, value.text.clone());
    }
}

/// Sends a command to the member. Returns false if the election has ended.
async fn send(status: &StatusHandle, command: Command) -> bool {
    let (caller, _) = ReplyTo::new(None);
    let sent = status.requests.send(MemberRequest::Command(command, caller)).await.is_ok();
    if !sent {
        error!("SIGHUP: the election has ended");
    }
    sent
}

fn among<'a>(changed: &[&'a SettingValue], row: &Row) -> Option<&'a SettingValue> {
    changed.iter().copied().find(|value| value.row.key == row.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_in_flight_is_what_is_taken_over_here() {
        let rows = table::ALL.iter().filter(|row| row.changes_in_flight);
        let keys: Vec<_> = rows.map(|row| row.key).collect();
        let [priority, level] = [table::PRIORITY.key(), table::LOG_LEVEL.key()];
        assert_eq!(keys, [priority, table::ADDRESS.key(), table::LABELS.key(), level]);
    }
}
