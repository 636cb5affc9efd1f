//! The commands for the shared configuration.

use super::client_commands::{CommandTarget, FormatArguments};
use crate::terminal::{
    Call, ClientCommand, Condition, ConfigAction, ConfigCommand, HoldingName, Query,
};
use crate::{api, config};
use clap::{Args, Subcommand, value_parser};
use std::ffi::OsString;
use std::time::Duration;

#[derive(Args)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    action: ConfigSubcommands,
}

#[derive(Subcommand)]
enum ConfigSubcommands {
    /// Print a value as it is stored, or with -o json also its version, for --if-version.
    Get {
        /// The name of the value: 1 to 64 of A-Z a-z 0-9 . _ -
        name: String,
        /// For how long at most to wait for one that is not there: 500ms, 10s, 2m [default: not at all]
        #[arg(short, long, value_name = "DURATION", value_parser = config::duration)]
        wait: Option<Duration>,
        /// Have a quorum of the servers confirm that this is the version that is stored
        #[arg(long, conflicts_with = "wait")]
        proved: bool,
        #[command(flatten)]
        arguments: FormatArguments,
    },
    /// Write a value, and print its version.
    #[command(visible_alias = "set")]
    Put {
        /// The name of the value: 1 to 64 of A-Z a-z 0-9 . _ -
        name: String,
        /// The value, which may be '' [default: what standard input says, if it is not empty]
        value: Option<OsString>,
        /// Only over this version; exits with 1 if there is another
        #[arg(long, value_name = "VERSION", value_parser = value_parser!(i32).range(0..), allow_negative_numbers = true)]
        if_version: Option<i32>,
        /// Only if there is none
        #[arg(long, conflicts_with = "if_version")]
        if_absent: bool,
        /// Have it deleted when the sidecar leaves, or when its session times out
        #[arg(long)]
        ephemeral: bool,
        #[command(flatten)]
        target: CommandTarget,
    },
    /// Print a value, and again at each change, or run a program each time.
    ///
    /// The program has the value on its standard input, and BELLWETHER_VALUE_NAME and BELLWETHER_VALUE_VERSION in its
    /// environment. One runs at a time; of the changes meanwhile the latest is passed on. Where there is no value, or no sidecar
    /// any more, it says so on stderr and waits. What is printed ends with a line's end, also where the value does not.
    Watch {
        /// The name of the value: 1 to 64 of A-Z a-z 0-9 . _ -
        name: String,
        #[command(flatten)]
        arguments: FormatArguments,
        /// The program and its arguments, behind --
        #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["output", "json"])]
        command: Vec<OsString>,
    },
    /// Print the names of the values.
    Ls(FormatArguments),
    /// Delete a value.
    #[command(visible_alias = "delete")]
    Rm {
        /// The name of the value: 1 to 64 of A-Z a-z 0-9 . _ -
        name: String,
        /// Only this version; exits with 1 if there is another
        #[arg(long, value_name = "VERSION", value_parser = value_parser!(i32).range(0..), allow_negative_numbers = true)]
        if_version: Option<i32>,
        #[command(flatten)]
        target: CommandTarget,
    },
}

impl ConfigArguments {
    /// Turns the arguments into a client command.
    ///
    /// # Errors
    /// A sentence about the problem with the arguments, or with a file that they name.
    pub(super) fn into_command(self) -> Result<ClientCommand, String> {
        let (sidecar, name, action) = match self.action {
            ConfigSubcommands::Ls(arguments) => {
                return arguments.command(Call::of(&api::CONFIG_NAMES));
            }
            ConfigSubcommands::Get { name, wait, proved, arguments } => {
                let (sidecar, format) = arguments.parts()?;
                (sidecar, name, ConfigAction::Get { wait, is_proved: proved, format })
            }
            ConfigSubcommands::Watch { name, arguments, command } => {
                let (sidecar, format) = arguments.parts()?;
                (sidecar, name, ConfigAction::Watch { command, format })
            }
            ConfigSubcommands::Put { name, value, if_version, if_absent, ephemeral, target } => {
                let condition = if if_absent { Condition::Absent } else { at_version(if_version) };
                let action = ConfigAction::Put { value, condition, is_ephemeral: ephemeral };
                (target.sidecar()?, name, action)
            }
            ConfigSubcommands::Rm { name, if_version, target } => {
                let action = ConfigAction::Remove { condition: at_version(if_version) };
                (target.sidecar()?, name, action)
            }
        };
        let name = HoldingName::parse(&name, "name of a value", "limits.json")?;
        let query = Query::Config(ConfigCommand { name, action });
        Ok(ClientCommand::Ask { sidecar, query })
    }
}

/// Returns the condition that the stored version is `version`, or no condition if `--if-version` was not given.
fn at_version(version: Option<i32>) -> Condition {
    version.map_or(Condition::None, Condition::Version)
}
