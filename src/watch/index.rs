//! Which watchers want a key: by exact key in a map, by range in an interval tree.
//!
//! Watchers of the same range share one group, so a thousand watchers of one prefix are one entry
//! of the tree. The tree is a sorted array with the largest range end of each subtree; new ranges
//! wait in a short list until it is worth building the array again, emptied ones stay until then.

use crate::mvcc::{End, KeyRange};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Position of a watcher in the hub's slab.
pub(super) type WatcherIx = u32;
/// Position of a group.
pub(super) type GroupIx = u32;

/// Changes the tree tolerates before it is built again, at least; more when it is large (the
/// square root of its size keeps both the scan of the list and the rebuilding cheap).
const MIN_SLACK: usize = 64;

#[derive(Debug)]
struct Group {
    range: KeyRange,
    members: Vec<WatcherIx>,
}

#[derive(Debug)]
struct Node {
    group: GroupIx,
    start: Bytes,
    /// `None` = unbounded.
    end: Option<Bytes>,
    /// Node with the largest end in the subtree below and including this one.
    furthest: u32,
}

/// All groups of watchers.
#[derive(Debug, Default)]
pub(super) struct Index {
    groups: Vec<Group>,
    free: Vec<GroupIx>,
    exact: BTreeMap<Bytes, GroupIx>,
    ranges: BTreeMap<(Bytes, Option<Bytes>), GroupIx>,
    tree: Vec<Node>,
    /// Range groups not in the tree yet.
    recent: Vec<GroupIx>,
    /// Range groups without members.
    dead: usize,
}

impl Index {
    /// Adds a watcher; returns its group and its place in it.
    pub(super) fn insert(&mut self, range: &KeyRange, watcher: WatcherIx) -> (GroupIx, usize) {
        let group = match &range.end {
            End::Single => match self.exact.get(&range.start) {
                Some(&group) => group,
                None => {
                    let group = self.new_group(range);
                    let key = self.groups[group as usize].range.start.clone();
                    self.exact.insert(key, group);
                    group
                }
            },
            End::To(_) | End::Unbounded => {
                let key = (range.start.clone(), end_of(range));
                match self.ranges.get(&key) {
                    Some(&group) => {
                        self.dead -= usize::from(self.groups[group as usize].members.is_empty());
                        group
                    }
                    None => {
                        let group = self.new_group(range);
                        let own = &self.groups[group as usize].range;
                        self.ranges.insert((own.start.clone(), end_of(own)), group);
                        self.recent.push(group);
                        group
                    }
                }
            }
        };
        let members = &mut self.groups[group as usize].members;
        members.push(watcher);
        (group, members.len() - 1)
    }

    /// Removes the watcher at `place` of a group; returns the watcher that took its place.
    pub(super) fn remove(&mut self, group: GroupIx, place: usize) -> Option<WatcherIx> {
        let entry = &mut self.groups[group as usize];
        entry.members.swap_remove(place);
        let moved = entry.members.get(place).copied();
        if entry.members.is_empty() {
            if entry.range.end == End::Single {
                self.exact.remove(&entry.range.start);
                self.release(group);
            } else {
                self.dead += 1;
            }
        }
        moved
    }

    /// The range of a group.
    pub(super) fn range(&self, group: GroupIx) -> &KeyRange {
        &self.groups[group as usize].range
    }

    /// Appends every watcher whose range contains `key`.
    pub(super) fn matching(&mut self, key: &[u8], out: &mut Vec<WatcherIx>) {
        self.settle();
        if let Some(&group) = self.exact.get(key) {
            out.extend_from_slice(&self.groups[group as usize].members);
        }
        for &group in &self.recent {
            let group = &self.groups[group as usize];
            if group.range.contains(key) {
                out.extend_from_slice(&group.members);
            }
        }
        self.stab(0, self.tree.len(), key, out);
    }

    fn stab(&self, low: usize, high: usize, key: &[u8], out: &mut Vec<WatcherIx>) {
        if low >= high {
            return;
        }
        let mid = low.midpoint(high);
        let node = &self.tree[mid];
        if self.tree[node.furthest as usize].end.as_ref().is_some_and(|end| end.as_ref() <= key) {
            return; // everything below ends before the key
        }
        self.stab(low, mid, key, out);
        if node.start.as_ref() <= key {
            if contains(&node.start, &node.end, key) {
                out.extend_from_slice(&self.groups[node.group as usize].members);
            }
            self.stab(mid + 1, high, key, out);
        }
    }

    /// Builds the tree again if enough has changed.
    fn settle(&mut self) {
        let slack = MIN_SLACK.max(self.ranges.len().isqrt());
        if self.recent.len() <= slack && self.dead <= slack.max(self.ranges.len() / 2) {
            return;
        }
        let groups = &self.groups;
        let mut gone = Vec::new();
        self.ranges.retain(|_, &mut group| {
            let keep = !groups[group as usize].members.is_empty();
            if !keep {
                gone.push(group);
            }
            keep
        });
        for group in gone {
            self.release(group);
        }
        self.dead = 0;
        self.recent.clear();
        // The map is ordered by start already.
        self.tree = self
            .ranges
            .iter()
            .map(|((start, end), &group)| Node {
                group,
                start: start.clone(),
                end: end.clone(),
                furthest: 0,
            })
            .collect();
        self.link(0, self.tree.len());
    }

    fn link(&mut self, low: usize, high: usize) -> Option<u32> {
        if low >= high {
            return None;
        }
        let mid = low.midpoint(high);
        let mut best = mid as u32;
        for child in [self.link(low, mid), self.link(mid + 1, high)].into_iter().flatten() {
            if further(&self.tree[child as usize].end, &self.tree[best as usize].end) {
                best = child;
            }
        }
        self.tree[mid].furthest = best;
        Some(best)
    }

    fn new_group(&mut self, range: &KeyRange) -> GroupIx {
        // Copied: a slice of a request would keep the whole request alive as long as the watch.
        let start = Bytes::copy_from_slice(&range.start);
        let end = match &range.end {
            End::To(end) => End::To(Bytes::copy_from_slice(end)),
            other => other.clone(),
        };
        let group = Group { range: KeyRange { start, end }, members: Vec::new() };
        if let Some(ix) = self.free.pop() {
            self.groups[ix as usize] = group;
            ix
        } else {
            self.groups.push(group);
            (self.groups.len() - 1) as GroupIx
        }
    }

    fn release(&mut self, group: GroupIx) {
        self.groups[group as usize].members = Vec::new();
        self.free.push(group);
    }
}

fn end_of(range: &KeyRange) -> Option<Bytes> {
    match &range.end {
        End::To(end) => Some(end.clone()),
        End::Single | End::Unbounded => None,
    }
}

fn further(a: &Option<Bytes>, b: &Option<Bytes>) -> bool {
    match (a, b) {
        (None, Some(_)) => true,
        (Some(a), Some(b)) => a > b,
        (_, None) => false,
    }
}

fn contains(start: &Bytes, end: &Option<Bytes>, key: &[u8]) -> bool {
    start.as_ref() <= key && end.as_ref().is_none_or(|end| key < end.as_ref())
}
