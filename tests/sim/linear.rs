//! Is a history of one register linearizable? Wing and Gong's search with Lowe's memory of visited
//! states, per key. It knows nothing of logs, revisions or members: what clients sent and saw.
//!
//! Written values are unique. Every operation but a plain put says what it found, so an operation
//! without answer whose value nobody ever saw explains nothing and is left out.

use std::collections::HashSet;

/// Steps after which the search gives up: far above what a seed needs.
const STEPS_MAX: usize = 2_000_000;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Put(u64),
    /// Answers what was there.
    Delete,
    Get,
    /// Puts `.1` if `.0` is there; answers what was there.
    Cas(Option<u64>, u64),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No answer came: it may have happened, at any time from the call on, or not.
    Unknown,
    /// It happened.
    Done,
    /// It happened and found this value.
    Found(Option<u64>),
}

/// One operation; times are any clock that all clients share.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub invoked: u64,
    pub returned: u64,
    pub action: Action,
    pub seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    NotLinearizable,
    /// Too many orders to try.
    Unknown,
}

impl Op {
    fn end(&self) -> u64 {
        if self.seen == Seen::Unknown { u64::MAX } else { self.returned }
    }

    /// The value afterwards, if the operation can happen at this value.
    fn step(&self, value: Option<u64>) -> Option<Option<u64>> {
        if let Seen::Found(found) = self.seen
            && found != value
        {
            return None;
        }
        Some(match self.action {
            Action::Put(new) => Some(new),
            Action::Delete => None,
            Action::Get => value,
            Action::Cas(expected, new) if expected == value => Some(new),
            Action::Cas(..) => value,
        })
    }

    fn explains_nothing(&self, seen: &HashSet<u64>) -> bool {
        self.seen == Seen::Unknown
            && match self.action {
                Action::Put(value) | Action::Cas(_, value) => !seen.contains(&value),
                Action::Get => true,
                Action::Delete => false,
            }
    }
}

/// Judges the history of one key that is absent in the beginning.
pub fn check(history: &[Op]) -> Verdict {
    let mut seen: HashSet<u64> = history
        .iter()
        .filter_map(|op| if let Seen::Found(found) = op.seen { found } else { None })
        .collect();
    // A comparison without an answer whose value was seen found what it expected.
    let won = |op: &Op, seen: &HashSet<u64>| match (op.seen, op.action) {
        (Seen::Unknown, Action::Cas(Some(expected), new)) => {
            (seen.contains(&new) && !seen.contains(&expected)).then_some(expected)
        }
        _ => None,
    };
    while let Some(expected) = history.iter().find_map(|op| won(op, &seen)) {
        seen.insert(expected);
    }
    let mut ops: Vec<Op> =
        history.iter().filter(|op| !op.explains_nothing(&seen)).copied().collect();
    ops.sort_by_key(|op| op.invoked);
    let mut search = Search { done: vec![0; ops.len().div_ceil(64)], ops, ..Search::default() };
    search.run()
}

#[derive(Default)]
struct Search {
    ops: Vec<Op>,
    /// One bit per operation that has its place in the order.
    done: Vec<u64>,
    /// The order so far, with the value before each.
    order: Vec<(usize, Option<u64>)>,
    visited: HashSet<(Vec<u64>, Option<u64>)>,
    value: Option<u64>,
}

impl Search {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] >> (at % 64) & 1 == 1
    }

    fn run(&mut self) -> Verdict {
        let mut from = 0;
        for _ in 0..STEPS_MAX {
            if (0..self.ops.len()).all(|at| self.is_done(at) || self.ops[at].end() == u64::MAX) {
                return Verdict::Linearizable;
            }
            if let Some((at, after)) = self.next(from) {
                self.done[at / 64] |= 1 << (at % 64);
                if self.visited.insert((self.done.clone(), after)) {
                    self.order.push((at, self.value));
                    self.value = after;
                    from = 0;
                } else {
                    self.done[at / 64] &= !(1 << (at % 64));
                    from = at + 1;
                }
                continue;
            }
            let Some((at, before)) = self.order.pop() else { return Verdict::NotLinearizable };
            self.done[at / 64] &= !(1 << (at % 64));
            self.value = before;
            from = at + 1;
        }
        Verdict::Unknown
    }

    /// The next operation from position `from` on that no unplaced one precedes.
    fn next(&self, from: usize) -> Option<(usize, Option<u64>)> {
        let first_end = (0..self.ops.len())
            .filter(|at| !self.is_done(*at))
            .map(|at| self.ops[at].end())
            .min()?;
        (from..self.ops.len())
            .take_while(|at| self.ops[*at].invoked <= first_end)
            .filter(|at| !self.is_done(*at))
            .find_map(|at| self.ops[at].step(self.value).map(|after| (at, after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(invoked: u64, returned: u64, action: Action, seen: Seen) -> Op {
        Op { invoked, returned, action, seen }
    }

    fn put(invoked: u64, returned: u64, value: u64) -> Op {
        op(invoked, returned, Action::Put(value), Seen::Done)
    }

    fn get(invoked: u64, returned: u64, value: Option<u64>) -> Op {
        op(invoked, returned, Action::Get, Seen::Found(value))
    }

    fn unknown(invoked: u64, action: Action) -> Op {
        op(invoked, 0, action, Seen::Unknown)
    }

    #[test]
    fn accepts_what_can_be_ordered() {
        let overlapping = [put(0, 10, 1), put(1, 9, 2), get(2, 3, Some(2)), get(4, 8, Some(1))];
        assert_eq!(check(&overlapping), Verdict::Linearizable);
        let late = [unknown(0, Action::Put(1)), get(1, 2, None), get(5, 6, Some(1))];
        assert_eq!(check(&late), Verdict::Linearizable);
        let deleted =
            [put(0, 1, 1), unknown(2, Action::Delete), get(3, 4, Some(1)), get(5, 6, None)];
        assert_eq!(check(&deleted), Verdict::Linearizable);
        let cas = [
            put(0, 1, 1),
            op(2, 9, Action::Cas(Some(1), 2), Seen::Found(Some(1))),
            op(3, 8, Action::Cas(Some(1), 3), Seen::Found(Some(2))),
            get(10, 11, Some(2)),
        ];
        assert_eq!(check(&cas), Verdict::Linearizable);
        assert_eq!(check(&[]), Verdict::Linearizable);
    }

    #[test]
    fn accepts_a_write_that_only_an_unanswered_comparison_found() {
        let history = [
            unknown(0, Action::Put(1)),
            unknown(2, Action::Cas(Some(1), 2)),
            unknown(4, Action::Cas(Some(2), 3)),
            get(6, 7, Some(3)),
        ];
        assert_eq!(check(&history), Verdict::Linearizable);
        assert_eq!(check(&history[1..]), Verdict::NotLinearizable);
    }

    #[test]
    fn refuses_a_stale_read() {
        let history = [put(0, 1, 1), put(2, 3, 2), get(4, 5, Some(1))];
        assert_eq!(check(&history), Verdict::NotLinearizable);
    }

    #[test]
    fn refuses_a_lost_write() {
        assert_eq!(check(&[put(0, 1, 1), get(2, 3, None)]), Verdict::NotLinearizable);
    }

    #[test]
    fn refuses_reads_that_go_back() {
        let history = [put(0, 1, 1), put(2, 20, 2), get(3, 4, Some(2)), get(5, 6, Some(1))];
        assert_eq!(check(&history), Verdict::NotLinearizable);
    }

    #[test]
    fn refuses_two_winners_of_one_comparison() {
        let won = |at, value| op(at, 9, Action::Cas(Some(1), value), Seen::Found(Some(1)));
        assert_eq!(check(&[put(0, 1, 1), won(2, 2), won(3, 3)]), Verdict::NotLinearizable);
    }

    #[test]
    fn refuses_a_value_from_nowhere_and_one_that_comes_back() {
        assert_eq!(check(&[get(0, 1, Some(7))]), Verdict::NotLinearizable);
        let back =
            [unknown(0, Action::Put(1)), get(1, 2, Some(1)), put(3, 4, 2), get(5, 6, Some(1))];
        assert_eq!(check(&back), Verdict::NotLinearizable);
    }

    #[test]
    fn many_unanswered_writes_stay_cheap() {
        let mut history: Vec<Op> = (0..200).map(|n| unknown(n, Action::Put(1_000 + n))).collect();
        for n in 0..300 {
            history.push(put(2 * n, 2 * n + 1, n + 1));
            history.push(get(2 * n + 1, 2 * n + 2, Some(n + 1)));
        }
        assert_eq!(check(&history), Verdict::Linearizable);
        history.push(get(1_000, 1_001, Some(3)));
        assert_eq!(check(&history), Verdict::NotLinearizable);
    }
}
