//! One session, and the requests under way in it. They end with it.

use super::acl;
use super::connection::{Wire, is_verdict, unwrap_multi};
use super::keeper::{Keeper, Leftover};
use super::passport::Passport;
use super::wire;
use crate::clock::Clock;
use crate::config::Settings;
use crate::desk::{Entry, Link};
use crate::tally::Meter;
use recipes::election::{
    Action, Announcement, Event, FencingToken, Moment, Profile, Sequence, SessionId, Ticket,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tracing::{debug, error, info, warn};
use zookeeper::{Acls, CreateMode, Error, EventType, Stat};

const PAUSE: Duration = Duration::from_millis(200);
/// Whoever deletes our znode may be about to delete the whole path, and cannot while we are back
/// at once. Up to twice as long, so that members do not come back in step.
const AWAY: Duration = Duration::from_millis(500);

/// So many pairs of a create and a delete fit into a request, however long the path.
const PASSED_AT_ONCE: usize = 100;

pub(super) struct Session {
    line: Arc<Election>,
    /// What our znode says of us, or will when it is drawn.
    profile: Arc<Profile>,
    requests: JoinSet<()>,
    watches: JoinSet<()>,
    /// The one on our own znode, and the one on the predecessor's.
    own_watch: Option<AbortHandle>,
    predecessor_watch: Option<AbortHandle>,
    reading: Option<AbortHandle>,
    writes: mpsc::UnboundedSender<Write>,
    events: mpsc::UnboundedReceiver<Event>,
    keeper: JoinHandle<Leftover>,
    close: oneshot::Sender<()>,
}

/// What all requests of one session share.
struct Election {
    settings: Settings,
    wire: watch::Receiver<Option<Wire>>,
    events: mpsc::UnboundedSender<Event>,
    told: Told,
    clock: Clock,
    /// The last word that we passed on.
    word: Mutex<Option<Word>>,
    /// Znodes that are named like a member's but are not ephemeral: nobody stands there.
    impostors: Mutex<BTreeSet<Sequence>>,
    /// Whose znode the predecessor's is.
    predecessor: Mutex<Option<Ticket>>,
    /// Who stands first, if that one has not come there by its turn.
    jumper: Mutex<Option<Sequence>>,
    /// Whether others may harm us where we stand, in this session.
    has_looked: AtomicBool,
}

/// Where is told how we stand with ZooKeeper, and measured what it takes.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) link: watch::Sender<Link>,
    pub(super) meter: Arc<Meter>,
    /// What was last warned of, in whichever session.
    pub(super) warned: Arc<Mutex<Option<String>>>,
}

/// What our znode says of the leader, until it is known how old that was when we wrote it. By the
/// servers' clock, which stamps every write of every member.
struct Word {
    says: Announcement,
    written_ms: i64,
    /// Since when we stand in the line.
    drawn_ms: i64,
    measured: bool,
}

enum Write {
    /// From here on, this znode is ours.
    Drawn(Ticket),
    /// Told when it is committed, if there is a moment to tell.
    Put(Vec<u8>, Option<Moment>),
    Renew(Moment),
}

/// What we last wrote into our znode, and which version of its data that was.
struct Note {
    data: Vec<u8>,
    version: i32,
}

struct NoNode;

/// The znode is gone, or it is not ours.
struct Lost;

impl Session {
    pub(super) fn open(
        settings: &Settings,
        passport: &Arc<Passport>,
        profile: Arc<Profile>,
        clock: Clock,
        told: Told,
        leftover: Leftover,
        makes_way: bool,
    ) -> Self {
        let (events_in, events) = mpsc::unbounded_channel();
        let (wire_in, wire) = watch::channel(None);
        let (close, closing) = oneshot::channel();
        let (writes, wanted) = mpsc::unbounded_channel();
        let keeper = Keeper {
            settings: settings.zookeeper.clone(),
            passport: passport.clone(),
            clock,
            events: events_in.clone(),
            wire: wire_in,
            link: told.link.clone(),
            makes_way,
        };
        let line = Arc::new(Election {
            settings: settings.clone(),
            wire,
            events: events_in,
            told,
            clock,
            word: Mutex::default(),
            impostors: Mutex::default(),
            predecessor: Mutex::default(),
            jumper: Mutex::default(),
            has_looked: AtomicBool::new(false),
        });
        let mut requests = JoinSet::new();
        requests.spawn(write_in_turn(line.clone(), wanted));
        let keeper = tokio::spawn(keeper.keep(leftover, closing));
        Self {
            line,
            profile,
            requests,
            watches: JoinSet::new(),
            own_watch: None,
            predecessor_watch: None,
            reading: None,
            writes,
            events,
            keeper,
            close,
        }
    }

    pub(super) fn perform(&mut self, action: Action) {
        let line = self.line.clone();
        let write = match action {
            Action::OpenSession | Action::CloseSession => unreachable!("the driver's own affair"),
            Action::DrawTicket(profile) => {
                self.profile = profile;
                let data = self.encode(None);
                // What was watched for the ticket before is none of our business any more.
                self.predecessor_watch.take().inspect(AbortHandle::abort);
                let writes = self.writes.clone();
                let was_lost = self.own_watch.is_some();
                let drawing = self.watches.spawn(async move {
                    if was_lost {
                        tokio::time::sleep(AWAY.mul_f64(1.0 + fastrand::f64())).await;
                    }
                    let ticket = line.draw_ticket(&data).await;
                    let _ends_with_us = writes.send(Write::Drawn(ticket));
                    line.tell(Event::TicketDrawn(ticket));
                    tokio::join!(line.watch_own(ticket), line.look_for_a_hole());
                });
                self.own_watch.replace(drawing).inspect(AbortHandle::abort);
                return;
            }
            Action::ReadLine => {
                // Only the last reading is of use, and the one before may never be answered.
                let reading = self.requests.spawn(async move { line.read_line().await });
                self.reading.replace(reading).inspect(AbortHandle::abort);
                return;
            }
            Action::WatchPredecessor(predecessor) => {
                let watching =
                    self.watches.spawn(async move { line.watch_predecessor(predecessor).await });
                self.predecessor_watch.replace(watching).inspect(AbortHandle::abort);
                return;
            }
            Action::ReadHead { head, sent_at } => {
                self.requests.spawn(async move { line.read_head(head, sent_at).await });
                return;
            }
            Action::PassOn { announcement, sent_at } => {
                Write::Put(self.encode(Some(&announcement)), Some(sent_at))
            }
            Action::Introduce { profile, says } => {
                self.profile = profile;
                Write::Put(self.encode(says.as_ref()), None)
            }
            Action::Claim { announcement, sent_at } => {
                Write::Put(self.encode(Some(&announcement)), Some(sent_at))
            }
            Action::Renew { sent_at } => Write::Renew(sent_at),
        };
        let _ends_with_us = self.writes.send(write);
    }

    fn encode(&self, names: Option<&Announcement>) -> Vec<u8> {
        wire::encode(&self.profile, names, &self.line.settings.prefix)
    }

    pub(super) fn read_members(&mut self, answer: oneshot::Sender<Result<Vec<Entry>, Error>>) {
        let line = self.line.clone();
        self.requests.spawn(async move {
            let _nobody_waits = answer.send(line.read_members().await);
        });
    }

    pub(super) async fn heard(&mut self) -> Event {
        self.reap();
        self.events.recv().await.expect("we hold a sender ourselves")
    }

    fn reap(&mut self) {
        while let Some(done) =
            self.requests.try_join_next().or_else(|| self.watches.try_join_next())
        {
            // A watch may be among the dead, and a member that is deaf must not stay in line.
            if let Err(error) = done
                && error.is_panic()
            {
                error!(%error, "a request died: starting over with another session");
                self.line.tell(Event::SessionLost);
            }
        }
    }

    /// Ends the session now rather than when the servers would expire it, and with it our znode:
    /// one request, which cannot hit anybody else's znode. Returns the session if it may live on.
    pub(super) async fn close(mut self) -> Leftover {
        self.requests.shutdown().await;
        let _ended_already = self.close.send(());
        // The client goes before the watches. The other way round the library would ask the servers to
        // forget each of them, and wait for that with the end of the session.
        let mut wire = self.line.wire.clone();
        let _gone_or_never_there = wire.wait_for(Option::is_none).await.is_ok();
        self.watches.shutdown().await;
        self.keeper.await.expect("the keeper neither panics nor is cancelled")
    }
}

async fn write_in_turn(line: Arc<Election>, mut wanted: mpsc::UnboundedReceiver<Write>) {
    let mut ours = None;
    let mut last: Option<Note> = None;
    while let Some(write) = wanted.recv().await {
        let (ticket, written, sent_at) = match (write, ours) {
            (Write::Drawn(ticket), _) => {
                ours = Some(ticket);
                last = None;
                continue;
            }
            (_, None) => continue,
            (Write::Put(data, sent_at), Some(ticket)) => {
                let written = line.put(ticket, &data).await;
                last = written.as_ref().ok().map(|version| Note { data, version: *version });
                (ticket, written.map(drop), sent_at)
            }
            (Write::Renew(sent_at), Some(ticket)) => {
                let mut renewed = line.renew(ticket).await;
                if let (Ok(version), Some(note)) = (&renewed, &mut last)
                    && *version != note.version
                {
                    warn!("somebody wrote into our znode: writing anew who leads");
                    renewed = line.put(ticket, &note.data).await;
                    note.version = *renewed.as_ref().unwrap_or(&note.version);
                }
                (ticket, renewed.map(drop), Some(sent_at))
            }
        };
        match written {
            Ok(()) => {
                if let Some(sent_at) = sent_at {
                    line.tell(Event::Committed { sent_at });
                }
            }
            Err(Lost) => {
                ours = None;
                line.tell(Event::TicketLost(ticket));
            }
        }
    }
}

impl Election {
    fn tell(&self, event: Event) {
        let _ends_with_us = self.events.send(event);
    }

    /// Says so once, however often it is tried again.
    fn complain(&self, problem: String) {
        if self.told.link.borrow().problem.as_ref() != Some(&problem) {
            warn!("{problem}; trying again");
        }
        self.told.link.send_modify(|link| link.problem = Some(problem));
    }

    /// The servers have judged, so it does not help to ask them again before somebody has acted.
    async fn complain_of(&self, wire: &Wire, path: &str, refused: &Error) {
        let acl = self.settings.zookeeper.security.acl;
        self.complain(acl::refusal(wire, acl, path, refused).await);
    }

    /// Whoever may delete where we stand can make anybody lead. Looked at once in a session, and said
    /// when it is not what was said before.
    async fn look_for_a_hole(&self) {
        let security = &self.settings.zookeeper.security;
        if security.is_open_by_choice || self.has_looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let root = &self.settings.root;
        let look = self.until_judged(async |wire| acl::hole(&wire, root, security.acl).await);
        let Ok(hole) = look.await else { return };
        let mend = acl::mend(security.acl);
        let warning = hole.map(|hole| format!("at {root}, {hole}: {mend}"));
        let mut warned = self.told.warned.lock().expect("nobody panics while holding it");
        if let Some(warning) = warning.as_ref().filter(|_| *warned != warning) {
            warn!("{warning}");
        }
        *warned = warning;
    }

    fn content(&self) {
        self.told.link.send_if_modified(|link| link.problem.take().is_some());
    }

    fn path(&self, sequence: Sequence) -> String {
        format!("{}/{}", self.settings.root, sequence.name(&self.settings.prefix))
    }

    /// The connection of the moment; waits until there is one.
    async fn wire(&self) -> Wire {
        let mut wire = self.wire.clone();
        let found = wire.wait_for(Option::is_some).await.map(|wire| wire.clone());
        match found {
            Ok(wire) => wire.expect("just waited for"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Asks until there is an answer, or until it is clear that there is no such znode. Any other
    /// verdict proves nothing of the kind. A session that ends takes its askers along.
    async fn until_judged<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: impl Fn(Wire) -> F,
    ) -> Result<T, NoNode> {
        loop {
            match ask(self.wire().await).await {
                Ok(answer) => {
                    self.content();
                    return Ok(answer);
                }
                Err(Error::NoNode) => return Err(NoNode),
                Err(error) if is_verdict(&error) => {
                    self.complain_of(&self.wire().await, &self.settings.root, &error).await;
                    tokio::time::sleep(10 * PAUSE).await;
                }
                Err(error) => {
                    debug!(%error, "no answer");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Never sends a second create without knowing what became of the first.
    async fn draw_ticket(&self, data: &[u8]) -> Ticket {
        self.impostors().clear();
        let acls = acl::of_election(self.settings.zookeeper.security.acl);
        let mode = CreateMode::EphemeralSequential.with_acls(acls);
        let prefix = format!("{}/{}", self.settings.root, self.settings.prefix);
        let mut outcome_unknown = false;
        let mut squatter = None;
        loop {
            let wire = self.wire().await;
            if outcome_unknown {
                match self.find_own(&wire).await {
                    Ok(Some(ticket)) => {
                        self.content();
                        return ticket;
                    }
                    Ok(None) => outcome_unknown = false,
                    Err(error) => {
                        debug!(%error, "cannot tell whether the znode was created");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                continue;
            }
            match wire.ask(wire.client.create(&prefix, data, &mode)).await {
                Ok((stat, sequence)) => match drawn(&stat, sequence.into_i64()) {
                    Some(ticket) => {
                        self.content();
                        return ticket;
                    }
                    None => self.refuse_sequence(&wire, sequence.into_i64()).await,
                },
                Err(Error::NoNode) => self.make_path(&wire).await,
                Err(Error::NodeExists) => self.pass_squatters(&wire, &mut squatter).await,
                Err(error) if is_verdict(&error) => {
                    self.complain_of(&wire, &self.settings.root, &error).await;
                    tokio::time::sleep(10 * PAUSE).await;
                }
                Err(error) => {
                    debug!(%error, "the create's outcome is unknown");
                    outcome_unknown = true;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The lowest znode of this session; any other of ours is deleted.
    async fn find_own(&self, wire: &Wire) -> Result<Option<Ticket>, Error> {
        match wire.check(&self.settings.root).await {
            Err(Error::NoNode) => return Ok(None),
            checked => checked?,
        }
        let mut own = None;
        for sequence in self.sequences(wire).await? {
            let path = self.path(sequence);
            let stat = wire.ask(wire.client.check_stat(&path)).await?;
            let Some(stat) = stat.filter(|stat| is_of_session(stat, wire)) else { continue };
            if own.is_none() {
                own = Some(Ticket { sequence, token: token(&stat) });
            } else {
                warn!("deleting {path}: this session owns another znode");
                wire.ask(wire.client.delete(&path, None)).await?;
            }
        }
        Ok(own)
    }

    /// The next number's name is taken, by a znode that somebody made by hand: ZooKeeper would try
    /// that number for ever. What is created below another name uses it up.
    async fn pass_squatters(&self, wire: &Wire, first: &mut Option<String>) {
        let root = &self.settings.root;
        let (names, parent) = match wire.ask(wire.client.get_children(root)).await {
            Ok(read) => read,
            // The next create tells what to do about it.
            Err(error) => {
                debug!(%error, "cannot tell what is in the way");
                return tokio::time::sleep(PAUSE).await;
            }
        };
        let next = next_number(&parent);
        if next == Sequence::LAST {
            return self.refuse_sequence(wire, i64::from(next)).await;
        }
        let prefix = &self.settings.prefix;
        let taken: BTreeSet<_> =
            names.iter().filter_map(|name| Sequence::of_name(name, prefix)).collect();
        let is_taken = |number: &i32| Sequence::new(*number).is_some_and(|it| taken.contains(&it));
        let squatters = (next..Sequence::LAST).take_while(is_taken).take(PASSED_AT_ONCE).count();
        let in_the_way = format!("{root}/{prefix}{next:010}");
        if first.is_none() {
            warn!(
                "{in_the_way} is in the way of whoever joins: ZooKeeper did not name it, so \
                 somebody made it by hand; passed over. Delete it, and keep strangers out of {root}"
            );
        }
        let first = first.get_or_insert(in_the_way);
        match use_up(wire, root, squatters).await {
            Ok(()) => {}
            Err(error) if is_verdict(&error) => {
                self.complain(format!(
                    "{first} is in the way of whoever joins, and cannot be passed over ({error}): \
                     have it deleted"
                ));
                tokio::time::sleep(10 * PAUSE).await;
            }
            Err(error) => {
                debug!(%error, "numbers may be used up or not");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn refuse_sequence(&self, wire: &Wire, sequence: i64) {
        let root = &self.settings.root;
        self.complain(format!(
            "the sequence counter of {root} is at its end ({sequence}): cannot stand in line. \
             Delete and re-create {root} while nobody leads"
        ));
        if let Ok(own) = i32::try_from(sequence)
            && own < 0
        {
            let path = format!("{}/{}{own:010}", self.settings.root, self.settings.prefix);
            let _tried_again_later = wire.ask(wire.client.delete(&path, None)).await;
        }
        tokio::time::sleep(25 * PAUSE).await;
    }

    /// Creates the election's path. The last part is a container where the servers know them:
    /// it goes when the last member has gone.
    async fn make_path(&self, wire: &Wire) {
        let acl = self.settings.zookeeper.security.acl;
        let root = &self.settings.root;
        let ends = root.match_indices('/').skip(1).map(|(at, _)| at).chain([root.len()]);
        for end in ends {
            let path = &root[..end];
            let last = end == root.len();
            let acls = if last { acl::of_election(acl) } else { acl::of_ancestors(acl) };
            let container = CreateMode::Container.with_acls(acls);
            let persistent = CreateMode::Persistent.with_acls(acls);
            let mode = if last { &container } else { &persistent };
            let mut made = wire.ask(wire.client.create(path, b"", mode)).await;
            if last && matches!(made, Err(Error::Unimplemented)) {
                made = wire.ask(wire.client.create(path, b"", &persistent)).await;
            }
            match made {
                Ok(_) => info!("created {path}"),
                Err(Error::NodeExists) => {}
                Err(error) if is_verdict(&error) => {
                    self.complain_of(wire, path, &error).await;
                    return tokio::time::sleep(5 * PAUSE).await;
                }
                Err(error) => {
                    self.complain(format!("cannot create {path}: {error}"));
                    return tokio::time::sleep(5 * PAUSE).await;
                }
            }
        }
    }

    async fn sequences(&self, wire: &Wire) -> Result<BTreeSet<Sequence>, Error> {
        let children = wire.ask(wire.client.list_children(&self.settings.root)).await?;
        let impostors = self.impostors();
        Ok(children
            .iter()
            .filter_map(|name| Sequence::of_name(name, &self.settings.prefix))
            .filter(|sequence| !impostors.contains(sequence))
            .collect())
    }

    fn impostors(&self) -> MutexGuard<'_, BTreeSet<Sequence>> {
        self.impostors.lock().expect("nobody panics while holding it")
    }

    /// Where one only looks like a member, many may: then all of them are looked at, at once.
    async fn members(&self, wire: &Wire) -> Result<BTreeSet<Sequence>, Error> {
        let mut members = self.sequences(wire).await?;
        if self.impostors().is_empty() {
            return Ok(members);
        }
        let paths: Vec<_> = members.iter().map(|sequence| self.path(*sequence)).collect();
        let asked: Vec<_> = paths.iter().map(|path| wire.client.check_stat(path)).collect();
        let mut found = vec![];
        for (sequence, asked) in members.iter().zip(asked) {
            if wire.ask(asked).await?.is_some_and(|stat| owner(&stat).is_none()) {
                found.push(*sequence);
            }
        }
        self.pass_over(&found);
        members.retain(|sequence| !found.contains(sequence));
        Ok(members)
    }

    async fn read_line(&self) {
        let read = self.until_judged(async |wire| self.members(&wire).await).await;
        self.tell(Event::LineRead(read.unwrap_or_default().into_iter().collect()));
    }

    /// Tells when our znode is gone or another's, sooner than the next write would.
    ///
    /// A watch for children, of which an ephemeral znode has none: so it fires when the znode
    /// goes, and not at each of our own writes.
    async fn watch_own(&self, ticket: Ticket) {
        let path = self.path(ticket.sequence);
        let mut connections = self.wire.clone();
        loop {
            connections.mark_unchanged();
            let read = self.until_judged(async |wire| {
                let (_, stat, watcher) =
                    wire.ask(wire.client.get_and_watch_children(&path)).await?;
                Ok((is_ours(&stat, ticket, &wire), watcher))
            });
            let Ok((true, watcher)) = read.await else {
                return self.tell(Event::TicketLost(ticket));
            };
            tokio::select! {
                biased;
                _ = connections.changed() => {}
                change = watcher.changed() => {
                    if change.event_type == EventType::NodeDeleted {
                        return self.tell(Event::TicketLost(ticket));
                    }
                }
            }
        }
    }

    /// Tells what the predecessor says, each time it says something else, until it is gone.
    async fn watch_predecessor(&self, predecessor: Sequence) {
        let path = self.path(predecessor);
        let mut connections = self.wire.clone();
        loop {
            connections.mark_unchanged();
            let read = self
                .until_judged(async |wire| wire.ask(wire.client.get_and_watch_data(&path)).await);
            let Ok((data, stat, watcher)) = read.await else {
                return self.tell(Event::PredecessorGone(predecessor));
            };
            if self.is_impostor(predecessor, &stat) {
                return self.tell(Event::PredecessorGone(predecessor));
            }
            let ticket = Ticket { sequence: predecessor, token: token(&stat) };
            *self.predecessor.lock().expect("nobody panics while holding it") = Some(ticket);
            let says = self.announcement(&data);
            self.tell(Event::PredecessorRead { predecessor, says });
            tokio::select! {
                biased;
                // The watch went with its connection: read again over the next.
                _ = connections.changed() => {}
                change = watcher.changed() => {
                    if change.event_type == EventType::NodeDeleted {
                        return self.tell(Event::PredecessorGone(predecessor));
                    }
                }
            }
        }
    }

    /// By way of the servers' leader: the answer is also a sign that it runs and heard from us.
    async fn read_head(&self, head: Sequence, sent_at: Moment) {
        let path = self.path(head);
        let read = self.until_judged(async |wire| {
            let synced = wire.client.sync(&self.settings.root);
            let read = wire.client.get_data(&path);
            let both = async { tokio::join!(synced, read) };
            let (synced, read) = wire.ask(async { Ok(both.await) }).await?;
            if let Err(error) = synced
                && !is_verdict(&error)
            {
                return Err(error);
            }
            read
        });
        let event = match read.await {
            Ok((_, stat)) if self.is_impostor(head, &stat) => Event::HeadGone { head, sent_at },
            Ok((data, stat)) => {
                let head = Ticket { sequence: head, token: token(&stat) };
                let says = self.announcement(&data).filter(|_| self.came_in_turn(head));
                self.measure_news(says.as_ref(), &stat);
                Event::HeadRead { head, says, sent_at }
            }
            Err(_) => Event::HeadGone { head, sent_at },
        };
        self.tell(event);
    }

    /// Numbers and tokens grow together, unless somebody made a znode by hand with a number of its own
    /// choice. Which of two that is cannot be told; so who stands first is not believed.
    fn came_in_turn(&self, head: Ticket) -> bool {
        let predecessor = *self.predecessor.lock().expect("nobody panics while holding it");
        let mut jumper = self.jumper.lock().expect("nobody panics while holding it");
        let other =
            predecessor.filter(|other| other.sequence > head.sequence && other.token < head.token);
        let Some(other) = other else {
            *jumper = None;
            return true;
        };
        let (first, other) = (self.path(head.sequence), self.path(other.sequence));
        let problem = format!(
            "{first} stands ahead of {other} and was created after it: one of them was made by hand, and \
             who leads cannot be told. Delete it"
        );
        if jumper.replace(head.sequence) != Some(head.sequence) {
            warn!("{problem}");
        }
        self.told.link.send_modify(|link| link.problem = Some(problem));
        false
    }

    fn announcement(&self, data: &[u8]) -> Option<Announcement> {
        wire::decode(data, &self.settings.prefix)?.names
    }

    /// A znode that belongs to no session outlives every member and would be waited for in vain.
    fn is_impostor(&self, sequence: Sequence, stat: &Stat) -> bool {
        let impostor = owner(stat).is_none();
        if impostor {
            self.pass_over(&[sequence]);
        }
        impostor
    }

    /// Says so once, and of however many in one line.
    fn pass_over(&self, found: &[Sequence]) {
        let mut impostors = self.impostors();
        let new: Vec<_> =
            found.iter().copied().filter(|sequence| impostors.insert(*sequence)).collect();
        drop(impostors);
        match &*new {
            [] => {}
            [one] => {
                let path = self.path(*one);
                warn!("{path} is not ephemeral, so no member stands there; passed over. Delete it");
            }
            [first, .., last] => warn!(
                "{} znodes from {} to {} are not ephemeral, so no members stand there; passed \
                 over. Delete them",
                new.len(),
                self.path(*first),
                self.path(*last)
            ),
        }
    }

    /// Returns the version of the data.
    async fn put(&self, ticket: Ticket, data: &[u8]) -> Result<i32, Lost> {
        let path = self.path(ticket.sequence);
        let again = AtomicBool::new(false);
        let written = self.until_judged(async |wire| {
            // While we had no connection, the path may have become another member's.
            if again.swap(true, Ordering::Relaxed) {
                let stat = wire.ask(wire.client.check_stat(&path)).await?;
                if !stat.is_some_and(|stat| is_ours(&stat, ticket, &wire)) {
                    return Err(Error::NoNode);
                }
            }
            let written = wire.ask(wire.client.set_data(&path, data, None)).await;
            let stat = self.unless_denied(&path, written).await?;
            if is_ours(&stat, ticket, &wire) { Ok(stat) } else { Err(Error::NoNode) }
        });
        let stat = written.await.map_err(|_| Lost)?;
        self.note_word(data, &stat);
        Ok(stat.version)
    }

    /// Notes when we wrote what we heard of the leader.
    fn note_word(&self, data: &[u8], stat: &Stat) {
        let Some(says) = self.announcement(data) else { return };
        let mut word = self.word();
        if word.as_ref().is_none_or(|word| word.says != says) {
            let (written_ms, drawn_ms) = (stat.mtime, stat.ctime);
            *word = Some(Word { says, written_ms, drawn_ms, measured: false });
        }
    }

    /// Compares it with when the leader wrote that, unless that was before we came: then it was no
    /// news, and came down no line. A server that has just begun to lead the others may have
    /// another idea of the time: what seems to be older than its cause is not counted.
    fn measure_news(&self, says: Option<&Announcement>, stat: &Stat) {
        let mut word = self.word();
        let Some(word) = word.as_mut().filter(|word| Some(&word.says) == says) else { return };
        let is_news = !word.measured && stat.mtime >= word.drawn_ms;
        word.measured = true;
        if is_news && let Ok(age) = u64::try_from(word.written_ms - stat.mtime) {
            self.told.meter.news.add(Duration::from_millis(age));
        }
    }

    fn word(&self) -> MutexGuard<'_, Option<Word>> {
        self.word.lock().expect("nobody panics while holding it")
    }

    /// A quorum commits a check of our path and, pipelined behind it, a stat proves that the
    /// znode there is still ours: a path can be used again.
    ///
    /// Returns the version of the znode's data.
    async fn renew(&self, ticket: Ticket) -> Result<i32, Lost> {
        let path = self.path(ticket.sequence);
        let renewed = self.until_judged(async |wire| {
            let asked = async {
                let checked = wire.check(&path);
                let stat = wire.client.check_stat(&path);
                let (checked, stat) = tokio::join!(checked, wire.ask(stat));
                checked?;
                let ours = stat?.filter(|stat| is_ours(stat, ticket, &wire));
                ours.map(|stat| stat.version).ok_or(Error::NoNode)
            };
            self.unless_denied(&path, self.counted(asked).await).await
        });
        renewed.await.map_err(|_| Lost)
    }

    /// Whoever is kept from its own znode is another by now than who created it, or a stranger has
    /// changed its ACL. Only the end of the session takes it out of the others' way.
    async fn unless_denied<T>(&self, path: &str, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::NoAuth) = answer {
            warn!("{path} is ours and we are kept from it: starting over with another session");
            self.tell(Event::SessionLost);
            // Which ends with the session.
            std::future::pending().await
        }
        answer
    }

    /// Counts what becomes of a renewal, each time it is tried.
    async fn counted<T>(
        &self,
        renewal: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (meter, sent_at) = (&self.told.meter, self.clock.now());
        let answer = renewal.await;
        match &answer {
            Ok(_) => meter.renewals.add(self.clock.now().since(sent_at)),
            Err(error) if is_verdict(error) => meter.renewal_refused(),
            Err(_) => meter.renewal_unanswered(),
        }
        answer
    }

    async fn read_members(&self) -> Result<Vec<Entry>, Error> {
        let wire = self.wire().await;
        let mut entries = vec![];
        let sequences = match self.sequences(&wire).await {
            Err(Error::NoNode) => return Ok(entries),
            sequences => sequences?,
        };
        let paths: Vec<_> = sequences.iter().map(|sequence| self.path(*sequence)).collect();
        let asked: Vec<_> = paths.iter().map(|path| wire.client.get_data(path)).collect();
        let mut impostors = vec![];
        for (sequence, read) in sequences.into_iter().zip(asked) {
            let (data, stat) = match wire.ask(read).await {
                Err(Error::NoNode) => continue,
                read => read?,
            };
            if owner(&stat).is_none() {
                impostors.push(sequence);
                continue;
            }
            let ticket = Ticket { sequence, token: token(&stat) };
            entries.push(match wire::decode(&data, &self.settings.prefix) {
                Some(wire::Says { profile, names, version }) => {
                    Entry { ticket, profile: Some(profile), names, version }
                }
                None => Entry { ticket, profile: None, names: None, version: None },
            });
        }
        self.pass_over(&impostors);
        Ok(entries)
    }
}

/// Which number the next sequential znode below this one gets: how many were created there so far.
/// What clients are told counts the deleted ones as well.
fn next_number(parent: &Stat) -> i32 {
    let twice = parent.cversion.wrapping_add(parent.num_children).cast_unsigned();
    (twice / 2).cast_signed()
}

/// In one transaction, so that nothing is left behind: of those znodes there never is any.
async fn use_up(wire: &Wire, parent: &str, numbers: usize) -> Result<(), Error> {
    // No two do this under one name, and no name ends in digits as those in a line do.
    let letters: String = (0..16).map(|_| fastrand::lowercase()).collect();
    let path = format!("{parent}/pass-{letters}");
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let mut writer = wire.client.new_multi_writer();
    for _ in 0..numbers {
        writer.add_create(&path, b"", &mode)?;
        writer.add_delete(&path, None)?;
    }
    let used = writer.commit();
    wire.ask(async { used.await.map(drop).map_err(unwrap_multi) }).await
}

fn drawn(stat: &Stat, sequence: i64) -> Option<Ticket> {
    let sequence = Sequence::new(i32::try_from(sequence).ok()?)?;
    if sequence.number() > Sequence::LAST - 1_000_000 {
        warn!("the sequence counter nears its end: re-create the election's path in time");
    }
    Some(Ticket { sequence, token: token(stat) })
}

/// The session that a znode goes with; `None` if it belongs to none and outlives every member.
pub(super) fn owner(stat: &Stat) -> Option<SessionId> {
    match stat.ephemeral_owner {
        0 | i64::MIN => None,
        owner => Some(SessionId(owner)),
    }
}

/// Whoever stands there leads under this token, when it leads.
fn token(stat: &Stat) -> FencingToken {
    FencingToken(stat.czxid.cast_unsigned())
}

fn is_ours(stat: &Stat, ticket: Ticket, wire: &Wire) -> bool {
    token(stat) == ticket.token && is_of_session(stat, wire)
}

fn is_of_session(stat: &Stat, wire: &Wire) -> bool {
    stat.ephemeral_owner == wire.client.session_id().0
}
