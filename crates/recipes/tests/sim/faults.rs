//! What may go wrong in a simulated world, of an election or of holdings.

use std::time::Duration;

/// What may go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub crashes: bool,
    /// A member that crashed may be started again, with what it noted of its session or without.
    pub restarts: bool,
    /// A connection may be lost, with what is under way in it.
    pub cuts: bool,
    /// A reply may be late.
    pub delays: bool,
    /// A follower's report of the sessions that are alive may be lost.
    pub lost_reports: bool,
    /// The ensemble's leader may stall: it still answers in a session whose time was up before.
    pub stalls: bool,
    /// A read may show a znode that was deleted a moment ago.
    pub stale_reads: bool,
    /// A server that lags behind may answer a read of the head. Such a read does not show the ensemble's leader that
    /// the session lives.
    pub lagging_reads: bool,
    /// A server that resumes a session may grant it no more than this.
    pub short_resumptions: Option<Duration>,
    /// A leader may be commanded to resign.
    pub resignations: bool,
    /// The leader and the standby may leave the queue.
    pub departures: bool,
    /// A leader may be commanded to hand over to a member behind it.
    pub transfers: bool,
    /// Members may be given other priorities.
    pub priorities: bool,
    /// An operator may give commands.
    pub orders: bool,
    /// Members may be told that their application has another address.
    pub moves: bool,
    /// Applications may fail, and be well again.
    pub sickness: bool,
    /// An unknown client may delete znodes.
    pub evictions: bool,
    /// An unknown client may write lies into znodes.
    pub lies: bool,
    /// An unknown client may write wrong distances into znodes.
    pub wrong_distances: bool,
    /// An unknown client may delete the whole path; the numbers begin anew.
    pub razing: bool,
    /// An unknown client may make ephemeral znodes by hand, under numbers of its own choice, and delete them.
    pub forgeries: bool,
    /// One server may lose the transaction that made a znode: it lacks the znode from then on.
    pub lost_creates: bool,
    /// One server may lose the transaction that deletes a znode: it shows the znode for ever.
    pub lost_deletes: bool,
}

impl Faults {
    /// [`Self::default`] for constants.
    pub const NONE: Self = Self {
        crashes: false,
        restarts: false,
        cuts: false,
        delays: false,
        lost_reports: false,
        stalls: false,
        orders: false,
        moves: false,
        sickness: false,
        stale_reads: false,
        lagging_reads: false,
        short_resumptions: None,
        resignations: false,
        departures: false,
        transfers: false,
        priorities: false,
        evictions: false,
        lies: false,
        wrong_distances: false,
        razing: false,
        forgeries: false,
        lost_creates: false,
        lost_deletes: false,
    };
}
