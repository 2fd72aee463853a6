//! State of the simulated disk: bytes that are durable, bytes that are not, names likewise.
//!
//! The content readers see is the page cache. For each 512-byte sector that differs from the device
//! the older contents are kept, the durable one first, so a power loss is a choice per sector.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::plan::{PowerLoss, SimRng, StaleReads};
use crate::disk::Entry;

/// Sector size in bytes: what a device writes as a unit, unless it tears even that.
pub(super) const SECTOR: usize = 512;

/// Unsynced contents remembered per sector. A sector of the log tail is rewritten once per group
/// and synced soon; more versions would only cost memory.
const MAX_VERSIONS: usize = 6;

type Sector = [u8; SECTOR];

#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) data: Vec<u8>,
    durable_len: usize,
    /// Sectors with unsynced content: what they held before, oldest (durable) first.
    dirty: BTreeMap<usize, Vec<Sector>>,
    /// Sectors dropped by a failed sync: clean for the cache, never written, with what the device
    /// holds.
    stale: BTreeMap<usize, Sector>,
    /// End of the reserved or written part; what counts against the capacity.
    pub(super) allocated: u64,
    pub(super) locked: bool,
    pub(super) handles: usize,
}

impl Inode {
    fn sector(&self, at: usize) -> Sector {
        let mut content = [0; SECTOR];
        let from = (at * SECTOR).min(self.data.len());
        let to = (from + SECTOR).min(self.data.len());
        content[..to - from].copy_from_slice(&self.data[from..to]);
        content
    }

    fn restore(&mut self, at: usize, content: &[u8]) {
        let from = (at * SECTOR).min(self.data.len());
        let to = (from + content.len()).min(self.data.len());
        self.data[from..to].copy_from_slice(&content[..to - from]);
    }

    fn touch(&mut self, at: usize) {
        let current = self.sector(at);
        let durable = self.stale.remove(&at);
        let versions = self.dirty.entry(at).or_default();
        if versions.is_empty() {
            versions.push(durable.unwrap_or(current));
        } else {
            versions.push(current);
            if versions.len() > MAX_VERSIONS {
                versions.remove(1);
            }
        }
    }

    pub(super) fn write(&mut self, buf: &[u8], offset: usize) {
        if buf.is_empty() {
            return;
        }
        let end = offset + buf.len();
        for at in offset / SECTOR..=(end - 1) / SECTOR {
            self.touch(at);
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(buf);
        self.allocated = self.allocated.max(end as u64);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        if len < self.data.len() {
            for at in len / SECTOR..self.data.len().div_ceil(SECTOR) {
                self.touch(at);
            }
            self.allocated = self.allocated.min(len as u64);
        }
        self.data.resize(len, 0);
    }

    pub(super) fn sync(&mut self) {
        self.dirty.clear();
        self.durable_len = self.data.len();
    }

    /// A failed sync that drops the dirty sectors and marks them clean. The length stays pending.
    pub(super) fn fail_sync(&mut self, reads: StaleReads) {
        for (at, mut versions) in std::mem::take(&mut self.dirty) {
            let durable = versions.swap_remove(0);
            match reads {
                StaleReads::Old => self.restore(at, &durable),
                StaleReads::New => _ = self.stale.insert(at, durable),
            }
        }
    }

    pub(super) fn drop_cache(&mut self) {
        for (at, durable) in std::mem::take(&mut self.stale) {
            self.restore(at, &durable);
        }
    }

    /// Choices a power loss has in this file: one per unsynced sector and one for the length.
    pub(super) fn unsynced(&self) -> usize {
        self.dirty.len() + usize::from(self.durable_len != self.data.len())
    }

    fn lose_power(&mut self, mode: PowerLoss, bit: &mut u32, rng: &mut SimRng) {
        self.drop_cache();
        let cached_len = self.data.len();
        let dirty = std::mem::take(&mut self.dirty);
        let mut lost_shrink = false;
        if self.durable_len != cached_len && !mode.keeps(bit, rng) {
            self.data.resize(self.durable_len, 0);
            lost_shrink = self.durable_len > cached_len;
        }
        for (at, versions) in dirty {
            let kept = mode.keeps(bit, rng);
            // A truncation that never happened left everything behind the cut as it was.
            let undone = lost_shrink && (at + 1) * SECTOR > cached_len;
            if undone || !kept {
                self.restore(at, &versions[0]);
            } else if let PowerLoss::Random { torn } = mode {
                match rng.below(8) {
                    0 if torn => {
                        // The head of the sector reached the device, the rest did not.
                        let head = rng.below(SECTOR as u64) as usize;
                        let mut mixed = self.sector(at);
                        mixed[head..].copy_from_slice(&versions[0][head..]);
                        self.restore(at, &mixed);
                    }
                    1 | 2 => {
                        let pick = rng.below(versions.len() as u64) as usize;
                        self.restore(at, &versions[pick]);
                    }
                    _ => {}
                }
            }
        }
        self.durable_len = self.data.len();
        self.allocated = self.allocated.max(self.data.len() as u64);
        self.locked = false;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

#[derive(Clone, Debug)]
enum NameOp {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameOp {
    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameOp::Link(path, _) | NameOp::Unlink(path) => path.parent() == Some(dir),
            NameOp::Rename(from, to) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            NameOp::Link(path, inode) => _ = names.insert(path, Node::File(inode)),
            NameOp::Unlink(path) => _ = names.remove(&path),
            NameOp::Rename(from, to) => {
                if let Some(node) = names.remove(&from) {
                    names.insert(to, node);
                }
            }
        }
    }
}

/// Everything on the disk; cloned to try many futures of one past.
#[derive(Clone, Default)]
pub(super) struct Files {
    pub(super) inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    pending: Vec<NameOp>,
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Files {
    pub(super) fn lookup(&self, path: &Path) -> Option<Node> {
        let is_root = path.as_os_str().is_empty() || path.parent().is_none();
        if is_root { Some(Node::Dir) } else { self.names.get(path).copied() }
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.lookup(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Dir) => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            None => Err(not_found()),
        }
    }

    fn dir(&self, path: &Path) -> io::Result<()> {
        match self.lookup(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            None => Err(not_found()),
        }
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<u64> {
        self.dir(path.parent().unwrap_or(Path::new("")))?;
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        self.names.insert(path.to_owned(), Node::File(inode));
        self.pending.push(NameOp::Link(path.to_owned(), inode));
        Ok(inode)
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        for dir in path.ancestors() {
            match self.lookup(dir) {
                Some(Node::Dir) => break,
                Some(Node::File(_)) => return Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                None => {
                    self.names.insert(dir.to_owned(), Node::Dir);
                    self.durable_names.insert(dir.to_owned(), Node::Dir);
                }
            }
        }
        Ok(())
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.dir(dir)?;
        let inside = self.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let entries = inside.map(|(path, node)| Entry {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            is_dir: *node == Node::Dir,
            len: match node {
                Node::Dir => 0,
                Node::File(inode) => self.inodes.get(inode).map_or(0, |i| i.data.len() as u64),
            },
        });
        Ok(entries.collect())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.file(from)?;
        self.dir(to.parent().unwrap_or(Path::new("")))?;
        let op = NameOp::Rename(from.to_owned(), to.to_owned());
        op.clone().apply(&mut self.names);
        self.pending.push(op);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let op = NameOp::Unlink(path.to_owned());
        op.clone().apply(&mut self.names);
        self.pending.push(op);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.dir(dir)?;
        let (done, rest) =
            std::mem::take(&mut self.pending).into_iter().partition(|op| op.touches(dir));
        self.pending = rest;
        let done: Vec<NameOp> = done;
        done.into_iter().for_each(|op| op.apply(&mut self.durable_names));
        self.collect();
        Ok(())
    }

    /// Forgets files that no name, no pending name and no handle can reach.
    pub(super) fn collect(&mut self) {
        if !self.pending.is_empty() {
            return;
        }
        let mut reachable: Vec<u64> = Vec::new();
        for node in self.names.values().chain(self.durable_names.values()) {
            if let Node::File(inode) = node {
                reachable.push(*inode);
            }
        }
        self.inodes.retain(|id, inode| inode.handles > 0 || reachable.contains(id));
    }

    pub(super) fn unsynced(&self) -> usize {
        self.inodes.values().map(Inode::unsynced).sum()
    }

    pub(super) fn lose_power(&mut self, mode: PowerLoss, rng: &mut SimRng) {
        let mut bit = 0;
        for inode in self.inodes.values_mut() {
            inode.lose_power(mode, &mut bit, rng);
        }
        // Names survive in order: a journal is replayed from the front. Each directory has its own.
        let mut stopped: Vec<PathBuf> = Vec::new();
        for op in std::mem::take(&mut self.pending) {
            let (NameOp::Link(path, _) | NameOp::Unlink(path) | NameOp::Rename(_, path)) = &op;
            let dir = path.parent().unwrap_or(Path::new("")).to_owned();
            if stopped.contains(&dir) {
                continue;
            }
            if mode.keeps_name(rng) {
                op.apply(&mut self.durable_names);
            } else {
                stopped.push(dir);
            }
        }
        self.names = self.durable_names.clone();
        self.inodes.values_mut().for_each(|inode| inode.handles = 0);
        self.collect();
    }

    pub(super) fn allocated(&self) -> u64 {
        self.inodes.values().map(|i| i.allocated).sum()
    }
}
