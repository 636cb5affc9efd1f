//! Reads, writes and follows values of the shared configuration. A value is printed as it is stored, even if it is not
//! text.

use super::poll::{Poll, Polled};
use super::sidecar::SidecarRequest;
use super::{ClientError, NO, OutputFormat, Sidecar, SidecarAnswer, print, remark};
use crate::api::{self, ConfigValue, ConfigWritten};
use crate::shared_config::{Condition, ConfigName};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A command on a single value.
pub struct ConfigCommand {
    pub name: ConfigName,
    pub action: ConfigAction,
}

pub enum ConfigAction {
    /// Print the value. With `wait`, wait at most this long for the value to exist. With `is_proved`, a quorum of
    /// servers has to confirm its version.
    Get { wait: Option<Duration>, is_proved: bool, format: OutputFormat },
    /// Write this value, or with `None` the content of standard input.
    Put { value: Option<OsString>, condition: Condition, is_ephemeral: bool },
    /// Delete the value.
    Remove { condition: Condition },
    /// Print the value, or run this command, at each change.
    Watch { command: Vec<OsString>, format: OutputFormat },
}

/// A value, which may be any bytes, and its version.
struct StoredValue {
    data: Bytes,
    version: String,
}

impl ConfigCommand {
    /// Carries out the command. A watch runs until the output is closed, or the program cannot be run.
    pub(super) async fn run(&self, sidecar: &Sidecar) -> Result<(), ClientError> {
        let path = format!("{}/{}", api::CONFIG_NAMES.path, self.name);
        match &self.action {
            ConfigAction::Get { wait: None, is_proved, format } => {
                let query = if *is_proved { "?proved=1" } else { "" };
                let answer = sidecar.get(format!("{path}{query}")).answer().await?;
                print_value(*format, answer.index(), &StoredValue::read(&answer)?)
            }
            ConfigAction::Get { wait: Some(wait), format, .. } => {
                let mut poll = Poll::new(sidecar, &path, StoredValue::read);
                let (answer, value) = poll.until(Some(*wait), |_| Ok(())).await?;
                print_value(*format, answer.index(), &value)
            }
            ConfigAction::Put { value, condition, is_ephemeral } => {
                let value = match value {
                    Some(value) => value.clone().into_encoded_bytes(),
                    None => standard_input()?,
                };
                let query = if *is_ephemeral { "?ephemeral=1" } else { "" };
                let request = sidecar.request(Method::PUT, format!("{path}{query}")).body(value);
                let answer = with_condition(request, *condition).answer().await?;
                let ConfigWritten { version, .. } = answer.body()?;
                print(format!("{} is at version {version}\n", self.name))
            }
            ConfigAction::Remove { condition } => {
                let request = sidecar.request(Method::DELETE, path);
                with_condition(request, *condition).answer().await?.check_done()?;
                print(format!("{} is deleted\n", self.name))
            }
            ConfigAction::Watch { command, format } => {
                self.watch(Poll::new(sidecar, path, StoredValue::read), command, *format).await
            }
        }
    }

    /// Prints the value, or runs the command, at each change.
    async fn watch(
        &self,
        mut poll: Poll<'_, StoredValue>,
        command: &[OsString],
        format: OutputFormat,
    ) -> Result<(), ClientError> {
        // If the first request gets no answer, fail at once: the address may be wrong. Later, wait for the sidecar to
        // return.
        let mut polled = Ok(poll.ask().await?);
        loop {
            match &polled {
                Ok(Polled { state: Err(_), .. }) => {
                    remark(&format!("{} is not there; waiting", self.name));
                }
                Ok(Polled { state: Ok(value), index, .. }) if command.is_empty() => {
                    print_value(format, Some(*index), value)?;
                    if format != OutputFormat::Json && !value.data.ends_with(b"\n") {
                        print_bytes(b"\n")?;
                    }
                }
                Ok(Polled { state: Ok(value), .. }) => self.run_command(command, value)?,
                // `Poll::next` has printed the error.
                Err(_) => {}
            }
            polled = poll.next().await;
        }
    }

    /// Runs the command until it ends. If the value changes several times meanwhile, only the latest value will be
    /// processed.
    fn run_command(&self, command: &[OsString], value: &StoredValue) -> Result<(), ClientError> {
        let [program, arguments @ ..] = command else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        command.env("BELLWETHER_VALUE_NAME", self.name.as_str());
        command.env("BELLWETHER_VALUE_VERSION", &value.version);
        let mut child =
            command.spawn().map_err(|error| ClientError::unrunnable(program, &error))?;
        if let Some(mut input) = child.stdin.take() {
            // An error means that the program has ended without reading its input, which it may do.
            let _ = input.write_all(&value.data);
        }
        let ended = child.wait().map_err(|error| ClientError::unrunnable(program, &error))?;
        if !ended.success() {
            remark(&format!("{}: {ended}, at version {}", program.display(), value.version));
        }
        Ok(())
    }
}

impl StoredValue {
    /// Reads the value from the body of a successful answer, and the version from its header `ETag`.
    fn read(answer: &SidecarAnswer) -> Result<Self, ClientError> {
        answer.check_success()?;
        let version = answer.header(ETAG).unwrap_or_default().trim_matches('"').to_owned();
        Ok(Self { data: answer.bytes.clone(), version })
    }
}

/// Adds the header that makes a write conditional.
fn with_condition(request: SidecarRequest<'_>, condition: Condition) -> SidecarRequest<'_> {
    match condition {
        Condition::None => request,
        Condition::Absent => request.header(IF_NONE_MATCH, "*"),
        Condition::Exists => request.header(IF_MATCH, "*"),
        Condition::Version(version) => request.header(IF_MATCH, format!("\"{version}\"")),
    }
}

/// Reads the value from standard input. An empty input is an error.
fn standard_input() -> Result<Vec<u8>, ClientError> {
    let mut value = vec![];
    // Read at most one byte more than a value may have. That byte makes the sidecar reject a value that is too long,
    // and say why.
    let limit = u64::try_from(crate::shared_config::VALUE_MAX + 1).unwrap_or(u64::MAX);
    match io::stdin().lock().take(limit).read_to_end(&mut value) {
        // An empty input is probably a mistake, and would overwrite the stored value.
        Ok(0) => Err(ClientError::new(
            NO,
            "standard input is empty: for an empty value, give '' as the value",
        )),
        Ok(_) => Ok(value),
        Err(error) => Err(ClientError::new(NO, format!("standard input cannot be read: {error}"))),
    }
}

/// Prints bytes unchanged, because they may not be text.
fn print_bytes(data: &[u8]) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    out.write_all(data).and_then(|()| out.flush()).map_err(ClientError::unprintable)
}

/// Prints the value unchanged, or in the format JSON together with its version and index.
fn print_value(
    format: OutputFormat,
    index: Option<u64>,
    value: &StoredValue,
) -> Result<(), ClientError> {
    if format != OutputFormat::Json {
        return print_bytes(&value.data);
    }
    let shown = ConfigValue::new(&value.data, value.version.parse().ok(), index, None);
    print(format.render(|_| String::new(), &api::json(&shown)))
}
