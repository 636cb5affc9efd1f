//! The server and the members, the actions on them, and the lines that are printed.

use super::follow::{follow, sidecar_at};
use super::keys::{HELP, Key, Keys};
use super::member::{MemberProcess, MemberSettings, Ports};
use super::timeline::Timeline;
use super::{MOST_MEMBERS, Options, exposure_warning, front, print_line, start_server};
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
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tracing::Level;

/// The time limit for all members to leave at the end. Members that take longer are killed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The in-memory server and the members of one election.
pub(super) struct LocalElection {
    server: DevServer,
    /// The directory of log files. Dropping it deletes the directory.
    logs: TempDir,
    clock: Clock,
    /// The start of this run, from which the printed times are counted.
    began: Moment,
    members: Vec<MemberProcess>,
    /// The number of letters that are used as member ids, including those of members that have ended.
    letters_used: u8,
    ports: Ports,
    session_timeout: Duration,
    /// The port of the member to which `front` forwards connections; `None` if no member runs.
    front_target: watch::Sender<Option<u16>>,
    timeline: Timeline,
    /// SIGCHLD: a member has ended.
    deaths: SignalStream,
    /// The output of background tasks, to be printed.
    outputs: UnboundedReceiver<TaskOutput>,
    /// Cloned for each background task, because tasks cannot print by themselves.
    sender: UnboundedSender<TaskOutput>,
}

/// Output of a background task.
enum TaskOutput {
    /// A member's id, and its answer about the leader.
    LeaderAnswer(String, Option<LeaderState>),
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
            front_target: watch::Sender::new(None),
            timeline: Timeline::default(),
            deaths: signal(SignalKind::child())?,
            outputs,
            sender,
        })
    }

    /// Starts the members, and prints changes of the leader until a signal or a key ends the run.
    pub(super) async fn run(
        &mut self,
        options: &Options,
        signals: &mut SignalListener,
    ) -> anyhow::Result<()> {
        tokio::select! {
            started = self.start_members(options) => started?,
            _ = signals.next() => return Ok(()),
        }
        let mut keys = Keys::new().context("cannot read keys from the terminal")?;
        print_line(if keys.is_some() { HELP } else { "Ctrl-C or SIGTERM ends all of it." })?;
        print_line("")?;
        loop {
            // Do this before waiting for `deaths`: while this process waited for the end of one member, that wait may
            // have consumed the SIGCHLD of another member.
            self.remove_ended().await?;
            // `deaths` also reports that a member was stopped or goes on.
            self.choose_front_target();
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
                        handled = self.handle_key(key) => handled?,
                        _ = signals.next() => return Ok(()),
                    },
                },
                Some(output) = self.outputs.recv() => self.print_output(output)?,
                _ = self.deaths.recv() => {}
            }
        }
    }

    /// Starts the members, and prints the addresses and the log directory.
    async fn start_members(&mut self, options: &Options) -> anyhow::Result<()> {
        let address = self.server.address();
        let logs = self.logs.path().display();
        print_line(
            "For trying, developing and testing; never for production: it is all in memory, and ends with this.\n",
        )?;
        print_line(&format!("zookeeper  {}", on_this_machine(address)))?;
        if let Some(warning) = exposure_warning(address) {
            print_line(&format!("           {warning}"))?;
        }
        print_line(&format!("logs       {logs}"))?;
        let port = front::serve(&mut self.ports, self.front_target.subscribe()).await?;
        print_line(&format!("election   http://127.0.0.1:{port}  any member"))?;
        for _ in 0..options.members {
            let line = self.add().await?;
            print_line(&line)?;
        }
        print_line(&format!(
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
        let settings = MemberSettings {
            session_timeout: self.session_timeout,
            server: on_this_machine(self.server.address()),
            knobs: self.server.knobs(),
            logs: self.logs.path(),
            clock: self.clock,
        };
        let mut member =
            MemberProcess::start(&id, &mut self.ports, &settings, &mut self.deaths).await?;
        self.letters_used += 1;
        let name = id.clone();
        let sender = self.sender.clone();
        member.following = Some(
            tokio::spawn(follow(sidecar_at(member.port), move |answer| {
                drop(sender.send(TaskOutput::LeaderAnswer(name.clone(), answer)))
            }))
            .abort_handle(),
        );
        let line = format!("{id:<9}  http://127.0.0.1:{}  process {}", member.port, member.pid());
        self.members.push(member);
        Ok(line)
    }

    /// Lets `front` forward connections to a member that runs and is not frozen, if there is one.
    fn choose_front_target(&self) {
        let target = self.members.iter().find(|member| member.is_running());
        self.front_target.send_replace(target.map(|member| member.port));
    }

    /// Carries out the action of a key. `run` handles [`Key::Quit`] itself.
    async fn handle_key(&mut self, key: Key) -> anyhow::Result<()> {
        match key {
            Key::Kill => self.kill(),
            Key::Freeze => self.freeze(),
            Key::Resign => self.resign(),
            Key::Add => {
                let line = self.add().await.unwrap_or_else(|why| format!("{why:#}"));
                self.print(&line)
            }
            Key::Help | Key::Other => Ok(print_line(HELP)?),
            Key::Quit => Ok(()),
        }
    }

    /// Kills the leader, or prints the reason why there is none to kill.
    fn kill(&mut self) -> anyhow::Result<()> {
        match self.leader() {
            Ok(leader) => {
                leader.signal(Signal::KILL);
                Ok(())
            }
            Err(why) => self.print(&why),
        }
    }

    /// Freezes the leader with SIGSTOP. If a member is frozen already, lets that one go on instead.
    fn freeze(&mut self) -> anyhow::Result<()> {
        if let Some(member) = self.members.iter_mut().find(|member| member.frozen) {
            member.frozen = false;
            member.signal(Signal::CONT);
            let line = format!("{} goes on", member.id);
            return self.print(&line);
        }
        let line = match self.leader() {
            Ok(leader) => {
                leader.frozen = true;
                leader.signal(Signal::STOP);
                let id = leader.id.clone();
                self.timeline.note_event(self.clock.now(), &id, "was frozen");
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
        self.timeline.note_event(self.clock.now(), &id, "was told to resign");
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let answer = sidecar_at(port).post(RESIGN.path).answer().await;
            let done = answer.and_then(|answer| answer.body::<Done>());
            if let Some(why) = done.err().and_then(|error| error.message) {
                let line = format!("{id} does not resign: {why}");
                // An error means that this run has ended meanwhile.
                let _ = sender.send(TaskOutput::Line(line));
            }
        });
        Ok(())
    }

    /// Returns the process of the leader, or the reason why there is none that a key could act on.
    fn leader(&mut self) -> Result<&mut MemberProcess, String> {
        let Some(id) = self.timeline.leader() else {
            return Err("no member leads at this moment".into());
        };
        self.members
            .iter_mut()
            .find(|member| member.id == id)
            .ok_or_else(|| format!("{} leads, and was not started here", id.escape_debug()))
    }

    /// Prints the output of a background task. An answer is printed only if the leader has changed.
    fn print_output(&mut self, output: TaskOutput) -> anyhow::Result<()> {
        let line = match output {
            TaskOutput::LeaderAnswer(id, answer) => {
                self.timeline.note_answer(self.clock.now(), &id, answer.as_ref())
            }
            TaskOutput::Line(line) => Some(line),
        };
        line.map_or(Ok(()), |line| self.print(&line))
    }

    /// Removes the members that have ended, and prints how they ended.
    async fn remove_ended(&mut self) -> anyhow::Result<()> {
        let mut ended: Vec<_> = self.members.extract_if(.., |member| !member.is_alive()).collect();
        for member in &mut ended {
            let how = member.wait_for_end(&mut self.deaths).await;
            if let Some(following) = &member.following {
                following.abort();
            }
            let leads = self.timeline.leader() == Some(&member.id);
            self.timeline.note_end(self.clock.now(), &member.id);
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
        if !ended.is_empty() && self.members.is_empty() {
            self.print("no member is left")?;
        }
        Ok(())
    }

    /// Prints a line with the time since the start.
    fn print(&self, line: &str) -> anyhow::Result<()> {
        let since = self.clock.now().since(self.began);
        Ok(print_line(&format!("{:>8.3} s  {line}", since.as_secs_f64()))?)
    }

    /// Ends the members, then the server. After the time limit, or at a signal, the remaining members are killed when
    /// this process ends.
    pub(super) async fn close(mut self, signals: &mut SignalListener) {
        for member in &self.members {
            member.signal(Signal::TERM);
            // A frozen member handles SIGTERM only once it runs again.
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
