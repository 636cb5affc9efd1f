//! Reads the configuration again at SIGHUP, and applies the changes that need no restart.

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

/// The configuration that is active now. A reload compares the new configuration with it.
pub(super) struct ActiveConfig {
    /// The value of each setting, as it was written, by the setting's key.
    values: BTreeMap<&'static str, String>,
    znodes: ZnodeNames,
    hooks: Arc<[HookConfig]>,
    synced_files: Vec<SyncedFileConfig>,
}

impl ActiveConfig {
    pub(super) fn of(effective: &Effective) -> Self {
        let values = effective.values.iter().map(|value| (value.row.key, value.text.clone()));
        let config = &effective.config;
        let znodes = config.settings.znodes.clone();
        let hooks = config.hooks.clone().into();
        Self { values: values.collect(), znodes, hooks, synced_files: config.synced_files.clone() }
    }

    /// Reads the configuration. Applies the changes that need no restart, and logs the changes that need one. If the new
    /// configuration has an error, nothing changes.
    pub(super) async fn reload(
        &mut self,
        status: &StatusHandle,
        hooks: &watch::Sender<Arc<[HookConfig]>>,
        level: &Level,
    ) {
        let new = match cli::read() {
            Ok(CliCommand::Run(new)) => new,
            // Does not happen: the command line is the same as at the start, and only `run` reloads.
            Ok(_) => return,
            Err(errors) => {
                return error!("SIGHUP: {}; all stays as it was", errors.replace('\n', "; "));
            }
        };
        // The new configuration may name a secret for the first time: hide this process's memory from other processes.
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
        let files_changed = self.synced_files != new.config.synced_files;
        if files_changed {
            warn!("SIGHUP: [[config]] changed; restart to apply it (still using the old tables)");
        }
        if changed.is_empty() && !hooks_changed && !files_changed {
            return info!("SIGHUP: nothing in the configuration has changed");
        }
        if let Some(changed_level) = changed_value(&changed, &table::LOG_LEVEL.row) {
            match level.set(&new.config.log_level) {
                Ok(()) => self.activate(changed_level),
                Err(error) => error!("SIGHUP: {error}; the level stays as it was"),
            }
        }
        self.update_profile(status, &new.config.profile, &changed).await;
        // A priority that was set with `PATCH /member` stays, unless the value in the configuration has changed.
        if let Some(priority) = changed_value(&changed, &table::PRIORITY.row)
            && send(status, Command::SetPriority(new.config.priority)).await
        {
            self.activate(priority);
        }
        for value in changed.iter().filter(|value| !value.row.changes_without_restart) {
            let key = value.row.key;
            let old = value.row.shown(&self.values[key]);
            let new = value.shown();
            warn!("SIGHUP: {key} changed to {new:?}; restart to apply it (still using {old:?})");
        }
    }

    /// Returns the values that differ from the active ones.
    fn changed<'a>(&self, new: &'a Effective) -> Vec<&'a SettingValue> {
        new.values
            .iter()
            .filter(|value| self.values.get(value.row.key) != Some(&value.text))
            .collect()
    }

    /// Sends the new address and labels to the member. An address or labels that were set with `PATCH /member` stay,
    /// unless their value in the configuration has changed.
    async fn update_profile(
        &mut self,
        status: &StatusHandle,
        new: &Profile,
        changed: &[&SettingValue],
    ) {
        let address = changed_value(changed, &table::ADDRESS.row);
        let labels = changed_value(changed, &table::LABELS.row);
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
        if let Err(error) = config::check_profile(&profile, &self.znodes) {
            return error!("SIGHUP: {error}; address and labels stay as they were");
        }
        let command = Command::UpdateProfile { address: profile.address, labels: profile.labels };
        if send(status, command).await {
            address.into_iter().chain(labels).for_each(|value| self.activate(value));
        }
    }

    /// Logs that this setting's new value is active now, and saves it for the next comparison.
    fn activate(&mut self, value: &SettingValue) {
        info!("SIGHUP: {} is {:?} now", value.row.key, value.shown());
        self.values.insert(value.row.key, value.text.clone());
    }
}

/// Sends a command to the member, without waiting until it is carried out. Returns false if the election has ended.
async fn send(status: &StatusHandle, command: Command) -> bool {
    let (caller, _) = ReplyTo::new(None);
    let sent = status.requests.send(MemberRequest::Command(command, caller)).await.is_ok();
    if !sent {
        error!("SIGHUP: the election has ended");
    }
    sent
}

/// Returns the new value of the setting in this row of the table, if it is among the changed ones.
fn changed_value<'a>(changed: &[&'a SettingValue], row: &Row) -> Option<&'a SettingValue> {
    changed.iter().copied().find(|value| value.row.key == row.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_without_restart_is_what_is_taken_over_here() {
        let rows = table::ALL.iter().filter(|row| row.changes_without_restart);
        let keys: Vec<_> = rows.map(|row| row.key).collect();
        let [priority, level] = [table::PRIORITY.key(), table::LOG_LEVEL.key()];
        assert_eq!(keys, [priority, table::ADDRESS.key(), table::LABELS.key(), level]);
    }
}
