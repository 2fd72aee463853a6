//! The leader dies: how long nobody is served.

use super::Bench;
use super::pulse::Pulse;
use crate::error::Result;
use std::time::{Duration, Instant};

/// Puts acknowledged through the survivors before a kill: both know the leader then.
const PUTS_BEFORE: u64 = 100;
/// Longest wait for service.
const PATIENCE: Duration = Duration::from_secs(60);

impl Bench<'_> {
    /// Kills the leader so many times; each time it comes back before the next.
    pub(crate) fn measure_kills(&mut self, kills: usize) -> Result<()> {
        let mut outages = Vec::new();
        for _ in 0..kills {
            let leader = self.cluster.leader()?;
            let mut survivors = self.cluster.addresses();
            survivors.remove(leader);
            let pulse = Pulse::start(survivors, self.sizes.keys);
            pulse.wait_acked(PUTS_BEFORE, PATIENCE)?;
            let start = Instant::now();
            self.cluster.members[leader].kill()?;
            outages.push((pulse.wait_served(PATIENCE)? - start).as_secs_f64() * 1e3);
            pulse.stop()?;
            self.cluster.members[leader].restart()?;
        }
        self.cluster.agree()?;
        outages.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (outages.len() as f64 * share).ceil() as usize;
            outages.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
        let name = self.cluster.kind.name();
        eprintln!(
            "  {name:<7} kills        {kills} kills, no service for p50 {p50:.0} ms, p99 {p99:.0} ms, \
             max {max:.0} ms"
        );
        for (id, figure) in
            [("kill_p50", p50), ("kill_p99", p99), ("kill_max", max), ("kill_count", kills as f64)]
        {
            self.add(id, figure);
        }
        Ok(())
    }
}
