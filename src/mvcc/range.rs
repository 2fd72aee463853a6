//! Ranges: which keys, at which revision, in which order, and how many.
//!
//! The order of steps is fixed by the client interface: fetch at the revision, filter, sort, cut
//! to the limit, strip values. Everything but the order by value is decided on the index, so rows
//! are read only for what is answered.

use super::rows::Parts;
use super::{KeyIndex, KeyRange, KeyValue, KvError, Live, Revision, Rows, RowsError, SharedIndex};
use bytes::{Bytes, BytesMut};
use prost::Message as _;

/// Rows fetched between two looks at the byte budget.
const FETCH_ROWS: usize = 256;

/// What a range is ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// Puts since creation.
    Version,
    /// Create revision.
    Create,
    /// Mod revision.
    Mod,
    /// The value, bytewise.
    Value,
}

/// Order of the answer. The default is key order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub target: SortTarget,
    /// Largest first.
    pub descending: bool,
    /// No order was asked for, only a target: the limit picks the first rows by key (and one more,
    /// as etcd does), and only these are sorted. Filters make all rows count again.
    pub limit_first: bool,
}

/// Bounds on revisions, inclusive; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Smallest mod revision.
    pub min_mod: i64,
    /// Largest mod revision.
    pub max_mod: i64,
    /// Smallest create revision.
    pub min_create: i64,
    /// Largest create revision.
    pub max_create: i64,
}

impl Filters {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn pass(&self, live: &Live) -> bool {
        let Live { revision: Revision { main, .. }, create, .. } = *live;
        (self.min_mod == 0 || main >= self.min_mod)
            && (self.max_mod == 0 || main <= self.max_mod)
            && (self.min_create == 0 || create >= self.min_create)
            && (self.max_create == 0 || create <= self.max_create)
    }
}

/// A range request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    /// Which keys.
    pub range: KeyRange,
    /// At which main revision; 0 (or below) is the current one.
    pub revision: i64,
    /// Most keys answered; 0 (or below) is no limit.
    pub limit: i64,
    /// Order.
    pub sort: Sort,
    /// Filters.
    pub filters: Filters,
    /// Without values. Unless sorted by value such rows come from the index and name no lease.
    pub keys_only: bool,
    /// Only the count.
    pub count_only: bool,
    /// Budget for the rows of the answer, bytes; `u64::MAX` for none.
    pub max_bytes: u64,
}

impl RangeQuery {
    /// All of `range`, now, in key order, without limits.
    #[must_use]
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            revision: 0,
            limit: 0,
            sort: Sort::default(),
            filters: Filters::default(),
            keys_only: false,
            count_only: false,
            max_bytes: u64::MAX,
        }
    }
}

/// Answer to a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeResult {
    /// Encoded `mvccpb.KeyValue`s, the stored bytes unless stripped.
    pub kvs: Vec<Bytes>,
    /// Whether the limit cut something off.
    pub more: bool,
    /// Keys in the range at the revision, whatever limit and filters say.
    pub count: i64,
    /// The store's current revision when the range ran.
    pub revision: i64,
}

/// What the index selected: positions of rows in answer order.
#[derive(Debug, Default)]
struct Selected {
    live: Vec<Live>,
    /// Keys of `live`, one behind the other, and where each ends; only for answers from the index.
    keys: Vec<u8>,
    ends: Vec<usize>,
    more: bool,
    count: i64,
}

/// Runs `query` at main revision `at` on a store whose current revision is `current`.
///
/// # Errors
/// [`KvError::Compacted`] if `at` is, or becomes, compacted; [`KvError::OverBudget`];
/// [`KvError::Rows`].
pub fn range<R: Rows + ?Sized>(
    index: &SharedIndex,
    rows: &R,
    query: &RangeQuery,
    at: i64,
    current: i64,
) -> Result<RangeResult, KvError> {
    let by_value = query.sort.target == SortTarget::Value;
    let from_index = query.keys_only && !by_value;
    let mut selected = select(index, query, at, from_index)?;
    let result = |kvs, more| RangeResult { kvs, more, count: selected.count, revision: current };
    if query.count_only {
        return Ok(result(Vec::new(), false));
    }
    if from_index {
        return Ok(result(selected.encode(query.max_bytes)?, selected.more));
    }
    let revisions: Vec<Revision> = selected.live.iter().map(|live| live.revision).collect();
    let fetched = fetch(rows, &revisions, query.max_bytes);
    let mut kvs = match fetched {
        // Rows go away only by compaction; then the revision was compacted after the selection.
        Err(KvError::Rows(RowsError::Missing)) if index.read().floor() > at => {
            return Err(KvError::Compacted);
        }
        other => other?,
    };
    if by_value {
        let mut more = false;
        kvs = sort_by_value(kvs, query.sort.descending)?;
        if let Some(limit) = limit(query)
            && kvs.len() > limit
        {
            kvs.truncate(limit);
            more = true;
        }
        if query.keys_only {
            kvs = kvs.iter().map(strip).collect::<Result<_, _>>()?;
        }
        selected.more = more;
    }
    Ok(result(kvs, selected.more))
}

fn limit(query: &RangeQuery) -> Option<usize> {
    usize::try_from(query.limit).ok().filter(|limit| *limit > 0)
}

/// The part of the index that a reader at `at` may look at, or "compacted".
fn readable(index: &KeyIndex, at: i64) -> Result<&KeyIndex, KvError> {
    if at < index.floor() { Err(KvError::Compacted) } else { Ok(index) }
}

fn select(
    index: &SharedIndex,
    query: &RangeQuery,
    at: i64,
    with_keys: bool,
) -> Result<Selected, KvError> {
    let mut selected = Selected::default();
    let ordered = query.sort.target != SortTarget::Key || query.sort.descending;
    let limit = limit(query);
    // An order other than the index's has to see everything before it can cut.
    let take = match limit {
        Some(limit) if !ordered => limit,
        Some(limit) if query.sort.limit_first && query.filters == Filters::default() => {
            limit.saturating_add(1)
        }
        _ => usize::MAX,
    };
    let mut passed = 0;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let index = index.read();
        let index = readable(&index, at)?;
        after = index.slice(&query.range, after.as_deref(), at, |key, live| {
            selected.count += 1;
            if query.count_only || !query.filters.pass(&live) {
                return;
            }
            passed += 1;
            if passed <= take {
                selected.live.push(live);
                if with_keys {
                    selected.keys.extend_from_slice(key);
                    selected.ends.push(selected.keys.len());
                }
            }
        });
        if after.is_none() {
            break;
        }
    }
    if ordered && query.sort.target != SortTarget::Value {
        selected.sort(query.sort);
        if let Some(limit) = limit {
            selected.live.truncate(limit);
        }
    }
    selected.more = limit.is_some_and(|limit| passed > limit);
    Ok(selected)
}

impl Selected {
    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[at]]
    }

    /// Orders by what the index knows.
    fn sort(&mut self, sort: Sort) {
        let number = |live: &Live| match sort.target {
            SortTarget::Key | SortTarget::Value => 0,
            SortTarget::Version => live.version,
            SortTarget::Create => live.create,
            SortTarget::Mod => live.revision.main,
        };
        let mut order: Vec<usize> = (0..self.live.len()).collect();
        match (sort.target, sort.descending) {
            (SortTarget::Key, _) => order.reverse(),
            (_, false) => order.sort_by_key(|at| number(&self.live[*at])),
            (_, true) => order.sort_by_key(|at| std::cmp::Reverse(number(&self.live[*at]))),
        }
        if !self.ends.is_empty() {
            let mut keys = Vec::with_capacity(self.keys.len());
            let mut ends = Vec::with_capacity(self.ends.len());
            for at in &order {
                keys.extend_from_slice(self.key(*at));
                ends.push(keys.len());
            }
            (self.keys, self.ends) = (keys, ends);
        }
        self.live = order.iter().map(|at| self.live[*at]).collect();
    }

    /// Rows without value and lease, in one buffer that all of them share.
    fn encode(&self, max_bytes: u64) -> Result<Vec<Bytes>, KvError> {
        let parts = |at: usize| {
            let live = &self.live[at];
            Parts {
                key: self.key(at),
                create: live.create,
                modified: live.revision.main,
                version: live.version,
                ..Parts::default()
            }
        };
        let bytes = (0..self.live.len()).map(|at| parts(at).encoded_len()).sum::<usize>();
        within(bytes as u64, max_bytes)?;
        let mut buffer = BytesMut::with_capacity(bytes);
        let rows = (0..self.live.len()).map(|at| {
            parts(at).encode_to(&mut buffer);
            buffer.split().freeze()
        });
        Ok(rows.collect())
    }
}

/// A row without value and lease, made from the index.
#[must_use]
pub fn key_only_row(key: &[u8], live: &Live) -> Bytes {
    let Live { revision, create, version } = *live;
    Parts { key, create, modified: revision.main, version, ..Parts::default() }.encode()
}

fn within(bytes: u64, limit: u64) -> Result<(), KvError> {
    if bytes > limit { Err(KvError::OverBudget { bytes, limit }) } else { Ok(()) }
}

/// Reads rows, at most `max_bytes` of them.
pub(super) fn fetch<R: Rows + ?Sized>(
    rows: &R,
    revisions: &[Revision],
    max_bytes: u64,
) -> Result<Vec<Bytes>, KvError> {
    if max_bytes == u64::MAX || revisions.len() <= 1 {
        let kvs = rows.rows(revisions)?;
        within(kvs.iter().map(|row| row.len() as u64).sum(), max_bytes)?;
        return Ok(kvs);
    }
    let mut kvs = Vec::with_capacity(revisions.len());
    let mut bytes = 0;
    for part in revisions.chunks(FETCH_ROWS) {
        let part = rows.rows(part)?;
        bytes += part.iter().map(|row| row.len() as u64).sum::<u64>();
        within(bytes, max_bytes)?;
        kvs.extend(part);
    }
    Ok(kvs)
}

fn decode(row: &Bytes) -> Result<KeyValue, KvError> {
    let bad = |error| KvError::Rows(RowsError::Fault(format!("a stored row is damaged: {error}")));
    KeyValue::decode(row.clone()).map_err(bad)
}

fn sort_by_value(kvs: Vec<Bytes>, descending: bool) -> Result<Vec<Bytes>, KvError> {
    let mut valued: Vec<(Bytes, Bytes)> = kvs
        .into_iter()
        .map(|row| decode(&row).map(|kv| (kv.value, row)))
        .collect::<Result<_, _>>()?;
    valued.sort_by(|(a, _), (b, _)| if descending { b.cmp(a) } else { a.cmp(b) });
    Ok(valued.into_iter().map(|(_, row)| row).collect())
}

fn strip(row: &Bytes) -> Result<Bytes, KvError> {
    let kv = KeyValue { value: Bytes::new(), ..decode(row)? };
    Ok(kv.encode_to_vec().into())
}
