//! A snapshot as the members hand it to each other: everything of one durable view, read and staged
//! by the store's own routines. Only the connection between them is simulated.

use std::path::Path;
use std::sync::Arc;

use assay::consensus::{ConfState, SnapshotMeta};
use assay::disk::Disk;
use assay::store::{Export, Options, Row, Shared, Staging, StoreError, Table};
use bytes::Bytes;

pub const DIR: &str = "/data/member";
pub const STORE: &str = "/data/member/store.redb";
/// Rows read at once, bytes: little, so that a snapshot has several pieces.
const PIECE_BYTES: usize = 4 << 10;

/// Rows and small tables of one applied index.
#[derive(Debug)]
pub struct Rows {
    pub meta: SnapshotMeta,
    revision: i64,
    pieces: Vec<Vec<Row>>,
    small: Vec<(Table, Bytes, Bytes)>,
    conf: Bytes,
    /// The running hash at its index.
    running: Option<u64>,
}

impl Rows {
    /// Everything that the newest durable view holds. `None` before the first commit.
    pub fn read(shared: &Shared) -> Result<Option<Rows>, StoreError> {
        let mut export = Export::new(shared);
        let (index, term) = export.applied();
        let conf = export.conf_state()?;
        let conf_state = ConfState::decode(&conf).unwrap_or_default();
        if index == 0 || conf_state.voters.is_empty() {
            return Ok(None);
        }
        let mut pieces = Vec::new();
        loop {
            let piece = export.rows(PIECE_BYTES)?;
            if piece.is_empty() {
                break;
            }
            pieces.push(piece);
        }
        let meta = SnapshotMeta { index, term, conf_state };
        let (revision, small) = (export.revision(), export.small()?);
        let (_, running) = export.said()?;
        Ok(Some(Rows { meta, revision, pieces, small, conf, running }))
    }

    pub fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum::<usize>() + self.small.len()
    }

    /// Writes a store aside, complete and durable when this returns.
    pub fn stage(
        &self,
        disk: &Arc<dyn Disk>,
        options: &Options,
        with_tables: bool,
    ) -> Result<(), StoreError> {
        let at = (self.meta.index, self.meta.term);
        let disk = Arc::clone(disk);
        let mut staging = Staging::create(disk, Path::new(STORE), at, self.revision, options)?;
        for piece in &self.pieces {
            staging.rows(piece.clone())?;
        }
        let small = if with_tables { self.small.clone() } else { Vec::new() };
        let (staging, _) = staging.seal(small, self.conf.clone(), self.running)?;
        staging.finish()
    }
}
