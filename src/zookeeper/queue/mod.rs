//! A queue of ephemeral sequential znodes, one for each member: joining it, listing it, watching the
//! predecessor, and writing to our own znode in order.
//!
//! This module does not depend on a recipe: data is bytes here, and the owner of the queue decides what a znode means.
//! Several queues can share one session.

mod acl;
mod claim;
mod context;
mod foreign;
mod join;
mod list;
mod make_path;
mod read;
mod watches;
mod write;
mod znode;

pub(in crate::zookeeper) use acl::of_ancestors as acl_of_ancestors;
pub(crate) use acl::refusal;
pub(in crate::zookeeper) use acl::{of_queue, warn_if_weak};
pub(crate) use claim::{OtherClaim, claim_path};
pub(in crate::zookeeper) use context::{
    BROKEN, Context, REFUSED_DELAY, RETRY_DELAY, leave_wrong_server,
};
pub(crate) use foreign::foreign_name;
pub(crate) use join::OwnedZnode;
pub(in crate::zookeeper) use join::{OwnZnodeMatch, join};
pub(in crate::zookeeper) use list::{
    CHILDREN_MAX, ListError, fail_if_crowded, ignore_refusal, names_below, sync,
};
pub(crate) use read::{MemberZnode, QueueZnodes};
pub(in crate::zookeeper) use read::{read_short, stats};
pub(in crate::zookeeper) use watches::{AheadEvent, WatchRequest, watch};
pub(in crate::zookeeper) use write::{give_up_if_no_auth, still_ours};
pub(in crate::zookeeper) use znode::paths_down_to;
pub(crate) use znode::{owner, server_time, token};

use self::write::QueueWrite;
use super::client::{EventSender, SessionHandle, rejoin_delay};
use crate::clock::Clock;
use crate::config::security::AclPolicy;
use crate::counters::Meter;
use crate::status::ConnectionState;
use crate::znode_names::ZnodeNames;
use ::zookeeper::Error;
use recipes::{Moment, Sequence, Ticket};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;

/// The settings of one queue: its path, and the names and the ACL of the znodes in it.
#[derive(Clone, Debug)]
pub(crate) struct QueueSettings {
    /// The path below which members create their znodes.
    pub(crate) root: String,
    /// The naming scheme of members' znodes.
    pub(crate) znodes: ZnodeNames,
    pub(crate) acl: AclPolicy,
    /// True if the operator chose that anyone may change the znodes, so that no ACL warning is logged.
    pub(crate) is_open_by_choice: bool,
}

impl QueueSettings {
    /// Returns true in an election that is shared with another client. Only there, foreign contenders in the path keep
    /// members out of the queue, because their clients would choose another leader. In other elections they are only
    /// reported, so that unknown clients cannot stop an election.
    fn is_shared(&self) -> bool {
        self.znodes.family().is_some()
    }
}

/// Collects problems for operators, and the durations of requests.
#[derive(Clone)]
pub(crate) struct Reports {
    /// Publishes the state of the connection, and the current problem.
    pub(crate) link: watch::Sender<ConnectionState>,
    pub(crate) meter: Arc<Meter>,
    /// The last warning about the path's ACL; kept across sessions.
    pub(crate) acl_warning: Arc<Mutex<Option<String>>>,
    /// True once a request to create a container got no answer, so that no container is requested again; kept across
    /// sessions. Servers other than ZooKeeper may close the connection at a request that they do not know.
    pub(crate) container_unanswered: Arc<AtomicBool>,
}

impl Reports {
    pub(crate) fn new(link: watch::Sender<ConnectionState>, meter: Arc<Meter>) -> Self {
        Self { link, meter, acl_warning: Arc::default(), container_unanswered: Arc::default() }
    }
}

/// An event of a queue, or of our own place in it.
#[derive(Clone, Debug)]
pub(crate) enum QueueEvent {
    /// Our znode exists in the queue. The answer to [`QueueSession::join`].
    Joined(Ticket),
    /// Our znode is gone or belongs to another session, although our session is alive.
    TicketLost(Ticket),
    /// The session already owns this znode. An answer to [`QueueSession::find`].
    Found(OwnedZnode),
    /// The session does not own a znode in the queue. An answer to [`QueueSession::find`].
    NoneFound,
    /// The members that were in the queue when it was listed, and the number of that listing. If another listing has begun
    /// since, this event is outdated: see [`QueueSession::is_last_listing`].
    Listed { number: u64, members: BTreeSet<Sequence> },
    /// `keep_out` is true if foreign contenders keep us out of the queue. Sent when this is first known and when it changes,
    /// and only in an election that is shared with another client.
    Foreign { keep_out: bool },
    /// The predecessor's znode, which [`QueueSession::watch_predecessor`] watches, was read, has changed or is gone.
    Predecessor(AheadEvent),
    /// A member's znode. An answer to [`QueueSession::read`].
    MemberRead { member: Ticket, data: Vec<u8>, sent_at: Moment },
    /// The member's znode does not exist. An answer to [`QueueSession::read`]; also reported for the znode ahead of a
    /// [`QueueSession::renew`].
    MemberGone { member: Sequence, sent_at: Moment },
    /// The answer to a claim or a renewal, sent at `sent_at`: because of this claim, the member must not lead.
    ClaimRefused { claim: OtherClaim, sent_at: Moment },
    /// A quorum committed a write to our own znode, or a check of it, that the member requested at `sent_at`. A lease may be
    /// counted from `sent_at`.
    Committed { sent_at: Moment },
    /// The znodes of all members. The answer to [`QueueSession::read_members`].
    MembersRead(Vec<MemberZnode>),
    /// The queue cannot be used in this session, so another session must be opened. For example, the servers deny us access
    /// to our own znode, or a task has panicked.
    Unusable,
}

/// Our place in one queue, for the length of a session. Dropping it ends its requests.
pub(crate) struct QueueSession {
    context: Arc<Context>,
    requests: JoinSet<()>,
    /// The membership tasks, which watch znodes. They are ended after the requests: see [`Self::end_requests`].
    watches: JoinSet<()>,
    /// The task that joins, and then watches our own znode and the predecessor's.
    membership: Option<AbortHandle>,
    /// The task that reads all members' znodes.
    members_reading: Option<AbortHandle>,
    /// Sends requests to watch a predecessor to the membership task.
    watch_requests: mpsc::UnboundedSender<WatchRequest>,
    /// Our own ticket when the last listing began, and the task of that listing.
    listing: Option<(Option<Ticket>, AbortHandle)>,
    /// The task that lists the path to find foreign contenders.
    foreign_check: Option<AbortHandle>,
    /// The number of listings begun so far, which is also the number of the last one.
    listings: u64,
    /// Sends writes to the task that carries them out in order.
    writes: mpsc::UnboundedSender<QueueWrite>,
}

impl QueueSession {
    pub(crate) fn new(
        settings: QueueSettings,
        session: SessionHandle,
        reports: Reports,
        clock: Clock,
        events: EventSender<QueueEvent>,
    ) -> Self {
        let context = Arc::new(Context::new(settings, session, reports, clock, events));
        let (writes, write_receiver) = mpsc::unbounded_channel();
        let mut requests = JoinSet::new();
        requests.spawn(write::write_in_order(context.clone(), write_receiver));
        Self {
            context,
            requests,
            watches: JoinSet::new(),
            membership: None,
            members_reading: None,
            // A channel without a receiver. `begin_membership` replaces it before a predecessor can be known.
            watch_requests: mpsc::unbounded_channel().0,
            listing: None,
            foreign_check: None,
            listings: 0,
            writes,
        }
    }

    /// Creates our znode, as [`join()`] does, and watches it.
    pub(crate) fn join(&mut self, data: Vec<u8>) {
        let is_rejoin = self.membership.is_some();
        let context = self.context.clone();
        self.begin_membership(async move {
            if is_rejoin {
                // Our previous znode is gone. Perhaps the whole path is being deleted, which an immediate join would
                // prevent.
                tokio::time::sleep(rejoin_delay()).await;
            }
            context.state().own = None;
            let (ticket, _) = join(&context, &data, OwnZnodeMatch::OfSession).await?;
            Some((ticket, QueueEvent::Joined(ticket)))
        });
    }

    /// Finds the znode that this session already owns, and watches it. Does not create one.
    pub(crate) fn find(&mut self) {
        let context = self.context.clone();
        self.begin_membership(async move {
            let Some(found) = join::find(&context).await else {
                context.send_event(QueueEvent::NoneFound);
                return None;
            };
            Some((found.ticket, QueueEvent::Found(found)))
        });
    }

    /// Starts the membership task, and aborts the previous one. The task awaits `own_znode`, which creates or finds our
    /// znode. If that returns `None`, there is no znode to watch, and the task ends. Otherwise, the task sends the returned
    /// event, and watches our znode and the predecessor's from then on.
    fn begin_membership(
        &mut self,
        own_znode: impl Future<Output = Option<(Ticket, QueueEvent)>> + Send + 'static,
    ) {
        let context = self.context.clone();
        let writes = self.writes.clone();
        let (watch_requests, request_receiver) = mpsc::unbounded_channel();
        self.watch_requests = watch_requests;
        let membership = self.watches.spawn(async move {
            let Some((ticket, event)) = own_znode.await else { return };
            context.state().own = Some(ticket);
            let _receiver_gone = writes.send(QueueWrite::Joined(ticket));
            context.send_event(event);
            let watching = async {
                watch(&context, Some(ticket), request_receiver, |event| {
                    context.send_event(QueueEvent::Predecessor(event));
                })
                .await;
                context.send_event(QueueEvent::TicketLost(ticket));
            };
            tokio::join!(watching, warn_if_weak(&context));
        });
        if let Some(previous) = self.membership.replace(membership) {
            previous.abort();
        }
    }

    /// Lists the members, unless a listing for the same ticket is already running: if each call aborted a slow listing, none
    /// might ever finish. The running listing may contain a predecessor that was deleted before this call. That is harmless:
    /// the watch that the member sets next reports that the predecessor is gone. But a running listing for another ticket is
    /// useless, because it may have begun before our znode was created.
    ///
    /// Only the last listing counts: a new one aborts the previous one, and [`Self::is_last_listing`] rejects the event of
    /// the previous one if it was already sent.
    pub(crate) fn list(&mut self) {
        let own = self.context.state().own;
        if let Some((own_at_start, running)) = &self.listing
            && *own_at_start == own
            && !running.is_finished()
        {
            return;
        }
        self.listings += 1;
        let context = self.context.clone();
        let number = self.listings;
        let listing = self.requests.spawn(async move { list::list(&context, number).await });
        if let Some((_, previous)) = self.listing.replace((own, listing)) {
            previous.abort();
        }
    }

    /// Lists the path only to find foreign contenders, unless such a listing is already running: if each call aborted a slow
    /// listing, none might ever finish.
    pub(crate) fn check_for_foreign(&mut self) {
        if self.foreign_check.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let context = self.context.clone();
        let task = self.requests.spawn(async move { list::check_for_foreign(&context).await });
        self.foreign_check = Some(task);
    }

    /// Returns true if the listing with this number is the last one that was begun.
    pub(crate) fn is_last_listing(&self, number: u64) -> bool {
        number == self.listings
    }

    /// Watches the znode of `predecessor` from now on, instead of the previous predecessor's.
    pub(crate) fn watch_predecessor(&self, predecessor: Sequence) {
        let path = self.context.path(predecessor);
        let _receiver_gone = self.watch_requests.send(WatchRequest::Watch(predecessor, path));
    }

    /// Reads a member's znode once. The answer repeats `sent_at`.
    pub(crate) fn read(&mut self, member: Sequence, sent_at: Moment) {
        let context = self.context.clone();
        self.requests.spawn(async move { read::read(&context, member, sent_at).await });
    }

    /// Returns a future that reads the znodes of all members, and begins to do so when it is awaited.
    pub(crate) fn reading(&self) -> impl Future<Output = Result<QueueZnodes, Error>> + use<> {
        let context = self.context.clone();
        async move { read::read_all(&context).await }
    }

    /// Runs a task that ends with the session.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.requests.spawn(task);
    }

    /// Reads the znodes of all members, unless such a read is already running: several slow reads at once would delay
    /// renewals on the same connection. A read that fails sends no event.
    pub(crate) fn read_members(&mut self) {
        if self.members_reading.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let context = self.context.clone();
        self.members_reading = Some(self.requests.spawn(async move {
            if let Ok(read) = read::read_all(&context).await {
                context.send_event(QueueEvent::MembersRead(read.members));
            }
        }));
    }

    /// Writes to our own znode, in the order of the calls. With `sent_at`, the time of the member's request, the commit is
    /// reported by [`QueueEvent::Committed`].
    pub(crate) fn write(&self, data: Vec<u8>, sent_at: Option<Moment>) {
        let _receiver_gone = self.writes.send(QueueWrite::Data(data, sent_at));
    }

    /// Writes to our own znode and creates the claim znode, both or neither, after the writes requested before. The claim
    /// znode is ephemeral. The answer is [`QueueEvent::Committed`] or [`QueueEvent::ClaimRefused`].
    pub(crate) fn claim(&self, data: Vec<u8>, sent_at: Moment) {
        let _receiver_gone = self.writes.send(QueueWrite::Claim(data, sent_at));
    }

    /// Confirms with a quorum that our znode exists, after the writes requested before. The same request checks whether our
    /// claim still exists, or, if we have not claimed, whether the znode `ahead` does.
    pub(crate) fn renew(&self, ahead: Option<Sequence>, sent_at: Moment) {
        let _receiver_gone = self.writes.send(QueueWrite::Renew(ahead, sent_at));
    }

    /// Removes finished tasks. If a task has panicked, the queue is unusable: that task may have watched our znode, and a
    /// member must not stay in the queue without that watch.
    pub(crate) fn reap(&mut self) {
        if reap([&mut self.requests, &mut self.watches], "a request") {
            self.context.send_event(QueueEvent::Unusable);
        }
    }

    /// Aborts all requests. The watches are aborted later, by [`Self::end_watches`]: if a watch is dropped while the
    /// connection exists, the library asks the servers to remove that watch, and the end of the session would wait for their
    /// answer.
    pub(crate) async fn end_requests(&mut self) {
        self.requests.shutdown().await;
    }

    /// Aborts the watches, after the connection has been given up.
    pub(crate) async fn end_watches(mut self) {
        self.watches.shutdown().await;
    }
}

/// Removes finished tasks. Returns true if a task has panicked, and logs that, with `what` as the name of the task.
pub(in crate::zookeeper) fn reap(tasks: [&mut JoinSet<()>; 2], what: &str) -> bool {
    let mut has_panicked = false;
    for tasks in tasks {
        while let Some(done) = tasks.try_join_next() {
            if let Err(error) = done
                && error.is_panic()
            {
                error!(%error, "{what} panicked: starting over with another session");
                has_panicked = true;
            }
        }
    }
    has_panicked
}
