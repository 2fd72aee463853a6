//! Verdicts and courses of a check.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn seats(voters: u64, learners: u64) -> Vec<Seat> {
    (1..=voters + learners).map(|id| Seat { id, voter: id <= voters }).collect()
}

fn hash(hash: u32) -> FullHash {
    FullHash { revision: 10, compact_revision: 3, hash }
}

/// One hash per member from 1 on; 0: not known.
fn hashes(all: &[u32]) -> BTreeMap<MemberId, FullHash> {
    let known = all.iter().enumerate().filter(|(_, known)| **known != 0);
    known.map(|(at, known)| (at as u64 + 1, hash(*known))).collect()
}

fn judged(voters: u64, learners: u64, all: &[u32]) -> Judgement {
    judge(&seats(voters, learners), &hashes(all))
}

fn minority(all: &[u64]) -> Option<Vec<u64>> {
    Some(all.to_vec())
}

/// The minority, if there is a majority; `None` for any other judgement.
fn odd(judgement: &Judgement) -> Option<Vec<u64>> {
    match judgement {
        Judgement::Different { minority, .. } => Some(minority.clone()),
        _ => None,
    }
}

#[test]
fn more_than_half_of_all_voters_decide_who_is_odd() {
    for (voters, learners, all, expected) in [
        (3, 0, &[7, 7, 8][..], minority(&[3])),
        (3, 0, &[8, 7, 7], minority(&[1])),
        (5, 0, &[7, 7, 7, 8, 9], minority(&[4, 5])),
        (5, 0, &[7, 7, 7, 8, 8], minority(&[4, 5])),
        (5, 0, &[7, 7, 7, 8, 0], minority(&[4])),
        (5, 0, &[7, 7, 8, 8, 9], None),
        (5, 0, &[7, 7, 8, 0, 0], None),
        (3, 0, &[7, 8, 9], None),
        (3, 0, &[7, 8, 0], None),
        (2, 0, &[7, 8], None),
        // A learner is judged and has no say.
        (1, 1, &[7, 8], minority(&[2])),
        (3, 1, &[7, 7, 0, 8], minority(&[4])),
        (3, 2, &[7, 0, 0, 7, 8], None),
        (2, 3, &[7, 8, 8, 8, 8], None),
        (7, 0, &[7, 7, 7, 7, 8, 9, 0], minority(&[5, 6])),
    ] {
        let judgement = judged(voters, learners, all);
        assert_eq!(odd(&judgement), expected, "{all:?}: {judgement:?}");
        if expected.is_none() {
            assert_eq!(judgement, Judgement::NoMajority, "{all:?}");
        }
    }
}

#[test]
fn what_is_not_known_is_not_equal() {
    assert_eq!(judged(3, 0, &[]), Judgement::NotCompared);
    assert_eq!(judged(3, 0, &[7, 0, 0]), Judgement::NotCompared);
    assert_eq!(judged(1, 0, &[7]), Judgement::NotCompared);
    assert_eq!(judged(3, 0, &[7, 7, 0]), Judgement::Equal);
    // Who is not known is in neither list.
    let Judgement::Different { majority, minority } = judged(5, 0, &[7, 7, 7, 8, 0]) else {
        panic!("a majority")
    };
    assert_eq!((majority, minority), (vec![1, 2, 3], vec![4]));
}

#[test]
fn hashes_made_at_other_revisions_are_not_compared() {
    let mut all = hashes(&[7, 7, 8]);
    all.get_mut(&3).unwrap().compact_revision = 5;
    assert_eq!(judge(&seats(3, 0), &all), Judgement::Equal);
    all.get_mut(&3).unwrap().compact_revision = 3;
    all.get_mut(&3).unwrap().revision = 9;
    assert_eq!(judge(&seats(3, 0), &all), Judgement::Equal);
    all.get_mut(&2).unwrap().revision = 8;
    assert_eq!(judge(&seats(3, 0), &all), Judgement::NotCompared);
}

fn at(points: &[(u64, u64)]) -> Points {
    points.iter().map(|(index, hash)| (Point::Applied(*index), *hash)).collect()
}

#[test]
fn hashes_are_compared_at_common_points_only() {
    let one = at(&[(256, 1), (512, 2), (600, 3)]);
    assert_eq!(compare(&one, &at(&[(512, 2), (700, 9)])), Verdict::Equal);
    assert_eq!(compare(&one, &at(&[(700, 9)])), Verdict::Unknown);
    assert_eq!(compare(&one, &at(&[])), Verdict::Unknown);
    assert_eq!(compare(&one, &at(&[(256, 1), (512, 9)])), Verdict::Different);
    let compaction = |from, hash| Points::from([(Point::Compaction { at: 9, from }, hash)]);
    assert_eq!(compare(&compaction(1, 5), &compaction(1, 5)), Verdict::Equal);
    assert_eq!(compare(&compaction(1, 5), &compaction(1, 6)), Verdict::Different);
    assert_eq!(compare(&compaction(1, 5), &compaction(2, 6)), Verdict::Unknown);
}

const KNOWN: BTreeSet<MemberId> = BTreeSet::new();

/// What leader `own` does about these hashes, asked for as often as it wants.
fn course(own: u64, mode: Mode, all: &[u32], known: &BTreeSet<MemberId>) -> Next {
    let (seats, hashes) = (seats(all.len() as u64, 0), hashes(all));
    let mut checker = Checker::new(own, mode);
    let said: BTreeMap<MemberId, Points> =
        hashes.iter().map(|(id, hash)| (*id, at(&[(256, u64::from(hash.hash))]))).collect();
    for round in 0..20 {
        let mut next = checker.look(round * 5_000, &seats, &said, known).next;
        let mut asked = 0;
        while next == Next::Confirm {
            asked += 1;
            assert!(asked < 5, "it asks for ever");
            (_, next) = checker.confirm(round * 5_000, &seats, &hashes, known);
        }
        if let Next::Act(_) = next {
            assert!(asked >= 2, "acted upon what was said once");
            return next;
        }
    }
    Next::Rest
}

fn act(actions: &[Action]) -> Next {
    Next::Act(actions.to_vec())
}

#[test]
fn the_minority_is_fenced_and_a_leader_in_it_hands_over() {
    assert_eq!(course(1, Mode::Fence, &[7, 7, 8], &KNOWN), act(&[Action::Fence(3)]));
    assert_eq!(course(3, Mode::Fence, &[7, 7, 8], &KNOWN), act(&[Action::HandOver(vec![1, 2])]));
    let two = act(&[Action::Fence(4), Action::Fence(5)]);
    assert_eq!(course(2, Mode::Fence, &[7, 7, 7, 8, 9], &KNOWN), two);
    assert_eq!(course(1, Mode::Alarm, &[7, 7, 8], &KNOWN), act(&[Action::Alarm(3)]));
    assert_eq!(course(3, Mode::Alarm, &[7, 7, 8], &KNOWN), act(&[Action::Alarm(3)]));
    assert_eq!(course(1, Mode::Off, &[7, 7, 8], &KNOWN), Next::Rest);
    assert_eq!(course(1, Mode::Fence, &[7, 7, 7], &KNOWN), Next::Rest);
}

#[test]
fn what_is_known_already_is_not_done_again() {
    assert_eq!(course(1, Mode::Fence, &[7, 7, 8], &BTreeSet::from([3])), Next::Rest);
    let other = course(1, Mode::Fence, &[7, 7, 7, 8, 9], &BTreeSet::from([4]));
    assert_eq!(other, act(&[Action::Fence(5)]));
    assert_eq!(course(1, Mode::Fence, &[7, 8], &BTreeSet::from([0])), Next::Rest);
}

#[test]
fn without_a_majority_the_alarm_names_nobody_and_waits_for_members_to_come_back() {
    assert_eq!(course(1, Mode::Fence, &[7, 8], &KNOWN), act(&[Action::Alarm(0)]));
    assert_eq!(course(1, Mode::Fence, &[7, 8, 0], &KNOWN), act(&[Action::Alarm(0)]));
    let (seats, said) = (seats(3, 0), [1, 2].map(|id| (id, at(&[(256, id)]))).into());
    let mut checker = Checker::new(1, Mode::Fence);
    let mut round = |all: &[u32]| {
        assert_eq!(checker.look(0, &seats, &said, &KNOWN).next, Next::Confirm);
        let (_, first) = checker.confirm(0, &seats, &hashes(all), &KNOWN);
        assert_eq!(first, Next::Confirm);
        checker.confirm(0, &seats, &hashes(all), &KNOWN).1
    };
    assert_eq!(round(&[7, 8, 0]), Next::Rest);
    assert_eq!(round(&[7, 8, 0]), Next::Rest);
    assert_eq!(round(&[7, 8, 7]), act(&[Action::Fence(2)]));
}

#[test]
fn a_slip_that_does_not_come_twice_has_no_consequence() {
    let seats = seats(3, 0);
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, at(&[(256, 1)])), (3, at(&[(256, 2)]))].into();
    assert_eq!(checker.look(0, &seats, &said, &KNOWN).next, Next::Confirm);
    let slip = checker.confirm(0, &seats, &hashes(&[7, 7, 8]), &KNOWN);
    assert_eq!(slip.1, Next::Confirm);
    let again = checker.confirm(0, &seats, &hashes(&[7, 7, 7]), &KNOWN);
    assert_eq!(again, (Judgement::Equal, Next::Rest));
    // Another member than before is a first time too.
    assert_eq!(checker.look(600_000, &seats, &said, &KNOWN).next, Next::Confirm);
    let other = checker.confirm(600_000, &seats, &hashes(&[7, 8, 7]), &KNOWN);
    assert_eq!(other.1, Next::Confirm);
    let other = checker.confirm(600_000, &seats, &hashes(&[7, 7, 8]), &KNOWN);
    assert_eq!(other.1, Next::Confirm);
}

#[test]
fn a_suspicion_that_rows_do_not_confirm_is_looked_into_less_and_less_often() {
    let seats = seats(3, 0);
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, at(&[(256, 1)])), (2, at(&[(256, 2)]))].into();
    let mut confirmed = Vec::new();
    for now in (0..3 * 3_600_000).step_by(5_000) {
        let looked = checker.look(now, &seats, &said, &KNOWN);
        assert!(looked.suspicious);
        assert_eq!(
            looked.verdicts,
            BTreeMap::from([(2, Verdict::Different), (3, Verdict::Unknown)])
        );
        if looked.next == Next::Confirm {
            confirmed.push(now);
            let equal = checker.confirm(now, &seats, &hashes(&[7, 7, 0]), &KNOWN);
            assert_eq!(equal, (Judgement::Equal, Next::Rest));
        }
    }
    assert_eq!(confirmed[..4], [0, 60_000, 180_000, 420_000]);
    assert!(confirmed.len() < 10, "{confirmed:?}");
}

#[test]
fn a_difference_that_was_not_confirmed_does_not_hide_another_one() {
    let seats = seats(3, 0);
    let mut checker = Checker::new(1, Mode::Fence);
    let said = |two: u64, three: u64| {
        [(1, at(&[(256, 1)])), (2, at(&[(256, two)])), (3, at(&[(256, three)]))].into()
    };
    assert_eq!(checker.look(0, &seats, &said(1, 9), &KNOWN).next, Next::Confirm);
    checker.confirm(0, &seats, &hashes(&[7, 7, 7]), &KNOWN);
    assert_eq!(checker.look(5_000, &seats, &said(1, 9), &KNOWN).next, Next::Rest);
    assert_eq!(checker.look(5_000, &seats, &said(8, 9), &KNOWN).next, Next::Confirm);
    // A difference that went away and came back is a new one.
    assert_eq!(checker.look(5_000, &seats, &said(1, 1), &KNOWN).next, Next::Rest);
    assert_eq!(checker.look(5_000, &seats, &said(1, 9), &KNOWN).next, Next::Confirm);
}

/// A member of which only the log position is known, never its hash: its rows are compared once.
#[test]
fn a_member_that_answers_without_a_common_point_is_compared_by_its_rows_once() {
    let seats = seats(3, 0);
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, at(&[(256, 1)])), (2, at(&[(256, 1)])), (3, Points::new())].into();
    let next: Vec<Next> =
        (0..100).map(|n| checker.look(n * 5_000, &seats, &said, &KNOWN).next).collect();
    assert_eq!(next.iter().filter(|next| **next == Next::Confirm).count(), 1);
    // One that does not answer at all is not asked for its rows either.
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, at(&[(256, 1)])), (2, at(&[(256, 1)]))].into();
    let rest = (0..100).all(|n| checker.look(n, &seats, &said, &KNOWN).next == Next::Rest);
    assert!(rest);
}

/// Full hashes may take minutes. A majority of those who were members then is none of those who are.
#[test]
fn nothing_follows_from_hashes_of_members_that_came_or_went_meanwhile() {
    let said = [(1, at(&[(256, 1)])), (2, at(&[(256, 1)])), (3, at(&[(256, 2)]))].into();
    let found = hashes(&[7, 7, 8]);
    for now in [seats(2, 0), seats(5, 0), seats(2, 1), seats(3, 1)] {
        for at_confirm in 1..=2 {
            let mut checker = Checker::new(1, Mode::Fence);
            let was = seats(3, 0);
            assert_eq!(checker.look(0, &was, &said, &KNOWN).next, Next::Confirm);
            for _ in 1..at_confirm {
                assert_eq!(checker.confirm(0, &was, &found, &KNOWN).1, Next::Confirm);
            }
            let dropped = checker.confirm(0, &now, &found, &KNOWN);
            assert_eq!(dropped, (Judgement::NotCompared, Next::Rest), "{now:?}");
        }
    }
    // Looked at again, those who are there decide: three of five have another hash than two of three.
    let mut checker = Checker::new(1, Mode::Fence);
    checker.look(0, &seats(5, 0), &said, &KNOWN);
    for _ in 0..2 {
        let (judgement, next) = checker.confirm(0, &seats(5, 0), &found, &KNOWN);
        assert_eq!(judgement, Judgement::NoMajority);
        assert!(!matches!(next, Next::Act(_)), "{next:?}");
    }
}

/// A pause that was agreed upon with a member that left does not meet the one that comes in its place.
#[test]
fn what_was_known_of_a_member_goes_with_it() {
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, at(&[(256, 1)])), (2, at(&[(256, 2)]))].into();
    let with = seats(3, 0);
    assert_eq!(checker.look(0, &with, &said, &KNOWN).next, Next::Confirm);
    checker.confirm(0, &with, &hashes(&[7, 7, 7]), &KNOWN);
    assert_eq!(checker.look(5_000, &with, &said, &KNOWN).next, Next::Rest);
    let without = [with[0], with[2]];
    assert_eq!(checker.look(10_000, &without, &said, &KNOWN).next, Next::Rest);
    assert_eq!(checker.look(15_000, &with, &said, &KNOWN).next, Next::Confirm);
}

#[test]
fn differences_between_two_followers_are_seen_too() {
    let seats = seats(3, 0);
    let mut checker = Checker::new(1, Mode::Fence);
    let said = [(1, Points::new()), (2, at(&[(256, 1)])), (3, at(&[(256, 2)]))].into();
    let looked = checker.look(0, &seats, &said, &KNOWN);
    assert_eq!((looked.suspicious, looked.next), (true, Next::Confirm));
}

/// What the rules are for: each broken one does harm in a case that the whole ones pass.
#[test]
fn broken_rules_do_what_they_are_named_after() {
    let three = seats(3, 0);
    let with = |rule| Checker::new(1, Mode::Fence).broken(Some(rule));
    let lagging = [(1, at(&[(256, 1), (512, 2)])), (2, at(&[(256, 1)]))].into();
    let looked = with(BrokenRule::UnequalIndexes).look(0, &three, &lagging, &KNOWN);
    assert!(looked.suspicious, "an index of one compared with another of the other");
    let mut rotten_leader = with(BrokenRule::UnknownIsEqual);
    rotten_leader.look(0, &three, &BTreeMap::new(), &KNOWN);
    rotten_leader.confirm(0, &three, &hashes(&[8, 7, 0]), &KNOWN);
    let wrong = rotten_leader.confirm(0, &three, &hashes(&[8, 7, 0]), &KNOWN);
    assert_eq!(wrong.1, act(&[Action::Fence(2)]), "the wrong one is fenced");
    let mut hasty = with(BrokenRule::ConfirmOnce);
    hasty.look(0, &three, &BTreeMap::new(), &KNOWN);
    let slip = hasty.confirm(0, &three, &hashes(&[7, 7, 8]), &KNOWN);
    assert_eq!(slip.1, act(&[Action::Fence(3)]));
    let said = [(1, at(&[(256, 8)])), (2, at(&[(256, 7)])), (3, at(&[(256, 7)]))].into();
    let looked = with(BrokenRule::LeaderIsRight).look(0, &three, &said, &KNOWN);
    assert_eq!(looked.next, act(&[Action::Fence(2), Action::Fence(3)]));
}
