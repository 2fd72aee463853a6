//! A whole state on its way from one store to another: read from a view, written to a file aside,
//! and put in the place of the old file.

use super::batch::{Keep, running_of, write_batch};
use super::content::{Content, Stored};
use super::tables::{STATE, STATE_CONF, STATE_CONTENT, STATE_RUNNING, Table};
use super::view::{Shared, View};
use super::{
    Batch, Loaded, Options, StoreError, Traffic, Writer, create, engine, engine_open, load,
};
use super::{new_name, sync_parent};
use crate::disk::{Disk, FileKind, Open};
use crate::mvcc::Revision;
use bytes::Bytes;
use redb::Database;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A row: revision, tombstone, encoded `mvccpb.KeyValue`.
pub type Row = (Revision, bool, Bytes);

/// Reads a durable state from its first row to its last, in pieces.
pub struct Export {
    view: Arc<View>,
    /// The next revision to read; `None` behind the last row.
    next: Option<Revision>,
}

impl Export {
    /// Of the newest durable state. It stays pinned until this is dropped.
    pub fn new(shared: &Shared) -> Export {
        Export { view: shared.view(), next: Some(Revision::default()) }
    }

    /// Applied index and term of the state.
    pub fn applied(&self) -> (u64, u64) {
        self.view.applied()
    }

    /// Newest revision in it.
    pub fn revision(&self) -> i64 {
        self.view.revision()
    }

    /// The raft configuration at that index.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn conf_state(&self) -> Result<Bytes, StoreError> {
        let mut found = Bytes::new();
        self.view.pairs(STATE, &mut |key, value| {
            if key == STATE_CONF {
                found = Bytes::copy_from_slice(value);
            }
        })?;
        Ok(found)
    }

    /// What the file says of its content, whatever is read from it, and the running hash at its
    /// applied index; each `None` if the file does not say.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn said(&self) -> Result<(Option<Content>, Option<u64>), StoreError> {
        let applied = self.applied().0;
        let (mut content, mut running) = (None, None);
        self.view.pairs(STATE, &mut |key, value| {
            if key == STATE_CONTENT {
                content = Stored::decode(value).filter(|stored| stored.applied == applied);
            } else if key == STATE_RUNNING {
                running = running_of(value, applied);
            }
        })?;
        Ok((content.map(|stored| stored.content), running))
    }

    /// The next rows, about `bytes` of them; empty behind the last one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rows(&mut self, bytes: usize) -> Result<Vec<Row>, StoreError> {
        let mut rows: Vec<Row> = Vec::new();
        let Some(from) = self.next else { return Ok(rows) };
        let mut size = 0;
        let more = self.view.scan_from(from, i64::MAX, &mut |revision, tombstone, row| {
            size += row.len();
            rows.push((revision, tombstone, row));
            if size < bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let behind = |(at, _, _): &Row| Revision { main: at.main, sub: at.sub + 1 };
        self.next = more.is_break().then(|| rows.last().map(behind)).flatten();
        Ok(rows)
    }

    /// All small tables.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn small(&self) -> Result<Vec<(Table, Bytes, Bytes)>, StoreError> {
        let mut all = Vec::new();
        for table in Table::ALL {
            self.view.small(table, &mut |key, value| {
                all.push((table, Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            })?;
        }
        Ok(all)
    }
}

/// Name of the file in which the state at this position is put together.
fn aside(path: &Path, (index, term): (u64, u64)) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("{ASIDE}{index}-{term}"));
    PathBuf::from(name)
}

/// Ending of such a file, before its position.
const ASIDE: &str = ".incoming-";

/// Bytes of rows after which a file aside is synced. The engine remembers every page that it has
/// not synced, about 20 bytes of memory each.
const KEEP_BYTES: usize = 256 << 20;

/// Removes files that were put together and never used, but for the one at `keep`.
///
/// # Errors
/// A failed disk operation.
pub fn sweep(disk: &dyn Disk, path: &Path, keep: Option<(u64, u64)>) -> Result<(), StoreError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    if !disk.exists(dir)? {
        return Ok(());
    }
    let prefix = format!("{}{ASIDE}", name.to_string_lossy());
    let keep = keep.map(|at| aside(path, at));
    for entry in disk.list(dir)? {
        let file = dir.join(&entry.name);
        if entry.name.starts_with(&prefix) && keep.as_ref() != Some(&file) {
            disk.remove(&file, FileKind::Snapshot)?;
        }
    }
    Ok(())
}

/// A state that arrives from another member, in a file aside.
pub struct Staging {
    disk: Arc<dyn Disk>,
    file: PathBuf,
    db: Database,
    at: (u64, u64),
    revision: i64,
    options: Options,
    /// Bytes of rows since the last transaction that was kept.
    unkept: usize,
}

impl Staging {
    /// An empty file aside of the store at `path`, for the state at this index and term.
    ///
    /// # Errors
    /// Any is final, as everywhere in this module.
    pub fn create(
        disk: Arc<dyn Disk>,
        path: &Path,
        at: (u64, u64),
        revision: i64,
        options: &Options,
    ) -> Result<Staging, StoreError> {
        let file = aside(path, at);
        for left in [&file, &new_name(&file)] {
            if disk.exists(left)? {
                disk.remove(left, FileKind::Snapshot)?;
            }
        }
        create(&*disk, &file, options)?;
        let open = disk.open(&file, FileKind::Snapshot, Open::ReadWrite)?;
        let db = engine_open(open, &Arc::new(Traffic::default()), options)?;
        Ok(Staging { disk, file, db, at, revision, options: options.clone(), unkept: 0 })
    }

    /// Adds rows, in revision order. They need not be on disk before [`Staging::seal`].
    ///
    /// # Errors
    /// As [`Staging::create`].
    pub fn rows(&mut self, rows: Vec<Row>) -> Result<(), StoreError> {
        self.unkept += rows.iter().map(|(_, _, value)| value.len()).sum::<usize>();
        let keep = if self.unkept < KEEP_BYTES { Keep::Later } else { Keep::Now };
        if keep == Keep::Now {
            self.unkept = 0;
        }
        write_batch(&self.db, &Batch { rows, ..Batch::default() }, keep)
    }

    /// Adds what is not a row and makes everything durable. Then reads back all that was written,
    /// from the device and not from memory: what comes out is what the file holds.
    ///
    /// # Errors
    /// As [`Staging::create`].
    pub fn seal(
        self,
        small: Vec<(Table, Bytes, Bytes)>,
        conf_state: Bytes,
        running: Option<u64>,
    ) -> Result<(Staging, Content), StoreError> {
        let small = small.into_iter().map(|(table, key, value)| (table, key, Some(value)));
        let batch = Batch {
            small: small.collect(),
            applied: self.at,
            conf_state: Some(conf_state),
            revision: self.revision,
            running,
            ..Batch::default()
        };
        write_batch(&self.db, &batch, Keep::Now)?;
        let Staging { disk, file, db, at, revision, options, .. } = self;
        db.close().map_err(engine("close the staged file"))?;
        let open = disk.open(&file, FileKind::Snapshot, Open::ReadWrite)?;
        open.drop_cache()?;
        let db = engine_open(open, &Arc::new(Traffic::default()), &options)?;
        let view = View::open(&db, at, revision)?;
        let mut content = Content::default();
        let all = view.scan_borrowed(Revision::default(), i64::MAX, |revision, tombstone, row| {
            content.add_row(revision, tombstone, row);
            ControlFlow::Continue(())
        });
        let _: ControlFlow<()> = all?;
        for table in Table::ALL {
            view.small(table, &mut |key, value| content.add_pair(table, key, value))?;
        }
        drop(view);
        Ok((Staging { disk, file, db, at, revision, options, unkept: 0 }, content))
    }

    /// Closes the file.
    ///
    /// # Errors
    /// As [`Staging::create`].
    pub fn finish(self) -> Result<(), StoreError> {
        self.db.close().map_err(engine("close the staged file"))?;
        sync_parent(&*self.disk, &self.file)
    }

    /// Gives up.
    ///
    /// # Errors
    /// As [`Staging::create`].
    pub fn discard(self) -> Result<(), StoreError> {
        drop(self.db);
        Ok(self.disk.remove(&self.file, FileKind::Snapshot)?)
    }
}

/// A store whose file was exchanged, before readers see it.
pub struct Swapped {
    /// What the new file holds.
    pub loaded: Loaded,
    /// Its rows, for the machine to be rebuilt from; readers do not see them yet.
    pub rows: Shared,
    view: View,
}

impl Swapped {
    /// Splits it into what the machine is rebuilt from and what [`Exchange::publish`] needs.
    pub fn into_parts(self) -> (Loaded, Shared, Exchange) {
        (self.loaded, self.rows, Exchange(self.view))
    }
}

/// The view that readers see from [`Exchange::publish`] on.
pub struct Exchange(View);

impl Exchange {
    /// Readers see the new file, and rows of the old state that were not durable go.
    pub fn publish(self, shared: &Shared) {
        shared.publish(self.0);
    }
}

/// The old file: kept open for readers that hold a view of it.
pub struct Retired {
    /// Held, never used.
    _db: Database,
    applied: u64,
}

impl Retired {
    /// Whether nobody reads it any more.
    pub fn is_unused(&self, shared: &Shared) -> bool {
        shared.views().oldest_applied > self.applied
    }
}

impl Writer {
    /// Puts the staged file of this position in the place of the store's, durably. Readers go on
    /// with the old state until [`Exchange::publish`].
    ///
    /// # Errors
    /// Any error is final.
    pub fn swap(
        self,
        disk: &dyn Disk,
        path: &Path,
        at: (u64, u64),
        options: &Options,
    ) -> Result<(Writer, Swapped, Retired), StoreError> {
        let (old, shared, traffic, applied) = self.into_parts()?;
        disk.rename(&aside(path, at), path, FileKind::Store)?;
        sync_parent(disk, path)?;
        let file = disk.open(path, FileKind::Store, Open::ReadWrite)?;
        let db = engine_open(file, &traffic, options)?;
        let loaded = load(&db, path)?;
        let open = || View::open(&db, loaded.applied, loaded.revision);
        let (view, scanned) = (open()?, open()?);
        let writer = Writer::new(db, shared, &view, traffic.clone());
        let swapped = Swapped { rows: Shared::new(scanned, traffic), view, loaded };
        Ok((writer, swapped, Retired { _db: old, applied: applied.0 }))
    }
}
