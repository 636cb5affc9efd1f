//! State shared by all requests of one queue: paths, session, retries and reports.

use super::znode::{owner, token};
use super::{QueueEvent, QueueSettings, Reports, acl, claim_path, foreign};
use crate::clock::Clock;
use crate::status::{ConnectionState, ForeignQueue};
use crate::zookeeper::client::{Connection, LeaveServerOutcome, SessionHandle, Tell, is_verdict};
use ::zookeeper::{Error, Stat};
use recipes::{FencingToken, Sequence, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::{debug, info, warn};

/// Delay before a request is sent again of which no answer came.
pub(in crate::zookeeper) const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Delay before a request is sent again that the servers refused: only an operator can change that.
pub(super) const REFUSED_DELAY: Duration = Duration::from_secs(2);

pub(in crate::zookeeper) struct Context {
    pub(in crate::zookeeper) settings: QueueSettings,
    pub(in crate::zookeeper) session: SessionHandle,
    pub(super) reports: Reports,
    pub(super) clock: Clock,
    pub(super) tell: Tell<QueueEvent>,
    /// Whether the queue's ACL was looked at in this session.
    pub(super) is_acl_checked: AtomicBool,
    /// Znodes that are named like a member's and are not ephemeral, so no member's.
    non_ephemeral: Mutex<BTreeSet<Sequence>>,
    /// Those that were seen to be ephemeral when that was asked: it is asked once of each.
    ephemeral: Mutex<BTreeSet<Sequence>>,
    /// Znodes that a server shows and a quorum says are gone.
    denied: Mutex<BTreeMap<Sequence, FencingToken>>,
    /// Whether there are too many znodes below the path to list them.
    is_crowded: AtomicBool,
    /// Our own znode, while there is one.
    own: Mutex<Option<Ticket>>,
    /// The names of other clients' contenders that were listed last.
    foreign: Mutex<Vec<String>>,
    /// Whether we were last told, in this session, to keep out because of them.
    kept_out: Mutex<Option<bool>>,
    /// For turns to ask, where many share a session.
    pace: Option<Arc<Semaphore>>,
    /// Whether our place is not wanted any more.
    is_withdrawn: AtomicBool,
    /// Whether our place is lost when others write [`BROKEN`] into its znode.
    is_breakable: bool,
}

/// The data of a place that an operator has broken: its owner gives it up, and the operator deletes it once the lease by
/// which it may still be held is over.
pub(in crate::zookeeper) const BROKEN: &[u8] = b"broken";

/// The servers answered that the znode does not exist, or belongs to another session.
pub(in crate::zookeeper) struct NoNode;

impl Context {
    pub(in crate::zookeeper) fn new(
        settings: QueueSettings,
        session: SessionHandle,
        reports: Reports,
        clock: Clock,
        tell: Tell<QueueEvent>,
    ) -> Self {
        let is_acl_checked = AtomicBool::new(false);
        let non_ephemeral = Mutex::default();
        let ephemeral = Mutex::default();
        let denied = Mutex::default();
        let own = Mutex::default();
        let foreign = Mutex::default();
        let is_crowded = AtomicBool::new(false);
        let kept_out = Mutex::default();
        Self {
            settings,
            session,
            reports,
            clock,
            tell,
            is_acl_checked,
            non_ephemeral,
            ephemeral,
            denied,
            is_crowded,
            own,
            foreign,
            kept_out,
            pace: None,
            is_withdrawn: AtomicBool::new(false),
            is_breakable: false,
        }
    }

    /// Has each attempt to ask take a turn. None is kept while nothing is asked: what is refused every time keeps no other from
    /// asking.
    pub(in crate::zookeeper) fn paced_by(self, pace: Arc<Semaphore>) -> Self {
        Self { pace: Some(pace), ..self }
    }

    pub(in crate::zookeeper) fn breakable(self) -> Self {
        Self { is_breakable: true, ..self }
    }

    pub(super) fn is_breakable(&self) -> bool {
        self.is_breakable
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        match &self.pace {
            Some(pace) => Some(pace.acquire().await.expect("it is never closed")),
            None => None,
        }
    }

    /// Has a join end whose znode is not wanted any more, once it is known that none was made.
    pub(in crate::zookeeper) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, event: QueueEvent) {
        (self.tell)(event);
    }

    pub(in crate::zookeeper) fn path(&self, sequence: Sequence) -> String {
        format!("{}/{}", self.settings.root, self.settings.znodes.name(sequence))
    }

    /// Returns where the holder of the queue's claim has its znode.
    pub(super) fn claim_path(&self) -> String {
        claim_path(&self.settings.root, &self.settings.znodes)
    }

    pub(super) fn own(&self) -> Option<Ticket> {
        *self.own.lock().expect("no panic while it is held")
    }

    pub(super) fn set_own(&self, own: Option<Ticket>) {
        *self.own.lock().expect("no panic while it is held") = own;
    }

    /// Handles a read that did not show our own znode. Returns [`Error::NoNode`] if a quorum agrees.
    ///
    /// Else the server at hand has lost the transaction that created it. A second znode of this session would wait behind the
    /// first indefinitely, so another server is asked; where none is found for as long as a session lasts, another session is
    /// needed.
    pub(in crate::zookeeper) async fn own_is_not_shown(
        &self,
        connection: &Connection,
        path: &str,
    ) -> Error {
        match leave_if_lacking(connection, path).await {
            Err(error) => error,
            Ok(LeaveServerOutcome::Again) => self.give_session_up().await,
            Ok(LeaveServerOutcome::First | LeaveServerOutcome::NotYet) => Error::Timeout,
        }
    }

    /// Reports that the queue cannot go on in this session, and waits for the end of the session.
    pub(super) async fn give_session_up<T>(&self) -> T {
        self.tell(QueueEvent::Unusable);
        std::future::pending().await
    }

    /// Handles that the server at hand shows this znode, and a quorum says that it is gone: takes it for gone from then
    /// on, whichever server shows it, and leaves the server.
    pub(super) fn deny(&self, connection: &Connection, sequence: Sequence, shown: &Stat) {
        let mut denied = self.denied.lock().expect("no panic while it is held");
        if denied.insert(sequence, token(shown)) == Some(token(shown)) {
            return;
        }
        drop(denied);
        let path = self.path(sequence);
        if leave_wrong_server(connection, &path, "still shows", "it is gone")
            == LeaveServerOutcome::NotYet
        {
            // The watch of that znode would never fire.
            connection.give_up();
        }
    }

    /// Forgets all znodes by number: the path may have been created again.
    pub(super) fn forget_znodes(&self) {
        self.non_ephemeral().clear();
        self.ephemeral().clear();
        self.denied.lock().expect("no panic while it is held").clear();
    }

    pub(super) fn is_denied(&self, sequence: Sequence, shown: &Stat) -> bool {
        let denied = self.denied.lock().expect("no panic while it is held");
        denied.get(&sequence) == Some(&token(shown))
    }

    pub(super) fn denied(&self) -> BTreeSet<Sequence> {
        self.denied.lock().expect("no panic while it is held").keys().copied().collect()
    }

    /// Repeats a request until the servers answer, or report that the znode does not exist. Any other error proves
    /// nothing of the kind, and is a problem for as long as this request lasts. Ends, at the latest, with the session,
    /// whose end aborts its requests.
    pub(in crate::zookeeper) async fn until_judged<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: impl Fn(Connection) -> F,
    ) -> Result<T, NoNode> {
        let mut refused = RequestRefusal { link: &self.reports.link, problem: None };
        loop {
            let (connection, turn) = self.connection_and_turn().await;
            let answer = ask(connection).await;
            drop(turn);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Error::NoNode) => return Err(NoNode),
                Err(error) => self.backoff(error, &mut refused).await,
            }
        }
    }

    pub(super) async fn connection_and_turn(&self) -> (Connection, Option<SemaphorePermit<'_>>) {
        (self.session.connection().await, self.turn().await)
    }

    /// Waits after a request that was refused, or not answered. Apart from the loop, of which the program has many.
    async fn backoff(&self, error: Error, refused: &mut RequestRefusal<'_>) {
        if !is_verdict(&error) {
            debug!(%error, "no answer");
            return tokio::time::sleep(RETRY_DELAY).await;
        }
        let connection = self.session.connection().await;
        let root = &self.settings.root;
        let problem = acl::refusal(&connection, self.settings.acl, root, &error).await;
        drop(connection);
        refused.problem = Some(problem.clone());
        self.set_problem(problem);
        tokio::time::sleep(REFUSED_DELAY).await;
    }

    /// Publishes why we are not where we want to be, and warns once, however many attempts follow.
    pub(super) fn set_problem(&self, problem: String) {
        let link = &self.reports.link;
        if link.borrow().problem.as_ref() != Some(&problem) {
            warn!("{problem}; trying again");
        }
        link.send_modify(|link| link.problem = Some(problem));
    }

    /// Publishes that there are too many znodes below the path, for as long as there are.
    pub(super) fn set_crowded(&self, problem: Option<String>) {
        let was_crowded = self.is_crowded.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) => self.set_problem(problem),
            None if was_crowded => self.clear_problem(),
            None => {}
        }
    }

    /// Clears whatever problem there is: for the answers alone that give this member its place, or prove it.
    pub(super) fn clear_problem(&self) {
        if self.is_crowded.load(Ordering::Relaxed) {
            return;
        }
        self.reports.link.send_if_modified(|link| link.problem.take().is_some());
    }

    /// Publishes what the servers refused at the path, and why.
    pub(super) async fn report_refusal(&self, connection: &Connection, path: &str, error: &Error) {
        self.set_problem(acl::refusal(connection, self.settings.acl, path, error).await);
    }

    /// Tells which of the names that stand below the path are those of other clients' contenders, where that has changed.
    pub(super) fn note_foreign(&self, names: &[String]) {
        let mut listed = foreign::contenders(names, &self.settings.znodes);
        listed.truncate(foreign::MOST);
        let mut known = self.foreign.lock().expect("no panic while it is held");
        if *known == listed {
            return;
        }
        known.clone_from(&listed);
        drop(known);
        self.tell(QueueEvent::ForeignListed(listed));
    }

    /// Tells whether we are to keep out, where that has changed.
    pub(super) fn tell_foreign(&self, keep_out: bool) {
        let mut told = self.kept_out.lock().expect("no panic while it is held");
        if told.replace(keep_out) != Some(keep_out) {
            drop(told);
            self.tell(QueueEvent::Foreign { keep_out });
        }
    }

    /// Whether we were last told to keep out.
    pub(super) fn is_kept_out(&self) -> bool {
        *self.kept_out.lock().expect("no panic while it is held") == Some(true)
    }

    /// Publishes whose contenders of other clients stand below the path. Logs it once, until it changes.
    pub(super) fn report_foreign(&self, found: Vec<ForeignQueue>) {
        let root = &self.settings.root;
        self.reports.link.send_if_modified(|link| {
            if link.foreign == found {
                return false;
            }
            for queue in found.iter().filter(|queue| !link.foreign.contains(queue)) {
                warn!("{}", queue.problem(root));
            }
            for queue in link
                .foreign
                .iter()
                .filter(|queue| found.iter().all(|other| other.family != queue.family))
            {
                info!("no contender of {} stands in {root} any more", queue.family);
            }
            link.foreign = found;
            true
        });
    }

    pub(super) fn non_ephemeral(&self) -> MutexGuard<'_, BTreeSet<Sequence>> {
        self.non_ephemeral.lock().expect("no panic while it is held")
    }

    pub(super) fn ephemeral(&self) -> MutexGuard<'_, BTreeSet<Sequence>> {
        self.ephemeral.lock().expect("no panic while it is held")
    }

    /// Returns whether the znode is not ephemeral, and passes over it from then on: it outlives every
    /// member, and would be waited for in vain.
    pub(super) fn is_not_ephemeral(&self, sequence: Sequence, stat: &Stat) -> bool {
        let is_not = owner(stat).is_none();
        if is_not {
            self.pass_over(&[sequence]);
        }
        is_not
    }

    /// Passes over these non-ephemeral znodes from then on. Warns once of each, and of all new ones in one line.
    pub(super) fn pass_over(&self, found: &[Sequence]) {
        let mut known = self.non_ephemeral();
        let new: Vec<_> =
            found.iter().copied().filter(|sequence| known.insert(*sequence)).collect();
        drop(known);
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
}

/// A refusal of one request by the servers: no longer a problem once the request is answered or given up. Another
/// request's problem stays.
struct RequestRefusal<'a> {
    link: &'a watch::Sender<ConnectionState>,
    problem: Option<String>,
}

impl Drop for RequestRefusal<'_> {
    fn drop(&mut self) {
        let Some(own) = self.problem.take() else { return };
        self.link
            .send_if_modified(|link| link.problem.take_if(|problem| *problem == own).is_some());
    }
}

/// Handles that the server at hand does not show this znode. Returns [`Error::NoNode`] if a quorum agrees. Else that
/// server has lost a transaction, and is left.
pub(in crate::zookeeper) async fn leave_if_lacking(
    connection: &Connection,
    path: &str,
) -> Result<LeaveServerOutcome, Error> {
    connection.check(path).await?;
    Ok(leave_wrong_server(connection, path, "does not show", "it is there"))
}

/// Leaves a server with which a quorum disagrees, and warns of it. `truth` is what the quorum says of the path.
pub(in crate::zookeeper) fn leave_wrong_server(
    connection: &Connection,
    path: &str,
    shows: &str,
    truth: &str,
) -> LeaveServerOutcome {
    let leaving = connection.leave_server();
    if leaving == LeaveServerOutcome::NotYet {
        return leaving;
    }
    let server = connection.server();
    warn!(
        server,
        "the ZooKeeper server {server} {shows} {path}, and a quorum of the servers says {truth}: it has lost a \
         transaction. Stop it, empty its dataDir and start it again; going to another server"
    );
    leaving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_that_was_refused_ends_its_problem() {
        let (link, told) = watch::channel(ConnectionState::default());
        let refuse = |why: &str| {
            link.send_modify(|link| link.problem = Some(why.into()));
            RequestRefusal { link: &link, problem: Some(why.into()) }
        };
        let problem = || told.borrow().problem.clone();
        let first = refuse("our place");
        drop(RequestRefusal { link: &link, problem: None });
        assert_eq!(problem().as_deref(), Some("our place"), "another's answer");
        let second = refuse("a reading");
        drop(first);
        assert_eq!(problem().as_deref(), Some("a reading"));
        drop(second);
        assert_eq!(problem(), None);
    }
}
