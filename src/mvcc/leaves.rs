//! An ordered map made for the key index: entries lie in sorted leaves, a map of leaf bounds on top.
//!
//! A plain `BTreeMap` of wide entries keeps its nodes little more than half full when keys arrive
//! in order, which costs more than the entry itself. Leaves here are filled completely by ordered
//! inserts and grow in small steps, so that a key costs its entry plus about a tenth.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Entries of a full leaf: with entries of 56 bytes a leaf is below 4 KiB, cheap to shift.
const LEAF_MAX: usize = 64;
/// Room is added in this many entries: keeps unused room at about a twelfth of a leaf.
const LEAF_GROW: usize = 6;
/// A leaf this small is merged into its left neighbour, if both fit well.
const LEAF_MIN: usize = LEAF_MAX / 4;

/// What can be kept in leaves: something with a key that never changes.
pub(super) trait Keyed {
    fn key(&self) -> &[u8];
}

/// Sorted leaves. The first leaf is bounded by the empty key, always exists and may be empty; no
/// other leaf is ever empty.
#[derive(Debug)]
pub(super) struct Leaves<E> {
    leaves: BTreeMap<Box<[u8]>, Vec<E>>,
    len: usize,
}

impl<E: Keyed> Leaves<E> {
    pub(super) fn new() -> Self {
        Self { leaves: BTreeMap::from([(Box::default(), Vec::new())]), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn leaf(&self, key: &[u8]) -> Option<(&[u8], &Vec<E>)> {
        let found = self.leaves.range::<[u8], _>((Unbounded, Included(key))).next_back();
        found.map(|(bound, leaf)| (&**bound, leaf))
    }

    fn leaf_mut(&mut self, key: &[u8]) -> Option<(&[u8], &mut Vec<E>)> {
        let found = self.leaves.range_mut::<[u8], _>((Unbounded, Included(key))).next_back();
        found.map(|(bound, leaf)| (&**bound, leaf))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&E> {
        let (_, leaf) = self.leaf(key)?;
        leaf.binary_search_by(|e| e.key().cmp(key)).ok().map(|at| &leaf[at])
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut E> {
        let (_, leaf) = self.leaf_mut(key)?;
        leaf.binary_search_by(|e| e.key().cmp(key)).ok().map(|at| &mut leaf[at])
    }

    /// Finds the entry of `key` and hands it to `change`; if there is none, adds what `change`
    /// makes. One search for both.
    pub(super) fn upsert(&mut self, key: &[u8], change: impl FnOnce(Option<&mut E>) -> Option<E>) {
        let Some((bound, leaf)) = self.leaf_mut(key) else { return };
        let at = match leaf.binary_search_by(|e| e.key().cmp(key)) {
            Ok(at) => {
                change(Some(&mut leaf[at]));
                return;
            }
            Err(at) => at,
        };
        let Some(entry) = change(None) else { return };
        debug_assert_eq!(entry.key(), key);
        if leaf.len() < LEAF_MAX {
            insert_at(leaf, at, entry);
            self.len += 1;
            return;
        }
        // Entries that arrive in order leave full leaves behind; elsewhere halves have room on
        // both sides.
        let bound: Box<[u8]> = bound.into();
        let cut = if at == leaf.len() { leaf.len() } else { leaf.len() / 2 };
        let mut right = Vec::with_capacity(leaf.len() - cut + LEAF_GROW);
        right.extend(leaf.drain(cut..));
        if at <= cut && !right.is_empty() {
            insert_at(leaf, at, entry);
        } else {
            insert_at(&mut right, at - cut, entry);
        }
        leaf.shrink_to(leaf.len() + LEAF_GROW);
        let right_bound: Box<[u8]> = right[0].key().into();
        debug_assert!(bound < right_bound);
        self.leaves.insert(right_bound, right);
        self.len += 1;
    }

    /// Visits entries from `from` on (behind it if `behind`) in key order until `f` breaks.
    pub(super) fn walk(&self, from: &[u8], behind: bool, mut f: impl FnMut(&E) -> bool) {
        let Some((bound, leaf)) = self.leaf(from) else { return };
        let at = leaf.partition_point(|e| if behind { e.key() <= from } else { e.key() < from });
        if leaf[at..].iter().any(|e| !f(e)) {
            return;
        }
        for leaf in self.leaves.range::<[u8], _>((Excluded(bound), Unbounded)).map(|(_, l)| l) {
            if leaf.iter().any(|e| !f(e)) {
                return;
            }
        }
    }

    /// Lets `keep` change or remove the entries of whole leaves, from the leaf that holds `from`
    /// until at least `max` entries were seen. Returns where to go on, `None` at the end.
    pub(super) fn retain_slice(
        &mut self,
        from: &[u8],
        max: usize,
        mut keep: impl FnMut(&mut E) -> bool,
    ) -> Option<Box<[u8]>> {
        let mut at: Box<[u8]> = self.leaf(from)?.0.into();
        let mut seen = 0;
        loop {
            let next = self.leaves.range::<[u8], _>((Excluded(&*at), Unbounded)).next();
            let next: Option<Box<[u8]>> = next.map(|(bound, _)| bound.clone());
            if let Some(leaf) = self.leaves.get_mut(&*at) {
                let before = leaf.len();
                seen += before;
                leaf.retain_mut(&mut keep);
                self.len -= before - leaf.len();
                if leaf.len() < before {
                    leaf.shrink_to(leaf.len() + LEAF_GROW);
                    self.settle(&at);
                }
            }
            at = next?;
            if seen >= max {
                return Some(at);
            }
        }
    }

    /// Merges a leaf that became small into its left neighbour.
    fn settle(&mut self, bound: &[u8]) {
        let Some(small) = self.leaves.get(bound).map(Vec::len) else { return };
        if bound.is_empty() || small > LEAF_MIN {
            return;
        }
        let left = self.leaves.range::<[u8], _>((Unbounded, Excluded(bound))).next_back();
        let Some(left) = left.map(|(_, leaf)| leaf.len()) else { return };
        if small == 0 || left + small <= LEAF_MAX - LEAF_MIN {
            let Some(moved) = self.leaves.remove(bound) else { return };
            let to = self.leaves.range_mut::<[u8], _>((Unbounded, Excluded(bound))).next_back();
            if let Some((_, to)) = to
                && !moved.is_empty()
            {
                to.reserve_exact(moved.len());
                to.extend(moved);
            }
        }
    }

    /// Heap bytes of the structure without what entries own: leaves with their unused room, bounds
    /// and an estimate of the map of bounds (two thirds full, as random inserts leave it).
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let bound = |b: &[u8]| b.len().next_multiple_of(16);
        let slot = size_of::<Box<[u8]>>() + size_of::<Vec<E>>();
        self.leaves
            .iter()
            .map(|(b, leaf)| bound(b) + slot * 3 / 2 + leaf.capacity() * size_of::<E>())
            .sum()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut len = 0;
        let mut last: Option<Box<[u8]>> = None;
        for (bound, leaf) in &self.leaves {
            assert!(!leaf.is_empty() || bound.is_empty(), "an empty leaf that is not the first");
            assert!(leaf.len() <= LEAF_MAX);
            for entry in leaf {
                assert!(entry.key() >= &**bound, "a key below its leaf's bound");
                assert!(last.as_deref().is_none_or(|last| last < entry.key()), "keys out of order");
                last = Some(entry.key().into());
                len += 1;
            }
        }
        assert_eq!(len, self.len);
        assert!(self.leaves.contains_key(&[][..]), "the first leaf is gone");
    }
}

fn insert_at<E>(leaf: &mut Vec<E>, at: usize, entry: E) {
    if leaf.len() == leaf.capacity() {
        leaf.reserve_exact(LEAF_GROW);
    }
    leaf.insert(at, entry);
}
