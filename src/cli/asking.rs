//! The commands that ask: their arguments, and the errand that each of them is.

use super::calls::{Arguments, Listed};
use super::{ConfigFile, sources};
use crate::config::{self, Settings, table};
use crate::terminal::{
    COMMANDS, Call, Errand, Form, Probe, QUESTIONS, Question, Sidecar, Token, Whom,
};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgMatches, Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(super) enum Asking {
    #[command(flatten)]
    Question(Listed<View>),
    /// Print a line at each change, until told to stop.
    ///
    /// When the stream of events is lost it says so on stderr and tries again; what was missed is
    /// told as far as the sidecar remembers it. It ends with an error only if the sidecar cannot
    /// be reached in the first place.
    Watch(View),
    /// Wait until somebody leads, or this member does.
    ///
    /// It waits as well for a sidecar that is not there yet, or is restarted.
    Wait(Waiting),
    /// Answer yes or no with the exit code, for probes in an image without a shell.
    ///
    /// Prints nothing if it is a yes, else why on stderr.
    Probe(Probing),
    #[command(flatten)]
    Command(Listed<Order>),
    /// Look at an election in ZooKeeper itself, without a sidecar and without joining.
    ///
    /// Prints the line, whom each member names, and what does not belong there. Exits 0 if the head
    /// of the line is named by all, 1 if not. A lease cannot be seen from outside.
    Inspect(Inspecting),
}

#[derive(Args)]
pub(super) struct Address {
    /// The sidecar to ask, http://HOST:PORT or unix:PATH [default: where BELLWETHER_LISTEN says, else http://127.0.0.1:4040]
    #[arg(long, env = "BELLWETHER_URL", value_name = "URL")]
    url: Option<String>,
}

#[derive(Args)]
pub(super) struct View {
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    form: Json,
}

#[derive(Args)]
pub(super) struct Json {
    /// Print JSON, as the sidecar answers it
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Order {
    #[command(flatten)]
    address: Address,
    /// A file with the token that the sidecar wants to see, if it does [default: none]
    #[arg(long, env = "BELLWETHER_TOKEN_FILE", value_name = "FILE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    form: Json,
}

#[derive(Args)]
pub(super) struct Waiting {
    #[command(flatten)]
    address: Address,
    /// Until any leader is known; this is the default
    #[arg(long, conflicts_with = "itself")]
    leader: bool,
    /// Until this member leads
    #[arg(long = "self")]
    itself: bool,
    /// For how long at most: 500ms, 10s, 2m [default: for ever]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    #[command(flatten)]
    form: Json,
}

#[derive(Args)]
pub(super) struct Probing {
    /// What to ask
    probe: ProbeName,
    #[command(flatten)]
    address: Address,
    /// Say why also if it is a yes
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProbeName {
    /// Does this member lead at this very moment?
    IsLeader,
    /// Does it stand in the line and know a leader?
    Ready,
    /// Is its process sound, with ZooKeeper or without?
    Live,
}

#[derive(Args)]
pub(super) struct Inspecting {
    #[command(flatten)]
    file: ConfigFile,
    /// For how long at most to wait for ZooKeeper
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// # Errors
/// One sentence that says what is wrong with the arguments, or with what they name.
pub(super) fn errand(asking: Asking, given: &ArgMatches) -> Result<Errand, String> {
    match asking {
        Asking::Question(question) => question.errand(),
        Asking::Command(command) => command.errand(),
        Asking::Watch(view) => view.errand(Question::Watch),
        Asking::Wait(waiting) => {
            let whom = if waiting.itself { Whom::Itself } else { Whom::Anybody };
            let at_most = waiting.timeout.map(|span| config::span("--timeout", &span));
            let question = Question::Wait { whom, at_most: at_most.transpose()? };
            Ok(Errand::Ask {
                sidecar: waiting.address.sidecar()?,
                question,
                form: waiting.form.form(),
            })
        }
        Asking::Probe(probing) => {
            let probe = match probing.probe {
                ProbeName::IsLeader => Probe::IsLeader,
                ProbeName::Ready => Probe::Ready,
                ProbeName::Live => Probe::Live,
            };
            let question = Question::Probe { probe, verbose: probing.verbose };
            Ok(Errand::Ask { sidecar: probing.address.sidecar()?, question, form: Form::People })
        }
        Asking::Inspect(inspecting) => inspecting.errand(given),
    }
}

impl Arguments for View {
    const CALLS: &'static [Call] = QUESTIONS;

    fn errand(self, question: Question) -> Result<Errand, String> {
        Ok(Errand::Ask { sidecar: self.address.sidecar()?, question, form: self.form.form() })
    }
}

impl Arguments for Order {
    const CALLS: &'static [Call] = COMMANDS;

    fn errand(self, question: Question) -> Result<Errand, String> {
        let file = self.token_file.filter(|file| !file.as_os_str().is_empty());
        let token = match file {
            None => None,
            Some(file) => {
                let token = config::token("--token-file", &file)?;
                Some(Token::new(&token).expect("it was found to be one"))
            }
        };
        let sidecar = self.address.sidecar()?.shown(token);
        Ok(Errand::Ask { sidecar, question, form: self.form.form() })
    }
}

impl Address {
    fn sidecar(self) -> Result<Sidecar, String> {
        if let Some(url) = self.url.filter(|url| !url.is_empty()) {
            return Sidecar::at(&url);
        }
        // A probe in the sidecar's own container shares its environment.
        let row = &table::LISTEN.row;
        let listen = row.variable.and_then(|variable| std::env::var(variable).ok());
        let listen = listen.filter(|listen| !listen.is_empty());
        let listen = listen.unwrap_or_else(|| row.default.words().to_owned());
        Ok(Sidecar::that_listens(&config::listen(&listen)?))
    }
}

impl Json {
    fn form(&self) -> Form {
        if self.json { Form::Scripts } else { Form::People }
    }
}

impl Inspecting {
    fn errand(self, given: &ArgMatches) -> Result<Errand, String> {
        let values = sources::values(self.file.config, given)?;
        let patience = config::span("--timeout", &self.timeout)?;
        let settings = Settings::new(&values, patience)?;
        let form = Json { json: self.json }.form();
        Ok(Errand::Inspect { settings, patience, form })
    }
}
