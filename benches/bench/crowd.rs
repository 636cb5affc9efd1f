//! Many members in one process: the election and its connections as in the program, without the rest.

use crate::bare::runtime;
use bellwether::{
    clock::Clock,
    config::{
        Settings, Zookeeper,
        security::{AclPolicy, Security},
    },
    status::{self, MemberRequest, ReplyTo, Snapshot, StatusHandle},
    zookeeper,
};
use recipes::election::{Command, Member, Policy, Profile, Role};
use recipes::{Margins, MemberId};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

/// The path of the one election that all members are in, where there is one.
pub(crate) const ELECTION: &str = "/election";

/// What a member told, and when.
pub(crate) struct Told {
    pub(crate) who: usize,
    pub(crate) at: Instant,
    /// The token of the leader that it knows, and whether that is this member.
    pub(crate) leader: Option<(u64, bool)>,
}

pub(crate) struct Crowd {
    members: Vec<StatusHandle>,
    told: Receiver<Told>,
    stops: Vec<oneshot::Sender<()>>,
}

impl Crowd {
    /// Members of the election with these numbers, one after another, so that the queue has that order.
    pub(crate) fn in_queue(servers: &str, session: Duration, count: usize) -> Self {
        let (tell, told) = channel();
        let mut crowd = Self { members: vec![], told, stops: vec![] };
        for who in 0..count {
            crowd.join(servers, session, who, ELECTION, tell.clone());
            crowd.wait(Duration::from_secs(60), |told| told.who == who && told.leader.is_some());
        }
        crowd
    }

    /// All at once, in whatever order, each in the election with the path that is its.
    pub(crate) fn at_once(
        servers: &str,
        session: Duration,
        first: usize,
        count: usize,
        path_of: impl Fn(usize) -> String,
    ) -> Self {
        let (tell, told) = channel();
        let mut crowd = Self { members: vec![], told, stops: vec![] };
        for who in first..first + count {
            crowd.join(servers, session, who, &path_of(who), tell.clone());
        }
        crowd
    }

    fn join(
        &mut self,
        servers: &str,
        session: Duration,
        who: usize,
        path: &str,
        tell: Sender<Told>,
    ) {
        let profile = Profile {
            id: MemberId::new(&format!("m{who}")).expect("a good name"),
            address: None,
            labels: BTreeMap::new(),
            revision: 0,
        };
        let margins = Margins { heartbeat: session / 10, half_tick: crate::servers::TICK / 2 };
        let member = Member::new(Arc::new(profile), Policy::new(margins));
        let clock = Clock::system();
        let (back, front) = status::set_up(&member, clock.now());
        let (stop, stopping) = oneshot::channel();
        let settings = settings(servers, session, path);
        let credentials = zookeeper::Credentials::of(&settings.zookeeper);
        let snapshots = front.snapshot.clone();
        thread::spawn(move || {
            runtime().block_on(async {
                let drive = zookeeper::run(
                    member,
                    settings,
                    credentials,
                    clock,
                    back,
                    zookeeper::ResumeState::default(),
                    stopping,
                );
                tokio::join!(drive, listen(who, snapshots, clock, tell));
            });
        });
        self.members.push(front);
        self.stops.push(stop);
    }

    /// Sends a command, which is carried out only if the receiver is still there.
    #[must_use]
    pub(crate) fn order(&self, who: usize, order: Command) -> oneshot::Receiver<bool> {
        let (caller, carried_out) = ReplyTo::new(None);
        let sent = self.members[who].requests.blocking_send(MemberRequest::Command(order, caller));
        assert!(sent.is_ok(), "it runs");
        carried_out
    }

    /// Waits until a member has told something for which this holds.
    pub(crate) fn wait(&self, patience: Duration, mut so: impl FnMut(&Told) -> bool) {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let told = self.told.recv_timeout(left).expect("it becomes so in time");
            if so(&told) {
                return;
            }
        }
    }

    /// Returns when all of them have left the queue.
    pub(crate) fn leave(self) {
        let Self { members, told, stops } = self;
        drop((members, stops));
        // This ends when the last member, and its sender with it, is gone.
        while told.recv().is_ok() {}
    }

    pub(crate) fn told(&self) -> &Receiver<Told> {
        &self.told
    }
}

async fn listen(
    who: usize,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    clock: Clock,
    tell: Sender<Told>,
) {
    let mut last = None;
    while snapshots.changed().await.is_ok() {
        let leader = match snapshots.borrow_and_update().standing.at(clock.now()) {
            Role::Leader { announcement, .. } => Some((announcement.ticket.token.0, true)),
            Role::Follower { leader: heard } => heard.map(|heard| (heard.ticket.token.0, false)),
            Role::Candidate | Role::Absent => None,
        };
        if leader != last {
            last = leader;
            let _receiver_gone = tell.send(Told { who, at: Instant::now(), leader });
        }
    }
}

fn settings(servers: &str, session_timeout: Duration, path: &str) -> Settings {
    let security =
        Security { tls: None, login: None, acl: AclPolicy::Open, is_open_by_choice: true };
    let zookeeper = Zookeeper { hosts: servers.to_owned(), session_timeout, security };
    Settings { zookeeper, root: path.to_owned(), znodes: "leader_".into() }
}
