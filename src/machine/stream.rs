//! A range in pieces at one pinned revision.

use super::{ReadError, Reader};
use crate::mvcc::{self, Live, RangeQuery, Revision, Rows, RowsError};
use bytes::Bytes;
use std::collections::VecDeque;

/// Keys of the first piece (etcd's number); later ones follow their size.
const FIRST_CHUNK_KEYS: usize = 10;
/// Most keys of a piece, whatever their size: what is fetched at once is answered at once.
const CHUNK_KEYS_MAX: usize = 16_384;

/// A piece of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Encoded `mvccpb.KeyValue`s.
    pub kvs: Vec<Bytes>,
    /// Set on the last piece only.
    pub end: Option<ChunkEnd>,
}

/// What only the last piece says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEnd {
    /// Whether the limit cut something off.
    pub more: bool,
    /// Keys in the range.
    pub count: i64,
    /// The store's current revision when the range began.
    pub revision: i64,
}

/// Iterates over a range in key order, in pieces that stay near a size in bytes. All of them show
/// the revision of the first. Sort and filters of the query are not looked at: refuse them before.
#[derive(Debug)]
pub struct RangeStream {
    reader: Reader,
    query: RangeQuery,
    at: i64,
    current: i64,
    /// Positions found ahead of the rows read.
    ahead: VecDeque<(Live, Box<[u8]>)>,
    cursor: Option<Vec<u8>>,
    walked: bool,
    chunk_keys: usize,
    chunk_bytes: u64,
    count: i64,
    done: bool,
}

impl RangeStream {
    pub(super) fn new(
        reader: Reader,
        query: RangeQuery,
        chunk_bytes: u64,
    ) -> Result<Self, ReadError> {
        let (at, current) = reader.pin(query.revision)?;
        Ok(Self {
            reader,
            query,
            at,
            current,
            ahead: VecDeque::new(),
            cursor: None,
            walked: false,
            chunk_keys: FIRST_CHUNK_KEYS,
            chunk_bytes,
            count: 0,
            done: false,
        })
    }

    /// The next piece; `None` behind the last one.
    ///
    /// # Errors
    /// [`ReadError::Compacted`] if a compaction overtook the revision; [`ReadError::Fault`].
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        if self.done {
            return Ok(None);
        }
        // One position more than the piece takes shows whether it is the last one. Once the limit
        // is reached the walk ends only with the range, because the count ignores the limit.
        while !self.walked && self.ahead.len() <= self.chunk_keys {
            self.walk()?;
        }
        let take = self.ahead.len().min(self.chunk_keys);
        let taken: Vec<(Live, Box<[u8]>)> = self.ahead.drain(..take).collect();
        let kvs = self.fetch(&taken)?;
        let bytes: u64 = kvs.iter().map(|row| row.len() as u64).sum();
        if bytes > self.chunk_bytes {
            self.chunk_keys = (self.chunk_keys / 2).max(1);
        } else if bytes < self.chunk_bytes / 2 {
            self.chunk_keys = (self.chunk_keys * 2).min(CHUNK_KEYS_MAX);
        }
        self.done = self.walked && self.ahead.is_empty();
        let limit = self.query.limit;
        let end = self.done.then_some(ChunkEnd {
            more: !self.query.count_only && limit > 0 && self.count > limit,
            count: self.count,
            revision: self.current,
        });
        Ok(Some(Chunk { kvs, end }))
    }

    fn walk(&mut self) -> Result<(), ReadError> {
        let index = self.reader.index.read();
        if self.at < index.floor() {
            return Err(ReadError::Compacted);
        }
        let (query, count, ahead) = (&self.query, &mut self.count, &mut self.ahead);
        let next = index.slice(&query.range, self.cursor.as_deref(), self.at, |key, live| {
            *count += 1;
            if !query.count_only && (query.limit <= 0 || *count <= query.limit) {
                let key = if query.keys_only { key.into() } else { Box::default() };
                ahead.push_back((live, key));
            }
        });
        self.walked = next.is_none();
        self.cursor = next;
        Ok(())
    }

    fn fetch(&self, taken: &[(Live, Box<[u8]>)]) -> Result<Vec<Bytes>, ReadError> {
        if self.query.keys_only {
            return Ok(taken.iter().map(|(live, key)| mvcc::key_only_row(key, live)).collect());
        }
        let revisions: Vec<Revision> = taken.iter().map(|(live, _)| live.revision).collect();
        match self.reader.store.rows(&revisions) {
            Ok(kvs) => Ok(kvs),
            // Found at this revision before, gone now: compacted in between.
            Err(RowsError::Missing) if self.reader.index.read().floor() > self.at => {
                Err(ReadError::Compacted)
            }
            Err(error) => Err(ReadError::Fault(error.to_string())),
        }
    }
}
