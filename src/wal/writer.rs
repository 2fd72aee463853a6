//! The writer: batches are encoded into one buffer, a commit is one write and at most one sync.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::group::{batch_len, check_entries, for_each_frame, head_frames, write_segment};
use super::pool::{Pool, Reserve, SpareStep};
use super::record::{self, Kind, Place};
use super::segment::{self, Header};
use super::{Batch, HardState, Identity, Options, WalError};
use crate::disk::{Disk, File, FileKind};

/// A buffer that a huge group made larger than this is given back.
const KEEP_BUFFER: usize = 8 * 1024 * 1024;

/// The segment being written.
pub(super) struct Active {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// Length of the file: up to here space is reserved.
    pub(super) capacity: u64,
    /// Where the next frame goes, the buffer not counted.
    pub(super) position: u64,
    /// End of the frames written before the file got its name.
    pub(super) head_end: u64,
    pub(super) base: (u64, u64),
    pub(super) max_index: u64,
}

/// A segment that is complete.
pub(super) struct Old {
    pub(super) path: PathBuf,
    pub(super) sequence: u64,
    pub(super) len: u64,
    pub(super) used: u64,
    pub(super) base: (u64, u64),
    /// Highest index of any entry in it, replaced ones included.
    pub(super) max_index: u64,
}

/// Where the log stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// Index and term of the last entry, or the base.
    pub(super) last: (u64, u64),
    pub(super) hard_state: HardState,
    /// Sequence of the last frame.
    pub(super) sequence: u64,
    /// Frames up to this one are on disk.
    pub(super) synced: u64,
}

/// Sizes for metrics and for the decision what to truncate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalSizes {
    /// Segments of the log.
    pub segments: usize,
    /// Segments prepared ahead.
    pub spare_segments: usize,
    /// Bytes of the files of both.
    pub allocated_bytes: u64,
    /// Bytes of frames written.
    pub used_bytes: u64,
    /// Index before the first entry kept.
    pub base_index: u64,
    /// Index of the last entry.
    pub last_index: u64,
    /// Segments begun by this process.
    pub rolls: u64,
    /// Those for which no spare was ready.
    pub rolls_without_spare: u64,
}

/// The only writer of a log.
pub struct Wal {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) opts: Options,
    pub(super) identity: Identity,
    pub(super) pool: Pool,
    pub(super) active: Active,
    pub(super) older: VecDeque<Old>,
    pub(super) tail: Tail,
    pub(super) buffer: Vec<u8>,
    pub(super) want_sync: bool,
    pub(super) failed: bool,
    pub(super) rolls: u64,
    pub(super) rolls_without_spare: u64,
}

impl Wal {
    /// Starts a new log in an empty directory, which is created if missing. `first` is durable
    /// when this returns.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        opts: &Options,
        identity: Identity,
        base: (u64, u64),
        first: &Batch,
    ) -> Result<Wal, WalError> {
        disk.create_dir(dir)?;
        let listing = segment::list(&*disk, dir)?;
        if !listing.segments.is_empty() {
            return Err(WalError::Exists { dir: dir.to_owned() });
        }
        for path in listing.temporaries {
            disk.remove(&path, FileKind::Wal)?;
        }
        let mut pool = Pool::new(&*disk, dir, opts, listing.spares)?;
        let header = Header {
            sequence: 1,
            previous: 0,
            salt: opts.salt,
            first_frame: 1,
            head_through: 0,
            reset: true,
        };
        // The first batch is part of the head: a log exists with it or not at all.
        check_entries(&first.entries, base.0, base.0)?;
        let mut frames = head_frames(&identity, base, &HardState::default());
        for_each_frame(first, |hard_state, entries| {
            let mut payload = Vec::new();
            record::put_batch(&mut payload, hard_state, entries);
            frames.push((Kind::Batch, payload.into()));
        });
        let mut active =
            write_segment(&*disk, dir, &mut pool, header, base, &frames, Reserve::Must)?;
        let sequence = active.header.head_through;
        let mut tail = Tail { last: base, sequence, synced: sequence, ..Tail::default() };
        tail.hard_state = first.hard_state.unwrap_or_default();
        if let Some(last) = first.entries.last() {
            tail.last = (last.index, last.term);
            active.max_index = last.index;
        }
        Ok(Wal::new(disk, dir, opts, identity, pool, active, VecDeque::new(), tail))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a writer, assembled in two places")]
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        opts: &Options,
        identity: Identity,
        pool: Pool,
        active: Active,
        older: VecDeque<Old>,
        tail: Tail,
    ) -> Self {
        Wal {
            disk,
            dir: dir.to_owned(),
            opts: opts.clone(),
            identity,
            pool,
            active,
            older,
            tail,
            buffer: Vec::new(),
            want_sync: false,
            failed: false,
            rolls: 0,
            rolls_without_spare: 0,
        }
    }

    /// Encodes a batch into the group of the next [`Wal::commit`]. Nothing is written unless the
    /// segment is full. After [`WalError::NoSpace`] the batch is not part of the group and may be
    /// appended again later.
    pub fn append(&mut self, batch: &Batch) -> Result<(), WalError> {
        if self.failed {
            return Err(WalError::Failed);
        }
        check_entries(&batch.entries, self.base().0, self.tail.last.0)?;
        if !batch.entries.is_empty() || batch.hard_state.is_some() {
            self.make_room(batch_len(batch))?;
            for_each_frame(batch, |hard_state, entries| {
                self.encode(Kind::Batch, |out| record::put_batch(out, hard_state, entries));
            });
            if let Some(hard_state) = batch.hard_state {
                self.tail.hard_state = hard_state;
            }
            if let Some(last) = batch.entries.last() {
                self.tail.last = (last.index, last.term);
                self.active.max_index = self.active.max_index.max(last.index);
            }
        }
        self.want_sync |= batch.sync;
        Ok(())
    }

    /// Writes the group: one write, and one `fdatasync` if any batch of it asked for it. When this
    /// returns, everything appended before is in the file, and on disk if it was synced.
    pub fn commit(&mut self) -> Result<(), WalError> {
        self.commit_marked(&mut || ())
    }

    /// [`Wal::commit`] that calls `written` between write and sync, so that the caller can tell
    /// the two apart.
    pub fn commit_marked(&mut self, written: &mut dyn FnMut()) -> Result<(), WalError> {
        if self.failed {
            return Err(WalError::Failed);
        }
        // Pessimistic: any early return below leaves the writer closed.
        self.failed = true;
        if !self.buffer.is_empty() {
            self.active.file.write_at(&self.buffer, self.active.position)?;
            self.active.position += self.buffer.len() as u64;
            self.active.capacity = self.active.capacity.max(self.active.position);
            self.buffer.clear();
            self.buffer.shrink_to(KEEP_BUFFER);
        }
        written();
        if self.want_sync && self.tail.synced < self.tail.sequence {
            self.active.file.sync_data()?;
            self.tail.synced = self.tail.sequence;
        }
        self.want_sync = false;
        self.failed = false;
        Ok(())
    }

    /// Drops the segments whose entries all have an index of at most `to_index`, oldest first; the
    /// caller guarantees that these are durable elsewhere. Files are kept as spares if some are
    /// wanted.
    pub fn truncate_front(&mut self, to_index: u64) -> Result<(), WalError> {
        if self.failed {
            return Err(WalError::Failed);
        }
        let count = self.older.iter().take_while(|old| old.max_index <= to_index).count();
        self.drop_oldest(count)
    }

    /// Starts over behind `base` with this hard state: everything before is void, durably, when
    /// this returns. For an installed snapshot, or a store that is ahead of its log.
    pub fn reset(&mut self, base: (u64, u64), hard_state: HardState) -> Result<(), WalError> {
        self.want_sync = true;
        self.commit()?;
        let before = self.tail;
        self.tail.last = base;
        self.tail.hard_state = hard_state;
        if let Err(error) = self.start_segment(true) {
            self.tail = before;
            return Err(error);
        }
        self.drop_oldest(self.older.len())
    }

    /// Writes at most about `budget_bytes` towards the spare segments; for the writer's thread when
    /// it is idle. A failure other than lack of room is final.
    pub fn prepare_spare(&mut self, budget_bytes: u64) -> Result<SpareStep, WalError> {
        if self.failed {
            return Err(WalError::Failed);
        }
        let step = self.pool.prepare(&*self.disk, budget_bytes);
        self.failed = step.is_err();
        step
    }

    /// Commits what is left, syncs, and marks the log as closed in order.
    pub fn close_clean(mut self) -> Result<(), WalError> {
        self.want_sync = true;
        self.commit()?;
        self.encode(Kind::Clean, |_| {});
        self.want_sync = true;
        self.commit()
    }

    /// The highest index that [`Wal::truncate_front`] may be given so that at least `bytes` of the
    /// newest frames stay for slow followers; the base if there are not more.
    pub fn index_leaving(&self, bytes: u64) -> u64 {
        let mut kept = self.active.position;
        for old in self.older.iter().rev() {
            if kept >= bytes {
                return old.max_index;
            }
            kept = kept.saturating_add(old.used);
        }
        self.base().0
    }

    /// Sizes and counters.
    pub fn sizes(&self) -> WalSizes {
        let spares = self.pool.ready();
        WalSizes {
            segments: self.older.len() + 1,
            spare_segments: spares,
            allocated_bytes: self.older.iter().map(|o| o.len).sum::<u64>()
                + self.active.capacity
                + spares as u64 * self.opts.segment_bytes,
            used_bytes: self.older.iter().map(|o| o.used).sum::<u64>() + self.active.position,
            base_index: self.base().0,
            last_index: self.tail.last.0,
            rolls: self.rolls,
            rolls_without_spare: self.rolls_without_spare,
        }
    }

    fn base(&self) -> (u64, u64) {
        self.older.front().map_or(self.active.base, |old| old.base)
    }

    fn encode(&mut self, kind: Kind, payload: impl FnOnce(&mut Vec<u8>)) {
        self.tail.sequence += 1;
        let place = Place {
            seed: record::segment_seed(self.active.header.sequence, self.active.header.salt),
            position: self.active.position + self.buffer.len() as u64,
            sequence: self.tail.sequence,
            synced_through: self.tail.synced,
        };
        record::encode(&mut self.buffer, place, kind, payload);
    }

    /// Makes sure that `bytes` fit behind the buffer, in a new segment if need be.
    fn make_room(&mut self, bytes: u64) -> Result<(), WalError> {
        let end = self.active.position + self.buffer.len() as u64;
        if end + bytes <= self.active.capacity {
            return Ok(());
        }
        if end > self.active.head_end {
            // The group goes on in the new segment and keeps its wish for a sync.
            let asked = std::mem::replace(&mut self.want_sync, true);
            self.commit()?;
            self.want_sync = asked;
            self.start_segment(false)?;
        }
        let end = self.active.position + bytes;
        if end > self.active.capacity {
            // A batch larger than a segment makes the segment larger: batches never straddle.
            self.active.file.allocate(end).map_err(|fault| match fault.is_no_space() {
                true => WalError::NoSpace(fault),
                false => WalError::Fault(fault),
            })?;
            self.active.capacity = end;
        }
        Ok(())
    }

    fn start_segment(&mut self, reset: bool) -> Result<(), WalError> {
        let old = &self.active.header;
        let header = Header {
            sequence: old.sequence + 1,
            previous: if reset { 0 } else { old.sequence },
            salt: self.opts.salt,
            first_frame: self.tail.sequence + 1,
            head_through: 0,
            reset,
        };
        let base = self.tail.last;
        let frames = head_frames(&self.identity, base, &self.tail.hard_state);
        let without_spare = self.pool.ready() == 0;
        let (disk, pool) = (&*self.disk, &mut self.pool);
        let active =
            match write_segment(disk, &self.dir, pool, header, base, &frames, Reserve::Must) {
                Err(error) => {
                    self.failed = !matches!(error, WalError::NoSpace(_));
                    return Err(error);
                }
                Ok(active) => active,
            };
        self.tail.sequence = active.header.head_through;
        self.tail.synced = active.header.head_through;
        let old = std::mem::replace(&mut self.active, active);
        self.older.push_back(Old {
            path: old.path,
            sequence: old.header.sequence,
            len: old.capacity,
            used: old.position,
            base: old.base,
            max_index: old.max_index,
        });
        self.rolls += 1;
        self.rolls_without_spare += u64::from(without_spare);
        Ok(())
    }

    fn drop_oldest(&mut self, count: usize) -> Result<(), WalError> {
        if count == 0 {
            return Ok(());
        }
        self.failed = true;
        for old in self.older.drain(..count) {
            self.pool.recycle(&*self.disk, &old.path, old.len)?;
        }
        self.disk.sync_dir(&self.dir, FileKind::Wal)?;
        self.failed = false;
        Ok(())
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let oldest = self.older.front().map(|old| old.sequence);
        f.debug_struct("Wal")
            .field("dir", &self.dir)
            .field("segment", &self.active.header.sequence)
            .field("oldest", &oldest)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}
