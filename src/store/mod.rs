//! The durable state: one redb file behind [`Batch`] (write), [`Shared`] (read) and [`open`].
//!
//! Applying changes memory only; rows wait in [`Pending`] until the store thread makes one durable
//! commit of a frozen [`Batch`] about ten times a second. The applied index, its term, the raft
//! configuration and the revision are in the same transaction as the rows they describe, so a
//! restart continues from exactly what is there. Every error is final: the [`Writer`] latches it,
//! [`Shared::fault`] tells the others, nothing is retried.
//!
//! # What may be trusted after an unclean stop
//!
//! A failed sync can leave pages in the page cache that read as if they were written, are marked
//! clean, and vanish at the next power cut. So nothing that the cache says after an unclean stop is
//! durable, and [`open`] must not build on it. It does two things, either of which is enough:
//!
//! 1. It syncs the file and then drops its cached pages, before the first read. After the sync no
//!    page is dirty, so all of them can be dropped, and what is read next is what the device holds.
//!    If this sync fails the open fails.
//! 2. It relies on the commit protocol where the advice to drop pages has no effect. Every commit
//!    here has two phases: (a) all pages of the new state and the inactive root slot are written
//!    and synced, (b) the header sector with the switched root is written and synced. If (a)
//!    failed, the header in cache and on the device still name the old state, whose pages were
//!    synced by earlier commits and are not overwritten by later ones until a newer state is
//!    durable; what vanishes was never referenced. If (b) failed, the cache may name the new state
//!    and the device the old one, but the pages of both are durable. The open then writes the
//!    header sector anew (the engine marks the file as in use) and syncs it before anything else is
//!    written, so from then on cache and device agree. Both outcomes are a whole commit that the
//!    caller was never told to be lost or done.
//!
//! A first phase alone would not do: single-phase commits may prefer a newer slot whose pages are
//! only in the cache. All commits of this module, and the ones the engine makes itself when it
//! repairs or closes, have two phases.
//!
//! The same holds for the file's name: a process may have died between the rename that created the
//! file and the sync of its directory. The open syncs the directory before it builds on the name.
//!
//! A new file is initialised under a temporary name and renamed when it is complete, because a
//! crash during initialisation leaves a file that the engine refuses.

mod backend;
mod batch;
mod content;
mod fetch;
mod pending;
mod staging;
mod tables;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase};

use backend::{Backend, Traffic};
use tables::{
    STATE, STATE_APPLIED, STATE_CONF, STATE_CONTENT, STATE_FORMAT, STATE_REVISION, STATE_RUNNING,
};

use crate::disk::{Disk, Fault, File, Open};
use crate::telemetry::io::FileKind;

pub use backend::Room;
pub use batch::{Batch, CommitStats, DROPPED_PER_BATCH, Writer};
pub use content::{Content, hash_pair, hash_row};
pub use pending::Pending;
pub use staging::{Exchange, Export, Retired, Row, Staging, Swapped, sweep};
pub use tables::{
    FORMAT, META_FINISHED_COMPACT, META_SCHEDULED_COMPACT, Table, parse_revision_value,
    revision_value, row_footprint,
};
#[cfg(test)]
pub(crate) use tests::edit::edit;
pub use view::{Shared, Snapshot, View, ViewAges};

/// Default size of the engine's page cache: 64 MiB, the share of a small node's memory budget.
pub const DEFAULT_CACHE_BYTES: usize = 64 << 20;

/// How to open the store.
#[derive(Clone)]
pub struct Options {
    /// Memory for cached pages, bytes.
    pub cache_bytes: usize,
    /// The previous run ended in order (the log ends with its clean marker), so cached pages may
    /// be trusted. When in doubt, `false`.
    pub clean: bool,
    /// Who waits for room on a full file system; without one a full file system is an error.
    pub room: Option<Arc<dyn Room>>,
    /// Bytes after which the kernel begins to write what it was given, instead of at the next sync
    /// all at once, and forgets what is written; `None`: at the next sync. For a file that is
    /// written once and not read meanwhile.
    pub write_behind: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: DEFAULT_CACHE_BYTES, clean: false, room: None, write_behind: None }
    }
}

/// Why the store cannot go on. All of them stop the process.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened, renamed or synced.
    #[error("store file: {0}")]
    Disk(#[from] Fault),
    /// The engine failed; the reason is in `source`.
    #[error("store could not {what}: {source}; stop and check the disk, nothing is retried")]
    Engine {
        /// The step that failed.
        what: &'static str,
        /// What the engine said.
        source: Box<redb::Error>,
    },
    /// The file was written by a newer program.
    #[error("store {} has format {found}, this program reads up to {FORMAT}; use a newer program", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A value that this module wrote does not have its shape.
    #[error("store value {key} is damaged; restore this member from its peers or a backup")]
    Damaged {
        /// The key in table `state`.
        key: &'static str,
    },
    /// An earlier error was final.
    #[error("store stopped at an earlier error; restart the process")]
    Latched,
}

/// Wraps an error of the engine with the step that failed.
pub(crate) fn engine<E: Into<redb::Error>>(what: &'static str) -> impl FnOnce(E) -> StoreError {
    move |error| StoreError::Engine { what, source: Box::new(error.into()) }
}

/// What the file held when it was opened; rows are read by scanning [`Shared`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Index and term of the last entry whose effects are in the file.
    pub applied: (u64, u64),
    /// The raft configuration at that index; empty before the first one.
    pub conf_state: Bytes,
    /// Newest revision; zero before the first batch.
    pub revision: i64,
    /// The machine's running hash at `applied`; `None` if the file does not say.
    pub running: Option<u64>,
    /// The checksum over all rows, as the file says; compare it with what is read.
    pub content: Option<Content>,
    /// All small tables.
    pub small: BTreeMap<(Table, Bytes), Bytes>,
    /// Main revision of the newest accepted compaction, zero for none.
    pub scheduled_compact: i64,
    /// Main revision of the newest compaction whose rows are gone, zero for none.
    pub finished_compact: i64,
    /// Nothing was ever committed.
    pub empty: bool,
}

/// Whether there is no store at `path`: no file, or an empty one, which holds as little. Our own
/// files get their name when they are complete.
///
/// # Errors
/// Faults of the disk.
pub fn is_absent(disk: &dyn Disk, path: &Path) -> Result<bool, StoreError> {
    Ok(!disk.exists(path)? || disk.open(path, FileKind::Store, Open::Read)?.len()? == 0)
}

/// Opens the store file at `path`, creating it when there is none. See the module's header for
/// what happens after an unclean stop. Recovery of a killed process reads the allocator state of
/// the last commit and takes milliseconds.
///
/// # Errors
/// Faults of the disk, a file of another program or a newer format, a damaged file.
pub fn open(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: &Options,
) -> Result<(Writer, Shared, Loaded), StoreError> {
    if is_absent(&*disk, path)? {
        create(&*disk, path, options)?;
    }
    let file = disk.open(path, FileKind::Store, Open::ReadWrite)?;
    if !options.clean {
        file.sync_data()?;
        file.drop_cache()?;
        sync_parent(&*disk, path)?;
    }
    let traffic = Arc::new(Traffic::default());
    let db = engine_open(file, &traffic, options)?;
    let loaded = load(&db, path)?;
    let view = View::open(&db, loaded.applied, loaded.revision)?;
    let shared = Shared::new(view, Arc::clone(&traffic));
    let writer = Writer::new(db, shared.clone(), &shared.view(), traffic);
    Ok((writer, shared, loaded))
}

fn engine_open(
    file: File,
    traffic: &Arc<Traffic>,
    options: &Options,
) -> Result<Database, StoreError> {
    let room = options.room.clone();
    let backend = Backend::new(file, Arc::clone(traffic), room, options.write_behind)?;
    Builder::new()
        .set_cache_size(options.cache_bytes)
        .create_with_backend(backend)
        .map_err(engine("open the file"))
}

/// Name under which a new file is initialised.
fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn create(disk: &dyn Disk, path: &Path, options: &Options) -> Result<(), StoreError> {
    let new = new_name(path);
    if disk.exists(&new)? {
        // Left by a crash while it was created; nothing was ever acknowledged from it.
        disk.remove(&new, FileKind::Store)?;
    }
    let file = disk.open(&new, FileKind::Store, Open::CreateNew)?;
    let db = engine_open(file, &Arc::new(Traffic::default()), options)?;
    let mut transaction = db.begin_write().map_err(engine("begin write"))?;
    transaction.set_quick_repair(true);
    {
        transaction.open_table(tables::REVS).map_err(engine("create table revs"))?;
        for table in Table::ALL {
            transaction.open_table(table.definition()).map_err(engine("create a small table"))?;
        }
        let mut state = transaction.open_table(STATE).map_err(engine("create table state"))?;
        for (key, value) in [
            (STATE_FORMAT, &FORMAT.to_be_bytes()[..]),
            (STATE_APPLIED, &batch::applied_value((0, 0))),
            (STATE_REVISION, &0_i64.to_be_bytes()),
            (STATE_CONF, &[]),
            (STATE_CONTENT, &content::Stored { applied: 0, content: Content::default() }.encode()),
            (STATE_RUNNING, &batch::applied_value((0, 0))),
        ] {
            state.insert(key, value).map_err(engine("write table state"))?;
        }
    }
    transaction.commit().map_err(engine("commit the new file"))?;
    db.close().map_err(engine("close the new file"))?;
    disk.rename(&new, path, FileKind::Store)?;
    sync_parent(disk, path)
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    if let Some(dir) = path.parent() {
        disk.sync_dir(dir, FileKind::Store)?;
    }
    Ok(())
}

fn load(db: &Database, path: &Path) -> Result<Loaded, StoreError> {
    let transaction = db.begin_read().map_err(engine("begin read"))?;
    let state = transaction.open_table(STATE).map_err(engine("open table state"))?;
    let get = |key: &[u8]| -> Result<Option<Bytes>, StoreError> {
        let value = state.get(key).map_err(engine("read table state"))?;
        Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
    };
    let format = fixed::<4>("format", get(STATE_FORMAT)?)?;
    let found = u32::from_be_bytes(format);
    if found > FORMAT {
        return Err(StoreError::NewerFormat { path: path.to_owned(), found });
    }
    let applied = fixed::<16>("applied", get(STATE_APPLIED)?)?;
    let applied = u128::from_be_bytes(applied);
    let applied = ((applied >> 64) as u64, applied as u64);
    let revision = i64::from_be_bytes(fixed::<8>("revision", get(STATE_REVISION)?)?);
    let conf_state = get(STATE_CONF)?.ok_or(StoreError::Damaged { key: "conf_state" })?;

    let running = get(STATE_RUNNING)?.and_then(|value| batch::running_of(&value, applied.0));

    let view = View::open(db, applied, revision)?;
    let mut small = BTreeMap::new();
    for table in Table::ALL {
        view.small(table, &mut |key, value| {
            small.insert((table, Bytes::copy_from_slice(key)), Bytes::copy_from_slice(value));
        })?;
    }
    let stored = get(STATE_CONTENT)?.and_then(|value| content::Stored::decode(&value));
    let content = stored.filter(|stored| stored.applied == applied.0).map(|stored| stored.content);
    let mark = |key: &'static [u8], name: &'static str| match small
        .get(&(Table::Meta, Bytes::from_static(key)))
    {
        None => Ok(0),
        Some(value) => parse_revision_value(value).ok_or(StoreError::Damaged { key: name }),
    };
    Ok(Loaded {
        applied,
        conf_state,
        revision,
        running,
        content,
        scheduled_compact: mark(META_SCHEDULED_COMPACT, "scheduledCompactRev")?,
        finished_compact: mark(META_FINISHED_COMPACT, "finishedCompactRev")?,
        small,
        empty: applied.0 == 0,
    })
}

fn fixed<const N: usize>(key: &'static str, value: Option<Bytes>) -> Result<[u8; N], StoreError> {
    value.and_then(|value| value[..].try_into().ok()).ok_or(StoreError::Damaged { key })
}
