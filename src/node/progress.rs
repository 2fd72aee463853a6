//! How far a start has come: for `/readyz`, the metric of start phases and the log.

use crate::telemetry::clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Phases of a start, in order.
pub const PHASES: [&str; 6] = ["gate", "store", "index", "replay", "elect", "serve"];

/// Shared between the start and those who report it.
#[derive(Clone, Default)]
pub struct Progress(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    percent: AtomicU64,
}

#[derive(Default)]
struct State {
    phase: &'static str,
    since_ns: u64,
    /// Length of finished phases, ns.
    done: Vec<(&'static str, u64)>,
}

impl Progress {
    /// Enters a phase.
    pub fn enter(&self, phase: &'static str) {
        let now = clock::now_ns();
        let mut state = self.0.state.lock();
        if !state.phase.is_empty() {
            let finished = (state.phase, now - state.since_ns);
            state.done.push(finished);
        }
        state.phase = phase;
        state.since_ns = now;
        self.0.percent.store(0, Relaxed);
    }

    /// Sets how much of the phase is done.
    pub fn set(&self, done: u64, total: u64) {
        self.0.percent.store(done.saturating_mul(100) / total.max(1), Relaxed);
    }

    /// Text such as `replay 43 %`.
    pub fn text(&self) -> String {
        let phase = self.0.state.lock().phase;
        match self.0.percent.load(Relaxed) {
            0 => phase.to_string(),
            percent => format!("{phase} {percent} %"),
        }
    }

    /// Length of every phase so far in seconds, the present one included.
    pub fn seconds(&self) -> Vec<(&'static str, f64)> {
        let state = self.0.state.lock();
        let present = (state.phase, clock::now_ns().saturating_sub(state.since_ns));
        let all = state.done.iter().copied().chain((!state.phase.is_empty()).then_some(present));
        all.map(|(phase, ns)| (phase, ns as f64 / 1e9)).collect()
    }
}
