//! Compaction: forgetting history below a revision, in slices.
//!
//! Readers are cut off first, by raising the index's floor; only then does a [`Compaction`] run,
//! a slice at a time between other work. First it hashes what the compaction covers (the hash of
//! etcd's finished compactions, which members compare), then it walks the index and hands out the
//! condemned rows, each key's together. The hash may be made elsewhere meanwhile ([`HashJob`]). If the process ends in between, the rows that are left
//! tell a new index everything, and the compaction runs again without harm.

use super::rows::key_in;
use super::{Charge, HashKv, KvHasher, Revision, Rows, RowsError, SharedIndex};
use bytes::Bytes;
use std::ops::ControlFlow;

/// Bytes hashed in one step: below a millisecond of reading and checksumming.
const HASH_STEP_BYTES: usize = 1 << 20;
/// Rows hashed in one step: some hundred microseconds on cached rows.
const HASH_STEP_ROWS: usize = 512;

/// A row that a compaction takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which row.
    pub revision: Revision,
    /// Whether it is a tombstone.
    pub tombstone: bool,
    /// What it gives back to the quota.
    pub charge: Charge,
}

/// How far a compaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// Finished, with the hash if one was made.
    Done(Option<HashKv>),
}

#[derive(Debug)]
enum Phase {
    Hash(HashJob),
    Prune {
        /// Key to go on at.
        from: Box<[u8]>,
        hash: Option<HashKv>,
    },
}

/// A running compaction at one revision.
#[derive(Debug)]
pub struct Compaction {
    at: i64,
    phase: Phase,
}

/// Makes the hash of a compaction in slices. Until the compaction goes on, neither the rows up to
/// its revision change nor what the index keeps of them, so the hash is the same wherever and
/// whenever it is made, beside new commands and later compactions that wait.
#[derive(Clone, Debug)]
pub struct HashJob {
    /// Compact revision before, −1 if none.
    previous: i64,
    at: i64,
    /// Where to go on.
    from: Revision,
    /// Rows up to the previous compaction that stay, then all up to this one. etcd counts every row
    /// if none stays, but some row of the compact revision itself always does.
    hasher: KvHasher,
}

impl HashJob {
    /// The main revision of its compaction.
    #[must_use]
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Hashes a slice of rows; the hash when there are none left.
    ///
    /// # Errors
    /// [`RowsError::Fault`]: the store is broken.
    pub fn slice<R: Rows + ?Sized>(
        &mut self,
        index: &SharedIndex,
        rows: &R,
    ) -> Result<Option<HashKv>, RowsError> {
        let slice = read_slice(rows, self.from, self.at)?;
        for (revision, tombstone, row) in &slice {
            let old = revision.main <= self.previous;
            if !old || index.read().keeps(&key_in(row), *revision, self.at) {
                self.hasher.add(*revision, *tombstone, row);
            }
        }
        let Some((last, ..)) = slice.last() else {
            return Ok(Some(HashKv {
                hash: self.hasher.finish(),
                compact_revision: self.previous,
                hash_revision: self.at,
                revision: 0,
            }));
        };
        self.from = Revision { sub: last.sub + 1, ..*last };
        Ok(None)
    }
}

impl Compaction {
    /// A compaction at `at` after one at `previous`. `hashed` makes the hash; it would be wrong if
    /// the previous compaction was interrupted, or this one is resumed.
    #[must_use]
    pub fn new(previous: i64, at: i64, hashed: bool) -> Self {
        let phase = if hashed {
            let from = Revision::default();
            Phase::Hash(HashJob { previous, at, from, hasher: KvHasher::default() })
        } else {
            Phase::Prune { from: Box::default(), hash: None }
        };
        Self { at, phase }
    }

    /// The hash, to be made elsewhere and handed back with [`Compaction::hashed`] before the next
    /// step; `None` if there is none to make any more.
    #[must_use]
    pub fn hash_job(&self) -> Option<HashJob> {
        match &self.phase {
            Phase::Hash(job) => Some(job.clone()),
            Phase::Prune { .. } => None,
        }
    }

    /// Takes the hash that a job made and goes on behind it.
    pub fn hashed(&mut self, hash: HashKv) {
        self.phase = Phase::Prune { from: Box::default(), hash: Some(hash) };
    }

    /// The main revision it compacts at.
    #[must_use]
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Does one slice and appends the rows to be taken away to `dropped`. The index's floor must
    /// be at [`Compaction::at`] already.
    ///
    /// # Errors
    /// [`RowsError::Fault`]: the store is broken.
    pub fn step<R: Rows + ?Sized>(
        &mut self,
        index: &SharedIndex,
        rows: &R,
        dropped: &mut Vec<Dropped>,
    ) -> Result<Step, RowsError> {
        let at = self.at;
        match &mut self.phase {
            Phase::Hash(job) => {
                if let Some(hash) = job.slice(index, rows)? {
                    self.hashed(hash);
                }
                Ok(Step::More)
            }
            Phase::Prune { from, hash } => {
                let next = index.write().compact_slice(from, at, |revision, tombstone, charge| {
                    dropped.push(Dropped { revision, tombstone, charge });
                });
                Ok(match next {
                    Some(next) => {
                        *from = next;
                        Step::More
                    }
                    None => Step::Done(*hash),
                })
            }
        }
    }
}

fn read_slice<R: Rows + ?Sized>(
    rows: &R,
    from: Revision,
    to: i64,
) -> Result<Vec<(Revision, bool, Bytes)>, RowsError> {
    let mut slice = Vec::with_capacity(HASH_STEP_ROWS);
    let mut bytes = 0;
    rows.scan_from(from, to, &mut |revision, tombstone, row| {
        bytes += row.len();
        slice.push((revision, tombstone, row));
        if slice.len() >= HASH_STEP_ROWS || bytes >= HASH_STEP_BYTES {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(slice)
}
