//! A deterministic disk in memory for tests: it crashes, loses power, tears sectors and fails syncs
//! exactly when told.
//!
//! Operations that change something are numbered from zero, so that a test can run a workload once,
//! count, and then repeat it with a crash at every number. A crash of the process keeps the page
//! cache; a power loss keeps what was synced and an arbitrary part of the rest.

mod file;
mod plan;
mod state;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Disk, Entry, Fault, File, FileKind, Free, IoOp, IoStats, Open, measured};
use file::SimFile;
use state::{Files, Node};

pub use plan::{Action, PowerLoss, SimOp, SimRng, StaleReads};

type Hook = Arc<dyn Fn(&SimOp) -> Action + Send + Sync>;

#[derive(Default)]
struct State {
    files: Files,
    crashed: bool,
    epoch: u64,
    next_op: u64,
    plan: BTreeMap<u64, Action>,
    hook: Option<Hook>,
    capacity: Option<u64>,
    record: Option<Vec<SimOp>>,
}

impl State {
    fn check_room(&self, inode: u64, end: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity else { return Ok(()) };
        let own = self.files.inodes.get(&inode).map_or(0, |i| i.allocated);
        let wanted = self.files.allocated() - own + own.max(end);
        let grows = end > own;
        if grows && wanted > capacity { Err(errno(libc::ENOSPC)) } else { Ok(()) }
    }
}

/// The simulated disk. Clones share one state; [`SimDisk::fork`] makes an independent one.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    stats: Arc<IoStats>,
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn crash_error() -> io::Error {
    io::Error::other("simulated crash")
}

impl SimDisk {
    /// An empty disk without limits.
    pub fn new() -> Self {
        SimDisk { state: Arc::default(), stats: Arc::new(IoStats::new()) }
    }

    /// An independent copy of the present state without plan, hook or record. Handles opened before
    /// belong to the original.
    pub fn fork(&self) -> Self {
        let state = self.state.lock();
        let mut files = state.files.clone();
        files.inodes.values_mut().for_each(|i| (i.handles, i.locked) = (0, false));
        let copy =
            State { files, next_op: state.next_op, capacity: state.capacity, ..State::default() };
        SimDisk { state: Arc::new(Mutex::new(copy)), stats: Arc::clone(&self.stats) }
    }

    /// Number of changing operations so far; the number of the next one.
    pub fn ops(&self) -> u64 {
        self.state.lock().next_op
    }

    /// Decides what happens to the operation with this number.
    pub fn plan(&self, number: u64, action: Action) {
        self.state.lock().plan.insert(number, action);
    }

    /// Asks before every changing operation that has no plan; called without any lock held, so it
    /// may advance virtual time or block to simulate a slow or hung disk.
    pub fn set_hook(&self, hook: impl Fn(&SimOp) -> Action + Send + Sync + 'static) {
        self.state.lock().hook = Some(Arc::new(hook));
    }

    /// Forgets plan and hook.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.plan.clear();
        state.hook = None;
    }

    /// Limits the sum of reserved and written bytes; growth beyond fails with `ENOSPC`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Starts to remember every changing operation.
    pub fn start_recording(&self) {
        self.state.lock().record = Some(Vec::new());
    }

    /// What was recorded; recording stops.
    pub fn recorded(&self) -> Vec<SimOp> {
        self.state.lock().record.take().unwrap_or_default()
    }

    /// Kills the process now: every operation fails until [`SimDisk::restart`].
    pub fn crash(&self) {
        self.state.lock().crashed = true;
    }

    /// Whether the process is dead.
    pub fn crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// A new process: the page cache is as the old one left it, old handles and locks are gone.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.crashed = false;
        state.epoch += 1;
        state.files.inodes.values_mut().for_each(|i| (i.handles, i.locked) = (0, false));
        state.files.collect();
    }

    /// Power fails now and comes back: what was not synced survives as `mode` says; then as
    /// [`SimDisk::restart`].
    pub fn power_loss(&self, mode: PowerLoss, rng: &mut SimRng) {
        self.state.lock().files.lose_power(mode, rng);
        self.restart();
    }

    /// Independent choices a power loss would have: unsynced sectors and unsynced lengths.
    pub fn unsynced(&self) -> usize {
        self.state.lock().files.unsynced()
    }

    /// The content of a file as readers see it.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inode = state.files.file(path).ok()?;
        state.files.inodes.get(&inode).map(|i| i.data.clone())
    }

    /// Flips one bit, on the device and in the cache. Returns whether the file has that byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        let mut state = self.state.lock();
        let Ok(inode) = state.files.file(path) else { return false };
        let data = state.files.inodes.get_mut(&inode).map(|i| &mut i.data);
        match data.and_then(|d| d.get_mut(usize::try_from(offset).ok()?)) {
            Some(byte) => {
                *byte ^= 1 << (bit % 8);
                true
            }
            None => false,
        }
    }

    /// Decides about one changing operation. `Ok` returns the locked state and the action, which is
    /// one that the caller has to carry out in part or whole.
    fn begin(
        &self,
        kind: FileKind,
        op: IoOp,
        path: &Path,
        offset: u64,
        bytes: u64,
        epoch: Option<u64>,
    ) -> io::Result<(MutexGuard<'_, State>, Action)> {
        let mut state = self.alive(epoch)?;
        let number = state.next_op;
        state.next_op += 1;
        let op = SimOp { number, kind, op, path: path.to_owned(), offset, bytes };
        if let Some(record) = &mut state.record {
            record.push(op.clone());
        }
        let mut action = state.plan.remove(&number).unwrap_or(Action::Proceed);
        if let (Action::Proceed, Some(hook)) = (action, state.hook.clone()) {
            drop(state);
            action = hook(&op);
            state = self.alive(epoch)?;
        }
        match action {
            Action::Crash => {
                state.crashed = true;
                Err(crash_error())
            }
            Action::CrashHalfway => {
                state.crashed = true;
                if op.op == IoOp::Write { Ok((state, action)) } else { Err(crash_error()) }
            }
            Action::Fail(number) => Err(errno(number)),
            _ => Ok((state, action)),
        }
    }

    fn alive(&self, epoch: Option<u64>) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        let stale = epoch.is_some_and(|e| e != state.epoch);
        if state.crashed || stale { Err(crash_error()) } else { Ok(state) }
    }

    fn open_raw(&self, path: &Path, kind: FileKind, how: Open) -> io::Result<SimFile> {
        let exists = matches!(self.alive(None)?.files.lookup(path), Some(Node::File(_)));
        let inode = match how {
            Open::CreateNew if exists => {
                return Err(io::Error::from(io::ErrorKind::AlreadyExists));
            }
            Open::CreateNew | Open::CreateOrOpen if !exists => {
                let (mut state, _) = self.begin(kind, IoOp::Open, path, 0, 0, None)?;
                state.files.create(path)?
            }
            _ => self.alive(None)?.files.file(path)?,
        };
        let mut state = self.alive(None)?;
        if let Some(inode) = state.files.inodes.get_mut(&inode) {
            inode.handles += 1;
        }
        let epoch = state.epoch;
        Ok(SimFile::new(self, inode, epoch, how != Open::Read, kind, path))
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, kind: FileKind, how: Open) -> Result<File, Fault> {
        let raw = measured(&self.stats, kind, IoOp::Open, path, || self.open_raw(path, kind, how))?;
        Ok(File::new(Box::new(raw), path, kind, Arc::clone(&self.stats)))
    }

    fn create_dir(&self, path: &Path) -> Result<(), Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, path, || {
            if self.alive(None)?.files.lookup(path) == Some(Node::Dir) {
                return Ok(());
            }
            let (mut state, _) = self.begin(FileKind::Meta, IoOp::List, path, 0, 0, None)?;
            state.files.create_dir(path)
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, dir, || self.alive(None)?.files.list(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, path, || {
            Ok(self.alive(None)?.files.lookup(path).is_some())
        })
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::Rename, from, || {
            let (mut state, _) = self.begin(kind, IoOp::Rename, from, 0, 0, None)?;
            state.files.rename(from, to)
        })
    }

    fn remove(&self, path: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::Remove, path, || {
            let (mut state, _) = self.begin(kind, IoOp::Remove, path, 0, 0, None)?;
            state.files.remove(path)
        })
    }

    fn sync_dir(&self, dir: &Path, kind: FileKind) -> Result<(), Fault> {
        measured(&self.stats, kind, IoOp::SyncDir, dir, || {
            let (mut state, action) = self.begin(kind, IoOp::SyncDir, dir, 0, 0, None)?;
            match action {
                Action::DropDirty(_) => Err(errno(libc::EIO)),
                Action::Pretend => Ok(()),
                _ => state.files.sync_dir(dir),
            }
        })
    }

    fn free(&self, dir: &Path) -> Result<Free, Fault> {
        measured(&self.stats, FileKind::Meta, IoOp::List, dir, || {
            let state = self.alive(None)?;
            let total_bytes = state.capacity.unwrap_or(u64::MAX);
            let bytes = total_bytes.saturating_sub(state.files.allocated());
            Ok(Free { bytes, total_bytes, inodes: u64::MAX })
        })
    }

    fn stats(&self) -> &Arc<IoStats> {
        &self.stats
    }
}
