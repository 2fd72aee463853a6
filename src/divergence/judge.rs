//! The decisions: pairs of members, and who is the minority.

use super::MemberId;
use std::collections::BTreeMap;

/// What a hash was made over. Hashes of different points say nothing about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The running hash at this applied index.
    Applied(u64),
    /// The hash of the compaction at revision `at`, on top of the one at `from`.
    Compaction {
        /// Its revision.
        at: i64,
        /// Compact revision before it.
        from: i64,
    },
}

/// Hashes of one member, by point.
pub type Points = BTreeMap<Point, u64>;

/// What comparing two members came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Equal at every common point, of which there is one at least.
    Equal,
    /// Different at a common point.
    Different,
    /// There was nothing to compare.
    Unknown,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 3] = [Verdict::Equal, Verdict::Different, Verdict::Unknown];

    /// Label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Different => "different",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Compares two members.
pub fn compare(one: &Points, other: &Points) -> Verdict {
    let mut verdict = Verdict::Unknown;
    for (point, hash) in one {
        match other.get(point) {
            Some(same) if same == hash => verdict = Verdict::Equal,
            Some(_) => return Verdict::Different,
            None => {}
        }
    }
    verdict
}

/// Hash over all rows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullHash {
    /// Revision up to which it covers the rows.
    pub revision: i64,
    /// Compact revision it was made at; two are comparable only if both revisions are equal.
    pub compact_revision: i64,
    /// The hash.
    pub hash: u32,
}

/// A member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its id.
    pub id: MemberId,
    /// Whether it votes: only voters make a majority.
    pub voter: bool,
}

/// What the full hashes came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Fewer than two members had comparable hashes.
    NotCompared,
    /// All comparable hashes are equal.
    Equal,
    /// More than half of all voters hold one hash, some members another.
    Different {
        /// Who holds the majority's hash, in order.
        majority: Vec<MemberId>,
        /// Who holds another, in order. Members whose hash is not known are in neither list.
        minority: Vec<MemberId>,
    },
    /// Hashes differ, and none is held by more than half of all voters.
    NoMajority,
}

/// Judges the full hashes of those members that have one. Voters without one count into the number
/// of which a majority needs more than half, and for nobody.
pub fn judge(seats: &[Seat], hashes: &BTreeMap<MemberId, FullHash>) -> Judgement {
    let known = |seat: &Seat| hashes.get(&seat.id).map(|hash| (*seat, *hash));
    let all: Vec<(Seat, FullHash)> = seats.iter().filter_map(known).collect();
    let votes = |holds: &dyn Fn(&FullHash) -> bool| {
        all.iter().filter(|(seat, hash)| seat.voter && holds(hash)).count()
    };
    // A compaction may have come between: go by the revisions that most voters, then most members
    // hashed at.
    let revisions = |hash: &FullHash| (hash.revision, hash.compact_revision);
    let made_at = all.iter().map(|(_, hash)| revisions(hash)).max_by_key(|at| {
        let members = all.iter().filter(|(_, hash)| revisions(hash) == *at).count();
        (votes(&|hash| revisions(hash) == *at), members, *at)
    });
    let comparable: Vec<(Seat, u32)> = all
        .iter()
        .filter(|(_, hash)| Some(revisions(hash)) == made_at)
        .map(|(seat, hash)| (*seat, hash.hash))
        .collect();
    let Some(((_, first), others)) = comparable.split_first() else {
        return Judgement::NotCompared;
    };
    if others.is_empty() {
        return Judgement::NotCompared;
    }
    if others.iter().all(|(_, hash)| hash == first) {
        return Judgement::Equal;
    }
    let voters = seats.iter().filter(|seat| seat.voter).count();
    let held = |hash: u32| comparable.iter().filter(|(seat, h)| seat.voter && *h == hash).count();
    let leading = comparable.iter().map(|(_, hash)| *hash).find(|hash| 2 * held(*hash) > voters);
    let Some(leading) = leading else { return Judgement::NoMajority };
    let of = |with: bool| {
        let mut ids: Vec<MemberId> = comparable
            .iter()
            .filter(|(_, hash)| (*hash == leading) == with)
            .map(|(seat, _)| seat.id)
            .collect();
        ids.sort_unstable();
        ids
    };
    Judgement::Different { majority: of(true), minority: of(false) }
}
