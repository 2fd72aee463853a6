//! Much is written at once: how fast, and what the members need in memory meanwhile.

use super::Bench;
use crate::closed_loop::{self, Load, Span};
use crate::connection::Method;
use crate::cpu::Memory;
use crate::error::Result;
use crate::workloads::{loads, value};

/// Keys that are written.
const LOADED: &str = "load/";
/// Bytes of a value.
const VALUE_BYTES: usize = 4_096;
/// Transactions of 48 KiB in flight: more than the disks can keep up with.
const IN_FLIGHT: usize = 64;
const MIB: f64 = (1 << 20) as f64;

impl Bench<'_> {
    /// Writes as much as the returning member misses, without a pause. A server may refuse calls
    /// when its disk does not keep up; they are counted and not repeated.
    pub(crate) fn measure_load(&mut self) -> Result<()> {
        let leader = self.cluster.leader()?;
        let members = 0..self.cluster.members.len();
        for at in members.clone() {
            Memory::forget_peak(self.cluster.members[at].pid())?;
        }
        let keys = self.sizes.missed / VALUE_BYTES as u64;
        let outcome = closed_loop::run(Load {
            servers: vec![self.cluster.members[leader].address],
            method: Method::Txn,
            in_flight: IN_FLIGHT,
            span: Span::UntilDone,
            least_bytes: 1,
            next: loads(LOADED, keys, value(VALUE_BYTES)),
            refusals: true,
            cpus: self.cluster.cpus(),
        })?;
        let peak = |at: usize| Ok(self.cluster.members[at].memory()?.peak as f64 / MIB);
        let peaks = members.map(peak).collect::<Result<Vec<f64>>>()?;
        let others = peaks.iter().enumerate().filter(|(at, _)| *at != leader);
        let (own, other) = (peaks[leader], others.map(|(_, peak)| *peak).fold(0.0, f64::max));
        let written = self.sizes.missed as f64 / MIB * outcome.calls as f64
            / (outcome.calls + outcome.refused).max(1) as f64;
        let rate = written / outcome.elapsed.as_secs_f64();
        let share =
            outcome.refused as f64 * 100.0 / (outcome.calls + outcome.refused).max(1) as f64;
        for (id, figure) in [
            ("load_rate", rate),
            ("load_refused", share),
            ("load_leader_rss", own),
            ("load_other_rss", other),
        ] {
            self.add(id, figure);
        }
        eprintln!(
            "  {:<7} load         {written:.0} MiB at {rate:.0} MiB/s, {share:.1} % refused; peak \
             memory of the leader {own:.0} MiB, of the others {other:.0} MiB",
            self.cluster.kind.name()
        );
        Ok(())
    }
}
