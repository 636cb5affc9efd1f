//! Parses the command line, and runs the command.

use bellwether::cli::{self, CliCommand, Effective, GuardCommand};
use bellwether::clock::Clock;
use bellwether::config::security::CREDENTIALS_VARIABLE;
use bellwether::daemon::{self, MISCONFIGURED, Task, secrets};
use bellwether::terminal::{self, ClientCommand, ClientError};
use bellwether::{exec, process, runtime, zookeeper};
use std::env;
use std::io;
use std::process::ExitCode;

/// The exit code, and the message for the operator.
type ExitFailure = (u8, String);

/// The exit code of `check-config --connect` if a ZooKeeper server cannot be used.
const SERVER_UNUSABLE: u8 = 3;

fn main() -> ExitCode {
    let result = cli::read().map_err(misconfigured).and_then(dispatch);
    let code = result.unwrap_or_else(|(code, why)| {
        complain(&why);
        code
    });
    ExitCode::from(code)
}

/// Runs the command, and returns the exit code.
fn dispatch(command: CliCommand) -> Result<u8, ExitFailure> {
    match command {
        CliCommand::Run(effective) => daemon::run(effective, None),
        CliCommand::Exec { effective, once, command } => {
            // Check the program before joining. Otherwise a member that cannot run it would lead with nothing to do, or
            // become leader again and again.
            cli::check_runnable(&command[0])?;
            process::keep_writing_in_background();
            daemon::run(effective, Some(Task { command, once }))
        }
        CliCommand::Guard(guard) => match guard {
            GuardCommand::ExecOuterGuard { command } => guard_code(exec::run_outer_guard(&command)),
            GuardCommand::ExecInnerGuard { command } => guard_code(exec::run_inner_guard(&command)),
            GuardCommand::ExecCommand { parent, files, foreground, command } => {
                // A text that is not a number means that there is no such limit or process group.
                let files = files.parse().ok();
                let foreground = foreground.parse().ok();
                Err(process::become_command(parent, files, foreground, &command))
            }
        },
        CliCommand::CheckConfig { effective, json, connect } => {
            check_config(&effective, json, connect)
        }
        CliCommand::Terminal(command) => run_client_command(command),
        #[cfg(feature = "dev")]
        CliCommand::Dev(options) => bellwether::dev::run(&options),
        CliCommand::Print(text) => exit_code(terminal::print(&text)),
    }
}

/// Returns the exit code of a client command. An error without a message has printed its reason already.
fn exit_code(result: Result<(), ClientError>) -> Result<u8, ExitFailure> {
    let Err(error) = result else { return Ok(0) };
    match error.message {
        None => Ok(error.exit_code),
        Some(why) => Err((error.exit_code, why)),
    }
}

/// Returns the exit code of a guard, a process between `exec` and its program.
fn guard_code(result: io::Result<()>) -> Result<u8, ExitFailure> {
    match result {
        Ok(()) => Ok(0),
        Err(error) => Err((exec::FAILED, format!("cannot guard the command: {error}"))),
    }
}

fn check_config(effective: &Effective, json: bool, connect: bool) -> Result<u8, ExitFailure> {
    let config = &effective.config;
    let mut warnings = cli::warnings(config);
    warnings.extend(secrets::check(&config.settings, config.has_secrets()).map_err(misconfigured)?);
    warnings.iter().for_each(|warning| complain(warning));
    let servers = connect.then(|| runtime::run(zookeeper::try_servers(&config.settings.zookeeper)));
    let text = if json {
        effective.json(&warnings, servers.as_deref())
    } else {
        let lines = servers.iter().flatten().map(|server| format!("{server}\n"));
        effective.to_string() + &lines.collect::<String>()
    };
    let code = exit_code(terminal::print(text))?;
    let is_any_unusable = servers.iter().flatten().any(|server| server.problem.is_some());
    Ok(if is_any_unusable { SERVER_UNUSABLE } else { code })
}

fn run_client_command(command: ClientCommand) -> Result<u8, ExitFailure> {
    if let Some(program) = command.program() {
        // Check the program now. Otherwise an error would only be noticed after a long wait for the leader or the lock.
        cli::check_runnable(program)?;
    }
    let has_secrets = command.has_secrets();
    let warnings = match command.settings() {
        Some(settings) => secrets::check(settings, has_secrets).map_err(misconfigured)?,
        // The command calls a sidecar. The memory of this process may contain the command token, and its environment
        // the credentials.
        None if has_secrets || env::var_os(CREDENTIALS_VARIABLE).is_some() => {
            secrets::hide().into_iter().collect()
        }
        None => vec![],
    };
    warnings.iter().for_each(|warning| complain(warning));
    if let ClientCommand::Guarded(_) = command {
        process::keep_writing_in_background();
        let level = cli::log_level_of_lock().map_err(misconfigured)?;
        daemon::log_for_command(&level).map_err(misconfigured)?;
    }
    exit_code(runtime::run(terminal::run(&command, Clock::system())))
}

fn misconfigured(why: String) -> ExitFailure {
    (MISCONFIGURED, why)
}

/// Prints an error or a warning to standard error, each line after the name of the program.
#[expect(clippy::print_stderr, reason = "the log may not have started yet")]
fn complain(what: &str) {
    for line in what.lines() {
        eprintln!("bellwether: {line}");
    }
}
