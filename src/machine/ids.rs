//! Ids: of members, of the cluster, of requests.

use sha1::{Digest, Sha1};
use std::sync::atomic::{AtomicU64, Ordering};

/// Id of a member: the first eight bytes (big-endian) of the SHA-1 over its sorted peer URLs and
/// `salt`, which is the cluster token for the members a cluster begins with and the decimal unix
/// time in seconds for one that is added later.
#[must_use]
pub fn member_id<S: AsRef<str>>(peer_urls: &[S], salt: &str) -> u64 {
    let mut urls: Vec<&str> = peer_urls.iter().map(AsRef::as_ref).collect();
    urls.sort_unstable();
    let mut sha = Sha1::new();
    for url in urls {
        sha.update(url);
    }
    sha.update(salt);
    first_eight(sha)
}

/// Id of a cluster: the same over the ids of its first members, sorted, eight bytes each.
#[must_use]
pub fn cluster_id(member_ids: &[u64]) -> u64 {
    let mut ids = member_ids.to_vec();
    ids.sort_unstable();
    let mut sha = Sha1::new();
    for id in ids {
        sha.update(id.to_be_bytes());
    }
    first_eight(sha)
}

fn first_eight(sha: Sha1) -> u64 {
    let digest = sha.finalize();
    digest[..8].iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// Ids of requests, unique over members and restarts. Laid out as etcd's: the low 16 bits of the
/// member id, then 48 bits that start at the low 40 bits of the start time in milliseconds with
/// eight zero bits behind, and count up. A restarted member repeats an id only if it issued more
/// than 256 per millisecond of its last run on average, or within 34 years of uptime and pauses.
#[derive(Debug)]
pub struct RequestIds {
    prefix: u64,
    counter: AtomicU64,
}

const COUNTER_MASK: u64 = (1 << 48) - 1;

impl RequestIds {
    /// Ids of `member`, which started at `start_ms` (unix time, milliseconds).
    #[must_use]
    pub fn new(member: u64, start_ms: u64) -> Self {
        Self { prefix: member << 48, counter: AtomicU64::new(start_ms << 8) }
    }

    /// The next id; never 0, which means "no request".
    pub fn next(&self) -> u64 {
        loop {
            let count = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let id = self.prefix | (count & COUNTER_MASK);
            if id != 0 {
                return id;
            }
        }
    }

    /// An id for a lease that the server names: positive, not 0.
    pub fn next_lease(&self) -> i64 {
        (self.next() & (i64::MAX as u64)).max(1) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_node_has_etcds_ids() {
        let member = member_id(&["http://localhost:2380"], "etcd-cluster");
        assert_eq!(member, 0x8e9e_05c5_2164_694d);
        assert_eq!(cluster_id(&[member]), 0xcdf8_1819_4e3a_8c32);
    }

    #[test]
    fn order_of_urls_and_members_does_not_matter() {
        assert_eq!(member_id(&["b", "a"], "t"), member_id(&["a", "b"], "t"));
        assert_ne!(member_id(&["a"], "t"), member_id(&["a"], "u"));
        assert_eq!(cluster_id(&[2, 1]), cluster_id(&[1, 2]));
    }

    #[test]
    fn request_ids_differ_between_requests_members_and_restarts() {
        let start = 1_700_000_000_000;
        let first = RequestIds::new(0x1234_5678_9abc_def0, start);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            assert!(seen.insert(first.next()));
        }
        let restarted = RequestIds::new(0x1234_5678_9abc_def0, start + 4);
        let other = RequestIds::new(0x1234_5678_9abc_def1, start);
        for _ in 0..1_000 {
            assert!(seen.insert(restarted.next()));
            assert!(seen.insert(other.next()));
        }
        assert_eq!(first.next() >> 48, 0xdef0);
        let lease = RequestIds::new(u64::MAX, u64::MAX);
        assert!((0..1_000).all(|_| lease.next_lease() > 0));
    }
}
