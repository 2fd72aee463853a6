//! The deliberate mistakes, and within how many seeds each must be noticed. A simulator that never
//! caught anything proves nothing.

use assay::consensus::BrokenRule;
use assay::divergence::BrokenRule as CheckRule;

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
    /// A deposed leader goes on with leases as if it still led: its timers run, and what it proposes
    /// and says is not bound to its term.
    LeaseUnfenced,
    /// A revoke of a leader that is deposed in the same turn is sent on to the next leader.
    RevokeForwarded,
    /// The revokes of one expired lease are never proposed.
    RevokeForgotten,
    /// A keep-alive is answered without asking the quorum.
    LeaseRenewUnconfirmed,
    /// A leader that is deposed meanwhile takes the next leader's answer to a read for the proof
    /// that it still led.
    LeaseRenewConfirmedByNext,
    /// A new leader counts leases at once, as they were before what it has not applied yet, and
    /// without extension.
    LeaseShortened,
    /// A holder is told that its lease is gone by a leader that has not applied the grant yet.
    LeaseGoneTooSoon,
    /// A holder is told that its lease lives by a leader that has not applied the revoke yet.
    LeaseKeptWhenGone,
    /// Events are lost for a watcher whose queue is full.
    WatchEventLost,
    /// A watcher that comes back starts one revision too early.
    WatchResumedEarly,
    /// A request that was called refused is proposed all the same.
    RefusedButProposed,
    /// A rule of the comparison of members.
    Check(CheckRule),
    /// A forwarded proposal is sent again, as by a link that repeats on a new connection what it is
    /// not sure of.
    ProposalSentAgain,
    /// A member of an older version skips a command that it does not know, and goes on.
    SkipUnknownCommand,
}

/// The mistakes of the whole simulation: a seed that notices it (tried first, so that a plain run
/// is short), and the number of seeds from zero on within which one must. Rules of the core are
/// broken in `cores` as well.
pub const BUDGETS: [(Broken, u64, u64); 31] = [
    (Broken::Core(BrokenRule::SendBeforePersist), 0, 10),
    (Broken::Core(BrokenRule::LeadBeforeVotePersisted), 24, 200),
    (Broken::Core(BrokenRule::KeepOldHardState), 0, 50),
    (Broken::Core(BrokenRule::TruncateToApplied), 33, 100),
    (Broken::Core(BrokenRule::RemovedLeaderStays), 40, 200),
    (Broken::Core(BrokenRule::AnswerBeforeTerm), 0, 50),
    (Broken::Core(BrokenRule::StepDownAnyway), 25, 100),
    (Broken::Core(BrokenRule::StalledCampaigns), 34, 100),
    (Broken::TrustTail, 132, 400),
    (Broken::AckBeforeSync, 0, 10),
    (Broken::SkipSync, 0, 20),
    (Broken::SkipDirSync, 0, 20),
    (Broken::ForgetVote, 0, 20),
    (Broken::WipedMemberReturns, 0, 20),
    (Broken::AckOnPropose, 0, 10),
    (Broken::StaleRead, 4, 50),
    (Broken::ReadBeforeApplied, 4, 50),
    (Broken::ApplyOutOfOrder, 0, 10),
    (Broken::SkipApply, 0, 20),
    (Broken::MemberSettingDiffers, 0, 20),
    (Broken::AppliedAhead, 0, 20),
    (Broken::AppliedBehind, 0, 20),
    (Broken::LogCutTooFar, 24, 150),
    (Broken::SnapshotClaimsMore, 5, 50),
    (Broken::SnapshotWithoutTables, 5, 50),
    (Broken::LeaseByWallClock, 5, 50),
    (Broken::WatchEventLost, 1, 20),
    (Broken::WatchResumedEarly, 0, 20),
    (Broken::RefusedButProposed, 0, 20),
    (Broken::ProposalSentAgain, 0, 20),
    (Broken::SkipUnknownCommand, 23, 100),
];

/// Mistakes of the comparison of members, in runs where the state of one rots (`World::run_rotten`).
pub const ROTTEN: [(CheckRule, u64, u64); 4] = [
    (CheckRule::UnequalIndexes, 0, 20),
    (CheckRule::UnknownIsEqual, 0, 200),
    (CheckRule::ConfirmOnce, 0, 50),
    (CheckRule::LeaderIsRight, 0, 20),
];

/// Mistakes about leases, in runs with more of them (`Plan::leases`).
pub const LEASES: [(Broken, u64, u64); 9] = [
    (Broken::LeaseByWallClock, 0, 20),
    (Broken::LeaseUnfenced, 0, 50),
    (Broken::RevokeForwarded, 12, 100),
    (Broken::RevokeForgotten, 0, 20),
    (Broken::LeaseRenewUnconfirmed, 0, 20),
    (Broken::LeaseRenewConfirmedByNext, 2, 50),
    (Broken::LeaseShortened, 73, 200),
    (Broken::LeaseGoneTooSoon, 0, 20),
    (Broken::LeaseKeptWhenGone, 2, 50),
];
