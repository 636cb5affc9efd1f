//! A queue of ephemeral sequential znodes, one for each member: joining it, listing it, watching the
//! predecessor, and writing to our own znode in order.
//!
//! It is independent of recipes: data is bytes here, and the meaning of a znode's presence is for the
//! owner to judge. Several queues can share one session.

mod acl;
mod claim;
mod context;
mod foreign;
mod join;
mod list;
mod make_path;
mod name_taken;
mod read;
mod watches;
mod write;
mod znode;

pub(in crate::zookeeper) use acl::of_ancestors as acl_of_ancestors;
pub(crate) use acl::refusal;
pub(in crate::zookeeper) use acl::{of_queue, warn_if_weak};
pub(crate) use claim::claim_path;
pub(in crate::zookeeper) use context::{
    BROKEN, Context, RETRY_DELAY, leave_if_lacking, leave_wrong_server,
};
pub(crate) use foreign::foreign_name;
pub(in crate::zookeeper) use join::{OwnZnodeMatch, join};
pub(in crate::zookeeper) use list::{CHILDREN_MAX, names_below, sync, unless_crowded};
pub(crate) use read::{MemberZnode, QueueZnodes};
pub(in crate::zookeeper) use read::{read_short, stats};
pub(in crate::zookeeper) use watches::{ZnodesAhead, watch_until_own_is_lost};
pub(in crate::zookeeper) use write::{still_ours, unless_denied};
pub(crate) use znode::{owner, token};

use self::write::QueueWrite;
use super::client::{SessionHandle, Tell, delay_after_force};
use crate::clock::Clock;
use crate::config::security::AclPolicy;
use crate::counters::Meter;
use crate::status::ConnectionState;
use crate::znode_names::ZnodeNames;
use ::zookeeper::Error;
use recipes::{FencingToken, Moment, Sequence, Ticket};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::error;

/// Which queue, and what is created there.
#[derive(Clone, Debug)]
pub(crate) struct QueueSettings {
    /// The path below which members' znodes stand.
    pub(crate) root: String,
    /// How members' znodes are named.
    pub(crate) znodes: ZnodeNames,
    pub(crate) acl: AclPolicy,
    /// The operator chose that anyone may change what stands there: no warning then.
    pub(crate) is_open_by_choice: bool,
}

impl QueueSettings {
    /// Whether to keep out while contenders with another order stand in the path. Where members alone elect, unknown clients must
    /// not be able to stop an election.
    fn refuses_foreign(&self) -> bool {
        self.znodes.family().is_some()
    }
}

/// Collects the problems for operators, and the durations of requests.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) link: watch::Sender<ConnectionState>,
    pub(crate) meter: Arc<Meter>,
    /// The last warning about the path's ACL, in whichever session.
    pub(crate) acl_warning: Arc<Mutex<Option<String>>>,
    /// Whether a connection was lost while a container was being created, in whichever session. Servers other than ZooKeeper
    /// may close it at a request that they do not know.
    pub(crate) container_unanswered: Arc<AtomicBool>,
}

impl Reports {
    pub(crate) fn new(link: watch::Sender<ConnectionState>, meter: Arc<Meter>) -> Self {
        let acl_warning = Arc::default();
        let container_unanswered = Arc::default();
        Self { link, meter, acl_warning, container_unanswered }
    }
}

/// Events of a queue, and of the own place in it.
#[derive(Clone, Debug)]
pub(crate) enum QueueEvent {
    /// Our znode stands in the queue.
    Joined(Ticket),
    /// This znode of ours is gone, or is another's, although the session lives.
    TicketLost(Ticket),
    /// The session owns this znode already, with this data, and a claim with that.
    Found { ticket: Ticket, data: Vec<u8>, claimed: Option<Vec<u8>> },
    /// The session owns none.
    NoneFound,
    /// The queue as it was at some moment not later than now, and the number of the listing.
    Listed { number: u64, members: BTreeSet<Sequence> },
    /// Whether contenders with another order stand in the path, where that keeps us out and is news in this session.
    Foreign { keep_out: bool },
    /// The names of other clients' contenders that stand in the path, where these have changed.
    ForeignListed(Vec<String>),
    /// The predecessor's znode, which is being watched; sent again each time its data changes.
    PredecessorRead { predecessor: Ticket, data: Vec<u8>, modified_ms: i64 },
    /// The predecessor's znode is gone, and the watch has ended.
    PredecessorGone {
        predecessor: Sequence,
        /// Of the znode that was watched; `None` if no ephemeral znode stood there when it was first
        /// read.
        token: Option<FencingToken>,
    },
    /// A member's znode, read through the ensemble's leader.
    MemberRead { member: Ticket, data: Vec<u8>, modified_ms: i64, sent_at: Moment },
    /// No member's znode stands there.
    MemberGone { member: Sequence, sent_at: Moment },
    /// The own claim was not committed, or no longer exists.
    ClaimRefused { holder: ClaimHolder, sent_at: Moment },
    /// This data was committed to our znode.
    Written {
        data: Arc<[u8]>,
        /// When the servers created our znode, and when they wrote this, by their clock.
        created_ms: i64,
        modified_ms: i64,
        /// When the write was sent, for those that prove how long the session lives.
        sent_at: Option<Moment>,
    },
    /// A quorum committed that our znode is there.
    Renewed { sent_at: Moment },
    /// All members' znodes.
    MembersRead(Vec<MemberZnode>),
    /// The queue cannot go on in this session: the servers keep us from our own znode, or a task died.
    Unusable,
}

/// The other holder of the queue's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimHolder {
    /// The claim belongs to another session, which wrote this data.
    Another(Vec<u8>),
    /// Ours was committed, and has been deleted.
    Gone,
}

/// Our place in one queue, for the length of a session. Requests end when it is dropped.
pub(crate) struct QueueSession {
    context: Arc<Context>,
    requests: JoinSet<()>,
    watches: JoinSet<()>,
    /// Joins, and then watches our own znode and the predecessor's.
    membership: Option<AbortHandle>,
    /// Passes on to that task which predecessor to watch.
    predecessor: watch::Sender<Option<Sequence>>,
    /// The last listing, and our own znode when it began.
    listing: Option<(Option<Ticket>, AbortHandle)>,
    /// Looks for other clients' contenders.
    look: Option<AbortHandle>,
    /// Reads other clients' contenders.
    foreign: Option<AbortHandle>,
    /// How many listings were begun.
    listings: u64,
    writes: mpsc::UnboundedSender<QueueWrite>,
    /// Reads all members' znodes for the queue's owner.
    members: Option<AbortHandle>,
}

impl QueueSession {
    pub(crate) fn new(
        settings: QueueSettings,
        session: SessionHandle,
        reports: Reports,
        clock: Clock,
        tell: Tell<QueueEvent>,
    ) -> Self {
        let context = Arc::new(Context::new(settings, session, reports, clock, tell));
        let (writes, wanted) = mpsc::unbounded_channel();
        let mut requests = JoinSet::new();
        requests.spawn(write::write_in_order(context.clone(), wanted));
        Self {
            context,
            requests,
            watches: JoinSet::new(),
            membership: None,
            predecessor: watch::Sender::new(None),
            listing: None,
            look: None,
            foreign: None,
            listings: 0,
            writes,
            members: None,
        }
    }

    /// Creates our znode, or finds the one that this session owns already, and watches it.
    pub(crate) fn join(&mut self, data: Vec<u8>) {
        let context = self.context.clone();
        let writes = self.writes.clone();
        let was_lost = self.membership.is_some();
        let predecessor;
        (self.predecessor, predecessor) = watch::channel(None);
        let membership = self.watches.spawn(async move {
            if was_lost {
                tokio::time::sleep(delay_after_force()).await;
            }
            context.set_own(None);
            if let Some((ticket, _)) = join(&context, &data, OwnZnodeMatch::OfSession).await {
                stand(&context, &writes, ticket, predecessor, QueueEvent::Joined(ticket)).await;
            }
        });
        self.membership.replace(membership).inspect(AbortHandle::abort);
    }

    /// Finds the znode that this session owns already, and watches it. None is created.
    pub(crate) fn find(&mut self) {
        let context = self.context.clone();
        let writes = self.writes.clone();
        let predecessor;
        (self.predecessor, predecessor) = watch::channel(None);
        let membership = self.watches.spawn(async move {
            match join::find(&context).await {
                Some(join::OwnedZnode { ticket, data, claimed }) => {
                    let found = QueueEvent::Found { ticket, data, claimed };
                    stand(&context, &writes, ticket, predecessor, found).await;
                }
                None => context.tell(QueueEvent::NoneFound),
            }
        });
        self.membership.replace(membership).inspect(AbortHandle::abort);
    }

    /// Lists the members, unless a listing for the same znode of ours is under way: were a slow one given up for the next, none
    /// might ever end. What has changed since it began shows when the predecessor that it tells of is watched.
    ///
    /// Only the last listing is of use: one before is aborted, and [`Self::is_last_listing`] sorts out one whose event was sent
    /// already.
    pub(crate) fn list(&mut self) {
        let own = self.context.own();
        if self.listing.as_ref().is_some_and(|(of, listing)| *of == own && !listing.is_finished()) {
            return;
        }
        self.listings += 1;
        let context = self.context.clone();
        let number = self.listings;
        let listing = self.requests.spawn(async move { list::list(&context, number).await });
        if let Some((_, before)) = self.listing.replace((own, listing)) {
            before.abort();
        }
    }

    /// Lists what stands in the path, for other clients' contenders alone. One look is under way at most: were a slow one
    /// given up for the next, none might ever end.
    pub(crate) fn look_for_foreign(&mut self) {
        if self.look.as_ref().is_some_and(|look| !look.is_finished()) {
            return;
        }
        let context = self.context.clone();
        let look = self.requests.spawn(async move { list::look_for_foreign(&context).await });
        self.look = Some(look);
    }

    /// Reads other clients' contenders, and publishes whose they are. Only what was listed last is of use.
    pub(crate) fn read_foreign(&mut self, names: Vec<String>) {
        let context = self.context.clone();
        let read = self.requests.spawn(async move { foreign::read(&context, &names).await });
        self.foreign.replace(read).inspect(AbortHandle::abort);
    }

    /// Notes the name of a contender that need not have been listed here.
    pub(crate) fn note_name(&self, name: &str) {
        self.context.settings.znodes.note(name);
    }

    pub(crate) fn is_last_listing(&self, number: u64) -> bool {
        number == self.listings
    }

    /// Watches this predecessor from now on, instead of the one before.
    pub(crate) fn watch_predecessor(&self, predecessor: Sequence) {
        let _receiver_gone = self.predecessor.send(Some(predecessor));
    }

    /// Reads a member's znode once, through the ensemble's leader. With `prove`, a quorum has to agree that it exists.
    pub(crate) fn read(&mut self, member: Sequence, prove: bool, sent_at: Moment) {
        let context = self.context.clone();
        self.requests.spawn(async move { read::read(&context, member, prove, sent_at).await });
    }

    /// Finds out whether the server at hand shows this member, and goes to another if it does not and a quorum says that it
    /// is there.
    pub(crate) fn verify(&mut self, member: Sequence) {
        let context = self.context.clone();
        self.requests.spawn(async move { read::verify(&context, member).await });
    }

    /// Reads the znodes of all members.
    pub(crate) fn read_all(&mut self, answer: oneshot::Sender<Result<QueueZnodes, Error>>) {
        let context = self.context.clone();
        self.requests.spawn(async move {
            let _receiver_gone = answer.send(read::read_all(&context).await);
        });
    }

    /// Reads the znodes of all members, unless that is under way already. What cannot be read is not published.
    pub(crate) fn read_members(&mut self) {
        if self.members.as_ref().is_some_and(|members| !members.is_finished()) {
            return;
        }
        let context = self.context.clone();
        let members = self.requests.spawn(async move {
            if let Ok(read) = read::read_all(&context).await {
                context.tell(QueueEvent::MembersRead(read.members));
            }
        });
        self.members = Some(members);
    }

    /// Writes to our own znode, in the order of the calls.
    pub(crate) fn write(&self, data: Vec<u8>, sent_at: Option<Moment>) {
        let _receiver_gone = self.writes.send(QueueWrite::Put(data.into(), sent_at));
    }

    /// Writes to our own znode and makes the queue's one claim, both or neither, in order with the writes. The claim ends with
    /// the session.
    pub(crate) fn claim(&self, data: Vec<u8>, sent_at: Moment) {
        let _receiver_gone = self.writes.send(QueueWrite::Claim(data.into(), sent_at));
    }

    /// Has a quorum commit that our znode is there, and our claim if we made it, in order with the writes. Finds out whether
    /// the predecessor is gone.
    pub(crate) fn renew(&self, predecessor: Option<Sequence>, sent_at: Moment) {
        let _receiver_gone = self.writes.send(QueueWrite::Renew(predecessor, sent_at));
    }

    /// Removes what has ended. A dead task may have been a watch, without which a member must not
    /// stay in the queue.
    pub(crate) fn reap(&mut self) {
        while let Some(done) =
            self.requests.try_join_next().or_else(|| self.watches.try_join_next())
        {
            if let Err(error) = done
                && error.is_panic()
            {
                error!(%error, "a request died: starting over with another session");
                self.context.tell(QueueEvent::Unusable);
            }
        }
    }

    /// Aborts all requests. Watches end later, with [`Self::end_watches`]: while the connection lasts,
    /// the library would ask the servers to remove each of them, and wait for that with the end of
    /// the session.
    pub(crate) async fn end_requests(&mut self) {
        self.requests.shutdown().await;
    }

    /// Ends the watches, once the connection is given up.
    pub(crate) async fn end_watches(mut self) {
        self.watches.shutdown().await;
    }
}

/// Tells that our znode stands, and watches it and the predecessor's from then on.
async fn stand(
    context: &Context,
    writes: &mpsc::UnboundedSender<QueueWrite>,
    ticket: Ticket,
    predecessor: watch::Receiver<Option<Sequence>>,
    event: QueueEvent,
) {
    context.set_own(Some(ticket));
    let _receiver_gone = writes.send(QueueWrite::Joined(ticket));
    context.tell(event);
    tokio::join!(watches::watch(context, ticket, predecessor), warn_if_weak(context));
}
