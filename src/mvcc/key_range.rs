//! Which keys a request means: parsed once, used by ranges, deletes, compares, watches and rights.

use bytes::Bytes;
use std::ops::Bound;

/// The upper end of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Only the start key itself.
    Single,
    /// Keys below this one.
    To(Bytes),
    /// Every key from the start on.
    Unbounded,
}

/// A set of neighbouring keys. Bytes compare as unsigned numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// Smallest key of the range.
    pub start: Bytes,
    /// Where it ends.
    pub end: End,
}

impl KeyRange {
    /// One key.
    #[must_use]
    pub const fn single(key: Bytes) -> Self {
        Self { start: key, end: End::Single }
    }

    /// Every key.
    #[must_use]
    pub const fn all() -> Self {
        Self { start: Bytes::new(), end: End::Unbounded }
    }

    /// Reads the pair of the client interface: an empty `range_end` means the single key, one zero
    /// byte means every key from `key` on, anything else is the first key behind the range.
    #[must_use]
    pub fn from_request(key: Bytes, range_end: Bytes) -> Self {
        let end = match &range_end[..] {
            [] => End::Single,
            [0] => End::Unbounded,
            _ => End::To(range_end),
        };
        Self { start: key, end }
    }

    /// Whether no key can be inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, End::To(end) if *end <= self.start)
    }

    /// Whether `key` is inside.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => key == self.start,
            End::To(end) => *self.start <= *key && *key < **end,
            End::Unbounded => *self.start <= *key,
        }
    }

    /// Whether `key` lies behind the range, so that a walk in key order can stop.
    #[must_use]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => *key > *self.start,
            End::To(end) => *key >= **end,
            End::Unbounded => false,
        }
    }

    /// The end as a bound for ordered maps.
    #[must_use]
    pub fn upper(&self) -> Bound<&[u8]> {
        match &self.end {
            End::Single => Bound::Included(&self.start),
            End::To(end) => Bound::Excluded(end),
            End::Unbounded => Bound::Unbounded,
        }
    }
}
