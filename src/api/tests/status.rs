//! Every row of the table of errors that this version can give.

use super::*;
use crate::api::status::{self, Fixed, of_answer, of_read, of_refused, of_request};
use crate::machine::{AnswerError, ReadError, RequestError};
use crate::node::Refused;

fn row(status: &Status, code: Code, text: &str) {
    assert_eq!((status.code(), status.message()), (code, text));
}

#[test]
fn answers_of_the_state_machine() {
    use AnswerError as E;
    use Code::*;
    for (error, code, text) in [
        (E::Compacted, OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
        (E::FutureRevision, OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        (E::LeaseNotFound, NotFound, "etcdserver: requested lease not found"),
        (E::LeaseExists, FailedPrecondition, "etcdserver: lease already exists"),
        (E::LeaseTtlTooLarge, OutOfRange, "etcdserver: too large lease TTL"),
        (E::KeyNotFound, InvalidArgument, "etcdserver: key not found"),
        (E::NoSpace, ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        (E::Corrupt, DataLoss, "etcdserver: corrupt cluster"),
        (E::MemberNotFound, NotFound, "etcdserver: member not found"),
    ] {
        row(&of_answer(&error), code, text);
        row(&of_refused(&Refused::Answer(error)), code, text);
    }
}

#[test]
fn refusals_of_the_node() {
    use Code::*;
    use Refused as R;
    for (refused, code, text) in [
        (R::NoLeader, Unavailable, "etcdserver: no leader"),
        (R::LeaderChanged, Unavailable, "etcdserver: leader changed"),
        (R::TooManyRequests, Unknown, "etcdserver: too many requests"),
        (R::RequestTooLarge, InvalidArgument, "etcdserver: request is too large"),
        (R::Timeout, Unavailable, "etcdserver: request timed out"),
        (
            R::TimeoutLeaderFail,
            Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
        ),
        (
            R::TimeoutConnectionLost,
            Unavailable,
            "etcdserver: request timed out, possibly due to connection lost",
        ),
        (R::NotCapable, FailedPrecondition, "etcdserver: not capable"),
        (R::Stopping, Unavailable, "etcdserver: server stopped"),
        (R::Dropped, Unknown, "raft proposal dropped"),
        (R::NoSpace, ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
    ] {
        row(&of_refused(&refused), code, text);
    }
}

#[test]
fn requests_and_reads() {
    use Code::*;
    use RequestError as E;
    for (error, text) in [
        (E::EmptyKey, "etcdserver: key is not provided"),
        (E::KeyNotFound, "etcdserver: key not found"),
        (E::ValueProvided, "etcdserver: value is provided"),
        (E::LeaseProvided, "etcdserver: lease is provided"),
        (E::TooManyOps, "etcdserver: too many operations in txn request"),
        (E::DuplicateKey, "etcdserver: duplicate key given in txn request"),
        (E::InvalidSortOption, "etcdserver: invalid sort option"),
    ] {
        row(&of_request(error), InvalidArgument, text);
    }
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    row(&of_read(&ReadError::Compacted), OutOfRange, compacted);
    let future = "etcdserver: mvcc: required revision is a future revision";
    row(&of_read(&ReadError::FutureRevision), OutOfRange, future);
    let over = of_read(&ReadError::OverBudget { bytes: 12, limit: 10 });
    assert_eq!(over.code(), ResourceExhausted);
    assert!(over.message().contains("12 of 10"), "{over}");
}

/// Clients look errors up by text: the prefix is part of it, and no text may be there twice.
#[test]
fn fixed_texts_are_distinct_and_prefixed() {
    let own = ["context ", "raft ", "RangeStream "];
    let mut texts: Vec<&str> = status::ALL.iter().map(|Fixed(_, text)| *text).collect();
    for text in &texts {
        let known = text.starts_with("etcdserver: ") || own.iter().any(|p| text.starts_with(p));
        assert!(known, "{text}");
    }
    texts.sort_unstable();
    let count = texts.len();
    texts.dedup();
    assert_eq!(texts.len(), count);
}
