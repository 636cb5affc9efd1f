//! The commands and their arguments.
//!
//! - `sources`: reads the settings from the command line, the environment and the file.
//! - `effective`: the resulting configuration.
//! - `client_commands`, `packaging`: commands that call a sidecar, and commands that print files for packagers.
//! - `locking`: the arguments that `lock` and `barrier` share.
//! - `dev`: the command `dev`. `first_process`: finds the listen address of the sidecar that runs as process 1 of this
//!   container.
//! - `unknown_variables`: finds variables that begin with `BELLWETHER_` but are not read. `programs`: checks whether
//!   programs can be run.

mod client_commands;
mod dev;
mod effective;
mod first_process;
mod locking;
mod packaging;
mod programs;
mod shared_config;
mod sources;
mod unknown_variables;

pub use self::effective::Effective;
pub use self::programs::check_runnable;
use crate::config::{self, Check, Config, Health, HookAction, Scope, table};
use crate::terminal::ClientCommand;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use client_commands::ClientSubcommand;
use std::ffi::OsString;
use std::path::PathBuf;

/// Joins an election in ZooKeeper and tells your application, over HTTP, who leads.
///
/// Run it beside each replica. Each member creates an ephemeral sequential znode; the lowest
/// number leads. Ask it with `bellwether leader`, or over HTTP with `curl localhost:4040/leader`.
#[derive(Parser)]
#[command(version, about)]
enum Cli {
    /// Join the election and serve the HTTP API until SIGTERM or SIGINT.
    ///
    /// Exits 0 after a signal, 2 if the configuration is wrong, 1 if the address cannot be bound.
    Run(ConfigFile),
    /// Run a program only while this member leads.
    ///
    /// The same as `run`; and when this member leads, it starts the program, with BELLWETHER_TOKEN,
    /// BELLWETHER_ID and BELLWETHER_ELECTION in its environment. When leadership is going to be lost
    /// or given up, the program's process group gets SIGTERM, and SIGKILL before another member can
    /// lead. SIGTERM and SIGINT end the program first, then this member leaves; a second one kills it.
    /// Other signals are passed on.
    ///
    /// Exits with the program's exit code, 128+n if signal n ended it, 127 if it is not found, 126 if
    /// it cannot be run, 125 if something else fails; 0 after a signal while it did not run; 2 if the
    /// configuration is wrong, 1 if the address cannot be bound.
    Exec {
        #[command(flatten)]
        file: ConfigFile,
        /// Leave when the program has ended with exit code 0, whatever --on-exit says
        #[arg(long)]
        once: bool,
        /// The program and its arguments, behind --
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        command: Vec<OsString>,
    },
    /// Print the effective configuration and where each value came from, or what is wrong.
    ///
    /// Exits 0 if `run` would accept it, or with --exec if `exec` would, else 2.
    CheckConfig {
        #[command(flatten)]
        file: ConfigFile,
        /// Check it for `exec`, which needs room in the lease to end its program
        #[arg(long = "exec")]
        for_exec: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Open a session at each of the servers, and close it
        #[arg(long)]
        connect: bool,
    },
    #[command(flatten)]
    Guard(GuardCommand),
    #[command(flatten)]
    Client(ClientSubcommand),
    /// Try it: an in-memory ZooKeeper and members on this machine; never for production.
    ///
    /// For trying, developing and testing, without Java, root or anything to install. The server runs in
    /// this process, each member in one of its own, with its API at 127.0.0.1:4040 or one of the next
    /// ports. It prints where each is, and then a line whenever the leader changes. At a terminal single
    /// keys kill the leader, freeze it and let it go on, have it resign, and add a member. Ctrl-C ends
    /// all of it; what was stored is gone then. Nothing that is set for members counts but RUST_LOG.
    ///
    /// Exits 0 after a signal, 2 if an argument is wrong, 1 if it cannot listen or a member cannot start.
    #[cfg_attr(not(feature = "dev"), command(hide = true))]
    Dev(dev::DevArguments),
    #[command(flatten)]
    Packaging(packaging::PackagingCommand),
}

// Commands that users do not type: `exec` starts this executable again for the processes between itself and the
// program. A doc comment would be in the help.
#[derive(Subcommand)]
pub enum GuardCommand {
    /// Run the outer guard, which starts the inner guard of this command.
    #[command(hide = true)]
    ExecOuterGuard { command: Vec<OsString> },
    /// Run the inner guard, which starts this command.
    #[command(hide = true)]
    ExecInnerGuard { command: Vec<OsString> },
    /// Replace this process with the command of `exec` or of a hook, but exit if `parent` has died meanwhile. `files` is the
    /// command's limit of open files, if it is a number. If the process group `foreground` is in the foreground of the terminal,
    /// the command's process group becomes the foreground group instead.
    #[command(hide = true)]
    ExecCommand { parent: i32, files: String, foreground: String, command: Vec<OsString> },
}

/// The file with the settings that no flag and no variable gives.
#[derive(Args)]
struct ConfigFile {
    /// A TOML file; config/bellwether.toml documents every key [file: none]
    #[arg(short, long, env = "BELLWETHER_CONFIG", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    config: Option<PathBuf>,
}

/// The commands that accept the flags of settings. The scope says which settings.
const WITH_SETTINGS: &[(&str, Scope)] = &[
    ("run", Scope::Member),
    ("exec", Scope::Exec),
    ("check-config", Scope::Exec),
    ("inspect", Scope::Election),
    ("lock", Scope::Lease),
    ("barrier", Scope::Lease),
];

/// The text that is shown after the program's help, and after the help of each command that [`calls`].
const EXIT_CODES: &str = "\
Exit codes of the commands that ask or tell:
  0  yes, or done
  1  no: no member leads, it is not so, it is refused, or not done in time by who answers
  2  wrong usage or configuration
  3  neither: no sidecar or no ZooKeeper answers, or the answer makes no sense";

/// The parsed command line.
pub enum CliCommand {
    Run(Effective),
    Exec {
        effective: Effective,
        once: bool,
        command: Vec<OsString>,
    },
    CheckConfig {
        effective: Effective,
        json: bool,
        connect: bool,
    },
    /// Call a sidecar or inspect an election, and print the answer; or run a program under a lock or inside a barrier.
    Terminal(ClientCommand),
    /// Start an in-memory server and members, to try the program.
    #[cfg(feature = "dev")]
    Dev(crate::dev::Options),
    /// Print this text.
    Print(Vec<u8>),
    /// Run as one of the processes between `exec` and its program.
    Guard(GuardCommand),
}

/// Reads the command line, the environment, and the configuration file that they name.
///
/// # Errors
/// A line for each problem of the configuration. If the command line itself is wrong, this function ends the process
/// with exit code 2.
pub fn read() -> Result<CliCommand, String> {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => without_harmful_tip(error).exit(),
        // The user asked for the help or the version.
        Err(help) => return Ok(CliCommand::Print(help.render().ansi().to_string().into())),
    };
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let (_, matches) = matches.subcommand().expect("clap demands a command");
    match cli {
        Cli::Run(file) => Ok(CliCommand::Run(effective(file, matches, false)?)),
        Cli::Exec { file, once, command } => {
            let effective = effective(file, matches, true)?;
            Ok(CliCommand::Exec { effective, once, command })
        }
        Cli::CheckConfig { file, for_exec, json, connect } => {
            let effective = effective(file, matches, for_exec)?;
            Ok(CliCommand::CheckConfig { effective, json, connect })
        }
        Cli::Guard(guard) => Ok(CliCommand::Guard(guard)),
        Cli::Client(subcommand) => {
            client_commands::into_command(subcommand, matches).map(CliCommand::Terminal)
        }
        Cli::Dev(arguments) => arguments.command(),
        Cli::Packaging(packaging) => packaging::write(packaging, command()).map(CliCommand::Print),
    }
}

/// Removes clap's suggestion of a similar command if that is one of `COMMANDS`: a user who mistypes a command must not
/// be led to move leadership, or to end a process.
fn without_harmful_tip(mut error: clap::Error) -> clap::Error {
    // The list includes the aliases, because clap suggests them as well.
    const COMMANDS: &str =
        "resign step-down demote pause resume drain shutdown transfer switchover failover promote";
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::Strings(names)) = error.get(kind)
        && names.iter().any(|name| COMMANDS.split(' ').any(|command| command == name))
    {
        error.remove(kind);
    }
    error
}

/// Returns whether the command calls a sidecar or reads ZooKeeper, and prints the answer.
fn calls(name: &str) -> bool {
    ClientSubcommand::has_subcommand(name) && !["lock", "barrier"].contains(&name)
}

/// Builds the command line. Adds the flags of settings to the commands in [`WITH_SETTINGS`], and the exit codes to the
/// help of those that call a sidecar.
fn command() -> clap::Command {
    let mut command = Cli::command();
    for each in command.get_subcommands_mut() {
        let scope = WITH_SETTINGS.iter().find(|(name, _)| *name == each.get_name());
        if let Some((_, scope)) = scope {
            *each = sources::with_flags(std::mem::take(each), *scope);
        }
        if calls(each.get_name()) {
            *each = std::mem::take(each).after_help(EXIT_CODES);
        }
    }
    command.after_help(EXIT_CODES)
}

/// Builds the effective configuration, and checks the files that it names.
fn effective(file: ConfigFile, matches: &ArgMatches, for_exec: bool) -> Result<Effective, String> {
    let mut effective = Effective::new(sources::values(file.config, matches)?)?;
    if for_exec {
        effective.config = effective.config.with_command()?;
    }
    let config = &effective.config;
    // Check the token now. Otherwise a wrong token would only be noticed when a command arrives.
    if let Some(file) = &config.token_file {
        config::token(table::TOKEN_FILE.key(), file)?;
    }
    config::check_files(config)?;
    Ok(effective)
}

/// Returns the log level of `lock` and `barrier` from the environment; by default `warn`.
///
/// # Errors
/// The variable is not UTF-8 text.
pub fn log_level_of_lock() -> Result<String, String> {
    let written = sources::variable(table::LOG_LEVEL.row.variable)?;
    Ok(written.unwrap_or_else(|| "warn".into()))
}

/// Returns warnings about settings that are probably mistakes but do not prevent a start, one sentence for each. A program
/// that cannot be run now may be installed before it is needed.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = unknown_variables::unknown_variables();
    warnings.extend(config::weak_secrets(config));
    let mut commands = vec![];
    for (table, action) in config.actions() {
        if let HookAction::Run { command, .. } = action {
            commands.push((format!("{table}.command"), command));
        }
    }
    if let Some(Health { check: Check::Run(command), .. }) = &config.health {
        commands.push((table::HEALTH_CHECK.key().to_owned(), command));
    }
    for (key, command) in commands {
        let problem = check_runnable(command[0].as_ref()).err();
        warnings.extend(problem.map(|(_, why)| format!("{key}: {why}")));
    }
    warnings
}

/// Returns the output of `check-config` for a file with this text, without reading any other file.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_config_of(text: &str) -> Result<String, String> {
    let mut values = config::Values::new(sources::pod());
    values.read_file(text, "bellwether.toml".as_ref())?;
    Ok(Effective::new(values)?.to_string())
}

/// Returns whether a service manager started this process and expects notifications.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_documentation_has_each_command_that_calls_a_sidecar() {
        let text = fs::read_to_string("docs/reference/cli.md")
            .expect("tests run in the root of the crate");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
        let cells: Vec<_> = rows.filter_map(|row| row.split(" | ").next()).collect();
        let command = super::command();
        let names = command.get_subcommands().map(clap::Command::get_name);
        for name in names.filter(|name| super::calls(name)) {
            let documented = [format!("`{name}`"), format!("`{name} ")];
            let has = |cell: &&str| documented.iter().any(|name| cell.contains(&**name));
            assert!(cells.iter().any(has), "put {name} into the table");
        }
    }
}
