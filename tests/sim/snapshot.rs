//! A snapshot as the members hand it to each other: everything of one durable view.
//!
//! A stand-in for the node's own streaming, through the calls of the store that it will use too:
//! read a view, fill a new file aside, make it durable, rename it over the old one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assay::consensus::{ConfState, SnapshotMeta};
use assay::disk::{Disk, Fault};
use assay::mvcc::Revision;
use assay::store::{self, Batch, Shared, StoreError, Table};
use assay::telemetry::io::FileKind;
use bytes::Bytes;

pub const DIR: &str = "/data/member";
pub const STORE: &str = "/data/member/store.redb";
const STAGED: &str = "staged-";

/// Rows and small tables of one applied index.
#[derive(Debug)]
pub struct Rows {
    pub meta: SnapshotMeta,
    revision: i64,
    rows: Vec<(Revision, bool, Bytes)>,
    small: Vec<(Table, Bytes, Option<Bytes>)>,
}

impl Rows {
    /// Everything that the newest durable view holds. `None` before the first commit.
    pub fn read(shared: &Shared, confs: &BTreeMap<u64, Bytes>) -> Result<Option<Rows>, StoreError> {
        let view = shared.view();
        let (index, term) = view.applied();
        let conf = confs.range(..=index).next_back().map(|(_, conf)| conf.clone());
        let conf_state = conf.and_then(|conf| ConfState::decode(&conf).ok()).unwrap_or_default();
        if index == 0 || conf_state.voters.is_empty() {
            return Ok(None);
        }
        let mut rows = Vec::new();
        let _ = view.scan(0, i64::MAX, &mut |revision, tombstone, row| {
            rows.push((revision, tombstone, row));
            ControlFlow::Continue(())
        })?;
        let mut small = Vec::new();
        for table in Table::ALL {
            view.small(table, &mut |key, value| {
                let value = Some(Bytes::copy_from_slice(value));
                small.push((table, Bytes::copy_from_slice(key), value));
            })?;
        }
        let meta = SnapshotMeta { index, term, conf_state };
        Ok(Some(Rows { meta, revision: view.revision(), rows, small }))
    }

    pub fn len(&self) -> usize {
        self.rows.len() + self.small.len()
    }

    /// Writes a store of its own, complete and durable when this returns.
    pub fn stage(
        &self,
        disk: &Arc<dyn Disk>,
        path: &Path,
        with_tables: bool,
    ) -> Result<(), StoreError> {
        if disk.exists(path)? {
            disk.remove(path, FileKind::Store)?;
        }
        let options = store::Options { cache_bytes: 64 << 10, clean: false, room: None };
        let (mut writer, _, _) = store::open(Arc::clone(disk), path, &options)?;
        writer.commit(Batch {
            rows: self.rows.clone(),
            small: if with_tables { self.small.clone() } else { Vec::new() },
            applied: (self.meta.index, self.meta.term),
            conf_state: Some(self.meta.conf_state.encode().into()),
            revision: self.revision,
            ..Batch::default()
        })?;
        writer.close()
    }
}

/// Where the rows of a snapshot wait to be installed.
pub fn staged_path(meta: &SnapshotMeta) -> PathBuf {
    PathBuf::from(format!("{DIR}/{STAGED}{:x}-{:x}.redb", meta.index, meta.term))
}

/// Puts the staged file in the place of the store.
pub fn swap(disk: &dyn Disk, meta: &SnapshotMeta) -> Result<(), Fault> {
    disk.rename(&staged_path(meta), Path::new(STORE), FileKind::Store)?;
    disk.sync_dir(Path::new(DIR), FileKind::Store)
}

/// Removes a staged file, if it is there.
pub fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Fault> {
    if disk.exists(path)? { disk.remove(path, FileKind::Store) } else { Ok(()) }
}

/// Removes what an earlier process staged and did not install.
pub fn sweep(disk: &dyn Disk) -> Result<(), Fault> {
    for entry in disk.list(Path::new(DIR))? {
        if entry.name.starts_with(STAGED) {
            disk.remove(&Path::new(DIR).join(&entry.name), FileKind::Store)?;
        }
    }
    Ok(())
}
