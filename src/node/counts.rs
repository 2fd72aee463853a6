//! Counts the operations of an applied entry, also those inside of transactions.

use crate::machine::{Answer, Outcome};
use crate::mvcc::{EventKind, OpAnswer};
use crate::telemetry::node_metrics::NodeMetrics;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Default)]
struct Counts {
    puts: u64,
    deletes: u64,
    ranges: u64,
}

impl Counts {
    fn add(&mut self, results: &[OpAnswer]) {
        for result in results {
            match result {
                OpAnswer::Range { .. } => self.ranges += 1,
                OpAnswer::Put { .. } => self.puts += 1,
                OpAnswer::DeleteRange { .. } => self.deletes += 1,
                OpAnswer::Txn(nested) => self.add(&nested.results),
            }
        }
    }
}

/// Adds what an entry did to the counters of the node.
pub(super) fn applied(metrics: &NodeMetrics, outcome: &Outcome) {
    let mut counts = Counts::default();
    match &outcome.answer {
        Ok(Answer::Put { .. }) => counts.puts = 1,
        Ok(Answer::DeleteRange { .. }) => counts.deletes = 1,
        Ok(Answer::Txn(answer)) => {
            counts.add(&answer.results);
            if counts.puts + counts.deletes + counts.ranges > 1 {
                metrics.txns.fetch_add(1, Relaxed);
            }
        }
        _ => return,
    }
    metrics.puts.fetch_add(counts.puts, Relaxed);
    metrics.deletes.fetch_add(counts.deletes, Relaxed);
    metrics.ranges.fetch_add(counts.ranges, Relaxed);
    if let Some(events) = &outcome.events {
        let puts = events.events.iter().filter(|event| event.kind == EventKind::Put);
        metrics.put_bytes.fetch_add(puts.map(|event| event.row.len() as u64).sum(), Relaxed);
    }
}
