//! Reads, writes and follows values of the shared configuration, byte by byte as they are stored.

use super::sidecar::{
    ANSWER_TIMEOUT, COMMAND_TIMEOUT, LONGEST_VALUE, Sidecar, SidecarAnswer, blocking, index_in,
};
use super::{ClientError, OutputFormat, formed, print, remark, text};
use crate::api::{self, ConfigOutput, ConfigWritten};
use crate::shared_config::{Condition, ConfigName};
use base64::prelude::{BASE64_STANDARD, Engine};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_millis(250);
/// For the answer at the end of a wait: a sidecar says within two seconds that ZooKeeper does not answer it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A command for one value.
pub struct ConfigCommand {
    pub sidecar: Sidecar,
    pub name: ConfigName,
    pub action: ConfigAction,
}

pub enum ConfigAction {
    /// Print it; wait for so long for one that is not there, or have a quorum confirm it.
    Get {
        wait: Option<Duration>,
        is_proved: bool,
        form: OutputFormat,
    },
    /// Write this, or what standard input says.
    Put {
        value: Option<OsString>,
        condition: Condition,
        is_ephemeral: bool,
    },
    Remove {
        condition: Condition,
    },
    /// Print it at each change, or run this command.
    Watch {
        command: Vec<OsString>,
        form: OutputFormat,
    },
}

/// A sidecar's answer about a value.
struct ValueAnswer {
    index: u64,
    /// `None` if there is none.
    value: Option<TextlessValue>,
    /// Why there is none.
    why: String,
}

/// Bytes that need not be text, and their version.
struct TextlessValue {
    data: Bytes,
    version: String,
}

impl ConfigCommand {
    pub(super) async fn run(&self) -> Result<(), ClientError> {
        match &self.action {
            ConfigAction::Get { wait: None, is_proved, form } => {
                let query = if *is_proved { "?proved=1" } else { "" };
                let path = format!("{}{query}", self.path());
                let ValueAnswer { value, why, index } = self.ask_at(&path, ANSWER_TIMEOUT).await?;
                let value = value.ok_or_else(|| ClientError::No(text::visible(&why)))?;
                print_value(form, index, &value)
            }
            ConfigAction::Get { wait: Some(wait), form, .. } => {
                let (index, value) = match timeout(*wait, self.until_there()).await {
                    Ok(found) => found,
                    Err(_) => self.there_after(*wait).await?,
                };
                print_value(form, index, &value)
            }
            ConfigAction::Put { value, condition, is_ephemeral } => {
                let value = match value {
                    Some(value) => value.clone().into_encoded_bytes(),
                    None => standard_input()?,
                };
                self.put(value.into(), *condition, *is_ephemeral).await
            }
            ConfigAction::Remove { condition } => {
                let answer = self.write(Method::DELETE, "", Bytes::new(), *condition).await?;
                if answer.status() == StatusCode::NO_CONTENT {
                    return print(format!("{} is deleted\n", self.name));
                }
                let _refused: serde_json::Value = answer.body()?;
                Err(answer.nonsense("it says neither yes nor no"))
            }
            ConfigAction::Watch { command, form } => self.watch(command, form).await,
        }
    }

    async fn put(
        &self,
        value: Bytes,
        condition: Condition,
        is_ephemeral: bool,
    ) -> Result<(), ClientError> {
        let query = if is_ephemeral { "?ephemeral=1" } else { "" };
        let answer = self.write(Method::PUT, query, value, condition).await?;
        let ConfigWritten { version, .. } = answer.body()?;
        print(format!("{} is at version {version}\n", self.name))
    }

    async fn write(
        &self,
        method: Method,
        query: &str,
        value: Bytes,
        condition: Condition,
    ) -> Result<SidecarAnswer, ClientError> {
        let header: Option<(HeaderName, String)> = match condition {
            Condition::None => None,
            Condition::Absent => Some((IF_NONE_MATCH, "*".into())),
            Condition::Exists => Some((IF_MATCH, "*".into())),
            Condition::Version(version) => Some((IF_MATCH, format!("\"{version}\""))),
        };
        let path = format!("{}{query}", self.path());
        self.sidecar.write(method, &path, header, value, COMMAND_TIMEOUT).await
    }

    fn path(&self) -> String {
        format!("{}/{}", api::CONFIG_NAMES.path, self.name)
    }

    /// Asks for the value, or for what comes after this index.
    async fn ask(&self, seen: Option<u64>) -> Result<ValueAnswer, ClientError> {
        let (path, patience) = blocking(&self.path(), seen);
        self.ask_at(&path, patience).await
    }

    async fn ask_at(&self, path: &str, patience: Duration) -> Result<ValueAnswer, ClientError> {
        let asked = format!("{}{path}", self.sidecar.name());
        let told = async {
            let response = self.sidecar.send(Method::GET, path, None).await?;
            if response.status() != StatusCode::OK {
                let answer = SidecarAnswer::read(&asked, response).await?;
                return match answer.body::<serde_json::Value>() {
                    Err(ClientError::No(why)) if answer.status() == StatusCode::NOT_FOUND => {
                        // Without an index, the shared configuration is switched off.
                        let index = answer.index().ok_or_else(|| ClientError::No(why.clone()))?;
                        Ok(ValueAnswer { index, value: None, why })
                    }
                    Err(error) => Err(error),
                    Ok(_) => Err(answer.nonsense("it says neither yes nor no")),
                };
            }
            let (head, body) = response.into_parts();
            let index = index_in(&head.headers)
                .ok_or_else(|| ClientError::nonsense(&asked, "it tells no index"))?;
            let version = head.headers.get(ETAG).and_then(|version| version.to_str().ok());
            let version = version.unwrap_or_default().trim_matches('"').to_owned();
            let body = Limited::new(body, LONGEST_VALUE).collect().await;
            let data = body.map_err(|error| ClientError::nonsense(&asked, &error.to_string()))?;
            let value = Some(TextlessValue { data: data.to_bytes(), version });
            Ok(ValueAnswer { index, value, why: String::new() })
        };
        timeout(patience, told).await.unwrap_or_else(|_| {
            Err(ClientError::unanswered(&asked, &format!("no answer within {patience:?}")))
        })
    }

    /// Returns the value if it is there now. The wait for it may have been in vain because nothing could be read.
    async fn there_after(&self, wait: Duration) -> Result<(u64, TextlessValue), ClientError> {
        let last = timeout(CLOSE_TIMEOUT, self.ask(None)).await.unwrap_or_else(|_| {
            let why = format!(
                "no answer within {wait:?}, nor within {CLOSE_TIMEOUT:?} of another question"
            );
            Err(ClientError::nonsense(&self.sidecar.name(), &why))
        });
        let ValueAnswer { value, index, .. } = last?;
        let value = value.ok_or_else(|| {
            ClientError::No(format!("{} is not there within {wait:?}", self.name))
        })?;
        Ok((index, value))
    }

    /// Returns the value as soon as there is one, over as many lives of the sidecar as it takes.
    async fn until_there(&self) -> (u64, TextlessValue) {
        let mut seen = None;
        let mut is_troubled = false;
        loop {
            let told = self.next(seen, &mut is_troubled).await;
            match told.value {
                Some(value) => return (told.index, value),
                None => seen = Some(told.index),
            }
        }
    }

    /// Returns what is news since this index, over as many lives of the sidecar as it takes.
    async fn next(&self, seen: Option<u64>, is_troubled: &mut bool) -> ValueAnswer {
        loop {
            match self.ask(seen).await {
                Ok(told) if Some(told.index) == seen => {}
                Ok(told) => {
                    *is_troubled = false;
                    return told;
                }
                Err(trouble) => {
                    if !*is_troubled {
                        let why = trouble.told().1.unwrap_or_default();
                        remark(&format!("{why}; waiting"));
                        *is_troubled = true;
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn watch(&self, command: &[OsString], form: &OutputFormat) -> Result<(), ClientError> {
        // Do not wait for a sidecar that cannot be asked at all.
        let mut told = self.ask(None).await?;
        let mut is_troubled = false;
        loop {
            match &told.value {
                None => remark(&format!("{} is not there; waiting", self.name)),
                Some(value) if command.is_empty() => {
                    print_value(form, told.index, value)?;
                    if matches!(form, OutputFormat::People(_)) && !value.data.ends_with(b"\n") {
                        print_bytes(b"\n")?;
                    }
                }
                Some(value) => self.run_command(command, value)?,
            }
            told = self.next(Some(told.index), &mut is_troubled).await;
        }
    }

    /// Runs the command to its end. Of the changes meanwhile, only the latest is reported afterwards.
    fn run_command(&self, command: &[OsString], value: &TextlessValue) -> Result<(), ClientError> {
        let [program, arguments @ ..] = command else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        command.env("BELLWETHER_VALUE_NAME", self.name.as_str());
        command.env("BELLWETHER_VALUE_VERSION", &value.version);
        let cannot = |error: io::Error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let why = format!("cannot run {}: {error}", program.display());
            ClientError::Unrunnable(code, why)
        };
        let mut child = command.spawn().map_err(cannot)?;
        if let Some(mut input) = child.stdin.take() {
            // The program need not read its input.
            let _unread = input.write_all(&value.data);
        }
        let ended = child.wait().map_err(cannot)?;
        if !ended.success() {
            remark(&format!("{}: {ended}, at version {}", program.display(), value.version));
        }
        Ok(())
    }
}

fn standard_input() -> Result<Vec<u8>, ClientError> {
    let mut value = vec![];
    // One byte more than any value has: the sidecar refuses it, and says why.
    let limit = u64::try_from(crate::shared_config::VALUE_MAX + 1).unwrap_or(u64::MAX);
    match io::stdin().lock().take(limit).read_to_end(&mut value) {
        // More likely a mistake than meant, and the value that was there would be lost.
        Ok(0) => Err(ClientError::No(
            "standard input is empty: for an empty value, give '' as the value".into(),
        )),
        Ok(_) => Ok(value),
        Err(error) => Err(ClientError::No(format!("standard input cannot be read: {error}"))),
    }
}

/// Prints what need not be text, as it is.
fn print_bytes(data: &[u8]) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    out.write_all(data).and_then(|()| out.flush()).map_err(ClientError::Unprintable)
}

/// Prints a value as it is stored, or its version and index beside it.
fn print_value(form: &OutputFormat, index: u64, value: &TextlessValue) -> Result<(), ClientError> {
    if let OutputFormat::People(_) = form {
        return print_bytes(&value.data);
    }
    let text = str::from_utf8(&value.data).ok().map(str::to_owned);
    let base64 = text.is_none().then(|| BASE64_STANDARD.encode(&value.data));
    let version = value.version.parse().ok();
    let shown = ConfigOutput { version, index: Some(index), text, base64 };
    print(&formed(form, |_| String::new(), &api::json(&shown))?)
}
