//! What a member knows and says about the disk of its log, and what the world knows better.

use std::collections::BTreeMap;

/// Of one life.
#[derive(Clone, Debug, Default)]
pub struct NodeDisk {
    /// When it was looked at first.
    pub born: Option<u64>,
    /// When the operation that runs began.
    pub since: Option<u64>,
    pub syncs: u64,
    /// Syncs that had ended when the disk was last seen hanging.
    pub stalled: Option<u64>,
    /// Term in which leadership was given up for it.
    pub handed_over: u64,
    /// When it was given up last.
    pub gave_way: Option<u64>,
    /// When a leader was heard last, and who that was.
    pub led: u64,
    pub led_by: u64,
    /// When the disk was last known to have hung lately.
    pub doubted: Option<u64>,
    /// Who asked for this member's vote without having all its entries, and when.
    pub behind: BTreeMap<u64, u64>,
    /// A turn may give way once.
    pub giving_way: Option<u64>,
}

impl NodeDisk {
    pub fn synced(&mut self) {
        self.since = None;
        self.syncs += 1;
    }

    /// Fewer than a hundred good syncs since it hung.
    pub fn is_recovering(&self) -> bool {
        self.stalled.is_some_and(|at| self.syncs < at + 1 + 100)
    }
}
