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
const UNANSWERED: u8 = 3;

fn main() -> ExitCode {
    let done = cli::read().map_err(misconfigured).and_then(dispatch);
    let code = done.unwrap_or_else(|(code, why)| {
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
            // Check the program first: if it cannot be run, this member would lead with nothing to do, or become leader
            // again and again.
            cli::runnable(&command[0])?;
            process::keep_writing_in_background();
            daemon::run(effective, Some(Task { command, once }))
        }
        CliCommand::Guard(guard) => match guard {
            GuardCommand::ExecOuterGuard { command } => guarded(exec::run_outer_guard(&command)),
            GuardCommand::ExecInnerGuard { command } => guarded(exec::run_inner_guard(&command)),
            GuardCommand::ExecCommand { parent, files, foreground, command } => {
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
        CliCommand::Say(text) => exit_code(terminal::print(&text)),
    }
}

fn exit_code(done: Result<(), ClientError>) -> Result<u8, ExitFailure> {
    let Err(error) = done else { return Ok(0) };
    match error.message() {
        None => Ok(error.exit_code()),
        Some(why) => Err((error.exit_code(), why)),
    }
}

fn guarded(ended: io::Result<()>) -> Result<u8, ExitFailure> {
    match ended {
        Ok(()) => Ok(0),
        Err(error) => Err((exec::FAILED, format!("cannot guard the command: {error}"))),
    }
}

fn check_config(effective: &Effective, json: bool, connect: bool) -> Result<u8, ExitFailure> {
    let config = &effective.config;
    let mut warnings = cli::warnings(config);
    warnings.extend(secrets::check(&config.settings, config.has_secrets()).map_err(misconfigured)?);
    warnings.iter().for_each(|warning| complain(warning));
    let tried = connect.then(|| runtime::run(zookeeper::try_servers(&config.settings.zookeeper)));
    let shown = if json {
        effective.json(&warnings, tried.as_deref())
    } else {
        let tried = tried.iter().flatten().map(|tried| format!("{tried}\n"));
        effective.to_string() + &tried.collect::<String>()
    };
    let printed = exit_code(terminal::print(shown))?;
    let is_unusable = tried.iter().flatten().any(|tried| tried.problem.is_some());
    Ok(if is_unusable { UNANSWERED } else { printed })
}

fn run_client_command(command: ClientCommand) -> Result<u8, ExitFailure> {
    if let Some(program) = command.program() {
        // Check the program now, and not after a long wait for the event or the lock.
        cli::runnable(program)?;
    }
    let has_secrets = command.has_secrets();
    let warnings = match command.settings() {
        Some(settings) => secrets::check(settings, has_secrets).map_err(misconfigured)?,
        None if has_secrets || env::var_os(CREDENTIALS_VARIABLE).is_some() => {
            secrets::hide().into_iter().collect()
        }
        None => vec![],
    };
    warnings.iter().for_each(|warning| complain(warning));
    if let ClientCommand::Guarded(_) = command {
        process::keep_writing_in_background();
        let level = cli::level_of_lock().map_err(misconfigured)?;
        daemon::log_for_command(&level).map_err(misconfigured)?;
    }
    exit_code(runtime::run(terminal::run(&command, Clock::system())))
}

fn misconfigured(why: String) -> ExitFailure {
    (MISCONFIGURED, why)
}

#[expect(clippy::print_stderr, reason = "the log may not have started yet")]
fn complain(what: &str) {
    for line in what.lines() {
        eprintln!("bellwether: {line}");
    }
}
