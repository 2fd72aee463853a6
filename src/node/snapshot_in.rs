//! The `snapshot-in` thread: writes an arriving snapshot to a file aside, checks it, and tells the
//! core that it is there.

use super::fatal;
use super::input::NodeInput;
use super::lane::Lane;
use super::snapshot_out::{crc_of_pair, crc_of_row};
use crate::consensus::{NodeId, SnapshotMeta, Wire};
use crate::disk::Disk;
use crate::mvcc::Revision;
use crate::proto::peer as pb;
use crate::proto::peer::snapshot_part::Part;
use crate::store::{self, Content, Options, Room, Row, Staging, StoreError, Table};
use crate::telemetry::clock;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Bytes of rows in one transaction of the file aside: its pages stay within the cache, so that none
/// is read back for its checksum.
const BATCH_BYTES: usize = 1 << 20;
/// Cache of the file aside, half of it for what is written: in key order, and never read.
const CACHE_BYTES: usize = 8 << 20;
/// Bytes after which the kernel begins to write: little at a time, because the log of this member,
/// and those of others on the same device, wait behind it.
const WRITE_BEHIND_BYTES: u64 = 1 << 20;

/// What the thread is told.
pub(super) enum SnapshotIn {
    /// A snapshot begins to arrive.
    Begin(Box<Begin>),
    /// End.
    Stop,
}

/// A snapshot that begins to arrive.
pub(super) struct Begin {
    pub(super) from: NodeId,
    pub(super) message: Wire,
    pub(super) head: pb::SnapshotHead,
    pub(super) parts: mpsc::Receiver<Part>,
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

/// What the thread needs.
pub(super) struct SnapshotInThread {
    pub(super) queue: mpsc::Receiver<SnapshotIn>,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) disk: Arc<dyn Disk>,
    /// The store's file; snapshots are put together beside it.
    pub(super) path: PathBuf,
    /// Free space that must remain.
    pub(super) min_free: u64,
    /// Waits when the file system is full all the same.
    pub(super) room: Option<Arc<dyn Room>>,
}

impl SnapshotInThread {
    /// Body of the thread. Returns when told to stop; a fault of the disk ends the process.
    pub(super) fn run(mut self) {
        let mut kept = None;
        while let Some(SnapshotIn::Begin(begin)) = self.queue.blocking_recv() {
            let Begin { from, message, head, mut parts, done } = *begin;
            let Some(meta) = message.snapshot() else { continue };
            // The newest complete one may be about to be installed.
            check(store::sweep(&*self.disk, &self.path, kept));
            let began = clock::now_ns();
            let outcome = self.receive(&meta, &head, &mut parts);
            if outcome.is_ok() {
                kept = Some((meta.index, meta.term));
                tracing::info!(
                    from = format!("{from:x}"),
                    index = meta.index,
                    took_ms = (clock::now_ns() - began) / 1_000_000,
                    "received a snapshot"
                );
                self.node.push(NodeInput::SnapshotStaged(meta));
                self.node.push(NodeInput::Snapshot(message));
            }
            // The peer's stream may be gone.
            let _ = done.send(outcome);
        }
    }

    fn receive(
        &self,
        meta: &SnapshotMeta,
        head: &pb::SnapshotHead,
        parts: &mut mpsc::Receiver<Part>,
    ) -> Result<(), String> {
        let dir = self.path.parent().unwrap_or(&self.path);
        if let Ok(free) = self.disk.free(dir)
            && free.bytes < self.min_free + head.bytes
        {
            return Err(format!(
                "a snapshot of about {} bytes does not fit: {} bytes are free in {} and {} must \
                 stay; make room",
                head.bytes,
                free.bytes,
                dir.display(),
                self.min_free
            ));
        }
        let options = Options {
            cache_bytes: CACHE_BYTES,
            clean: true,
            room: self.room.clone(),
            write_behind: Some(WRITE_BEHIND_BYTES),
        };
        let at = (meta.index, meta.term);
        let staging = Staging::create(self.disk.clone(), &self.path, at, head.revision, &options);
        let mut arriving = Arriving::new(check(staging), head.revision);
        while let Some(part) = parts.blocking_recv() {
            match arriving.take(part) {
                Ok(Some(end)) => {
                    let Arriving { staging, small, .. } = arriving;
                    let conf_state = meta.conf_state.encode().into();
                    let (staging, read) = check(staging.seal(small, conf_state, end.running));
                    if let Err(why) = compare(end.content, read) {
                        check(staging.discard());
                        return Err(why);
                    }
                    check(staging.finish());
                    return Ok(());
                }
                Ok(None) => {}
                Err(why) => {
                    check(arriving.staging.discard());
                    return Err(why);
                }
            }
        }
        check(arriving.staging.discard());
        Err("the transfer broke off".into())
    }
}

/// A snapshot that is being written.
struct Arriving {
    staging: Staging,
    /// Rows that are not written yet, and their bytes.
    rows: Vec<Row>,
    bytes: usize,
    small: Vec<(Table, Bytes, Bytes)>,
    /// Newest row so far, and the newest that there may be.
    last: Revision,
    revision: i64,
    count: u64,
    crc: u32,
}

impl Arriving {
    fn new(staging: Staging, revision: i64) -> Self {
        Arriving {
            staging,
            rows: Vec::new(),
            bytes: 0,
            small: Vec::new(),
            last: Revision::default(),
            revision,
            count: 0,
            crc: 0,
        }
    }

    /// Takes in a part; at the end, when everything is checked and written, what the sender says.
    fn take(&mut self, part: Part) -> Result<Option<pb::SnapshotEnd>, String> {
        match part {
            Part::Head(_) => return Err("a second head".into()),
            Part::Rows(rows) => {
                for row in rows.rows {
                    self.row(row)?;
                }
                if self.bytes >= BATCH_BYTES {
                    self.flush();
                }
            }
            Part::Small(small) => {
                for pair in small.pairs {
                    self.crc = crc_of_pair(self.crc, &pair);
                    let table = Table::ALL.into_iter().find(|table| table.name() == pair.table);
                    let table = table.ok_or_else(|| {
                        format!("table {:?} is not known here; upgrade this member", pair.table)
                    })?;
                    self.small.push((table, copied(&pair.key), copied(&pair.value)));
                }
            }
            Part::End(end) => {
                if (end.rows, end.crc) != (self.count, self.crc) {
                    return Err(format!(
                        "{} rows with checksum {:08x} arrived, {} with {:08x} were sent",
                        self.count, self.crc, end.rows, end.crc
                    ));
                }
                self.flush();
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn row(&mut self, row: pb::SnapshotRow) -> Result<(), String> {
        let revision = Revision { main: row.main, sub: row.sub };
        if (self.count > 0 && revision <= self.last) || revision.main > self.revision {
            return Err(format!("row {revision:?} is out of order"));
        }
        self.last = revision;
        self.count += 1;
        self.bytes += row.value.len();
        let row = (revision, row.tombstone, row.value);
        self.crc = crc_of_row(self.crc, &row);
        self.rows.push(row);
        Ok(())
    }

    fn flush(&mut self) {
        self.bytes = 0;
        check(self.staging.rows(std::mem::take(&mut self.rows)));
    }
}

/// Compares what the sender holds with what was read back here. A sender of a former version says
/// nothing; then order, number and checksum of the parts have to do.
fn compare(sent: Option<pb::SnapshotContent>, read: Content) -> Result<(), String> {
    let Some(sent) = sent else { return Ok(()) };
    if (sent.count, sent.sum) == (read.count, read.sum) {
        return Ok(());
    }
    Err(format!(
        "the file that was written holds {} rows with hash {:016x}, the sender holds {} with \
         {:016x}; it is not installed",
        read.count, read.sum, sent.count, sent.sum
    ))
}

/// A copy of its own: a slice would keep the whole part alive.
fn copied(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn check<T>(result: Result<T, StoreError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fatal::stop("snapshot", &error),
    }
}

#[cfg(test)]
mod tests;
