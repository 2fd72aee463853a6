//! Lease table against the rules; lease clock against an oracle on virtual time.

use super::*;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const ELECTION: u64 = 1_000;

fn clock(checkpoints: Option<u64>) -> Clock {
    let options = ClockOptions { election_ms: ELECTION, checkpoint_ms: checkpoints };
    Clock::new(options, [])
}

#[test]
fn minimum_ttl_is_one_and_a_half_elections_rounded_up() {
    assert_eq!(min_ttl_s(1_000), 2);
    assert_eq!(min_ttl_s(100), 1);
    assert_eq!(min_ttl_s(2_000), 3);
    assert_eq!(min_ttl_s(50_000), 75);
}

#[test]
fn grants_check_id_limit_and_presence() {
    let mut table = Table::new();
    assert_eq!(table.grant(0, 10), Err(LeaseError::NotFound(0)));
    assert_eq!(table.grant(1, MAX_TTL_S + 1), Err(LeaseError::TtlTooLarge(MAX_TTL_S + 1)));
    assert_eq!(table.grant(-1, MAX_TTL_S).unwrap().ttl, MAX_TTL_S);
    assert_eq!(table.grant(-1, 5), Err(LeaseError::Exists(-1)));
    assert_eq!(table.revoke(7), Err(LeaseError::NotFound(7)));
}

#[test]
fn attachment_follows_the_last_put() {
    let mut table = Table::new();
    table.grant(1, 10).unwrap();
    table.grant(2, 10).unwrap();
    for key in ["b", "a", "c"] {
        table.put(key.as_bytes(), 1).unwrap();
    }
    table.put(b"b", 2).unwrap();
    table.put(b"c", 0).unwrap();
    assert_eq!(table.put(b"a", 9), Err(LeaseError::NotFound(9)));
    assert_eq!((table.lease_of(b"a"), table.lease_of(b"b"), table.lease_of(b"c")), (1, 2, 0));
    table.put(b"d", 1).unwrap();
    table.delete(b"a");
    table.put(b"0", 1).unwrap();
    let keys: Vec<Bytes> = table.revoke(1).unwrap().into_iter().collect();
    assert_eq!(keys, ["0", "d"], "sorted, and no others");
    assert_eq!(table.lease_of(b"d"), 0);
    assert_eq!(table.lease_of(b"b"), 2);
}

#[test]
fn records_restore_the_table_and_match_the_stored_message() {
    use prost::Message;
    let mut table = Table::new();
    table.grant(-3, 60).unwrap();
    let record = table.checkpoint(-3, 20).unwrap();
    let stored = crate::proto::leasepb::Lease::decode(record.encode_to_vec().as_slice()).unwrap();
    assert_eq!((stored.id, stored.ttl, stored.remaining_ttl), (-3, 60, 20));
    let back = Table::restore([record]);
    assert_eq!(back.get(-3).unwrap().record, record);
    assert_eq!(table.checkpoint(4, 1), None);
}

#[test]
fn a_follower_neither_expires_nor_renews() {
    let mut clock = clock(None);
    clock.granted(1, 2, 0);
    assert_eq!(clock.expired(1_000_000, 500), []);
    assert_eq!(clock.renew(1, 0), Renewal::NotLeader);
    assert_eq!(clock.remaining(1, 0), None);
    assert_eq!(clock.next_deadline(), None);
}

#[test]
fn time_runs_out_at_the_granted_time_and_not_before() {
    let mut clock = clock(None);
    clock.promote(3, 0);
    clock.granted(1, 2, 100);
    assert_eq!(clock.remaining(1, 1_101), Some((0, 2)));
    assert_eq!(clock.next_deadline(), Some(2_100));
    assert_eq!(clock.expired(2_099, 500), []);
    assert_eq!(clock.renew(1, 2_099), Renewal::Renewed { ttl: 2 });
    assert_eq!(clock.expired(4_098, 500), []);
    assert_eq!(clock.expired(4_099, 500), [Expired { id: 1, term: 3 }]);
    assert_eq!(clock.renew(1, 4_099), Renewal::Ending);
    assert_eq!(clock.remaining(1, 4_099), None);
    assert_eq!(clock.expired(9_999, 500), [], "handed out once");
    clock.returned(1, 10_000);
    assert_eq!(clock.expired(10_000, 500), [Expired { id: 1, term: 3 }]);
    clock.revoked(1);
    assert_eq!(clock.renew(1, 10_000), Renewal::Unknown);
}

#[test]
fn a_new_leader_gives_the_full_time_and_an_election_timeout() {
    let options = ClockOptions { election_ms: ELECTION, checkpoint_ms: None };
    let records =
        [Record { id: 1, ttl: 10, remaining: 0 }, Record { id: 2, ttl: 10, remaining: 4 }];
    let mut clock = Clock::new(options, records);
    clock.promote(1, 50_000);
    assert_eq!(clock.remaining(1, 50_000), Some((11, 10)));
    assert_eq!(clock.remaining(2, 50_000), Some((5, 10)), "counts from the replicated time");
    assert_eq!(clock.ordered(), [2, 1]);
    clock.demote();
    assert_eq!(clock.expired(1_000_000, 500), []);
    clock.promote(2, 100_000);
    assert_eq!(clock.remaining(2, 100_000), Some((5, 10)));
}

#[test]
fn a_keep_alive_first_clears_a_replicated_remaining_time() {
    let mut clock = clock(Some(5_000));
    clock.promote(1, 0);
    clock.granted(1, 60, 0);
    assert_eq!(clock.checkpoints(4_999), []);
    assert_eq!(clock.checkpoints(5_001), [(1, 55)], "54.999 s, rounded up");
    // Already before it is applied: it may be in the log behind an answered keep-alive.
    assert_eq!(clock.renew(1, 5_002), Renewal::ClearRemaining);
    assert_eq!(clock.checkpoints(10_001), [], "not while the clearing one is under way");
    clock.checkpointed(1, 55);
    assert_eq!(clock.renew(1, 5_002), Renewal::ClearRemaining);
    clock.checkpointed(1, 0);
    assert_eq!(clock.renew(1, 10_003), Renewal::Renewed { ttl: 60 });
    assert_eq!(clock.remaining(1, 10_003), Some((60, 60)));
    assert_eq!(clock.checkpoints(15_003), [(1, 55)]);
}

#[test]
fn a_mass_expiry_is_one_thousand_per_second() {
    let mut clock = clock(None);
    clock.promote(1, 0);
    for id in 1..=2_500 {
        clock.granted(id, 2, 0);
    }
    let mut per_second = BTreeMap::new();
    for now in (0..10_000).step_by(50) {
        let gone = clock.expired(now, usize::MAX);
        assert!(gone.len() <= 500);
        for expired in &gone {
            clock.revoked(expired.id);
        }
        *per_second.entry(now / 1_000).or_insert(0) += gone.len();
    }
    assert_eq!(per_second.iter().filter(|(_, n)| **n > 0).collect::<Vec<_>>().len(), 3);
    assert!(per_second.values().all(|&n| n <= 1_000));
    assert!(clock.is_empty());
}

#[test]
fn a_promotion_spreads_leases_that_end_together() {
    let options = ClockOptions { election_ms: ELECTION, checkpoint_ms: None };
    let records = (1..=3_000).map(|id| Record { id, ttl: 5, remaining: 0 });
    let mut clock = Clock::new(options, records);
    clock.promote(1, 0);
    let mut seconds = BTreeMap::new();
    for id in 1..=3_000 {
        *seconds.entry(clock.remaining(id, 0).unwrap().0).or_insert(0) += 1;
    }
    assert_eq!(seconds, BTreeMap::from([(6, 750), (7, 750), (8, 750), (9, 750)]));
}

/// Entries of the model log.
#[derive(Clone, Copy)]
enum Entry {
    Grant { id: i64, ttl: i64 },
    Revoke { id: i64 },
    Checkpoint { id: i64, remaining: i64 },
    Noop { term: u64 },
}

struct Member {
    clock: Clock,
    applied: usize,
    /// The term it was told to lead in and has not yet applied its first entry of.
    elected: Option<u64>,
}

/// Two members, one log, delayed application, leader changes, a deposed leader that does not know.
struct World {
    rng: ChaCha8Rng,
    now: u64,
    log: Vec<Entry>,
    /// State at the tip of the log, and when each lease was last acknowledged to its holder.
    tip: Table,
    acked: BTreeMap<i64, u64>,
    members: Vec<Member>,
    leader: usize,
    term: u64,
    expiries: usize,
    renewals: usize,
}

impl World {
    fn new(seed: u64, checkpoints: Option<u64>) -> Self {
        let member = || Member { clock: clock(checkpoints), applied: 0, elected: None };
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            log: Vec::new(),
            tip: Table::new(),
            acked: BTreeMap::new(),
            members: vec![member(), member()],
            leader: 0,
            term: 0,
            expiries: 0,
            renewals: 0,
        }
    }

    fn append(&mut self, entry: Entry) {
        match entry {
            Entry::Grant { id, ttl } => {
                if self.tip.grant(id, ttl).is_ok() {
                    self.acked.insert(id, self.now);
                }
            }
            Entry::Revoke { id } => drop(self.tip.revoke(id)),
            Entry::Checkpoint { id, remaining } => {
                self.tip.checkpoint(id, remaining);
            }
            Entry::Noop { .. } => {}
        }
        self.log.push(entry);
    }

    fn elect(&mut self, member: usize) {
        self.leader = member;
        self.term += 1;
        self.members[member].elected = Some(self.term);
        self.append(Entry::Noop { term: self.term });
    }

    fn apply(&mut self, member: usize, count: usize) {
        for _ in 0..count {
            let m = &mut self.members[member];
            let Some(&entry) = self.log.get(m.applied) else { return };
            m.applied += 1;
            match entry {
                // The machine reports a grant only if it succeeded; here ids are only granted
                // when the tip does not know them, so every grant in the log succeeds.
                Entry::Grant { id, ttl } => m.clock.granted(id, ttl, self.now),
                Entry::Revoke { id } => m.clock.revoked(id),
                Entry::Checkpoint { id, remaining } => m.clock.checkpointed(id, remaining),
                Entry::Noop { term } if m.elected == Some(term) => m.clock.promote(term, self.now),
                Entry::Noop { .. } => {}
            }
        }
    }

    fn expire(&mut self, member: usize) {
        for expired in self.members[member].clock.expired(self.now, 500) {
            if expired.term != self.term || member != self.leader {
                continue; // the fence of the log
            }
            if let Some(lease) = self.tip.get(expired.id) {
                let due = self.acked[&expired.id] + lease.record.ttl as u64 * 1_000;
                assert!(self.now >= due, "lease {} ended {} ms early", expired.id, due - self.now);
                self.expiries += 1;
            }
            self.append(Entry::Revoke { id: expired.id });
        }
    }

    fn checkpoint(&mut self, member: usize) {
        for (id, remaining) in self.members[member].clock.checkpoints(self.now) {
            if member == self.leader && self.rng.random_bool(0.8) {
                self.append(Entry::Checkpoint { id, remaining });
            }
        }
    }

    fn keep_alive(&mut self) {
        let leader = self.leader;
        let ids: Vec<i64> = self.tip.iter().map(|lease| lease.record.id).collect();
        for id in ids {
            if !self.rng.random_bool(0.02) {
                continue;
            }
            match self.members[leader].clock.renew(id, self.now) {
                Renewal::Renewed { ttl } => {
                    assert_eq!(ttl, self.tip.get(id).unwrap().record.ttl);
                    self.acked.insert(id, self.now);
                    self.renewals += 1;
                }
                Renewal::ClearRemaining => self.append(Entry::Checkpoint { id, remaining: 0 }),
                Renewal::Unknown | Renewal::Ending | Renewal::NotLeader => {}
            }
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(1..400);
        match self.rng.random_range(0..100) {
            0..20 => {
                let id = self.rng.random_range(1..30);
                // A client grants an id again only after it knows that it is free.
                let applied = self.members[self.leader].applied == self.log.len();
                if !self.tip.contains(id) && applied {
                    let ttl = self.rng.random_range(2..40);
                    self.append(Entry::Grant { id, ttl });
                }
            }
            20..22 => {
                let id = self.rng.random_range(1..30);
                if self.members[self.leader].applied == self.log.len() {
                    self.append(Entry::Revoke { id });
                    self.apply(self.leader, usize::MAX);
                }
            }
            22..24 => {
                let next = self.rng.random_range(0..2);
                self.elect(next);
            }
            24..28 => {
                // A deposed leader learns of it.
                let other = 1 - self.leader;
                self.members[other].clock.demote();
            }
            28..60 => self.keep_alive(),
            _ => {
                let member = self.rng.random_range(0..2);
                let count = self.rng.random_range(1..20);
                self.apply(member, count);
            }
        }
        for member in 0..2 {
            self.expire(member);
            self.checkpoint(member);
        }
    }
}

/// L1 (never early) at every step, L2 (gone in the end) after the last keep-alive.
#[test]
fn clock_keeps_its_promises_under_leader_changes() {
    let (mut expiries, mut renewals, mut checkpoints) = (0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed, (seed % 2 == 0).then_some(3_000));
        world.elect(0);
        for _ in 0..600 {
            world.step();
        }
        world.elect(1);
        world.members[0].clock.demote();
        let start = world.now;
        while !world.tip.is_empty() {
            world.apply(0, usize::MAX);
            world.apply(1, usize::MAX);
            world.now += 50;
            world.expire(1);
            let limit = 40_000 + 3 * ELECTION;
            assert!(world.now < start + limit, "seed {seed}: a lease outlives its time");
        }
        expiries += world.expiries;
        renewals += world.renewals;
        checkpoints += world.log.iter().filter(|e| matches!(e, Entry::Checkpoint { .. })).count();
    }
    assert!(expiries > 1_000 && renewals > 1_000 && checkpoints > 1_000);
}
