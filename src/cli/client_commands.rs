//! The commands that call a sidecar or read ZooKeeper: their arguments, and the resulting [`ClientCommand`].

use super::locking::{GuardedArguments, holding_name, up_to_1000};
use super::shared_config::ConfigSubcommand;
use super::{ConfigFile, first_process, sources};
use crate::api::{self, Transfer};
use crate::config::{self, Settings, table};
use crate::terminal::{
    Call, ClientCommand, HoldingName, OutputFormat, Patience, Probe, Query, Sidecar, Token,
};
use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use clap::{ArgMatches, Args, Subcommand};
use recipes::holding::HoldingSpec;
use recipes::lock::Mode;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable for `--url`.
const URL_VARIABLE: &str = "BELLWETHER_URL";

#[derive(Subcommand)]
pub(super) enum ClientSubcommand {
    /// Print who leads.
    ///
    /// Only the leader's own sidecar knows how long its lease holds.
    Leader(FormatArguments),
    /// Print where this member stands: role, place, lease, session.
    Status(FormatArguments),
    /// Print the queue in order, how each member is, and what is wrong.
    Members(FormatArguments),
    /// Print who led when, as far as this member has heard.
    History(FormatArguments),
    /// Print a line at each change, until told to stop.
    ///
    /// When the stream of events is lost it says so on stderr and tries again. It ends with an error only if the sidecar
    /// cannot be reached in the first place.
    Watch(FormatArguments),
    /// Wait until there is a leader, or until this member leads, and then run a program, if one is given.
    ///
    /// It waits as well for a sidecar that is not there yet, or is restarted. It becomes the program (by exec), which
    /// has BELLWETHER_LEADER_ID, BELLWETHER_LEADER_ADDRESS and BELLWETHER_LEADER_TOKEN in its environment. Nothing ends
    /// the program when leadership is lost: that is what `bellwether exec` is for.
    Wait {
        #[command(flatten)]
        address: SidecarUrl,
        /// Until any leader is known; this is the default
        #[arg(long, conflicts_with = "is_self")]
        leader: bool,
        /// Until this member leads
        #[arg(long = "self")]
        is_self: bool,
        /// For how long at most: 500ms, 10s, 2m [default: forever]
        #[arg(short, long, value_name = "DURATION", value_parser = config::duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        output: OutputArguments,
        /// The program to become and its arguments, behind --
        #[arg(last = true, value_name = "PROGRAM")]
        command: Vec<OsString>,
    },
    /// Answer yes or no with the exit code, for probes in an image without a shell.
    ///
    /// Prints nothing if it is a yes, else why on stderr.
    Probe {
        /// What to ask
        probe: Probe,
        #[command(flatten)]
        address: SidecarUrl,
        /// Say why also if it is a yes
        #[arg(short, long)]
        verbose: bool,
    },
    /// Print the names of the locks; with a name, who holds that lock and who waits for it.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Locks {
        #[command(subcommand)]
        action: Option<LockAction>,
        /// The name of one lock
        #[arg(value_parser = holding_name)]
        name: Option<HoldingName>,
        #[command(flatten)]
        arguments: FormatArguments,
    },
    /// Print the names of the barriers; with a name, who is in front of that barrier and who is inside.
    Barriers {
        /// The name of one barrier
        #[arg(value_parser = holding_name)]
        name: Option<HoldingName>,
        #[command(flatten)]
        arguments: FormatArguments,
    },
    /// Run a program while a lock is held.
    ///
    /// A sidecar holds the lock for this process, or with the flag --zookeeper or --config the process itself, without any
    /// sidecar; a variable alone, such as BELLWETHER_ZOOKEEPER, does not choose that. The
    /// program has BELLWETHER_TOKEN, the fencing token, and BELLWETHER_LOCK in its environment. It is dead before the
    /// lease ends: its process group gets SIGTERM, and SIGKILL later, when the lease is not renewed in time. SIGTERM and
    /// SIGINT end it, a second one kills it; other signals are passed on.
    ///
    /// Exits with the program's exit code, 128+n if signal n ended it, or this process while it waited; 127 if it is not
    /// found, 126 if it cannot be run; 124 if the lock is not got in time, 125 if it is lost or something else fails; 2
    /// if the configuration is wrong.
    Lock {
        /// The name of the lock: 1 to 64 of A-Z a-z 0-9 . _ -
        #[arg(value_parser = holding_name)]
        name: HoldingName,
        /// Hold it beside any number of others that share it, and beside none that does not
        #[arg(long)]
        shared: bool,
        /// A semaphore: the first so many of the queue hold it, from 1 to 1000; all have to name the same number
        #[arg(long, value_name = "NUMBER", conflicts_with = "shared", value_parser = up_to_1000, allow_negative_numbers = true)]
        slots: Option<NonZeroU32>,
        /// For how long to wait at most: 500ms, 10s, 2m [default: forever]
        #[arg(short, long, value_name = "DURATION", value_parser = config::duration)]
        wait: Option<Duration>,
        /// Do not wait: take it only if it is free
        #[arg(long = "try", conflicts_with = "wait")]
        only_if_free: bool,
        #[command(flatten)]
        guarded: GuardedArguments,
    },
    /// Enter a double barrier with others, run a program inside, and wait until all have left.
    ///
    /// All that use the barrier begin when so many are there, and none returns before all their programs have ended. A
    /// sidecar enters it for this process, or with --zookeeper or --config the process itself, without any sidecar. The program has
    /// BELLWETHER_TOKEN and BELLWETHER_BARRIER in its environment. It is dead before the lease ends, as that of `lock`.
    ///
    /// Exits with the program's exit code, 128+n if signal n ended it, or this process while it waited; 127 if it is not
    /// found, 126 if it cannot be run; 124 if too few came in time, 125 if it was lost or something else fails; 2 if the
    /// configuration is wrong.
    Barrier {
        /// The name of the barrier: 1 to 64 of A-Z a-z 0-9 . _ -
        #[arg(value_parser = holding_name)]
        name: HoldingName,
        /// The number of participants, from 1 to 1000; all of them have to give the same number
        #[arg(long, value_name = "NUMBER", value_parser = up_to_1000, allow_negative_numbers = true)]
        size: NonZeroU32,
        /// For how long to wait for the others at most: 500ms, 10s, 2m [default: forever]
        #[arg(short, long, value_name = "DURATION", value_parser = config::duration)]
        wait: Option<Duration>,
        #[command(flatten)]
        guarded: GuardedArguments,
    },
    /// Read, write and follow values that applications share, through the sidecar.
    Config {
        #[command(subcommand)]
        action: ConfigSubcommand,
    },
    /// Have the leader go to the tail of the queue.
    #[command(visible_aliases = ["step-down", "demote"])]
    Resign(SidecarCommand),
    /// Have this member leave the queue until told to resume.
    Pause(SidecarCommand),
    /// Have this member join the queue again, at its tail, after a pause or drain.
    Resume(SidecarCommand),
    /// Have this member hand over and leave the queue, as pause does, and wait for its hooks: for a preStop hook.
    Drain(SidecarCommand),
    /// Have this member leave the queue and its process end, for Jobs.
    Shutdown(SidecarCommand),
    /// Have the leader hand over to another member.
    ///
    /// Ask the leader's sidecar; any other one names the leader, and exits with 1. The leader leads on until the other
    /// is ready to lead at once, and stays leader if the other is not ready in time. Without --to any member will do.
    #[command(visible_aliases = ["switchover", "failover", "promote"])]
    Transfer {
        /// The id of the member that is to lead [default: the next one that is ready]
        #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
        to: Option<String>,
        /// For how long at most to wait for it to be ready: 500ms, 30s, 5m
        #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = transfer_time)]
        within: Duration,
        #[command(flatten)]
        command: SidecarCommand,
    },
    /// Look at an election in ZooKeeper itself, without a sidecar and without joining.
    ///
    /// Prints the queue as `members` does, and what does not belong there. Exits 0 if all is well, and 1 if there is no queue or
    /// any problem. A lease cannot be seen from outside.
    Inspect {
        #[command(flatten)]
        file: ConfigFile,
        /// For how long at most to wait for ZooKeeper
        #[arg(short, long, value_name = "DURATION", default_value = "10s", value_parser = config::duration)]
        timeout: Duration,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Args)]
pub(super) struct SidecarUrl {
    /// The sidecar to ask, http://HOST:PORT or unix:PATH [default: the address of the sidecar that is process 1 of this container, else that in BELLWETHER_LISTEN, else http://127.0.0.1:4040]
    #[arg(short, long, env = URL_VARIABLE, value_name = "URL")]
    url: Option<String>,
}

#[derive(Args)]
pub(super) struct FormatArguments {
    #[command(flatten)]
    address: SidecarUrl,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Args)]
pub(super) struct OutputArguments {
    /// How to print
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: OutputFormat,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Subcommand)]
pub(super) enum LockAction {
    /// Break a lock that is not given back: its holder is told to give it up, and its place is deleted.
    ///
    /// Done when the holder's lease is surely over, after twice the session timeout. For a holder that hangs, or that
    /// nobody knows. A member that only waits joins again at the tail.
    Break {
        /// The name of the lock
        #[arg(value_parser = holding_name)]
        name: HoldingName,
        /// The TOKEN of the place, as `bellwether locks NAME` prints it
        token: u64,
        /// Do not wait: the holder may go on beside the next one until it hears of it, up to a session timeout later
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        target: CommandTarget,
    },
}

#[derive(Args)]
pub(super) struct SidecarCommand {
    #[command(flatten)]
    target: CommandTarget,
    #[command(flatten)]
    output: OutputArguments,
}

/// The sidecar to which a command is sent, and the command token, if that sidecar requires one.
#[derive(Args)]
pub(super) struct CommandTarget {
    #[command(flatten)]
    address: SidecarUrl,
    /// A file with the command token, if the sidecar wants to see one [default: none]
    #[arg(long, env = "BELLWETHER_TOKEN_FILE", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    token_file: Option<PathBuf>,
}

fn transfer_time(written: &str) -> Result<Duration, String> {
    let time = config::duration(written).ok().filter(|time| *time <= Transfer::LONGEST);
    time.ok_or_else(|| format!("write a duration from 1ms to {:?}, such as 30s", Transfer::LONGEST))
}

/// Turns the parsed arguments into a client command.
///
/// # Errors
/// A sentence about the problem with the arguments, or with a file that they name.
pub(super) fn into_command(
    subcommand: ClientSubcommand,
    matches: &ArgMatches,
) -> Result<ClientCommand, String> {
    let (sidecar, query) = match subcommand {
        ClientSubcommand::Leader(arguments) => arguments.call(Call::of(&api::LEADER))?,
        ClientSubcommand::Status(arguments) => arguments.call(Call::of(&api::STATUS))?,
        ClientSubcommand::Members(arguments) => arguments.call(Call::of(&api::MEMBERS))?,
        ClientSubcommand::History(arguments) => arguments.call(Call::of(&api::HISTORY))?,
        ClientSubcommand::Resign(command) => command.call(Call::of(&api::RESIGN))?,
        ClientSubcommand::Pause(command) => command.call(Call::of(&api::PAUSE))?,
        ClientSubcommand::Resume(command) => command.call(Call::of(&api::RESUME))?,
        ClientSubcommand::Drain(command) => command.call(Call::of(&api::DRAIN))?,
        ClientSubcommand::Shutdown(command) => command.call(Call::of(&api::SHUTDOWN))?,
        ClientSubcommand::Transfer { to, within, command } => {
            command.call(Call::transfer(to, within))?
        }
        ClientSubcommand::Watch(arguments) => {
            let (sidecar, format) = arguments.parts()?;
            (sidecar, Query::Watch { format })
        }
        ClientSubcommand::Wait { address, is_self, timeout, output, command, .. } => {
            let query = Query::Wait { is_self, at_most: timeout, command, format: output.format() };
            (address.sidecar()?, query)
        }
        ClientSubcommand::Probe { probe, address, verbose } => {
            (address.sidecar()?, Query::Probe { probe, verbose })
        }
        ClientSubcommand::Locks { action: Some(action), .. } => {
            let LockAction::Break { name, token, now, target } = action;
            let call = Call::break_lock(&name, token, now);
            (target.sidecar()?, Query::Call { call, format: OutputFormat::Table })
        }
        ClientSubcommand::Locks { name: Some(name), arguments, .. } => {
            arguments.call(Call::lock_queue(&name))?
        }
        ClientSubcommand::Locks { arguments, .. } => arguments.call(Call::of(&api::LOCKS))?,
        ClientSubcommand::Barriers { name: Some(name), arguments } => {
            arguments.call(Call::barrier(&name))?
        }
        ClientSubcommand::Barriers { arguments, .. } => arguments.call(Call::of(&api::BARRIERS))?,
        ClientSubcommand::Config { action } => action.query()?,
        ClientSubcommand::Lock { name, shared, slots, wait, only_if_free, guarded } => {
            let mode = match slots {
                Some(slots) => Mode::Slots(slots),
                None if shared => Mode::Shared,
                None => Mode::Exclusive,
            };
            let patience = match wait {
                Some(limit) => Patience::AtMost(limit),
                None if only_if_free => Patience::Try,
                None => Patience::Endless,
            };
            return guarded.into_command(matches, name, HoldingSpec::Lock(mode), patience);
        }
        ClientSubcommand::Barrier { name, size, wait, guarded } => {
            let patience = wait.map_or(Patience::Endless, Patience::AtMost);
            return guarded.into_command(matches, name, HoldingSpec::Barrier(size), patience);
        }
        ClientSubcommand::Inspect { file, timeout, output } => {
            let values = sources::values(file.config, matches)?;
            let settings = Settings::new(&values, timeout)?;
            let format = output.format();
            return Ok(ClientCommand::Inspect { settings, limit: timeout, format });
        }
    };
    Ok(ClientCommand::Ask { sidecar, query })
}

impl FormatArguments {
    /// Returns the sidecar, and the query that sends it the single request `call`.
    pub(super) fn call(self, call: Call) -> Result<(Sidecar, Query), String> {
        let (sidecar, format) = self.parts()?;
        Ok((sidecar, Query::Call { call, format }))
    }

    /// Returns the sidecar to ask, and the output format.
    pub(super) fn parts(self) -> Result<(Sidecar, OutputFormat), String> {
        Ok((self.address.sidecar()?, self.output.format()))
    }
}

impl SidecarCommand {
    fn call(self, call: Call) -> Result<(Sidecar, Query), String> {
        let format = self.output.format();
        Ok((self.target.sidecar()?, Query::Call { call, format }))
    }
}

impl CommandTarget {
    pub(super) fn sidecar(self) -> Result<Sidecar, String> {
        let mut sidecar = self.address.sidecar()?;
        if let Some(file) = self.token_file.filter(|file| !file.as_os_str().is_empty()) {
            let token = config::token("--token-file", &file)?;
            sidecar.token = Some(Token::new(&token).expect("config::token has checked it"));
        }
        Ok(sidecar)
    }
}

impl SidecarUrl {
    /// Returns the sidecar at `--url`, or else the sidecar at the address where process 1 of this container listens, or
    /// else at the address in `BELLWETHER_LISTEN`, or else at the default address.
    pub(super) fn sidecar(self) -> Result<Sidecar, String> {
        if let Some(url) = self.url.filter(|url| !url.is_empty()) {
            let mut sidecar = Sidecar::at(&url)?;
            // Hints repeat `--url` only if a flag gave it: the user's next command reads the same environment.
            let is_from_environment = std::env::var(URL_VARIABLE).as_ref() == Ok(&url);
            sidecar.url = if is_from_environment { None } else { Some(url) };
            return Ok(sidecar);
        }
        if let Some(listen) = first_process::listen() {
            return Ok(Sidecar::listening_at(&listen));
        }
        let listen = sources::variable(table::LISTEN.row.variable)?;
        let listen = listen.unwrap_or_else(|| table::LISTEN.row.default.text().to_owned());
        Ok(Sidecar::listening_at(&table::LISTEN.parse(&listen)?))
    }
}

impl OutputArguments {
    fn format(self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }
}
