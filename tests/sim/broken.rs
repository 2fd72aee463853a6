//! The deliberate mistakes, and within how many seeds each must be noticed. A simulator that never
//! caught anything proves nothing.

use assay::consensus::BrokenRule;

/// Which rule is broken, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    #[default]
    Nothing,
    /// A rule of the core.
    Core(BrokenRule),
    /// What recovery reads back counts as durable.
    TrustTail,
    /// Batches are reported as persisted before the log has synced them.
    AckBeforeSync,
    /// The log is never synced, and says it is.
    SkipSync,
    /// Names of new log segments are not synced.
    SkipDirSync,
    /// A start forgets for whom it voted.
    ForgetVote,
    /// A member whose disk was emptied comes back under its old name.
    WipedMemberReturns,
    /// A client is told "done" when the leader has proposed, before anything is committed.
    AckOnPropose,
    /// A linearizable read is served at once by a member that believes it leads.
    StaleRead,
    /// A linearizable read is served before the read index is applied.
    ReadBeforeApplied,
    /// Two entries change places on their way to the state machine.
    ApplyOutOfOrder,
    /// An entry is skipped by one member.
    SkipApply,
    /// A setting that must be equal everywhere is not.
    MemberSettingDiffers,
    /// The store says it is further than the effects that it holds.
    AppliedAhead,
    /// The applied index is saved in another transaction than the effects.
    AppliedBehind,
    /// The log is cut at the applied index by the log's thread.
    LogCutTooFar,
    /// A snapshot claims the index applied in memory, its rows are older.
    SnapshotClaimsMore,
    /// A snapshot is installed without its small tables.
    SnapshotWithoutTables,
    /// Lease timers run on the wall clock.
    LeaseByWallClock,
    /// A deposed leader goes on revoking leases.
    LeaseUnfenced,
    /// A keep-alive is answered without asking the quorum.
    LeaseRenewUnconfirmed,
    /// A new leader counts leases from before its own first entry, at once and without extension.
    LeaseShortened,
    /// Events are lost for a watcher whose queue is full.
    WatchEventLost,
    /// A watcher that comes back starts one revision too early.
    WatchResumedEarly,
    /// A request that was called refused is proposed all the same.
    RefusedButProposed,
}

/// Seeds within which each mistake must be noticed, in the whole simulation. Rules of the core that
/// need thousands of elections are broken in `cores` as well.
pub const BUDGETS: [(Broken, u64); 29] = [
    (Broken::Core(BrokenRule::SendBeforePersist), 10),
    (Broken::Core(BrokenRule::LeadBeforeVotePersisted), 200),
    (Broken::Core(BrokenRule::KeepOldHardState), 200),
    (Broken::Core(BrokenRule::TruncateToApplied), 50),
    (Broken::Core(BrokenRule::RemovedLeaderStays), 50),
    (Broken::TrustTail, 300),
    (Broken::AckBeforeSync, 10),
    (Broken::SkipSync, 50),
    (Broken::SkipDirSync, 50),
    (Broken::ForgetVote, 50),
    (Broken::WipedMemberReturns, 20),
    (Broken::AckOnPropose, 10),
    (Broken::StaleRead, 50),
    (Broken::ReadBeforeApplied, 20),
    (Broken::ApplyOutOfOrder, 10),
    (Broken::SkipApply, 10),
    (Broken::MemberSettingDiffers, 20),
    (Broken::AppliedAhead, 20),
    (Broken::AppliedBehind, 20),
    (Broken::LogCutTooFar, 50),
    (Broken::SnapshotClaimsMore, 50),
    (Broken::SnapshotWithoutTables, 50),
    (Broken::LeaseByWallClock, 100),
    (Broken::LeaseUnfenced, 100),
    (Broken::LeaseRenewUnconfirmed, 200),
    (Broken::LeaseShortened, 200),
    (Broken::WatchEventLost, 20),
    (Broken::WatchResumedEarly, 20),
    (Broken::RefusedButProposed, 20),
];
