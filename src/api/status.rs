//! The only translation of our errors to gRPC codes and etcd's texts.
//!
//! Clients recognise an error by its text alone, so texts match etcd's byte for byte and hold no
//! dynamic part; the code only decides whether a client retries.

use crate::machine::{AnswerError, ReadError, RequestError};
use crate::node::Refused;
use tonic::{Code, Status};

/// An error whose code and text never vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub Code, pub &'static str);

impl From<Fixed> for Status {
    fn from(Fixed(code, text): Fixed) -> Self {
        Self::new(code, text)
    }
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident $code:ident $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Fixed = Fixed(Code::$code, $text);)*

        /// Every fixed error, for tests.
        #[cfg(test)]
        pub(super) const ALL: &[Fixed] = &[$($name,)*];
    };
}

fixed! {
    /// Empty key in a range, put, delete or compare.
    EMPTY_KEY InvalidArgument "etcdserver: key is not provided";
    /// A put that keeps value or lease of a key that does not exist; an empty operation.
    KEY_NOT_FOUND InvalidArgument "etcdserver: key not found";
    /// `ignore_value` with a value.
    VALUE_PROVIDED InvalidArgument "etcdserver: value is provided";
    /// `ignore_lease` with a lease.
    LEASE_PROVIDED InvalidArgument "etcdserver: lease is provided";
    /// More operations than `--max-txn-ops`.
    TOO_MANY_OPS InvalidArgument "etcdserver: too many operations in txn request";
    /// Two changes of one key in one transaction.
    DUPLICATE_KEY InvalidArgument "etcdserver: duplicate key given in txn request";
    /// Metadata `client-api-version` is not UTF-8.
    INVALID_CLIENT_API_VERSION InvalidArgument "etcdserver: invalid client api version";
    /// Sort order or target outside the enum.
    INVALID_SORT_OPTION InvalidArgument "etcdserver: invalid sort option";
    /// Revision below the compact revision.
    COMPACTED OutOfRange "etcdserver: mvcc: required revision has been compacted";
    /// Revision above the current one.
    FUTURE_REVISION OutOfRange "etcdserver: mvcc: required revision is a future revision";
    /// Quota reached or disk full.
    NO_SPACE ResourceExhausted "etcdserver: mvcc: database space exceeded";
    /// Command above `--max-request-bytes`.
    REQUEST_TOO_LARGE InvalidArgument "etcdserver: request is too large";
    /// Applying is too far behind. etcd sends this one as Unknown.
    TOO_MANY_REQUESTS Unknown "etcdserver: too many requests";
    /// Put or revoke with an unknown lease.
    LEASE_NOT_FOUND NotFound "etcdserver: requested lease not found";
    /// Grant of an id in use.
    LEASE_EXISTS FailedPrecondition "etcdserver: lease already exists";
    /// Grant above 9,000,000,000 seconds.
    LEASE_TTL_TOO_LARGE OutOfRange "etcdserver: too large lease TTL";
    /// End of a watch stream whose context ended.
    WATCH_CANCELED Cancelled "etcdserver: watch canceled";
    /// The generated id is a member already.
    MEMBER_EXISTS FailedPrecondition "etcdserver: member ID already exist";
    /// A peer URL of another member.
    PEER_URL_EXISTS FailedPrecondition "etcdserver: Peer URLs already exists";
    /// Strict reconfiguration check; etcd sends this one as Unknown.
    NOT_ENOUGH_STARTED Unknown "etcdserver: re-configuration failed due to not enough started members";
    /// Peer URLs that are none.
    MEMBER_BAD_URLS InvalidArgument "etcdserver: given member URLs are invalid";
    /// Unknown or removed member id.
    MEMBER_NOT_FOUND NotFound "etcdserver: member not found";
    /// Promotion of a voter.
    MEMBER_NOT_LEARNER FailedPrecondition "etcdserver: can only promote a learner member";
    /// Promotion of a learner that lags.
    LEARNER_NOT_READY FailedPrecondition "etcdserver: can only promote a learner member which is in sync with leader";
    /// More learners than `--max-learners`.
    TOO_MANY_LEARNERS FailedPrecondition "etcdserver: too many learner members in cluster";
    /// Calls a learner does not serve.
    NOT_SUPPORTED_FOR_LEARNER FailedPrecondition "etcdserver: rpc not supported for learner";
    /// MoveLeader to somebody who cannot lead.
    BAD_LEADER_TRANSFEREE FailedPrecondition "etcdserver: bad leader transferee";
    /// MoveLeader sent to a member that does not lead.
    NOT_LEADER FailedPrecondition "etcdserver: not leader";
    /// Authenticate while authentication is off.
    AUTH_NOT_ENABLED FailedPrecondition "etcdserver: authentication is not enabled";
    /// AuthEnable without the user root.
    ROOT_USER_NOT_EXIST FailedPrecondition "etcdserver: root user does not exist";
    /// A command that a member of the cluster does not know yet.
    NOT_CAPABLE FailedPrecondition "etcdserver: not capable";
    /// No leader is known and the client asked for one.
    NO_LEADER Unavailable "etcdserver: no leader";
    /// The leader changed while a read waited.
    LEADER_CHANGED Unavailable "etcdserver: leader changed";
    /// The server goes down.
    STOPPED Unavailable "etcdserver: server stopped";
    /// No answer within the request timeout.
    TIMEOUT Unavailable "etcdserver: request timed out";
    /// The same, and the leader was lost shortly before.
    TIMEOUT_LEADER_FAIL Unavailable "etcdserver: request timed out, possibly due to previous leader failure";
    /// The same, and the leader or the quorum was not connected.
    TIMEOUT_CONNECTION_LOST Unavailable "etcdserver: request timed out, possibly due to connection lost";
    /// MoveLeader did not end in time.
    TIMEOUT_TRANSFER Unknown "etcdserver: request timed out, leader transfer took too long";
    /// Applying did not catch up in time.
    TIMEOUT_APPLIED Unavailable "etcdserver: request timed out, waiting for the applied index took too long";
    /// Too few connected members for a reconfiguration.
    UNHEALTHY Unavailable "etcdserver: unhealthy cluster";
    /// A CORRUPT alarm is active.
    CORRUPT DataLoss "etcdserver: corrupt cluster";
    /// Our own cancellation.
    CANCELED Cancelled "etcdserver: request canceled";
    /// Downgrade to a text that is no version.
    WRONG_DOWNGRADE_VERSION InvalidArgument "etcdserver: wrong downgrade target version format";
    /// Downgrade to a version that is not one minor below.
    INVALID_DOWNGRADE_TARGET InvalidArgument "etcdserver: invalid downgrade target version";
    /// The client's context ended.
    CONTEXT_CANCELED Cancelled "context canceled";
    /// The client's deadline passed.
    CONTEXT_DEADLINE DeadlineExceeded "context deadline exceeded";
    /// Downgrade with an action outside the enum.
    UNKNOWN_DOWNGRADE_ACTION Unknown "etcdserver: unknown method";
    /// Raft refused the proposal, as during a leader transfer.
    PROPOSAL_DROPPED Unknown "raft proposal dropped";
    /// RangeStream with an order.
    STREAM_SORT Unimplemented "RangeStream does not support custom sort orders";
    /// RangeStream with filters.
    STREAM_FILTERS Unimplemented "RangeStream does not support revision filters";
}

/// This member's data differs from the majority's, which etcd has no text for. Another member can
/// serve the request, and clients try one when they see this code.
pub const FENCED: Fixed = Fixed(
    Code::Unavailable,
    "assay: this member is fenced because its data differs from that of the majority; remove it, \
     empty its data directory and add it again",
);

/// Answers of the state machine: the same on every member.
pub fn of_answer(error: &AnswerError) -> Status {
    match error {
        AnswerError::Compacted => COMPACTED.into(),
        AnswerError::FutureRevision => FUTURE_REVISION.into(),
        AnswerError::LeaseNotFound => LEASE_NOT_FOUND.into(),
        AnswerError::LeaseExists => LEASE_EXISTS.into(),
        AnswerError::LeaseTtlTooLarge => LEASE_TTL_TOO_LARGE.into(),
        AnswerError::KeyNotFound => KEY_NOT_FOUND.into(),
        AnswerError::NoSpace => NO_SPACE.into(),
        AnswerError::Corrupt => CORRUPT.into(),
        AnswerError::MemberNotFound => MEMBER_NOT_FOUND.into(),
        // The node stops on these and answers nobody; a client that sees one learns no detail.
        AnswerError::UnknownCommand | AnswerError::AboveLevel { .. } | AnswerError::Fault(_) => {
            STOPPED.into()
        }
    }
}

/// What the node refuses, and answers it passes on.
pub fn of_refused(refused: &Refused) -> Status {
    match refused {
        Refused::Answer(error) => of_answer(error),
        Refused::NoLeader => NO_LEADER.into(),
        Refused::LeaderChanged => LEADER_CHANGED.into(),
        Refused::TooManyRequests => TOO_MANY_REQUESTS.into(),
        Refused::RequestTooLarge => REQUEST_TOO_LARGE.into(),
        Refused::NotCapable => NOT_CAPABLE.into(),
        Refused::Timeout => TIMEOUT.into(),
        Refused::TimeoutLeaderFail => TIMEOUT_LEADER_FAIL.into(),
        Refused::TimeoutConnectionLost => TIMEOUT_CONNECTION_LOST.into(),
        Refused::Stopping => STOPPED.into(),
        Refused::Dropped => PROPOSAL_DROPPED.into(),
        Refused::ChangePending => PROPOSAL_DROPPED.into(),
        Refused::MemberExists => MEMBER_EXISTS.into(),
        Refused::PeerUrlExists => PEER_URL_EXISTS.into(),
        Refused::MemberNotFound => MEMBER_NOT_FOUND.into(),
        Refused::MemberNotLearner => MEMBER_NOT_LEARNER.into(),
        Refused::LearnerNotReady => LEARNER_NOT_READY.into(),
        Refused::TooManyLearners => TOO_MANY_LEARNERS.into(),
        Refused::NotEnoughStarted => NOT_ENOUGH_STARTED.into(),
        Refused::Unhealthy => UNHEALTHY.into(),
        Refused::NotLeader => NOT_LEADER.into(),
        Refused::BadTransferee => BAD_LEADER_TRANSFEREE.into(),
        Refused::TransferTimeout => TIMEOUT_TRANSFER.into(),
        Refused::NoSpace => NO_SPACE.into(),
    }
}

/// Requests that are wrong in themselves.
pub fn of_request(error: RequestError) -> Status {
    match error {
        RequestError::EmptyKey => EMPTY_KEY.into(),
        RequestError::KeyNotFound => KEY_NOT_FOUND.into(),
        RequestError::ValueProvided => VALUE_PROVIDED.into(),
        RequestError::LeaseProvided => LEASE_PROVIDED.into(),
        RequestError::TooManyOps => TOO_MANY_OPS.into(),
        RequestError::DuplicateKey => DUPLICATE_KEY.into(),
        RequestError::InvalidSortOption => INVALID_SORT_OPTION.into(),
    }
}

/// Reads that fail.
pub fn of_read(error: &ReadError) -> Status {
    match error {
        ReadError::Compacted => COMPACTED.into(),
        ReadError::FutureRevision => FUTURE_REVISION.into(),
        ReadError::OverBudget { bytes, limit } => overloaded("answer bytes", *bytes, *limit),
        // The node stops on a store that cannot be read.
        ReadError::Fault(_) => STOPPED.into(),
    }
}

/// A bound of ours that is full, with its numbers.
pub fn overloaded(what: &str, used: u64, limit: u64) -> Status {
    Status::resource_exhausted(format!(
        "assay: overloaded: {what}: {used} of {limit} in use; ask for less or retry later"
    ))
}

/// A call this version does not carry out.
pub fn not_yet(what: &str) -> Status {
    Status::unimplemented(format!("assay: {what}"))
}
