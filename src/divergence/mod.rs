//! Divergence: do the members hold the same data, and if not, who holds another?
//!
//! Pure: what members said goes in, what to ask or to do next comes out. Two steps. [`Checker::look`]
//! compares cheap hashes at points that several members passed: the running hash at equal applied
//! indexes, hashes of compactions at equal revisions. A difference is only a suspicion.
//! [`Checker::confirm`] compares hashes over all rows at one revision; only what they say twice is
//! acted upon, and only against members that a majority of the voters disagrees with.
//!
//! What could not be compared is never taken for equal: a member that did not answer, does not know
//! its hash, or passed no common point, has no say and no verdict.

mod checker;
mod judge;
#[cfg(test)]
mod tests;

pub use checker::{Action, BrokenRule, Checker, Looked, Mode, Next};
pub use judge::{FullHash, Judgement, Point, Points, Seat, Verdict, compare, judge};

/// Id of a member.
pub type MemberId = u64;
