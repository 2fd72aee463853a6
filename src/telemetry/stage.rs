//! The stages of a proposal: one vocabulary for histograms, log lines and boards.

/// A stretch of a proposal's way through the node. Together they cover it from the socket back to
/// the socket (`probe-and-observability.md` D3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Received until the raft core took it into a log position.
    Queue,
    /// Taken into the log until its bytes were handed to the file system.
    WalWrite,
    /// The fdatasync that made it durable.
    Fsync,
    /// Durable until committed and handed to the apply thread.
    Commit,
    /// Handed to the apply thread until its effects are visible.
    Apply,
    /// Visible until the answer left for the edge.
    Answer,
    /// The whole way.
    Total,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Stage; 7] = [
        Stage::Queue,
        Stage::WalWrite,
        Stage::Fsync,
        Stage::Commit,
        Stage::Apply,
        Stage::Answer,
        Stage::Total,
    ];

    /// Value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Queue => "queue",
            Stage::WalWrite => "wal_write",
            Stage::Fsync => "fsync",
            Stage::Commit => "commit",
            Stage::Apply => "apply",
            Stage::Answer => "answer",
            Stage::Total => "total",
        }
    }
}

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Applied and answered with success.
    Ok,
    /// Applied, and the state machine answered with an error (compacted, lease missing, ...).
    Rejected,
    /// Refused before it entered the log.
    Refused,
    /// Nobody knows: the deadline passed while it waited.
    Unknown,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 4] =
        [Outcome::Ok, Outcome::Rejected, Outcome::Refused, Outcome::Unknown];

    /// Value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Rejected => "rejected",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
        }
    }
}

/// Why the leader changed (`operations.md` 6). `unknown` beats a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LeaderCause {
    Timeout,
    Transfer,
    Disk,
    QuorumLost,
    ProcessPause,
    Network,
    Shutdown,
    Start,
    Unknown,
}

impl LeaderCause {
    /// Every cause.
    pub const ALL: [LeaderCause; 9] = [
        LeaderCause::Timeout,
        LeaderCause::Transfer,
        LeaderCause::Disk,
        LeaderCause::QuorumLost,
        LeaderCause::ProcessPause,
        LeaderCause::Network,
        LeaderCause::Shutdown,
        LeaderCause::Start,
        LeaderCause::Unknown,
    ];

    /// Value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            LeaderCause::Timeout => "timeout",
            LeaderCause::Transfer => "transfer",
            LeaderCause::Disk => "disk",
            LeaderCause::QuorumLost => "quorum_lost",
            LeaderCause::ProcessPause => "process_pause",
            LeaderCause::Network => "network",
            LeaderCause::Shutdown => "shutdown",
            LeaderCause::Start => "start",
            LeaderCause::Unknown => "unknown",
        }
    }
}

/// What a leader did about its hung or slow disk (`operations.md` 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepDown {
    /// Another member leads.
    HandedOver,
    /// The member that was to take over did not.
    Failed,
    /// It leads on: nobody was fit to take over, or it gave up leadership for it a moment ago.
    Kept,
}

impl StepDown {
    /// Every outcome.
    pub const ALL: [StepDown; 3] = [StepDown::HandedOver, StepDown::Failed, StepDown::Kept];

    /// Value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            StepDown::HandedOver => "handed_over",
            StepDown::Failed => "failed",
            StepDown::Kept => "kept",
        }
    }
}
