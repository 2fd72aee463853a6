//! Sets of deleted intervals, for the check of double changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A union of half-open intervals and single keys.
///
/// Only what etcd recognises: an end that is not above its start (which includes the end `\0`,
/// "all keys from here") covers nothing.
#[derive(Debug, Default)]
pub(super) struct Intervals<'a> {
    points: BTreeSet<&'a [u8]>,
    /// Disjoint intervals: start to end.
    spans: BTreeMap<&'a [u8], &'a [u8]>,
}

impl<'a> Intervals<'a> {
    /// Adds what a delete of `key` to `end` covers.
    pub(super) fn insert(&mut self, key: &'a [u8], end: &'a [u8]) {
        if end.is_empty() {
            self.points.insert(key);
        } else if key < end {
            self.span(key, end);
        }
    }

    /// Joins the new interval with all that it touches, so that the map stays disjoint.
    fn span(&mut self, mut start: &'a [u8], mut end: &'a [u8]) {
        if let Some((before, until)) = self.spans.range(..=start).next_back()
            && *until >= start
        {
            start = before;
            end = end.max(until);
        }
        while let Some((next, until)) = self.spans.range(start..).next() {
            if *next > end {
                break;
            }
            end = end.max(until);
            let next = *next;
            self.spans.remove(next);
        }
        self.spans.insert(start, end);
    }

    /// Whether `key` is covered.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let before = self.spans.range::<[u8], _>(upto).next_back();
        self.points.contains(key) || before.is_some_and(|(_, end)| key < *end)
    }

    /// Adds all of `other`.
    pub(super) fn merge(&mut self, other: Self) {
        self.points.extend(other.points);
        for (start, end) in other.spans {
            self.span(start, end);
        }
    }
}
