//! The arguments that `lock` and `barrier` share; and the names of locks and barriers.

use super::client_commands::CommandTarget;
use super::{ConfigFile, sources};
use crate::config::{self, HoldingConfig, Scope, table};
use crate::terminal::{ClientCommand, GuardedCommand, HoldingName, HoldingProcess, Patience};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use recipes::holding::HoldingSpec;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

/// The program to run, when to kill it, and which process holds the lock or enters the barrier.
#[derive(Args)]
pub(super) struct GuardedArguments {
    /// From SIGTERM to SIGKILL at most, when the program has to end; less where the lease is short
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = config::duration)]
    kill_after: Duration,
    /// How long the program may be stopped, as by Ctrl-Z, until it is killed
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = config::duration)]
    stopped_for: Duration,
    #[command(flatten)]
    target: CommandTarget,
    #[command(flatten)]
    file: ConfigFile,
    /// The program and its arguments, behind --
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl GuardedArguments {
    /// Turns the arguments into a client command, for this lock or barrier.
    ///
    /// # Errors
    /// A sentence about contradictory arguments, or about the problem with a file that they name.
    pub(super) fn into_command(
        self,
        matches: &ArgMatches,
        name: HoldingName,
        wanted: HoldingSpec,
        patience: Patience,
    ) -> Result<ClientCommand, String> {
        // Only a flag makes this process hold the lock itself. A variable may be meant for the sidecar on this machine.
        let holder = if is_flag(matches, table::SERVERS.key()) || is_flag(matches, "config") {
            if is_flag(matches, "url") {
                let why = "--url names a sidecar, and --zookeeper and --config go without one: leave one out";
                return Err(why.into());
            }
            let values = sources::values(self.file.config, matches)?;
            HoldingProcess::this_process(HoldingConfig::new(&values)?)
        } else {
            // A sidecar has ZooKeeper settings of its own, so a flag for one of these settings is a mistake.
            let mut settings = sources::settings(Scope::Lease);
            if let Some(row) = settings.find(|row| is_flag(matches, row.key)) {
                return Err(format!(
                    "--{} is only for use without a sidecar: name the servers with --zookeeper",
                    row.flag
                ));
            }
            HoldingProcess::Sidecar(self.target.sidecar()?)
        };
        let Self { kill_after, stopped_for, command, .. } = self;
        let guarded =
            GuardedCommand { name, wanted, patience, kill_after, stopped_for, command, holder };
        Ok(ClientCommand::Guarded(guarded))
    }
}

/// Parses the name of a lock, a barrier or a value.
pub(super) fn holding_name(written: &str) -> Result<HoldingName, String> {
    let remedy = "write 1 to 64 of A-Z a-z 0-9 . _ -, but not . or .., such as app-1";
    HoldingName::new(written).ok_or_else(|| remedy.into())
}

/// Parses the number of slots or participants.
pub(super) fn up_to_1000(written: &str) -> Result<NonZeroU32, String> {
    let number = written.parse().ok().filter(|number: &NonZeroU32| number.get() <= 1000);
    number.ok_or_else(|| "write a number from 1 to 1000".into())
}

/// Returns whether the value of the argument `id` was given by a flag, and not by a variable or a default.
fn is_flag(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}
