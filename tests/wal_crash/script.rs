//! The scripted writer, and a model of the log that knows what was promised.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use assay::disk::{Disk, SimDisk, SimRng};
use assay::wal::{Batch, Entry, HardState, Identity, Options, Recovered, SpareStep, Wal, WalError};
use bytes::Bytes;

/// Directory of the log.
pub(crate) const DIR: &str = "/member/wal";
/// Segment size in bytes: a dozen batches, so that rolls are frequent.
pub(crate) const SEGMENT: u64 = 4096;
const WHO: Identity = Identity { cluster_id: 1, member_id: 2, format: 1 };

/// Small segments and one spare.
pub(crate) fn options(salt: u64) -> Options {
    Options { segment_bytes: SEGMENT, spare_segments: 1, ..Options::new(salt) }
}

/// An entry whose content is a function of its position.
pub(crate) fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    let data = Bytes::from(vec![(index * 7 + term) as u8; bytes]);
    let context = Bytes::from(vec![term as u8; (index % 3) as usize]);
    Entry { index, term, kind: (index % 2) as u8, data, context }
}

/// The shipped recovery.
pub(crate) fn recover(disk: &SimDisk, opts: &Options) -> Result<(Wal, Recovered), WalError> {
    Wal::recover(Arc::new(disk.clone()), Path::new(DIR), opts, &mut |_, _| {})
}

/// A log as a caller would know it. Entries stay when the front is truncated: a file that comes
/// back from the dead may hold them, unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    base: (u64, u64),
    entries: BTreeMap<u64, Entry>,
    pub(crate) last: u64,
    hard_state: HardState,
}

impl Model {
    pub(crate) fn apply(&mut self, batch: &Batch) {
        if let Some(first) = batch.entries.first() {
            drop(self.entries.split_off(&first.index));
            self.entries.extend(batch.entries.iter().map(|e| (e.index, e.clone())));
            self.last = self.entries.keys().next_back().copied().unwrap_or(self.base.0);
        }
        self.hard_state = batch.hard_state.unwrap_or(self.hard_state);
    }

    pub(crate) fn of(found: &Recovered) -> Self {
        Model {
            base: found.base,
            entries: found.entries.iter().map(|e| (e.index, e.clone())).collect(),
            last: found.base.0 + found.entries.len() as u64,
            hard_state: found.hard_state,
        }
    }

    /// For messages.
    pub(crate) fn summary(&self) -> String {
        let terms: Vec<_> = self.entries.values().map(|e| e.term).collect();
        format!("base {:?} last {} {:?} terms {terms:?}", self.base, self.last, self.hard_state)
    }

    fn term(&self, index: u64) -> Option<u64> {
        let of_entry = self.entries.get(&index).map(|e| e.term);
        of_entry.or((index == self.base.0).then_some(self.base.1))
    }

    /// Whether this log was recovered, of which entries up to `dropped` may be missing.
    pub(crate) fn is(&self, found: &Recovered, dropped: u64) -> bool {
        let base = found.base.0;
        base >= self.base.0
            && base <= dropped.max(self.base.0)
            && self.term(base) == Some(found.base.1)
            && base + found.entries.len() as u64 == self.last
            && found.hard_state == self.hard_state
            && found.entries.iter().all(|e| self.entries.get(&e.index) == Some(e))
    }
}

/// What the writer was promised: the durable log, then every state it passed since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    pub(crate) states: Vec<Model>,
    dropped: u64,
}

impl Promise {
    fn newest(&self) -> &Model {
        self.states.last().expect("a log")
    }

    fn synced(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    pub(crate) fn kept(&self, found: &Recovered) -> bool {
        found.identity == Some(WHO) && self.states.iter().any(|s| s.is(found, self.dropped))
    }
}

/// The scripted writer. Everything it does is a function of the seed.
pub(crate) struct Writer {
    disk: SimDisk,
    wal: Option<Wal>,
    promise: Arc<Mutex<Promise>>,
    rng: SimRng,
    term: u64,
}

impl Writer {
    pub(crate) fn new(disk: &SimDisk, promise: &Arc<Mutex<Promise>>, seed: u64) -> Self {
        let (disk, promise) = (disk.clone(), Arc::clone(promise));
        Writer { disk, wal: None, promise, rng: SimRng::new(seed), term: 1 }
    }

    fn edit<T>(&self, edit: impl FnOnce(&mut Promise) -> T) -> T {
        edit(&mut self.promise.lock().unwrap())
    }

    fn wal(&mut self) -> &mut Wal {
        self.wal.as_mut().expect("open")
    }

    /// Creates the log.
    pub(crate) fn start(&mut self) -> Result<(), WalError> {
        let first = Batch {
            entries: vec![entry(1, 1, 40)],
            hard_state: Some(HardState { term: 1, vote: 2, commit: 0 }),
            sync: true,
        };
        let mut model = Model::default();
        model.apply(&first);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let salt = self.rng.next_u64();
        let wal = Wal::create(disk, Path::new(DIR), &options(salt), WHO, (0, 0), &first)?;
        self.edit(|p| p.states = vec![model]);
        self.wal = Some(wal);
        Ok(())
    }

    fn batch(&mut self) -> Batch {
        let newest = self.edit(|p| p.newest().clone());
        let mut batch = Batch { sync: self.rng.below(3) > 0, ..Batch::default() };
        if self.rng.below(5) == 0 {
            // Commit index only: written, not synced.
            let back = self.rng.below(3).min(newest.last);
            let commit = newest.hard_state.commit.max(newest.last - back);
            batch.hard_state = Some(HardState { commit, ..newest.hard_state });
            batch.sync = false;
            return batch;
        }
        let floor = newest.hard_state.commit.max(newest.base.0);
        let mut first = newest.last + 1;
        if self.rng.below(6) == 0 && first > floor + 1 {
            // A new leader replaces what was not committed.
            first -= 1 + self.rng.below((first - floor - 1).min(4));
            self.term += 1;
            batch.hard_state = Some(HardState { term: self.term, vote: 2, ..newest.hard_state });
        }
        for index in first..=first + self.rng.below(4) {
            let bytes = [0, 20, 20, 200, 700, 1500][self.rng.below(6) as usize];
            batch.entries.push(entry(index, self.term, bytes));
        }
        batch
    }

    fn append(&mut self, batch: &Batch) -> Result<(), WalError> {
        self.edit(|p| {
            let mut next = p.newest().clone();
            next.apply(batch);
            p.states.push(next);
        });
        self.wal().append(batch)
    }

    /// One random step: a group, a truncation, a spare, a reset, a clean stop or a kill.
    pub(crate) fn step(&mut self) -> Result<(), WalError> {
        match self.rng.below(20) {
            0..=13 => self.group(),
            14 | 15 => {
                let to = self.edit(|p| {
                    let to = p.states[0].hard_state.commit;
                    p.dropped = p.dropped.max(to);
                    to
                });
                self.wal().truncate_front(to)
            }
            16 => {
                let step = self.wal().prepare_spare(3000)?;
                assert!(!matches!(step, SpareStep::NoRoom(_)));
                Ok(())
            }
            17 if self.rng.below(3) == 0 => self.reset(),
            18 => {
                if let Some(wal) = self.wal.take() {
                    wal.close_clean()?;
                }
                self.edit(Promise::synced);
                self.reopen()
            }
            _ => {
                // Killed; the page cache survives.
                self.wal = None;
                self.disk.restart();
                self.reopen()
            }
        }
    }

    fn group(&mut self) -> Result<(), WalError> {
        let mut synced = false;
        for _ in 0..=self.rng.below(3) {
            let batch = self.batch();
            synced |= batch.sync;
            self.append(&batch)?;
        }
        self.wal().commit()?;
        if synced {
            self.edit(Promise::synced);
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<(), WalError> {
        let last = self.edit(|p| p.newest().last) + 10;
        self.term += 1;
        let hard_state = HardState { term: self.term, vote: 0, commit: last };
        let base = (last, self.term);
        self.edit(|p| {
            p.states.push(Model { base, last, hard_state, entries: BTreeMap::new() });
            p.dropped = p.dropped.max(last);
        });
        self.wal().reset(base, hard_state)?;
        self.edit(Promise::synced);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), WalError> {
        let salt = self.rng.next_u64();
        let (wal, found) = recover(&self.disk, &options(salt))?;
        self.edit(|p| {
            assert!(p.kept(&found), "after a restart without power loss:\n{found:?}\n{p:#?}");
            // Whatever recovery returns may be acted upon.
            let dropped = p.dropped;
            p.states.retain(|s| s.is(&found, dropped));
            p.states.truncate(1);
        });
        self.wal = Some(wal);
        Ok(())
    }
}
