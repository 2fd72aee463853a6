//! Settings of the core, and the deliberate mistakes that the simulator can ask for.

use super::types::{Error, Millis, NodeId};

/// Largest append message. The library's default of zero would mean one entry per message.
pub(super) const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Append messages under way to one follower before the leader waits for acknowledgements.
pub(super) const MESSAGES_IN_FLIGHT_MAX: usize = 256;
/// Bytes of proposals that are not committed yet, above which new ones are refused.
pub(super) const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of committed entries handed out at once, so that one turn stays short.
pub(super) const COMMITTED_BYTES_PER_TURN_MAX: u64 = 16 << 20;
/// Entries committed but not applied, above which new proposals are refused, as in etcd.
pub(super) const APPLY_LAG_ENTRIES_MAX: u64 = 5_000;
/// Bytes handed out but not applied, above which new proposals are refused.
pub(super) const APPLY_LAG_BYTES_MAX: usize = 64 << 20;
/// A read that was not answered is asked again after this time.
pub const READ_RETRY_MS: Millis = 500;
/// A read is forgotten after this time; the shell has refused it long before.
pub(super) const READ_EXPIRY_MS: Millis = 30_000;
/// Read batches under way to the leader. More reads wait and share the next one.
pub(super) const READ_BATCHES_MAX: usize = 64;
/// Election timeouts in a joint configuration after which the leader leaves it by itself.
pub(super) const JOINT_ELECTION_TIMEOUTS_MAX: u64 = 3;
/// A learner is ready for promotion when it holds this share of the leader's log, as in etcd.
pub(super) const LEARNER_READY_PERCENT: u64 = 90;

/// Settings of one core. [`Config::new`] gives the defaults of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Own identity, not zero.
    pub id: NodeId,
    /// Seed of the election timeouts. Equal seeds and inputs give equal runs.
    pub seed: u64,
    /// A number that no other start of this member has used, for the contexts of reads.
    pub boot: u64,
    /// Ticks between two heartbeats, at least 1.
    pub heartbeat_tick: usize,
    /// Ticks without a leader after which an election starts; the real timeout lies between this
    /// and twice this. At least five heartbeats.
    pub election_tick: usize,
    /// Bytes of entries kept in memory for followers that lag behind. What is not durably applied
    /// stays in any case.
    pub log_cache_bytes: usize,
    /// Entries kept in memory for followers that lag behind.
    pub log_cache_entries: u64,
    /// Bytes up to which the log in memory may grow: for a follower that is receiving a snapshot, and
    /// with what the store has not made durable. Above that proposals are refused and entries of a
    /// leader are not taken.
    pub log_bytes_max: usize,
    /// Age of an operation of the log's disk at which a leader hands leadership over, milliseconds;
    /// `None`: never, and elections are not put off either.
    pub disk_stall_ms: Option<Millis>,
    /// 99th percentile of the log's syncs, microseconds, above which a leader hands over to a member
    /// that needs half of it at most; `None`: never.
    pub disk_p99_us: Option<u64>,
    /// Where the raft library writes its own messages.
    pub logger: slog::Logger,
    /// For the simulator only: the rule to break.
    pub broken: Option<BrokenRule>,
}

impl Config {
    /// The settings of a node with a tick of 100 ms.
    pub fn new(id: NodeId) -> Config {
        Config {
            id,
            seed: id,
            boot: 0,
            heartbeat_tick: 1,
            election_tick: 10,
            log_cache_bytes: 64 << 20,
            log_cache_entries: 5_000,
            log_bytes_max: 256 << 20,
            disk_stall_ms: None,
            disk_p99_us: None,
            logger: slog::Logger::root(slog::Discard, slog::o!()),
            broken: None,
        }
    }

    /// Checks what the library would abort on.
    ///
    /// # Errors
    /// [`Error::Setting`] names the first setting that is out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.id == 0 {
            return Err(Error::Setting("id is zero"));
        }
        if self.heartbeat_tick == 0 {
            return Err(Error::Setting("heartbeat_tick is zero"));
        }
        if self.election_tick < 5 * self.heartbeat_tick {
            return Err(Error::Setting("election_tick is below five heartbeats"));
        }
        Ok(())
    }

    pub(super) fn breaks(&self, rule: BrokenRule) -> bool {
        self.broken == Some(rule)
    }
}

/// The rules of the driver, each of which can be broken on purpose.
///
/// For the simulator only: a simulator that has never caught anything proves nothing. A node is
/// never started with one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// What a follower or candidate says leaves before its own disk holds what it says.
    SendBeforePersist,
    /// A leader's messages leave although its term or vote is not on disk yet.
    LeadBeforeVotePersisted,
    /// A log that does not contain the applied position is used at start.
    KeepForeignLog,
    /// Hard state below the applied position is not raised at start.
    KeepOldHardState,
    /// The log is cut at the applied instead of the durably applied index.
    TruncateToApplied,
    /// A leader that is no longer a member goes on leading.
    RemovedLeaderStays,
    /// A sole voter ticks although its log tail is not on disk.
    LoneTick,
    /// A snapshot is taken up while older work is unsettled.
    SnapshotWhileBusy,
    /// Ticks and messages are accepted while a snapshot is being installed.
    TickWhileInstalling,
    /// All members use the same contexts for their reads.
    SharedReadContext,
    /// An answer to a heartbeat leaves although the term that it names is not on disk.
    AnswerBeforeTerm,
    /// A leader whose disk hangs hands over whether or not somebody is fit to take over.
    StepDownAnyway,
    /// A member whose disk hung stands for election like any other.
    StalledCampaigns,
}
