//! The server and the members, the actions on them, and the lines that are printed.

use super::follow::{PATIENCE, follow, sidecar_at};
use super::keys::{HELP, Key, Keys};
use super::member::{MemberEnvironment, MemberProcess, Ports};
use super::timeline::Timeline;
use super::{MOST_MEMBERS, Options, front, say, start_server, warning};
use crate::api::{Done, LeaderState, RESIGN};
use crate::clock::Clock;
use crate::config::on_this_machine;
use crate::exec::SignalListener;
use anyhow::{Context, bail};
use dev_server::DevServer;
use recipes::Moment;
use rustix::process::Signal;
use std::fs::File;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::signal::unix::{Signal as Deaths, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tracing::Level;

/// How long members may take to leave. They usually need less.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The in-memory server and the members of one election.
pub(super) struct LocalElection {
    server: DevServer,
    logs: TempDir,
    clock: Clock,
    began: Moment,
    members: Vec<MemberProcess>,
    /// How many letters are used as names, including those of members that have ended.
    letters_used: u8,
    ports: Ports,
    session_timeout: Duration,
    /// The port of the member that answers at the first port.
    answering: watch::Sender<Option<u16>>,
    timeline: Timeline,
    deaths: Deaths,
    /// The output of the tasks, to be printed.
    outputs: UnboundedReceiver<TaskOutput>,
    /// Given to tasks, which cannot print by themselves.
    sender: UnboundedSender<TaskOutput>,
}

/// Output of a background task.
enum TaskOutput {
    /// The answer of the member with this id to the question who leads.
    Named(String, Option<LeaderState>),
    /// A line to print.
    Line(String),
}

impl LocalElection {
    /// Starts the server. Its log file is in the same directory as those of the members.
    pub(super) async fn open(options: &Options) -> anyhow::Result<Self> {
        let logs = tempfile::Builder::new().prefix("bellwether-dev.").tempdir();
        let logs =
            logs.context("cannot make a directory for logs; set TMPDIR to one that exists")?;
        let log = Arc::new(File::create(logs.path().join("zookeeper.log"))?);
        tracing_subscriber::fmt()
            .with_writer(log)
            .with_max_level(Level::INFO)
            .with_ansi(false)
            .init();
        let server = start_server(options.listen).await?;
        let clock = Clock::system();
        let (sender, outputs) = unbounded_channel();
        Ok(Self {
            server,
            logs,
            clock,
            began: clock.now(),
            members: vec![],
            letters_used: 0,
            ports: Ports::from(options.port),
            session_timeout: options.session_timeout,
            answering: watch::Sender::new(None),
            timeline: Timeline::default(),
            deaths: signal(SignalKind::child())?,
            outputs,
            sender,
        })
    }

    /// Starts the members, and prints changes of the leader until a signal or a key ends it.
    pub(super) async fn act(
        &mut self,
        options: &Options,
        signals: &mut SignalListener,
    ) -> anyhow::Result<()> {
        tokio::select! {
            begun = self.begin(options) => begun?,
            _ = signals.next() => return Ok(()),
        }
        let mut keys = Keys::new().context("cannot read keys from the terminal")?;
        say(if keys.is_some() { HELP } else { "Ctrl-C or SIGTERM ends all of it." })?;
        say("")?;
        loop {
            // Do this before waiting for `deaths`: while the program waited for another member, that wait may have consumed
            // the signal.
            self.remove_ended().await?;
            let key = async {
                match &mut keys {
                    Some(keys) => keys.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = signals.next() => return Ok(()),
                key = key => match key {
                    Some(Key::Quit) | None => return Ok(()),
                    Some(key) => tokio::select! {
                        pressed = self.pressed(key) => pressed?,
                        _ = signals.next() => return Ok(()),
                    },
                },
                Some(output) = self.outputs.recv() => self.print_output(output)?,
                _ = self.deaths.recv() => {}
            }
        }
    }

    /// Starts the members, and prints the addresses and the log directory.
    async fn begin(&mut self, options: &Options) -> anyhow::Result<()> {
        let address = self.server.address();
        let logs = self.logs.path().display();
        say(
            "For trying, developing and testing; never for production: it is all in memory, and ends with this.\n",
        )?;
        say(&format!("zookeeper  {}", on_this_machine(address)))?;
        if let Some(warning) = warning(address) {
            say(&format!("           {warning}"))?;
        }
        say(&format!("logs       {logs}"))?;
        let port = front::serve(&mut self.ports, self.answering.subscribe()).await?;
        say(&format!("election   http://127.0.0.1:{port}  any member"))?;
        for _ in 0..options.members {
            let line = self.add().await?;
            say(&line)?;
        }
        say(&format!(
            "\nIn a browser: http://127.0.0.1:{port}/. In another terminal:\n    \
             curl -s localhost:{port}/leader     # who leads\n    \
             curl -s localhost:{port}/members    # the queue\n    \
             curl -sN localhost:{port}/events    # each change, as it comes\n"
        ))?;
        Ok(())
    }

    /// Adds a member at the tail of the queue, and returns a line with its address and process id.
    async fn add(&mut self) -> anyhow::Result<String> {
        if self.letters_used == MOST_MEMBERS {
            bail!("no letter is left to name a member by; quit, and start again");
        }
        let id = char::from(b'a' + self.letters_used).to_string();
        let surroundings = MemberEnvironment {
            session_timeout: self.session_timeout,
            server: on_this_machine(self.server.address()),
            knobs: self.server.knobs(),
            logs: self.logs.path(),
            clock: self.clock,
        };
        let mut member =
            MemberProcess::start(&id, &mut self.ports, &surroundings, &mut self.deaths).await?;
        self.letters_used += 1;
        let name = id.clone();
        let sender = self.sender.clone();
        member.following = Some(
            tokio::spawn(follow(sidecar_at(member.port), move |named| {
                drop(sender.send(TaskOutput::Named(name.clone(), named)))
            }))
            .abort_handle(),
        );
        let line = format!("{id:<9}  http://127.0.0.1:{}  process {}", member.port, member.pid());
        self.members.push(member);
        self.choose_answering();
        Ok(line)
    }

    /// Chooses the member that answers at the first port: one that runs.
    fn choose_answering(&self) {
        let runs = self.members.iter().find(|member| !member.frozen && member.is_alive());
        self.answering.send_replace(runs.map(|member| member.port));
    }

    async fn pressed(&mut self, key: Key) -> anyhow::Result<()> {
        match key {
            Key::Kill => self.kill(),
            Key::Freeze => self.freeze(),
            Key::Resign => self.resign(),
            Key::Add => {
                let line = self.add().await.unwrap_or_else(|why| format!("{why:#}"));
                self.print(&line)
            }
            Key::Help | Key::Other => Ok(say(HELP)?),
            Key::Quit => Ok(()),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        match self.leader() {
            Ok(leader) => {
                leader.signal(Signal::KILL);
                Ok(())
            }
            Err(why) => self.print(&why),
        }
    }

    /// Freezes the leader, or thaws the member that is frozen.
    fn freeze(&mut self) -> anyhow::Result<()> {
        if let Some(member) = self.members.iter_mut().find(|member| member.frozen) {
            member.frozen = false;
            member.signal(Signal::CONT);
            let line = format!("{} goes on", member.id);
            self.choose_answering();
            return self.print(&line);
        }
        let line = match self.leader() {
            Ok(leader) => {
                leader.frozen = true;
                leader.signal(Signal::STOP);
                let id = leader.id.clone();
                self.timeline.befell(self.clock.now(), &id, "was frozen");
                self.choose_answering();
                format!("{id}, which leads, is frozen; f lets it go on")
            }
            Err(why) => why,
        };
        self.print(&line)
    }

    /// Makes the leader resign, and prints the reason if it does not.
    fn resign(&mut self) -> anyhow::Result<()> {
        let (id, port) = match self.leader() {
            Ok(leader) if leader.frozen => {
                let line = format!("{} is frozen, and hears nothing; f lets it go on", leader.id);
                return self.print(&line);
            }
            Ok(leader) => (leader.id.clone(), leader.port),
            Err(why) => return self.print(&why),
        };
        self.timeline.befell(self.clock.now(), &id, "was told to resign");
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let answer = sidecar_at(port).post(RESIGN.path).within(4 * PATIENCE).answer().await;
            let done = answer.and_then(|answer| answer.body::<Done>());
            if let Some(why) = done.err().and_then(|error| error.message()) {
                let line = format!("{id} does not resign: {why}");
                let _receiver_gone = sender.send(TaskOutput::Line(line));
            }
        });
        Ok(())
    }

    /// Returns the leader, or why none can be acted on.
    fn leader(&mut self) -> Result<&mut MemberProcess, String> {
        let Some(id) = self.timeline.leader() else {
            return Err("no member leads at this moment".into());
        };
        self.members
            .iter_mut()
            .find(|member| member.id == id)
            .ok_or_else(|| format!("{} leads, and was not started here", id.escape_debug()))
    }

    fn print_output(&mut self, output: TaskOutput) -> anyhow::Result<()> {
        let line = match output {
            TaskOutput::Named(id, named) => {
                self.timeline.named(self.clock.now(), &id, named.as_ref())
            }
            TaskOutput::Line(line) => Some(line),
        };
        line.map_or(Ok(()), |line| self.print(&line))
    }

    /// Removes the members that have ended, and prints how they ended.
    async fn remove_ended(&mut self) -> anyhow::Result<()> {
        let mut ended: Vec<_> = self.members.extract_if(.., |member| !member.is_alive()).collect();
        for member in &mut ended {
            let how = member.end(&mut self.deaths).await;
            if let Some(following) = &member.following {
                following.abort();
            }
            let leads = self.timeline.leader() == Some(&member.id);
            self.timeline.ended(self.clock.now(), &member.id);
            let which = if leads { ", which leads," } else { "" };
            let next = if leads && !self.members.is_empty() {
                format!(
                    "; the next leads when its session ends, within {:?} and a tick",
                    self.session_timeout
                )
            } else {
                String::new()
            };
            self.print(&format!("{}{which} is gone: {how}{next}", member.id))?;
        }
        if !ended.is_empty() {
            self.choose_answering();
            if self.members.is_empty() {
                self.print("no member is left")?;
            }
        }
        Ok(())
    }

    /// Prints a line with the time since the start.
    fn print(&self, line: &str) -> anyhow::Result<()> {
        let since = self.clock.now().since(self.began);
        Ok(say(&format!("{:>8.3} s  {line}", since.as_secs_f64()))?)
    }

    /// Ends the members, then the server. A signal cuts this short: the remaining members end with this process.
    pub(super) async fn close(mut self, signals: &mut SignalListener) {
        for member in &self.members {
            member.signal(Signal::TERM);
            member.signal(Signal::CONT);
        }
        let limit = self.clock.now().after(LEAVE_TIMEOUT);
        while self.members.iter().any(MemberProcess::is_alive) {
            tokio::select! {
                _ = self.deaths.recv() => {}
                () = self.clock.sleep_until(Some(limit)) => break,
                _ = signals.next() => break,
            }
        }
        self.server.stop().await;
    }
}
