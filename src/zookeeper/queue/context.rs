//! State shared by all requests of one queue: paths, session, retries and reports.

use super::znode::{owner, token};
use super::{QueueEvent, QueueSettings, Reports, acl, claim_path, foreign};
use crate::clock::Clock;
use crate::status::{ConnectionState, ForeignQueue};
use crate::zookeeper::client::{
    Connection, LeaveServerOutcome, SessionHandle, Tell, is_server_answer,
};
use ::zookeeper::{Error, Stat};
use recipes::{FencingToken, Sequence, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::{debug, info, warn};

/// Delay before a request without an answer is sent again.
pub(in crate::zookeeper) const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Delay before a request that the servers refused is sent again: only an operator can change the refusal.
pub(super) const REFUSED_DELAY: Duration = Duration::from_secs(2);

pub(in crate::zookeeper) struct Context {
    pub(in crate::zookeeper) settings: QueueSettings,
    pub(in crate::zookeeper) session: SessionHandle,
    pub(super) reports: Reports,
    pub(super) clock: Clock,
    pub(super) tell: Tell<QueueEvent>,
    /// True once the queue's ACL has been checked in this session.
    pub(super) is_acl_checked: AtomicBool,
    /// Znodes that are named like a member's but are not ephemeral, so they do not belong to a member.
    non_ephemeral: Mutex<BTreeSet<Sequence>>,
    /// Znodes that are known to be ephemeral. Each znode is checked only once.
    ephemeral: Mutex<BTreeSet<Sequence>>,
    /// Znodes that a server shows although a quorum says that they are gone.
    denied: Mutex<BTreeMap<Sequence, FencingToken>>,
    /// True while there are too many znodes below the path to list them.
    is_crowded: AtomicBool,
    /// Our own ticket, while our znode exists.
    own: Mutex<Option<Ticket>>,
    /// The names of the foreign contenders in the last listing.
    foreign: Mutex<Vec<String>>,
    /// True if foreign contenders keep us out, as last reported in this session; `None` before the first report.
    kept_out: Mutex<Option<bool>>,
    /// Permits for requests, where many queues share a session.
    pace: Option<Arc<Semaphore>>,
    /// True once our place in the queue is no longer wanted.
    is_withdrawn: AtomicBool,
    /// True if our place is lost when another client writes [`BROKEN`] into its znode.
    is_breakable: bool,
}

/// The data that an operator writes into a znode to break a lock: its owner gives the place up, and the operator deletes
/// the znode once the lease under which it may still be held has ended.
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

    /// Makes each attempt of a request take a permit. No permit is held between attempts, so a request that is always
    /// refused does not block the others.
    pub(in crate::zookeeper) fn paced_by(self, pace: Arc<Semaphore>) -> Self {
        Self { pace: Some(pace), ..self }
    }

    /// Makes the own place end when an operator writes [`BROKEN`] into its znode.
    pub(in crate::zookeeper) fn breakable(self) -> Self {
        Self { is_breakable: true, ..self }
    }

    pub(super) fn is_breakable(&self) -> bool {
        self.is_breakable
    }

    /// Waits for a permit, if requests need one.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        match &self.pace {
            Some(pace) => Some(pace.acquire().await.expect("it is never closed")),
            None => None,
        }
    }

    /// Ends a join whose znode is no longer wanted, as soon as it is known that no znode was created.
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

    /// Returns the path of the queue's claim.
    pub(super) fn claim_path(&self) -> String {
        claim_path(&self.settings.root, &self.settings.znodes)
    }

    pub(super) fn own(&self) -> Option<Ticket> {
        *self.own.lock().expect("no panic while it is held")
    }

    pub(super) fn set_own(&self, own: Option<Ticket>) {
        *self.own.lock().expect("no panic while it is held") = own;
    }

    /// Handles a read that did not show our own znode. Returns [`Error::NoNode`] if a quorum says that it does not exist.
    ///
    /// Otherwise the current server has lost the transaction that created it. A second znode of this session would wait
    /// behind the first indefinitely, so another server is asked. If no other server is found for as long as a session
    /// lasts, the session is given up.
    pub(in crate::zookeeper) async fn own_is_not_shown(
        &self,
        connection: &Connection,
        path: &str,
    ) -> Error {
        match leave_if_znode_missing(connection, path).await {
            Err(error) => error,
            Ok(LeaveServerOutcome::Again) => self.give_session_up().await,
            Ok(LeaveServerOutcome::First | LeaveServerOutcome::NotYet) => Error::Timeout,
        }
    }

    /// Reports that the queue cannot be used in this session, and waits for the end of the session.
    pub(super) async fn give_session_up<T>(&self) -> T {
        self.tell(QueueEvent::Unusable);
        std::future::pending().await
    }

    /// Handles a server that shows this znode although a quorum says that it is gone. Treats the znode as gone from then
    /// on, even if a server shows it, and leaves the server.
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
            // The watch of that znode would never fire, so reconnect even if there is only this server.
            connection.give_up();
        }
    }

    /// Forgets all znodes by number: the path may have been re-created, and its numbers start again.
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

    /// Repeats a request until the servers answer it, or report that the znode does not exist. Any other error says nothing
    /// about the znode; if the servers refused the request, it is a problem for as long as this call lasts. Ends, at the
    /// latest, with the session, whose end aborts its requests.
    pub(in crate::zookeeper) async fn retry_until_answered<
        T,
        F: Future<Output = Result<T, Error>>,
    >(
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

    /// Waits after a request that was refused or not answered. It is not generic, unlike the loop, which is compiled many
    /// times.
    async fn backoff(&self, error: Error, refused: &mut RequestRefusal<'_>) {
        if !is_server_answer(&error) {
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

    /// Publishes the problem. Logs it once, however many attempts follow.
    pub(super) fn set_problem(&self, problem: String) {
        let link = &self.reports.link;
        if link.borrow().problem.as_ref() != Some(&problem) {
            warn!("{problem}; trying again");
        }
        link.send_modify(|link| link.problem = Some(problem));
    }

    /// Publishes that there are too many znodes below the path; with `None`, clears that problem.
    pub(super) fn set_crowded(&self, problem: Option<String>) {
        let was_crowded = self.is_crowded.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) => self.set_problem(problem),
            None if was_crowded => self.clear_problem(),
            None => {}
        }
    }

    /// Clears any problem. Call this only after answers that give this member its place in the queue, or confirm it.
    pub(super) fn clear_problem(&self) {
        if self.is_crowded.load(Ordering::Relaxed) {
            return;
        }
        self.reports.link.send_if_modified(|link| link.problem.take().is_some());
    }

    /// Publishes that the servers refused a request at the path, and why.
    pub(super) async fn report_refusal(&self, connection: &Connection, path: &str, error: &Error) {
        self.set_problem(acl::refusal(connection, self.settings.acl, path, error).await);
    }

    /// Reports the foreign contenders among these names, if they have changed.
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

    /// Reports whether foreign contenders keep us out, if that has changed.
    pub(super) fn tell_foreign(&self, keep_out: bool) {
        let mut told = self.kept_out.lock().expect("no panic while it is held");
        if told.replace(keep_out) != Some(keep_out) {
            drop(told);
            self.tell(QueueEvent::Foreign { keep_out });
        }
    }

    /// Returns true if the last report was that foreign contenders keep us out.
    pub(super) fn is_kept_out(&self) -> bool {
        *self.kept_out.lock().expect("no panic while it is held") == Some(true)
    }

    /// Publishes the foreign contenders below the path, by client. Logs each change once.
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

    /// Returns true if the znode is not ephemeral, and ignores it from then on: it outlives every member, so no member
    /// should wait for its deletion.
    pub(super) fn is_not_ephemeral(&self, sequence: Sequence, stat: &Stat) -> bool {
        let is_not = owner(stat).is_none();
        if is_not {
            self.pass_over(&[sequence]);
        }
        is_not
    }

    /// Ignores these non-ephemeral znodes from then on. Warns once about each, in one line for all new ones.
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

/// A refusal of one request by the servers. Dropping it, when the request is answered or given up, clears its problem. The
/// problem of another request stays.
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

/// Handles a server that does not show this znode. Returns [`Error::NoNode`] if a quorum agrees. Otherwise the server has
/// lost a transaction, and is left.
pub(in crate::zookeeper) async fn leave_if_znode_missing(
    connection: &Connection,
    path: &str,
) -> Result<LeaveServerOutcome, Error> {
    connection.check(path).await?;
    Ok(leave_wrong_server(connection, path, "does not show", "it is there"))
}

/// Leaves a server that a quorum contradicts, and logs a warning. `truth` is the quorum's statement about the path.
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
