//! The `snapshot-out` thread: streams the durable state to members that the log cannot help.
//!
//! One transfer at a time, in the order they were asked for, in chunks and at a bounded rate: a
//! follower that catches up must not slow the writes of everybody.

use super::fatal;
use super::input::NodeInput;
use super::lane::Lane;
use crate::consensus::{ConfState, NodeId, SnapshotMeta, Wire};
use crate::peer::Peers;
use crate::proto::peer as pb;
use crate::proto::peer::snapshot_part::Part;
use crate::store::{Content, Export, Row, Shared, StoreError};
use crate::telemetry::clock;
use crate::telemetry::node_metrics::NodeMetrics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Bytes of rows in one part.
const PART_BYTES: usize = 1 << 20;
/// Bytes per second: about half of what a gigabit network or a middling disk takes.
const RATE_BYTES: u64 = 64 << 20;
const NS_PER_S: u64 = 1_000_000_000;

/// What the thread is told.
pub(super) enum SnapshotOut {
    /// Pin a view for this follower.
    Build { to: NodeId },
    /// Stream the pinned view that this message announces.
    Stream(Wire),
    /// End.
    Stop,
}

/// What the thread needs.
pub(super) struct SnapshotOutThread {
    pub(super) queue: Arc<Lane<SnapshotOut>>,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) shared: Shared,
    pub(super) peers: Peers,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) stop: Arc<AtomicBool>,
}

impl SnapshotOutThread {
    /// Body of the thread. Returns when told to stop; a fault of the store ends the process.
    pub(super) fn run(self) {
        self.queue.own();
        let mut inputs = Vec::new();
        let mut pinned: BTreeMap<NodeId, (SnapshotMeta, Export)> = BTreeMap::new();
        let mut sent: BTreeMap<NodeId, u64> = BTreeMap::new();
        loop {
            self.queue.drain(&mut inputs, None);
            for input in inputs.drain(..) {
                match input {
                    SnapshotOut::Build { to } => match check(self.pin()) {
                        Some((meta, export)) => {
                            self.node.push(NodeInput::SnapshotReady { to, meta: meta.clone() });
                            pinned.insert(to, (meta, export));
                        }
                        None => self.node.push(NodeInput::SnapshotSent { to, ok: false }),
                    },
                    SnapshotOut::Stream(wire) => {
                        let to = wire.to();
                        let fits =
                            pinned.remove(&to).filter(|p| Some(&p.0) == wire.snapshot().as_ref());
                        let ok = fits.is_some_and(|(_, export)| self.stream(&wire, export));
                        if ok {
                            again(to, sent.insert(to, clock::now_ns()));
                        }
                        self.node.push(NodeInput::SnapshotSent { to, ok });
                    }
                    SnapshotOut::Stop => return,
                }
            }
        }
    }

    /// The newest durable state, if there is any.
    fn pin(&self) -> Result<Option<(SnapshotMeta, Export)>, StoreError> {
        let export = Export::new(&self.shared);
        let (index, term) = export.applied();
        let conf_state = ConfState::decode(&export.conf_state()?);
        Ok(match conf_state {
            Ok(conf_state) if index > 0 && !conf_state.voters.is_empty() => {
                Some((SnapshotMeta { index, term, conf_state }, export))
            }
            _ => None,
        })
    }

    fn stream(&self, wire: &Wire, export: Export) -> bool {
        let to = format!("{:x}", wire.to());
        let (index, _) = export.applied();
        tracing::info!(to, index, "sending a snapshot: the log does not reach back far enough");
        let began = clock::now_ns();
        match self.transfer(wire, export) {
            Ok(bytes) => {
                let took_ms = (clock::now_ns() - began) / 1_000_000;
                tracing::info!(to, index, bytes, took_ms, "sent a snapshot");
                true
            }
            Err(why) => {
                tracing::warn!(
                    to,
                    index,
                    "a snapshot was not sent, the leader tries it again if needed: {why}"
                );
                false
            }
        }
    }

    fn transfer(&self, wire: &Wire, mut export: Export) -> Result<u64, String> {
        let head = pb::SnapshotHead {
            identity: None,
            message: wire.encode().into(),
            revision: export.revision(),
            bytes: self.shared.file_bytes(),
        };
        let transfer = self.peers.transfer(wire.to(), head);
        let transfer = transfer.ok_or("no connection to the member")?;
        let began = clock::now_ns();
        let (mut crc, mut count, mut bytes) = (0, 0, 0);
        let (said, running) = check(export.said());
        let mut content = Content::default();
        loop {
            let rows = check(export.rows(PART_BYTES));
            if rows.is_empty() {
                break;
            }
            if self.stop.load(Relaxed) {
                return Err("this member is stopping".into());
            }
            // The follower takes a snapshot from its leader only; the next one sends its own.
            let leads = self.metrics.leads.load(Relaxed) == 1;
            if !leads || self.metrics.term.load(Relaxed) != wire.term() {
                return Err("this member no longer leads".into());
            }
            count += rows.len() as u64;
            for row in &rows {
                crc = crc_of_row(crc, row);
                content.add_row(row.0, row.1, &row.2);
                bytes += row.2.len() as u64;
            }
            transfer
                .send(Part::Rows(pb::SnapshotRows { rows: rows.into_iter().map(row).collect() }))?;
            let earliest = began + bytes * NS_PER_S / RATE_BYTES;
            let early = earliest.saturating_sub(clock::now_ns());
            if early > 0 {
                std::thread::sleep(Duration::from_nanos(early));
            }
        }
        let small = check(export.small());
        for (table, key, value) in &small {
            content.add_pair(*table, key, value);
        }
        if said.is_some_and(|said| said != content) {
            return Err("this member's store gives back something else than what was written to \
                        it; it is no base for another member"
                .into());
        }
        let pairs: Vec<pb::SnapshotPair> = small
            .into_iter()
            .map(|(table, key, value)| pb::SnapshotPair { table: table.name().into(), key, value })
            .collect();
        // The view is not needed any more: its pages may be reused while the receiver finishes.
        drop(export);
        for pairs in pairs.chunks(PAIRS_PER_PART) {
            for pair in pairs {
                crc = crc_of_pair(crc, pair);
            }
            transfer.send(Part::Small(pb::SnapshotSmall { pairs: pairs.to_vec() }))?;
        }
        let content = Some(pb::SnapshotContent { count: content.count, sum: content.sum });
        transfer.send(Part::End(pb::SnapshotEnd { rows: count, crc, content, running }))?;
        transfer.finish()?;
        Ok(bytes)
    }
}

/// Two snapshots for one member within this time are worth a word.
const AGAIN_NS: u64 = 300 * NS_PER_S;

/// A member that needs one snapshot after the other may never catch up: says so, and why.
fn again(to: NodeId, before_ns: Option<u64>) {
    let since = before_ns.map(|before| clock::now_ns().saturating_sub(before));
    if let Some(since) = since.filter(|since| *since < AGAIN_NS) {
        tracing::warn!(
            to = format!("{to:x}"),
            after_s = since / NS_PER_S,
            "a member was sent a second snapshot: it lost the connection or its process, or more \
             was written meanwhile than the log in memory holds for it; if this goes on, write \
             less until it has caught up"
        );
    }
}

/// Rows of small tables in one part: leases and users are some hundred bytes at most.
const PAIRS_PER_PART: usize = 4096;

fn row((revision, tombstone, value): Row) -> pb::SnapshotRow {
    pb::SnapshotRow { main: revision.main, sub: revision.sub, tombstone, value }
}

/// Adds a row to the checksum of a snapshot.
pub(super) fn crc_of_row(crc: u32, (revision, tombstone, value): &Row) -> u32 {
    let crc = crc32c::crc32c_append(crc, &revision.main.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &revision.sub.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &[u8::from(*tombstone)]);
    crc32c::crc32c_append(crc, value)
}

/// Adds a row of a small table to it.
pub(super) fn crc_of_pair(crc: u32, pair: &pb::SnapshotPair) -> u32 {
    let crc = crc32c::crc32c_append(crc, pair.table.as_bytes());
    let crc = crc32c::crc32c_append(crc, &pair.key);
    crc32c::crc32c_append(crc, &pair.value)
}

fn check<T>(result: Result<T, StoreError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fatal::stop("snapshot", &error),
    }
}
