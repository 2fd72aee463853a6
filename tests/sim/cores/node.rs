//! One simulated member: a real core, a fake disk that lags and forgets, a toy state machine.

use assay::consensus::{
    Batch, BootstrapMember, BrokenRule, Committed, ConfState, Config, Core, Entry, HardState,
    Input, Restored, SnapshotMeta, Token, bootstrap,
};
use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Entries kept for followers: few, so that snapshots are needed often.
const TAIL_ENTRIES: u64 = 5;

/// What the state machine holds, and what its store saves in one transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Store {
    pub(crate) applied: u64,
    pub(crate) term: u64,
    /// Hash of everything applied so far.
    pub(crate) state: u64,
    pub(crate) conf: ConfState,
}

impl Store {
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { index: self.applied, term: self.term, conf_state: self.conf.clone() }
    }

    pub(crate) fn apply(&mut self, c: &Committed) {
        assert_eq!(c.entry.index, self.applied + 1, "applied out of order");
        let mut hasher = DefaultHasher::new();
        (self.state, c.entry.index, c.entry.term, &c.entry.data[..]).hash(&mut hasher);
        self.state = hasher.finish();
        self.applied = c.entry.index;
        self.term = c.entry.term;
        if let Some(conf) = &c.conf_state {
            self.conf = conf.clone();
        }
    }
}

/// What survives a crash.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) base: (u64, u64),
    pub(crate) log: Vec<Entry>,
    /// Written, perhaps not synced.
    pub(crate) hard_state: HardState,
    /// Synced.
    pub(crate) synced: HardState,
    pub(crate) store: Store,
}

impl Disk {
    /// A founding member: its log holds the members, nothing is applied.
    pub(crate) fn founded(members: &[u64]) -> Disk {
        let member = |id: &u64| BootstrapMember { id: *id, context_json: Bytes::new() };
        let members: Vec<BootstrapMember> = members.iter().map(member).collect();
        let (log, hard_state) = bootstrap(&members);
        Disk { log, hard_state, synced: hard_state, ..Disk::default() }
    }

    /// A member whose store holds a configuration.
    pub(crate) fn with(conf: ConfState) -> Disk {
        let store = Store { applied: 1, term: 1, state: 0, conf };
        Disk { base: (1, 1), store, ..Disk::default() }
    }

    fn write(&mut self, batch: &Batch) {
        if let Some(first) = batch.entries.first() {
            assert!(first.index > self.base.0, "batch below the log's base");
            let keep = (first.index - self.base.0 - 1) as usize;
            assert!(keep <= self.log.len(), "batch leaves a gap");
            self.log.truncate(keep);
            self.log.extend_from_slice(&batch.entries);
        }
        if let Some(hard_state) = batch.hard_state {
            self.hard_state = hard_state;
        }
        if batch.sync {
            self.synced = self.hard_state;
        }
    }

    fn truncate(&mut self, index: u64, term: u64) {
        let dropped = (index - self.base.0) as usize;
        assert_eq!(self.log[dropped - 1].term, term, "base record does not match the log");
        self.log.drain(..dropped);
        self.base = (index, term);
    }
}

/// One thing on its way to the disk.
pub(crate) enum Write {
    Batch(Batch),
    /// Swap the store for a staged snapshot.
    Swap(Store),
    /// Begin the log anew behind a snapshot, with the batch that belongs there.
    Rebase(SnapshotMeta, Batch),
}

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) core: Option<Core>,
    pub(crate) disk: Disk,
    /// In memory: what is applied.
    pub(crate) store: Store,
    pub(crate) wal: VecDeque<(u64, Write)>,
    pub(crate) apply: VecDeque<(u64, Vec<Committed>)>,
    /// Down until this time.
    pub(crate) down: u64,
    pub(crate) boot: u64,
    pub(crate) inputs: Vec<Input>,
    /// Rows received and not installed.
    pub(crate) staged: Option<Store>,
    /// A log that is to begin anew with the next batch.
    pub(crate) rebase: Option<SnapshotMeta>,
    /// Views opened for followers.
    pub(crate) views: BTreeMap<u64, Store>,
    /// Reads under way, with the index they must see.
    pub(crate) reads: BTreeMap<Token, u64>,
    /// Whether something that was applied or saved must be reported.
    progressed: bool,
}

impl Node {
    pub(crate) fn new(id: u64, disk: Disk) -> Node {
        Node {
            id,
            core: None,
            store: disk.store.clone(),
            disk,
            wal: VecDeque::new(),
            apply: VecDeque::new(),
            down: 0,
            boot: 0,
            inputs: Vec::new(),
            staged: None,
            rebase: None,
            views: BTreeMap::new(),
            reads: BTreeMap::new(),
            progressed: false,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.core.is_some()
    }

    pub(crate) fn start(&mut self, seed: u64, broken: Option<BrokenRule>) {
        self.boot += 1;
        let config = Config {
            seed,
            boot: self.boot,
            log_cache_entries: TAIL_ENTRIES,
            broken,
            ..Config::new(self.id)
        };
        let restored = Restored {
            hard_state: self.disk.hard_state,
            base: self.disk.base,
            entries: self.disk.log.clone(),
            applied: (self.disk.store.applied, self.disk.store.term),
            conf_state: self.disk.store.conf.clone(),
        };
        let core = Core::new(&config, restored).expect("a restart is never refused");
        if let Some(new) = core.new_log() {
            self.disk.base = new.base;
            self.disk.log.clear();
            self.disk.hard_state = new.hard_state;
            self.disk.synced = new.hard_state;
        }
        self.store = self.disk.store.clone();
        self.core = Some(core);
    }

    /// Power is lost. A random part of what was on its way is on disk, unconfirmed; what was not
    /// synced may be gone.
    pub(crate) fn crash(&mut self, rng: &mut ChaCha8Rng) {
        let arrived = if rng.random_ratio(1, 2) { rng.random_range(0..=self.wal.len()) } else { 0 };
        for (_, write) in self.wal.drain(..).take(arrived) {
            match write {
                Write::Batch(batch) => self.disk.write(&batch),
                Write::Swap(store) => self.disk.store = store,
                Write::Rebase(meta, batch) => rebase(&mut self.disk, &meta, &batch),
            }
        }
        if rng.random_ratio(1, 2) {
            self.disk.hard_state = self.disk.synced;
        }
        self.wal.clear();
        self.core = None;
        self.apply.clear();
        self.inputs.clear();
        self.staged = None;
        self.rebase = None;
        self.views.clear();
        self.reads.clear();
        self.progressed = false;
    }

    /// Carries out what the disk has finished by now. Returns the snapshots installed.
    pub(crate) fn disk_completions(&mut self, now: u64) -> u64 {
        let mut installed = 0;
        while let Some((_, write)) = self.wal.pop_front_if(|(due, _)| *due <= now) {
            match write {
                Write::Batch(batch) => {
                    self.disk.write(&batch);
                    self.inputs.push(Input::Persisted { batch: batch.number });
                }
                Write::Swap(store) => {
                    self.disk.store = store.clone();
                    self.store = store;
                }
                Write::Rebase(meta, batch) => {
                    rebase(&mut self.disk, &meta, &batch);
                    self.inputs.push(Input::Persisted { batch: batch.number });
                    self.inputs.push(Input::Installed(meta));
                    installed += 1;
                }
            }
        }
        installed
    }

    /// Applies what is due and hands every committed entry and the state after it to `seen`.
    pub(crate) fn apply_completions(&mut self, now: u64, mut seen: impl FnMut(&Committed, &Store)) {
        while let Some((_, entries)) = self.apply.pop_front_if(|(due, _)| *due <= now) {
            for c in &entries {
                self.store.apply(c);
                seen(c, &self.store);
            }
            self.progressed = true;
        }
    }

    /// The store makes a durable commit of what is applied.
    pub(crate) fn save(&mut self) {
        self.disk.store = self.store.clone();
        self.progressed = true;
    }

    pub(crate) fn report_progress(&mut self) {
        if std::mem::take(&mut self.progressed) {
            let (index, durable) = (self.store.applied, self.disk.store.applied);
            self.inputs.push(Input::Applied { index, durable });
        }
    }

    pub(crate) fn persist(&mut self, batch: Batch, due: u64) {
        let write = match self.rebase.take() {
            Some(meta) => Write::Rebase(meta, batch),
            None => Write::Batch(batch),
        };
        self.wal.push_back((due, write));
    }

    pub(crate) fn install(&mut self, meta: SnapshotMeta, due: u64) {
        let rows = self.staged.take().expect("installed without staged rows");
        assert_eq!(rows.meta(), meta, "another snapshot is staged");
        self.rebase = Some(meta);
        self.wal.push_back((due, Write::Swap(rows)));
    }

    pub(crate) fn truncate(&mut self, index: u64, term: u64) {
        self.disk.truncate(index, term);
    }
}

fn rebase(disk: &mut Disk, meta: &SnapshotMeta, batch: &Batch) {
    disk.base = (meta.index, meta.term);
    disk.log.clear();
    disk.write(batch);
    disk.synced = disk.hard_state;
}
