//! The course of a check, as the leader runs it.

use super::judge::{FullHash, Judgement, Points, Seat, Verdict, compare, judge};
use super::{MemberId, Point};
use std::collections::{BTreeMap, BTreeSet};

/// What is done about a member that differs (`--divergence-check`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is fenced; the others go on.
    #[default]
    Fence,
    /// A CORRUPT alarm is raised for it, which refuses writes everywhere, as in etcd.
    Alarm,
    /// Nothing is compared.
    Off,
}

/// What a leader does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fence this member.
    Fence(MemberId),
    /// This leader is in the minority: one of these, who hold the majority's hash, has to lead and
    /// to find out by itself.
    HandOver(Vec<MemberId>),
    /// Raise a CORRUPT alarm for this member; 0: nobody knows whose data is right.
    Alarm(MemberId),
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until the next look.
    Rest,
    /// Ask all members for a full hash at one revision and call [`Checker::confirm`].
    Confirm,
    /// Do this.
    Act(Vec<Action>),
}

/// Result of [`Checker::look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Every other member against this one.
    pub verdicts: BTreeMap<MemberId, Verdict>,
    /// Some pair of members differs of which neither is known to.
    pub suspicious: bool,
    /// What comes next.
    pub next: Next,
}

/// Deliberate mistakes, for the simulator only: one that never caught anything proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokenRule {
    /// The newest hashes are compared, whatever index they were made at.
    UnequalIndexes,
    /// A member that could not be compared counts as equal to the leader.
    UnknownIsEqual,
    /// What full hashes say once is acted upon.
    ConfirmOnce,
    /// A suspicion is acted upon against those who differ from the leader.
    LeaderIsRight,
}

/// Pause after a suspicion that full hashes did not confirm, first and longest, ms: what differs then
/// lies outside of the keys, or in the hash itself, and reading all rows again does not find it.
const PAUSE_FIRST_MS: u64 = 60_000;
const PAUSE_MAX_MS: u64 = 3_600_000;
/// Rounds in which full hashes differ without a majority until the alarm that names nobody: it refuses
/// writes everywhere, and a member that is being restarted may come back and decide.
const UNDECIDED_ROUNDS: u32 = 6;
/// Looks at a member that answers and could never be compared, until full hashes are compared once
/// instead.
const STRANGE_LOOKS: u32 = 24;

/// Two members, the smaller id first as in the list of members.
type Pair = (MemberId, MemberId);

/// See the module text. Lives as long as a leadership.
#[derive(Clone, Debug)]
pub struct Checker {
    own: MemberId,
    mode: Mode,
    broken: Option<BrokenRule>,
    /// Members at the last look.
    seats: Vec<Seat>,
    /// What full hashes came to the last time.
    before: Option<Judgement>,
    /// Pairs that differed at the last look.
    differing: Vec<Pair>,
    /// Pairs whose difference full hashes did not confirm: when they are looked into again, and the
    /// pause before that, ms. Other pairs do not wait.
    quiet: BTreeMap<Pair, (u64, u64)>,
    /// Rounds without a majority, in a row.
    undecided: u32,
    /// Looks at members that answered without a common point.
    strange: BTreeMap<MemberId, u32>,
}

impl Checker {
    /// Of the leader `own`.
    pub fn new(own: MemberId, mode: Mode) -> Checker {
        Checker {
            own,
            mode,
            broken: None,
            seats: Vec::new(),
            before: None,
            differing: Vec::new(),
            quiet: BTreeMap::new(),
            undecided: 0,
            strange: BTreeMap::new(),
        }
    }

    /// Breaks a rule, for the simulator.
    #[must_use]
    pub fn broken(self, broken: Option<BrokenRule>) -> Checker {
        Checker { broken, ..self }
    }

    fn breaks(&self, rule: BrokenRule) -> bool {
        self.broken == Some(rule)
    }

    /// Compares what members said. `said` holds this leader's own points, and those of every other
    /// member that answered, empty if it knows none. `known` are members whose difference is known:
    /// fenced ones and those with a CORRUPT alarm, 0 among them for the alarm that names nobody.
    pub fn look(
        &mut self,
        now_ms: u64,
        seats: &[Seat],
        said: &BTreeMap<MemberId, Points>,
        known: &BTreeSet<MemberId>,
    ) -> Looked {
        self.follow(seats);
        let blurred = self.breaks(BrokenRule::UnequalIndexes).then(|| blur(said));
        let said = blurred.as_ref().unwrap_or(said);
        let nothing = Points::new();
        let points = |id: &MemberId| said.get(id).unwrap_or(&nothing);
        let own = points(&self.own);
        let others = seats.iter().map(|seat| seat.id).filter(|id| *id != self.own);
        let verdicts: BTreeMap<MemberId, Verdict> =
            others.map(|id| (id, compare(own, points(&id)))).collect();
        let open: Vec<MemberId> =
            seats.iter().map(|seat| seat.id).filter(|id| !known.contains(id)).collect();
        self.differing.clear();
        for (n, one) in open.iter().enumerate() {
            for two in &open[n + 1..] {
                match compare(points(one), points(two)) {
                    Verdict::Different => self.differing.push((*one, *two)),
                    Verdict::Equal => drop(self.quiet.remove(&(*one, *two))),
                    Verdict::Unknown => {}
                }
            }
        }
        let suspicious = !self.differing.is_empty();
        let strange = self.strangers(&verdicts, said, &open);
        let until = |pair: &Pair| self.quiet.get(pair).map_or(0, |(until, _)| *until);
        let due = self.differing.iter().any(|pair| now_ms >= until(pair)) || strange;
        let confirm = due && self.mode != Mode::Off && !known.contains(&0);
        self.before = None;
        let next = match confirm {
            true if self.breaks(BrokenRule::LeaderIsRight) => {
                let differs = |(id, verdict): (&MemberId, &Verdict)| {
                    (*verdict == Verdict::Different).then_some(Action::Fence(*id))
                };
                Next::Act(verdicts.iter().filter_map(differs).collect())
            }
            true => Next::Confirm,
            false => Next::Rest,
        };
        Looked { verdicts, suspicious, next }
    }

    /// Takes over who the members are: who left is forgotten.
    fn follow(&mut self, seats: &[Seat]) {
        self.seats = seats.to_vec();
        let there = |id: &MemberId| seats.iter().any(|seat| seat.id == *id);
        self.strange.retain(|id, _| there(id));
        self.quiet.retain(|(one, two), _| there(one) && there(two));
    }

    /// Whether a member that answers has gone without a comparison for long; said once of each.
    fn strangers(
        &mut self,
        verdicts: &BTreeMap<MemberId, Verdict>,
        said: &BTreeMap<MemberId, Points>,
        open: &[MemberId],
    ) -> bool {
        let mut any = false;
        for (id, verdict) in verdicts {
            let looks = self.strange.entry(*id).or_default();
            match verdict {
                Verdict::Unknown if said.contains_key(id) && open.contains(id) => {
                    *looks = looks.saturating_add(1);
                    any |= *looks == STRANGE_LOOKS;
                }
                Verdict::Unknown => {}
                Verdict::Equal | Verdict::Different => *looks = 0,
            }
        }
        any
    }

    /// Judges full hashes, of as many members as answered. Act on what comes out, or ask again. `seats`
    /// are the members after the last answer: if they are not those of the look, nothing follows,
    /// because a majority of those who were members is none of those who are.
    pub fn confirm(
        &mut self,
        now_ms: u64,
        seats: &[Seat],
        hashes: &BTreeMap<MemberId, FullHash>,
        known: &BTreeSet<MemberId>,
    ) -> (Judgement, Next) {
        if self.seats != seats {
            self.before = None;
            return (Judgement::NotCompared, Next::Rest);
        }
        let mut hashes = hashes.clone();
        if self.breaks(BrokenRule::UnknownIsEqual)
            && let Some(own) = hashes.get(&self.own).copied()
        {
            for seat in seats {
                hashes.entry(seat.id).or_insert(own);
            }
        }
        let judgement = judge(seats, &hashes);
        let next = match &judgement {
            Judgement::NotCompared => {
                self.before = None;
                Next::Rest
            }
            Judgement::Equal => {
                self.before = None;
                self.undecided = 0;
                for pair in &self.differing {
                    let before = self.quiet.get(pair).map(|(_, pause)| *pause);
                    let pause =
                        before.map_or(PAUSE_FIRST_MS, |pause| (pause * 2).min(PAUSE_MAX_MS));
                    self.quiet.insert(*pair, (now_ms + pause, pause));
                }
                Next::Rest
            }
            Judgement::Different { .. } | Judgement::NoMajority => {
                let twice = self.before.as_ref() == Some(&judgement);
                if twice || self.breaks(BrokenRule::ConfirmOnce) {
                    self.before = None;
                    let open = matches!(judgement, Judgement::NoMajority);
                    self.undecided = if open { self.undecided + 1 } else { 0 };
                    self.act(&judgement, known)
                } else {
                    self.before = Some(judgement.clone());
                    Next::Confirm
                }
            }
        };
        (judgement, next)
    }

    fn act(&self, judgement: &Judgement, known: &BTreeSet<MemberId>) -> Next {
        let actions = match (judgement, self.mode) {
            (_, Mode::Off) | (Judgement::Equal | Judgement::NotCompared, _) => Vec::new(),
            (Judgement::NoMajority, _) if self.undecided < UNDECIDED_ROUNDS => Vec::new(),
            (Judgement::NoMajority, _) => vec![Action::Alarm(0)],
            (Judgement::Different { majority, minority }, Mode::Fence)
                if minority.contains(&self.own) =>
            {
                vec![Action::HandOver(majority.clone())]
            }
            (Judgement::Different { minority, .. }, mode) => {
                let action = |id: &MemberId| match mode {
                    Mode::Fence => Action::Fence(*id),
                    Mode::Alarm | Mode::Off => Action::Alarm(*id),
                };
                minority.iter().filter(|id| !known.contains(id)).map(action).collect()
            }
        };
        if actions.is_empty() { Next::Rest } else { Next::Act(actions) }
    }
}

/// The newest hash of each member, as if all were made at one index.
fn blur(said: &BTreeMap<MemberId, Points>) -> BTreeMap<MemberId, Points> {
    let newest = |points: &Points| {
        let mut applied = points.iter().filter(|(point, _)| matches!(point, Point::Applied(_)));
        applied.next_back().map(|(_, hash)| (Point::Applied(0), *hash)).into_iter().collect()
    };
    said.iter().map(|(id, points)| (*id, newest(points))).collect()
}
