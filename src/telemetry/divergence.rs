//! Numbers of the comparison of members.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Verdicts of a comparison, in the order of the counters.
pub const VERDICTS: [&str; 3] = ["equal", "different", "unknown"];

/// See the module text. The counters move on the leader.
#[derive(Default)]
pub struct Divergence {
    /// Comparisons of another member with this leader, by [`VERDICTS`].
    pub compared: [AtomicU64; 3],
    /// Judgements over full hashes, by [`VERDICTS`].
    pub confirmed: [AtomicU64; 3],
    /// 1 while this leader sees a difference that is not settled.
    pub suspected: AtomicU64,
    /// Actions taken: fences, alarms, leadership handed over.
    pub actions: AtomicU64,
    /// 1 while this member is fenced.
    pub fenced: AtomicU64,
    /// Members that are fenced.
    pub fenced_members: AtomicU64,
    /// 1 if the store gave back something else at the start than what was written.
    pub store_differs: AtomicU64,
    /// Seconds since 1970 when all members compared equal last, 0 if they never did.
    pub all_equal: AtomicU64,
}

impl Divergence {
    /// Counts a verdict.
    pub fn count(counters: &[AtomicU64; 3], verdict: &str) {
        if let Some(at) = VERDICTS.iter().position(|known| *known == verdict) {
            counters[at].fetch_add(1, Relaxed);
        }
    }
}
