//! No lease ends before its holder must reckon with it; only a leader's clock or a client ends one;
//! and what holders are told about it is true.
//!
//! A holder reckons from the moment it sent the grant or keep-alive that was answered. The clock of
//! a leader may run a little fast.

use std::collections::BTreeMap;

use super::super::frame::Verdict;
use super::super::plan::{MS, RATE_PERMILLE};
use crate::check;

/// One life of a lease, from a grant to its revoke.
struct Life {
    granted: u64,
    ttl: u64,
    /// Holders rely on it until then.
    promised: u64,
    /// When a holder was first told that it lives.
    told: Option<u64>,
    /// When it ended, and whether a client asked for it.
    ended: Option<(u64, bool)>,
}

#[derive(Default)]
pub struct Leases {
    lives: BTreeMap<i64, Vec<Life>>,
    /// Requests of clients to revoke, and what.
    pub asked: BTreeMap<u64, i64>,
    /// The life that a leader's clock wanted to end, by request.
    pub meant: BTreeMap<u64, u64>,
    /// Revokes that met a later life under the same id: a known limit, the command names the id only.
    pub strays: u64,
    pub expired: u64,
    pub promises: u64,
    /// Holders that were told that a lease is gone.
    pub told_gone: u64,
}

impl Leases {
    pub fn granted(&mut self, index: u64, id: i64, ttl_s: i64) {
        let ttl = ttl_s.max(0) as u64 * 1_000 * MS;
        self.lives.entry(id).or_default().push(Life {
            granted: index,
            ttl,
            promised: 0,
            told: None,
            ended: None,
        });
    }

    pub fn revoked(&mut self, id: i64, request: u64, now: u64) -> Verdict {
        let asked = self.asked.contains_key(&request);
        self.expired += u64::from(!asked);
        let Some(life) = self.lives.get_mut(&id).and_then(|lives| lives.last_mut()) else {
            return Ok(());
        };
        let stray = self.meant.get(&request).is_some_and(|meant| *meant != life.granted);
        self.strays += u64::from(stray);
        life.ended = Some((now, asked || stray));
        judge(id, life)
    }

    /// The grant of the life that is current at an applied index.
    pub fn life(&self, id: i64, applied: u64) -> Option<u64> {
        let lives = self.lives.get(&id)?;
        lives.iter().rev().map(|life| life.granted).find(|granted| *granted <= applied)
    }

    /// A holder is told at `now` that the lease lives; it asked at `since`.
    pub fn promised(&mut self, id: i64, granted: u64, since: u64, now: u64) -> Verdict {
        let lives = self.lives.entry(id).or_default();
        let Some(life) = lives.iter_mut().find(|life| life.granted == granted) else {
            return Ok(());
        };
        self.promises += 1;
        check!(
            life.ended.is_none_or(|(ended, _)| ended >= since),
            "lease {id} granted at index {granted} ended at {:?} ms, kept alive at {} ms",
            life.ended.map(|(ended, _)| ended / MS),
            since / MS
        );
        life.promised = life.promised.max(since + life.ttl);
        life.told.get_or_insert(now);
        judge(id, life)
    }

    /// A holder that asked at `since` is told that the lease is gone.
    pub fn gone(&mut self, id: i64, since: u64) -> Verdict {
        self.told_gone += 1;
        for life in self.lives.get(&id).into_iter().flatten() {
            check!(
                life.ended.is_some() || life.told.is_none_or(|told| told > since),
                "lease {id} granted at index {} lives, its holder is told that it is gone",
                life.granted
            );
        }
        Ok(())
    }
}

fn judge(id: i64, life: &Life) -> Verdict {
    let Some((ended, false)) = life.ended else { return Ok(()) };
    let slack = life.ttl * RATE_PERMILLE / 1_000;
    check!(
        ended + slack >= life.promised,
        "lease {id} granted at index {} ends at {} ms, promised until {} ms",
        life.granted,
        ended / MS,
        life.promised / MS
    );
    Ok(())
}
