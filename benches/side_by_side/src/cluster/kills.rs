//! The leader dies: how long nobody is served.

use super::Bench;
use super::figures::ELECTION_TIMEOUT_MS;
use super::logs;
use super::pulse::Pulse;
use crate::error::Result;
use std::time::{Duration, Instant, SystemTime};

/// Puts acknowledged through the survivors before a kill: both know the leader then.
const PUTS_BEFORE: u64 = 100;
/// Longest wait for service.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without service, in election timeouts, above which the logs of the survivors are shown. One
/// election takes two at most.
const UNUSUAL: f64 = 3.0;

impl Bench<'_> {
    /// Kills the leader so many times; each time it comes back before the next.
    pub(crate) fn measure_kills(&mut self, kills: usize) -> Result<()> {
        let mut outages = Vec::new();
        for kill in 1..=kills {
            let outage = self.measure_kill(kill)?;
            outages.push(outage);
        }
        self.cluster.agree()?;
        outages.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (outages.len() as f64 * share).ceil() as usize;
            outages.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let (p50, p90, p99, max) = (at(0.5), at(0.9), at(0.99), at(1.0));
        let name = self.cluster.kind.name();
        eprintln!(
            "  {name:<7} kills        {kills} kills, no service for p50 {p50:.0} ms, p90 {p90:.0} ms, \
             p99 {p99:.0} ms, max {max:.0} ms; all members hold the same keys"
        );
        for (id, figure) in [
            ("kill_p50", p50),
            ("kill_p90", p90),
            ("kill_p99", p99),
            ("kill_max", max),
            ("kill_count", kills as f64),
        ] {
            self.add(id, figure);
        }
        Ok(())
    }

    /// One death and return; milliseconds until a put was acknowledged.
    fn measure_kill(&mut self, number: usize) -> Result<f64> {
        let leader = self.cluster.leader()?;
        let mut survivors = self.cluster.addresses();
        survivors.remove(leader);
        let marks: Vec<u64> = self.cluster.members.iter().map(|member| member.log_end()).collect();
        let pulse = Pulse::start(survivors, self.sizes.keys);
        pulse.wait_acked(PUTS_BEFORE, PATIENCE)?;
        let (start, wall) = (Instant::now(), SystemTime::now());
        self.cluster.members[leader].kill()?;
        let outage = (pulse.wait_served(PATIENCE)? - start).as_secs_f64() * 1e3;
        pulse.stop()?;
        if outage > UNUSUAL * ELECTION_TIMEOUT_MS {
            eprintln!("  kill {number}: no service for {outage:.0} ms; what the survivors say:");
            let survivors = (0..marks.len()).filter(|at| *at != leader);
            let said = survivors
                .map(|at| (format!("m{at}"), self.cluster.members[at].log_from(marks[at])));
            eprint!("{}", logs::since(wall, &said.collect::<Vec<_>>()));
        }
        self.cluster.members[leader].restart()?;
        Ok(outage)
    }
}
