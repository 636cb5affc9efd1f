//! State shared by all requests of one queue: paths, session, retries and reports.

use super::{QueueEvent, QueueSettings, Reports, acl, claim_path};
use crate::clock::Clock;
use crate::status::{ConnectionState, ForeignQueue};
use crate::zookeeper::client::{Connection, EventSender, SessionHandle, is_server_answer};
use ::zookeeper::Error;
use recipes::{Sequence, Ticket};
use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::{debug, info, warn};

/// Delay before a request without an answer is sent again.
pub(in crate::zookeeper) const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Delay before a request that the servers refused is sent again. It is longer, because most refusals last until an operator
/// acts.
pub(in crate::zookeeper) const REFUSED_DELAY: Duration = Duration::from_secs(2);

/// The data that all requests of one queue in one session share.
pub(in crate::zookeeper) struct Context {
    pub(in crate::zookeeper) settings: QueueSettings,
    pub(in crate::zookeeper) session: SessionHandle,
    pub(super) reports: Reports,
    pub(super) clock: Clock,
    pub(super) events: EventSender<QueueEvent>,
    state: Mutex<QueueState>,
    /// Limits how many requests the locks and barriers of one session send at once; `None` in an election.
    request_permits: Option<Arc<Semaphore>>,
    /// True for the queue of a lock or barrier, false in an election. Our place in a lock's or barrier's queue is also lost
    /// when another client writes [`BROKEN`] into our znode.
    pub(super) is_lock_or_barrier: bool,
}

/// The state of one queue in this session, as its requests have found it.
#[derive(Default)]
pub(super) struct QueueState {
    /// True once the queue's ACL has been checked.
    pub(super) is_acl_checked: bool,
    /// Znodes with names like a member's that are not ephemeral, so they do not belong to members. They are ignored.
    pub(super) non_ephemeral: BTreeSet<Sequence>,
    /// Znodes that are known to be ephemeral. Each znode is checked only once.
    pub(super) ephemeral: BTreeSet<Sequence>,
    /// True while there are too many znodes below the path to list them.
    is_crowded: bool,
    /// Our own ticket, from when our znode was created or found until the next join begins, even if the znode is lost
    /// before.
    pub(super) own: Option<Ticket>,
    /// The names of the foreign contenders in the last listing.
    pub(super) foreign: Vec<String>,
    /// Whether foreign contenders keep us out of the queue, as last reported to the member; `None` before the first report.
    pub(super) must_stay_out: Option<bool>,
    /// True once our place in the queue is no longer wanted, so that a join which is still running gives up.
    pub(super) is_withdrawn: bool,
}

/// The data that an operator writes into the znode of a place in a lock's queue, to break the lock. The owner of the znode
/// then gives up its place. The operator deletes the znode once no lease can be left by which the owner would still hold.
pub(in crate::zookeeper) const BROKEN: &[u8] = b"broken";

/// The error of a request about a znode that does not exist, or that belongs to another session than expected.
pub(in crate::zookeeper) struct NoNode;

impl Context {
    pub(in crate::zookeeper) fn new(
        settings: QueueSettings,
        session: SessionHandle,
        reports: Reports,
        clock: Clock,
        events: EventSender<QueueEvent>,
    ) -> Self {
        Self {
            settings,
            session,
            reports,
            clock,
            events,
            state: Mutex::default(),
            request_permits: None,
            is_lock_or_barrier: false,
        }
    }

    /// Turns this into the context of a lock or barrier: each attempt of a request takes a permit, and our place ends when
    /// an operator writes [`BROKEN`] into our znode. No permit is held between attempts, so a request that is always refused
    /// does not block the others.
    pub(in crate::zookeeper) fn of_lock_or_barrier(self, request_permits: Arc<Semaphore>) -> Self {
        Self { request_permits: Some(request_permits), is_lock_or_barrier: true, ..self }
    }

    /// Returns true if every leader of this queue owns its claim, so that a quorum refuses a second leader. The leaders of
    /// another client make no claims.
    pub(super) fn all_leaders_claim(&self) -> bool {
        !self.is_lock_or_barrier && !self.settings.is_shared()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Makes a running join give up, because its znode is no longer wanted. The join returns once it is known whether a
    /// znode was created.
    pub(in crate::zookeeper) fn withdraw(&self) {
        self.state().is_withdrawn = true;
    }

    pub(super) fn send_event(&self, event: QueueEvent) {
        (self.events)(event);
    }

    pub(in crate::zookeeper) fn path(&self, sequence: Sequence) -> String {
        format!("{}/{}", self.settings.root, self.settings.znodes.name(sequence))
    }

    /// Returns the path of the queue's claim.
    pub(super) fn claim_path(&self) -> String {
        claim_path(&self.settings.root, &self.settings.znodes)
    }

    /// Handles a read that did not show our own znode. Returns [`Error::NoNode`] if a quorum confirms that our znode does
    /// not exist, and otherwise an error after which the request is repeated.
    ///
    /// If a quorum says that our znode exists, the current server has lost the transaction that created it. To join again
    /// would be wrong: a second znode of this session would wait behind the first indefinitely. So another server is asked.
    /// If no other server is found, the session is given up, because our znode would block the queue.
    pub(in crate::zookeeper) async fn confirm_own_znode_missing(
        &self,
        connection: &Connection,
        path: &str,
    ) -> Error {
        match leave_server_if_missing(connection, path).await {
            Err(error) => error,
            // The request is repeated, over the next connection.
            Ok(true) => Error::Timeout,
            Ok(false) => self.give_session_up().await,
        }
    }

    /// Reports that the queue cannot be used in this session. Never returns: the end of the session aborts the calling task.
    pub(super) async fn give_session_up<T>(&self) -> T {
        self.send_event(QueueEvent::Unusable);
        std::future::pending().await
    }

    /// Forgets which znodes are ephemeral or not, before this member joins. The znodes are noted by sequence number, and if
    /// the path was re-created since, other znodes have these numbers.
    pub(super) fn forget_znodes(&self) {
        let mut state = self.state();
        state.non_ephemeral.clear();
        state.ephemeral.clear();
    }

    /// Repeats a request until it succeeds or fails with [`Error::NoNode`]. Any other error proves nothing about the znode,
    /// so the request is sent again after a delay. The closure `request` may also return [`Error::Timeout`] on purpose, in
    /// order to be called again. If the servers refuse the request, that is published as a problem for as long as this call
    /// lasts. The repetition ends, at the latest, with the session, whose end aborts its requests.
    pub(in crate::zookeeper) async fn retry_until_answered<
        T,
        F: Future<Output = Result<T, Error>>,
    >(
        &self,
        request: impl Fn(Connection) -> F,
    ) -> Result<T, NoNode> {
        let mut refused = RequestRefusal { link: &self.reports.link, problem: None };
        loop {
            let (connection, permit) = self.connection_and_permit().await;
            let answer = request(connection).await;
            drop(permit);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Error::NoNode) => return Err(NoNode),
                Err(error) => self.backoff(error, &mut refused).await,
            }
        }
    }

    /// Waits for a connection, and for a permit if requests need one.
    pub(super) async fn connection_and_permit(&self) -> (Connection, Option<SemaphorePermit<'_>>) {
        let connection = self.session.connection().await;
        let permit = match &self.request_permits {
            Some(permits) => Some(permits.acquire().await.expect("it is never closed")),
            None => None,
        };
        (connection, permit)
    }

    /// Waits after a request that was refused or not answered, and publishes a refusal as a problem. A function of its own,
    /// because its caller is generic and is compiled once for each kind of request.
    async fn backoff(&self, error: Error, refused: &mut RequestRefusal<'_>) {
        if !is_server_answer(&error) {
            debug!(%error, "no answer");
            return tokio::time::sleep(retry_delay(&error)).await;
        }
        let connection = self.session.connection().await;
        let root = &self.settings.root;
        let problem = acl::refusal(&connection, self.settings.acl, root, &error).await;
        drop(connection);
        refused.problem = Some(problem.clone());
        self.set_problem(problem);
        tokio::time::sleep(REFUSED_DELAY).await;
    }

    /// Publishes the problem. Logs it only if it is not the current problem already, since each failed attempt reports it.
    pub(super) fn set_problem(&self, problem: String) {
        let link = &self.reports.link;
        if link.borrow().problem.as_ref() != Some(&problem) {
            warn!("{problem}; trying again");
        }
        link.send_modify(|link| link.problem = Some(problem));
    }

    /// Publishes the problem that there are too many znodes below the path. `None` means that there are not too many: if
    /// there were before, clears the current problem, whichever it is. A problem that persists is published again by the
    /// next attempt.
    pub(super) fn set_crowded(&self, problem: Option<String>) {
        let was_crowded = mem::replace(&mut self.state().is_crowded, problem.is_some());
        match problem {
            Some(problem) => self.set_problem(problem),
            None if was_crowded => self.clear_problem(),
            None => {}
        }
    }

    /// Clears the current problem, unless there are too many znodes below the path, which only [`Self::set_crowded`] clears.
    /// Requests call this after an answer about our own znode or claim.
    pub(super) fn clear_problem(&self) {
        if self.state().is_crowded {
            return;
        }
        self.reports.link.send_if_modified(|link| link.problem.take().is_some());
    }

    /// Publishes that the servers refused a request at the path, and why.
    pub(super) async fn report_refusal(&self, connection: &Connection, path: &str, error: &Error) {
        self.set_problem(acl::refusal(connection, self.settings.acl, path, error).await);
    }

    /// Reports to the member whether foreign contenders keep us out of the queue, if that has changed. Does nothing in an
    /// election that is not shared with another client, where foreign contenders never keep members out.
    pub(super) fn send_keep_out(&self, keep_out: bool) {
        if !self.settings.is_shared() {
            return;
        }
        let previous = self.state().must_stay_out.replace(keep_out);
        if previous != Some(keep_out) {
            self.send_event(QueueEvent::Foreign { keep_out });
        }
    }

    /// Publishes the foreign contenders below the path, grouped by client. Logs each client's contenders when they appear or
    /// change, and when none is left.
    pub(super) fn report_foreign(&self, found: Vec<ForeignQueue>) {
        let root = &self.settings.root;
        self.reports.link.send_if_modified(|link| {
            if link.foreign == found {
                return false;
            }
            for queue in &found {
                if !link.foreign.contains(queue) {
                    warn!("{}", queue.problem(root));
                }
            }
            for queue in &link.foreign {
                if found.iter().all(|other| other.family != queue.family) {
                    info!("no contender of {} is left in {root}", queue.family);
                }
            }
            link.foreign = found;
            true
        });
    }

    /// Ignores these non-ephemeral znodes from now on: they outlive every session, so no member may wait for their deletion.
    /// Warns once about each, in one line for all new ones.
    pub(super) fn ignore_non_ephemeral(&self, found: &[Sequence]) {
        let mut new = vec![];
        let mut state = self.state();
        for sequence in found {
            if state.non_ephemeral.insert(*sequence) {
                new.push(*sequence);
            }
        }
        drop(state);
        match &*new {
            [] => {}
            [one] => {
                let path = self.path(*one);
                warn!("{path} is not ephemeral, so it is not a member's: ignored. Delete it");
            }
            [first, .., last] => warn!(
                "{} znodes from {} to {} are not ephemeral, so they are not members': ignored. \
                 Delete them",
                new.len(),
                self.path(*first),
                self.path(*last)
            ),
        }
    }
}

/// The refusal of one request by the servers, which was published as a problem. Dropping this, when the request is answered
/// or given up, clears that problem, unless another request has replaced it by its own.
struct RequestRefusal<'a> {
    link: &'a watch::Sender<ConnectionState>,
    /// The published problem; `None` while the servers have not refused the request.
    problem: Option<String>,
}

impl Drop for RequestRefusal<'_> {
    fn drop(&mut self) {
        if self.problem.is_none() {
            return;
        }
        self.link.send_if_modified(|link| {
            let is_ours = link.problem == self.problem;
            if is_ours {
                link.problem = None;
            }
            is_ours
        });
    }
}

/// Returns the delay before a request that failed with this error is sent again. It is longer if there are too many znodes
/// below the path, which only an operator can change.
pub(super) fn retry_delay(error: &Error) -> Duration {
    match error {
        Error::UnexpectedError(_) => REFUSED_DELAY,
        _ => RETRY_DELAY,
    }
}

/// Handles a server that does not show this znode: asks a quorum whether the znode exists. If it does not, fails with
/// [`Error::NoNode`]. If it does, the server has lost a transaction and is left, so that a retry of the request asks another
/// server. Returns what [`leave_wrong_server`] returns.
pub(in crate::zookeeper) async fn leave_server_if_missing(
    connection: &Connection,
    path: &str,
) -> Result<bool, Error> {
    connection.check(path).await?;
    Ok(leave_wrong_server(connection, path, "does not show", "it is there"))
}

/// Handles a quorum's answer that this znode is gone. If the current server still shows the znode, it has lost a transaction
/// and is left: it has already applied everything that was committed before the quorum's answer, so it would go on showing
/// the znode. Then fails with [`Error::Timeout`], so that the caller repeats its request at another server.
pub(super) async fn leave_server_if_shown(
    connection: &Connection,
    path: &str,
) -> Result<(), Error> {
    let is_shown = connection.request(connection.client.check_stat(path)).await?.is_some();
    if is_shown && leave_wrong_server(connection, path, "still shows", "it is gone") {
        return Err(Error::Timeout);
    }
    Ok(())
}

/// Leaves a server which a quorum contradicts about this path. Logs a warning with `shows`, such as "still shows", for the
/// server, and `truth`, such as "it is gone", for the quorum. Returns false, without a log line, if the server is not left,
/// because it was left less than a session timeout ago.
pub(in crate::zookeeper) fn leave_wrong_server(
    connection: &Connection,
    path: &str,
    shows: &str,
    truth: &str,
) -> bool {
    if !connection.leave_server() {
        return false;
    }
    let server = connection.server();
    warn!(
        server,
        "the ZooKeeper server {server} {shows} {path}, and a quorum of the servers says {truth}: it has lost a \
         transaction. Stop it, empty its dataDir and start it again; going to another server"
    );
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_that_was_refused_ends_its_problem() {
        let (link, receiver) = watch::channel(ConnectionState::default());
        let refuse = |why: &str| {
            link.send_modify(|link| link.problem = Some(why.into()));
            RequestRefusal { link: &link, problem: Some(why.into()) }
        };
        let problem = || receiver.borrow().problem.clone();
        let first = refuse("our place");
        drop(RequestRefusal { link: &link, problem: None });
        assert_eq!(problem().as_deref(), Some("our place"), "another request was answered");
        let second = refuse("a reading");
        drop(first);
        assert_eq!(problem().as_deref(), Some("a reading"));
        drop(second);
        assert_eq!(problem(), None);
    }
}
