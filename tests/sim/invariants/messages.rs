//! Nothing leaves before the own disk holds what it says.

use assay::consensus::{Wire, WireKind};
use prost::Message as _;

use super::super::frame::{Verdict, Violation};
use super::super::node::Durable;
use crate::check;

/// The part of a raft message that makes a promise.
#[derive(Clone, PartialEq, prost::Message)]
struct Said {
    #[prost(uint64, tag = "6")]
    index: u64,
    #[prost(bool, tag = "10")]
    reject: bool,
}

/// Checks a message at the moment it leaves a member with this on disk.
pub fn may_leave(wire: &Wire, disk: &Durable) -> Verdict {
    let kind = wire.kind();
    // A question about an election, and the answer to it, name a term that is only thought of.
    let hypothetical = matches!(kind, WireKind::PreVote | WireKind::PreVoteResponse);
    check!(
        hypothetical || wire.term() <= disk.term,
        "{} sends a {} of term {} with {disk:?} on disk",
        wire.from(),
        kind.as_str(),
        wire.term()
    );
    let said = Said::decode(&wire.encode()[..]).map_err(|e| Violation(format!("wire: {e}")))?;
    // A promise made in an earlier term was on disk before this term was: one group holds both.
    if disk.term > wire.term() {
        return Ok(());
    }
    let voted = (disk.term, disk.vote);
    match kind {
        WireKind::AppendResponse if !said.reject => check!(
            said.index <= disk.last,
            "{} acknowledges index {} with {disk:?} on disk",
            wire.from(),
            said.index
        ),
        WireKind::VoteResponse if !said.reject => check!(
            voted == (wire.term(), wire.to()),
            "{} votes for {} in term {} with {disk:?} on disk",
            wire.from(),
            wire.to(),
            wire.term()
        ),
        WireKind::Vote => check!(
            voted == (wire.term(), wire.from()),
            "{} asks for votes in term {} with {disk:?} on disk",
            wire.from(),
            wire.term()
        ),
        _ => {}
    }
    Ok(())
}
