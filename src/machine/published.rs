//! What readers see: a few numbers and the small tables, moved forward by the apply thread.

use super::running::Points;
use super::{Alarm, AuthStatus, Machine, Members};
use crate::mvcc::HashKv;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicI64, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Hashes of finished compactions that are remembered (etcd's number).
const HASHES_KEPT: usize = 10;

/// Sizes of the state, counted as it changes, never by walking it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// What counts against the quota, bytes: all rows, rounded as the store rounds them, and
    /// leases. Rows that a compaction or delete made superfluous count until they are dropped.
    pub total_bytes: u64,
    /// The part of it that the newest version of each key takes, and leases.
    pub in_use_bytes: u64,
    /// Number of keys that exist.
    pub keys: u64,
}

/// State of a downgrade of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// Version to go down to.
    #[serde(rename = "target-version")]
    pub target_version: String,
    /// Whether one is going on.
    pub enabled: bool,
}

/// The small tables as one immutable value.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) members: Arc<Members>,
    /// Fenced members are among them.
    pub(super) alarms: Arc<[Alarm]>,
    pub(super) fences: Arc<[u64]>,
    pub(super) cluster_version: Option<String>,
    pub(super) downgrade: Downgrade,
    pub(super) feature_level: u32,
    pub(super) auth: AuthStatus,
}

/// Shared by the machine (writer) and all readers.
#[derive(Debug)]
pub(super) struct Published {
    revision: AtomicI64,
    compacted: AtomicI64,
    finished: AtomicI64,
    applied: AtomicU64,
    term: AtomicU64,
    total_bytes: AtomicU64,
    in_use_bytes: AtomicU64,
    keys: AtomicU64,
    tables: RwLock<Arc<Tables>>,
    hashes: Mutex<VecDeque<HashKv>>,
    points: Points,
}

impl Published {
    pub(super) fn new(revision: i64, compacted: i64, finished: i64) -> Self {
        Self {
            revision: AtomicI64::new(revision),
            compacted: AtomicI64::new(compacted),
            finished: AtomicI64::new(finished),
            applied: AtomicU64::default(),
            term: AtomicU64::default(),
            total_bytes: AtomicU64::default(),
            in_use_bytes: AtomicU64::default(),
            keys: AtomicU64::default(),
            tables: RwLock::default(),
            hashes: Mutex::default(),
            points: Points::default(),
        }
    }

    pub(super) fn set(&self, revision: i64, sizes: Sizes) {
        self.total_bytes.store(sizes.total_bytes, Relaxed);
        self.in_use_bytes.store(sizes.in_use_bytes, Relaxed);
        self.keys.store(sizes.keys, Relaxed);
        // Rows and index entries up to it were written before.
        self.revision.store(revision, Release);
    }

    pub(super) fn set_compacted(&self, compacted: i64) {
        self.compacted.store(compacted, Release);
    }

    pub(super) fn set_finished(&self, finished: i64) {
        self.finished.store(finished, Release);
    }

    /// Last, so that whoever waits for an index finds everything else.
    pub(super) fn set_applied(&self, (index, term): (u64, u64)) {
        self.term.store(term, Relaxed);
        self.applied.store(index, Release);
    }

    pub(super) fn set_tables(&self, tables: Tables) {
        *self.tables.write() = Arc::new(tables);
    }

    pub(super) fn remember(&self, hash: HashKv) {
        let mut hashes = self.hashes.lock();
        if hashes.len() == HASHES_KEPT {
            hashes.pop_front();
        }
        hashes.push_back(hash);
    }

    pub(super) fn points(&self) -> &Points {
        &self.points
    }

    pub(super) fn hash_at(&self, revision: i64) -> Option<HashKv> {
        self.hashes.lock().iter().find(|hash| hash.hash_revision == revision).copied()
    }

    pub(super) fn hashes(&self) -> Vec<HashKv> {
        self.hashes.lock().iter().copied().collect()
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Acquire)
    }

    pub(super) fn compacted(&self) -> i64 {
        self.compacted.load(Acquire)
    }

    pub(super) fn finished(&self) -> i64 {
        self.finished.load(Acquire)
    }

    pub(super) fn applied(&self) -> (u64, u64) {
        let index = self.applied.load(Acquire);
        (index, self.term.load(Relaxed))
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            total_bytes: self.total_bytes.load(Relaxed),
            in_use_bytes: self.in_use_bytes.load(Relaxed),
            keys: self.keys.load(Relaxed),
        }
    }

    pub(super) fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables.read())
    }
}

impl Machine {
    pub(super) fn tables(&self) -> Tables {
        Tables {
            members: Arc::clone(&self.members),
            alarms: self.listed(None).into(),
            fences: self.fences.ids().into(),
            cluster_version: self.cluster_version.clone(),
            downgrade: self.downgrade.clone(),
            feature_level: self.feature_level,
            auth: self.auth.status(),
        }
    }
}
