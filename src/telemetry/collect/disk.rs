//! File operations and the disk gate.

use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::{assay, etcd};
use crate::telemetry::histogram::HistogramSnapshot;
use crate::telemetry::io::{FileKind, IoOp, IoStats};
use crate::telemetry::metrics::GateState;

const NS_PER_SECOND: f64 = 1e9;

/// Operations whose series exist from the start, so that rates begin at zero: every sync, and what
/// a node does all the time. Others appear when they happen first.
const SHOWN: [(FileKind, IoOp); 17] = [
    (FileKind::Wal, IoOp::Write),
    (FileKind::Wal, IoOp::SyncData),
    (FileKind::Wal, IoOp::SyncAll),
    (FileKind::Wal, IoOp::SyncDir),
    (FileKind::Spare, IoOp::Write),
    (FileKind::Spare, IoOp::SyncData),
    (FileKind::Store, IoOp::Read),
    (FileKind::Store, IoOp::Write),
    (FileKind::Store, IoOp::SyncData),
    (FileKind::Store, IoOp::SyncAll),
    (FileKind::Store, IoOp::SyncDir),
    (FileKind::Meta, IoOp::Write),
    (FileKind::Meta, IoOp::SyncData),
    (FileKind::Meta, IoOp::SyncAll),
    (FileKind::Meta, IoOp::SyncDir),
    (FileKind::Snapshot, IoOp::Write),
    (FileKind::Snapshot, IoOp::SyncAll),
];

/// Every operation by file and name, and the log's under etcd's names.
pub(super) fn files(out: &mut Exposition, io: &IoStats) {
    let mut wal_syncs = HistogramSnapshot::default();
    for kind in FileKind::ALL {
        for op in IoOp::ALL {
            let times = io.latency(kind, op).snapshot();
            let age_ns = io.oldest_in_flight_ns(kind, op);
            if times.count == 0 && age_ns.is_none() && !SHOWN.contains(&(kind, op)) {
                continue;
            }
            let labels = [kind.as_str(), op.as_str()];
            out.family(&assay::DISK_OPERATION).histogram(&labels, &times);
            out.family(&assay::DISK_ERRORS).value(&labels, io.errors(kind, op) as f64);
            let age = age_ns.unwrap_or(0) as f64 / NS_PER_SECOND;
            out.family(&assay::DISK_IN_FLIGHT).value(&labels, age);
            if matches!(op, IoOp::Read | IoOp::Write) {
                out.family(&assay::DISK_BYTES).value(&labels, io.bytes(kind, op) as f64);
            }
            if kind == FileKind::Wal && matches!(op, IoOp::SyncData | IoOp::SyncAll | IoOp::SyncDir)
            {
                wal_syncs.add(&times);
            }
        }
    }
    out.histogram(&etcd::WAL_FSYNC, &wal_syncs);
    out.histogram(&etcd::WAL_WRITE, &io.latency(FileKind::Wal, IoOp::Write).snapshot());
    out.value(&etcd::WAL_WRITE_BYTES, io.bytes(FileKind::Wal, IoOp::Write) as f64);
}

/// One series per state, so that a change is seen as such.
pub(super) fn gate(out: &mut Exposition, gate: &GateState) {
    let reading = *gate.reading.lock();
    let mut states = out.family(&assay::GATE_STATE);
    for state in &gate.states {
        states.value(&[state], f64::from(u8::from(*state == reading.state)));
    }
    if let Some(p99) = reading.p99_seconds {
        out.value(&assay::GATE_P99, p99);
    }
    out.value(&assay::GATE_LIMIT, gate.limit_seconds);
}
