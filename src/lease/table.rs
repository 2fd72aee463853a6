//! The replicated facts about leases: id, time to live, remaining time, attached keys.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

use super::MAX_TTL_S;

/// A stored lease, wire-identical to `leasepb.Lease`. Attached keys are not in it: they are
/// rebuilt from the rows at start, where each live row names its lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Record {
    /// Lease id; any value but 0, negative ones too.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Granted time to live, seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    /// Replicated remaining time, seconds; 0 means "the full time to live".
    #[prost(int64, tag = "3")]
    pub remaining: i64,
}

/// Why a change of the table is refused. The same on every member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// No lease has this id (id 0 never has).
    #[error("lease {0} does not exist; grant it first")]
    NotFound(i64),
    /// A lease with this id is alive.
    #[error("lease {0} already exists; choose another id or let the server choose")]
    Exists(i64),
    /// The time to live is above [`MAX_TTL_S`].
    #[error("a time to live of {0} s is too large; the limit is {MAX_TTL_S} s")]
    TtlTooLarge(i64),
}

/// One lease with the keys that hang on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The stored part.
    pub record: Record,
    /// Attached keys, sorted: a revoke deletes them in this order.
    pub keys: BTreeSet<Bytes>,
}

/// All leases of the cluster. Changed only by applied log entries.
#[derive(Debug, Clone, Default)]
pub struct Table {
    leases: BTreeMap<i64, Lease>,
    /// Lease of each attached key. Keys without a lease cost nothing here.
    owner: BTreeMap<Bytes, i64>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A table from stored records, without attachments; follow with [`Table::put`] for each live
    /// row that names a lease. Of two records with one id the later wins.
    #[must_use]
    pub fn restore(records: impl IntoIterator<Item = Record>) -> Self {
        let leases = records
            .into_iter()
            .map(|record| (record.id, Lease { record, keys: BTreeSet::new() }))
            .collect();
        Self { leases, owner: BTreeMap::new() }
    }

    /// Adds a lease of `ttl` seconds and returns its record.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] for id 0, [`LeaseError::TtlTooLarge`], [`LeaseError::Exists`].
    pub fn grant(&mut self, id: i64, ttl: i64) -> Result<Record, LeaseError> {
        if id == 0 {
            return Err(LeaseError::NotFound(id));
        }
        if ttl > MAX_TTL_S {
            return Err(LeaseError::TtlTooLarge(ttl));
        }
        if self.leases.contains_key(&id) {
            return Err(LeaseError::Exists(id));
        }
        // The proposer raised the time to live to its minimum; a command that was not raised must
        // still not make a lease that is born expired.
        let record = Record { id, ttl: ttl.max(1), remaining: 0 };
        self.leases.insert(id, Lease { record, keys: BTreeSet::new() });
        Ok(record)
    }

    /// Removes a lease and returns its keys in the order in which they are to be deleted, all in
    /// one revision.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`].
    pub fn revoke(&mut self, id: i64) -> Result<BTreeSet<Bytes>, LeaseError> {
        let lease = self.leases.remove(&id).ok_or(LeaseError::NotFound(id))?;
        for key in &lease.keys {
            self.owner.remove(key);
        }
        Ok(lease.keys)
    }

    /// Sets the replicated remaining time (0 = full) and returns the changed record, or `None` if
    /// the lease is gone: a checkpoint may be applied after a revoke and then means nothing.
    pub fn checkpoint(&mut self, id: i64, remaining: i64) -> Option<Record> {
        let lease = self.leases.get_mut(&id)?;
        lease.record.remaining = remaining.clamp(0, lease.record.ttl);
        Some(lease.record)
    }

    /// Records that `key` was put with `lease` (0 = without one): the attachment always follows
    /// the last put. The key is copied, so that no request buffer stays pinned.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`]; nothing has changed then.
    pub fn put(&mut self, key: &[u8], lease: i64) -> Result<(), LeaseError> {
        if lease == 0 {
            self.delete(key);
            return Ok(());
        }
        if !self.leases.contains_key(&lease) {
            return Err(LeaseError::NotFound(lease));
        }
        if self.owner.get(key) == Some(&lease) {
            return Ok(());
        }
        self.delete(key);
        let key = Bytes::copy_from_slice(key);
        self.owner.insert(key.clone(), lease);
        if let Some(holder) = self.leases.get_mut(&lease) {
            holder.keys.insert(key);
        }
        Ok(())
    }

    /// Records that `key` was deleted.
    pub fn delete(&mut self, key: &[u8]) {
        if let Some(id) = self.owner.remove(key)
            && let Some(lease) = self.leases.get_mut(&id)
        {
            lease.keys.remove(key);
        }
    }

    /// The lease of a key, 0 if it has none.
    #[must_use]
    pub fn lease_of(&self, key: &[u8]) -> i64 {
        self.owner.get(key).copied().unwrap_or(0)
    }

    /// One lease.
    #[must_use]
    pub fn get(&self, id: i64) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// Whether the lease exists; false for id 0.
    #[must_use]
    pub fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    /// All leases in id order.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Number of leases.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is no lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }
}
