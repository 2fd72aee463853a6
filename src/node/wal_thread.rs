//! The `wal` thread: takes every waiting batch, writes them as one group, syncs once, reports.

use super::convert;
use super::fatal;
use super::input::{ApplyInput, NodeInput, Persisted, WalInput};
use super::lane::{Lane, Taker};
use crate::telemetry::clock;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::wal::{SpareStep, Wal, WalError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Bytes of a spare segment prepared per idle turn: written and synced in about 3 ms, so that a
/// batch that arrives meanwhile hardly waits.
const SPARE_STEP_BYTES: u64 = 1 << 20;
/// How long the queue must stay empty before spare segments are prepared.
const IDLE: Duration = Duration::from_millis(20);

/// Age of the process before spare segments are prepared: a node that is restarted in a loop must
/// not write 128 MiB each time that it never uses.
const SPARE_DELAY_NS: u64 = 5_000_000_000;
/// How often it is looked at whether the leader is heard again.
const LEADER_POLL: Duration = Duration::from_millis(100);
/// Work of this length is said in the log: half of the default election timeout, and what the core
/// calls a disk that hangs. It tells afterwards what an election waited for.
const SLOW_NS: u64 = 500_000_000;
/// How often a full file system is looked at again.
const ROOM_POLL: Duration = Duration::from_millis(200);

/// What the thread needs.
pub(super) struct WalThread {
    pub(super) wal: Wal,
    pub(super) queue: Arc<Lane<WalInput>>,
    /// Bytes handed over and not yet on disk; the node thread adds, this one takes off.
    pub(super) credit: Arc<AtomicUsize>,
    pub(super) node: Arc<Lane<NodeInput>>,
    pub(super) apply: Arc<Lane<ApplyInput>>,
    pub(super) metrics: Arc<NodeMetrics>,
    /// See [`Spares`].
    pub(super) election_near: Arc<AtomicBool>,
}

/// When spare segments are prepared: when the thread is idle, some time after the start, and not while
/// the leader is silent. Then the thread is idle because nobody writes, a vote may have to be on disk
/// any moment, and it must not wait for a part of a spare segment on a disk that is slow just then.
struct Spares {
    wanted: bool,
    from_ns: u64,
    election_near: Arc<AtomicBool>,
}

impl Spares {
    fn new(start_ns: u64, election_near: Arc<AtomicBool>) -> Self {
        Spares { wanted: true, from_ns: start_ns + SPARE_DELAY_NS, election_near }
    }

    /// How long the queue must stay empty before it is asked whether one is due.
    fn pause(&self, now_ns: u64) -> Option<Duration> {
        let early = Duration::from_nanos(self.from_ns.saturating_sub(now_ns));
        let idle = if self.election_near.load(Relaxed) { LEADER_POLL } else { IDLE };
        self.wanted.then_some(idle.max(early))
    }

    /// Whether a part of one is to be prepared now, by an idle thread.
    fn is_due(&self, now_ns: u64) -> bool {
        self.wanted && now_ns >= self.from_ns && !self.election_near.load(Relaxed)
    }
}

/// Bytes of a batch as counted against the credit.
pub(super) fn weight(batch: &crate::consensus::Batch) -> usize {
    // Index, term, lengths and kind of an entry in a frame.
    const ENTRY_OVERHEAD_BYTES: usize = 32;
    batch
        .entries
        .iter()
        .map(|entry| entry.data.len() + entry.context.len() + ENTRY_OVERHEAD_BYTES)
        .sum()
}

/// Whether somebody waits for this to be done: everything but a commit index that has moved.
fn is_urgent(input: &WalInput) -> bool {
    match input {
        WalInput::Persist(batch) => batch.sync || !batch.entries.is_empty(),
        WalInput::Reset { .. } | WalInput::Truncate { .. } | WalInput::Stop => true,
    }
}

impl WalThread {
    /// Body of the thread. Returns when told to stop; a fault ends the process.
    pub(super) fn run(mut self) {
        self.queue.own();
        let mut inputs = Vec::new();
        // Something was appended that is not in the file yet.
        let mut unwritten = false;
        let mut spares = Spares::new(clock::now_ns(), self.election_near.clone());
        loop {
            let pause = spares.pause(clock::now_ns());
            self.queue.drain(&mut inputs, unwritten.then_some(IDLE).or(pause));
            if inputs.is_empty() && unwritten {
                check(self.wal.commit());
                unwritten = false;
                continue;
            }
            if inputs.is_empty() && spares.is_due(clock::now_ns()) {
                let began_ns = clock::now_ns();
                let step = check(self.wal.prepare_spare(SPARE_STEP_BYTES));
                say_if_slow("part of a spare segment", began_ns);
                spares.wanted = matches!(step, SpareStep::More);
                continue;
            }
            let (mut last, mut bytes, mut entries) = (None, 0, 0);
            let (mut truncate, mut urgent, mut stop) = (None, false, false);
            for input in inputs.drain(..) {
                urgent |= is_urgent(&input);
                match input {
                    WalInput::Persist(batch) => {
                        self.append(&convert::batch(&batch));
                        bytes += weight(&batch);
                        entries += batch.entries.len();
                        last = Some(batch.number);
                    }
                    WalInput::Reset { base, hard_state } => {
                        check(self.wal.reset(base, convert::hard_state(hard_state)));
                    }
                    WalInput::Truncate { index } => truncate = Some(index),
                    WalInput::Stop => stop = true,
                }
            }
            if let Some(batch) = last {
                let mut written_ns = 0;
                // A commit index alone need not outlive a crash. It goes into the write of the next
                // batch, or into one of its own when the thread is idle.
                unwritten = !urgent;
                if urgent {
                    let began_ns = clock::now_ns();
                    check(self.wal.commit_marked(&mut || written_ns = clock::now_ns()));
                    say_if_slow("write and sync of a group", began_ns);
                    self.metrics.wal_groups.fetch_add(1, Relaxed);
                    self.metrics.wal_group_entries.fetch_add(entries as u64, Relaxed);
                }
                let synced_ns = clock::now_ns();
                self.credit.fetch_sub(bytes, Relaxed);
                self.report(Persisted { batch, written_ns, synced_ns }, stop || truncate.is_some());
            }
            if let Some(index) = truncate {
                check(self.wal.truncate_front(index));
                spares.wanted = true;
            }
            if stop {
                check(self.wal.close_clean());
                return;
            }
        }
    }
}

impl WalThread {
    /// Tells the core. With nothing else to do this thread takes what follows from it on: a lone
    /// put then wakes two threads less.
    fn report(&self, persisted: Persisted, busy: bool) {
        let persisted = NodeInput::Persisted(persisted);
        if busy || self.queue.has(is_urgent) {
            return self.node.push(persisted);
        }
        self.node.push_quietly(persisted);
        self.node.offer(Taker::Wal);
        match self.queue.has(is_urgent) {
            true => self.apply.wake(),
            false => self.apply.offer(Taker::Wal),
        }
    }

    /// Appends, waiting for room if there is none for another segment: nothing of the batch counts
    /// before that, and writes of clients are refused meanwhile.
    fn append(&mut self, batch: &crate::wal::Batch) {
        let mut said = false;
        loop {
            match self.wal.append(batch) {
                Ok(()) => return,
                Err(WalError::NoSpace(fault)) => {
                    if !said {
                        said = true;
                        tracing::warn!(
                            %fault,
                            "the file system is full: the log waits for room for a segment"
                        );
                    }
                    self.metrics.space_refused.store(1, Relaxed);
                    std::thread::park_timeout(ROOM_POLL);
                }
                Err(error) => fatal::stop("write-ahead log", &error),
            }
        }
    }
}

fn say_if_slow(what: &str, began_ns: u64) {
    let took_ns = clock::now_ns().saturating_sub(began_ns);
    if took_ns >= SLOW_NS {
        tracing::warn!(took_ms = took_ns / 1_000_000, "the disk of the log is slow: {what}");
    }
}

fn check<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fatal::stop("write-ahead log", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_segments_leave_the_disk_alone_while_the_leader_is_silent() {
        let near = Arc::new(AtomicBool::new(false));
        let mut spares = Spares::new(7, near.clone());
        assert!(!spares.is_due(6 + SPARE_DELAY_NS), "not right after the start");
        assert_eq!(spares.pause(7), Some(Duration::from_nanos(SPARE_DELAY_NS)));
        let late = 7 + SPARE_DELAY_NS;
        assert!(spares.is_due(late));
        assert_eq!(spares.pause(late), Some(IDLE));
        near.store(true, Relaxed);
        assert!(!spares.is_due(late));
        assert_eq!(spares.pause(late), Some(LEADER_POLL), "a thread that only waits does not spin");
        near.store(false, Relaxed);
        spares.wanted = false;
        assert!(!spares.is_due(late));
        assert_eq!(spares.pause(late), None);
    }
}
