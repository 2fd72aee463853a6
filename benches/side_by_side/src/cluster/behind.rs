//! A member that missed a lot comes back under load.

use super::Bench;
use super::numbers::Numbers;
use crate::closed_loop::{Span, quantile_us};
use crate::connection::Method;
use crate::cpu::Memory;
use crate::error::{Error, Result};
use crate::open_loop;
use crate::workloads::{LOADS_IN_FLIGHT, loads, puts, value};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Keys that are written while the member is away, and bytes of their values.
const MISSED: &str = "behind/";
const MISSED_VALUE_BYTES: usize = 4_096;
/// Bytes that are written at once; then the stores may catch up. A server refuses writes while its
/// store has too much to do, and that is not what is measured here.
const PIECE: u64 = 128 << 20;
/// Puts per second through the leader meanwhile.
const RATE: f64 = 1_000.0;
/// Longest time to catch up.
const LIMIT: Duration = Duration::from_secs(300);
/// How often the member is asked how far it is.
const POLL: Duration = Duration::from_millis(20);
const MIB: f64 = (1 << 20) as f64;

impl Bench<'_> {
    /// Kills a follower, writes what it is to miss, starts it again and measures puts until it has
    /// everything that was written before its start.
    pub(crate) fn measure_behind(&mut self) -> Result<()> {
        let missed = self.sizes.missed;
        let leader = self.cluster.leader()?;
        let (address, metrics) = {
            let leader = &self.cluster.members[leader];
            (leader.address, leader.metrics)
        };
        let away = (leader + 1) % self.cluster.members.len();
        self.cluster.members[away].kill()?;
        let loading = Instant::now();
        for piece in 0..missed.div_ceil(PIECE) {
            let bytes = PIECE.min(missed - piece * PIECE);
            let (keys, prefix) = (bytes / MISSED_VALUE_BYTES as u64, format!("{MISSED}{piece}/"));
            let next = loads(&prefix, keys, value(MISSED_VALUE_BYTES));
            self.closed_for(vec![address], Method::Txn, LOADS_IN_FLIGHT, next, Span::UntilDone)?;
            self.cluster.settle()?;
        }
        eprintln!("          {} s to write what it misses", loading.elapsed().as_secs());
        let mut next = puts(self.sizes.keys);
        let alone = open_loop::run(address, RATE, self.sizes.span, None, &mut next)?;
        let status = self.cluster.status(leader)?;
        let goal = status.ok_or_else(|| Error::Answer("the leader does not answer".into()))?.index;
        let before = Numbers::of(metrics)?;
        Memory::forget_peak(self.cluster.members[leader].pid())?;
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        self.cluster.members[away].respawn()?;
        let (beside, took) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let caught_up = self.wait_applied(away, goal, start);
                stop.store(true, Relaxed);
                caught_up
            });
            let beside = open_loop::run(address, RATE, LIMIT, Some(&stop), &mut next);
            let took = waiter.join().map_err(|_| Error::Answer("the waiter panicked".into()))??;
            Ok::<_, Error>((beside?, took))
        })?;
        let peak = |at: usize| Ok::<_, Error>(self.cluster.members[at].memory()?.peak as f64 / MIB);
        let (leader_peak, own_peak) = (peak(leader)?, peak(away)?);
        self.cluster.agree()?;
        let gained = Numbers::of(metrics)?.since(&before);
        let p99 = |outcome: &open_loop::Outcome| quantile_us(&outcome.latency, 0.99);
        let (missed, took) = (missed as f64 / MIB, took.as_secs_f64());
        for (id, figure) in [
            ("behind_missed", missed),
            ("behind_took", took),
            ("behind_rate", missed / took),
            ("behind_snapshots", gained.sum("etcd_network_snapshot_send_success")),
            ("behind_p99_alone", p99(&alone)),
            ("behind_p99_beside", p99(&beside)),
            ("behind_max_beside", beside.latency.max() as f64 / 1e3),
            ("behind_leader_rss", leader_peak),
            ("behind_own_rss", own_peak),
        ] {
            self.add(id, figure);
        }
        eprintln!(
            "  {:<7} behind       {missed:.0} MiB in {took:.1} s, put p99 {:.0} us before, {:.0} us \
             meanwhile; peak memory of the leader {leader_peak:.0} MiB, of the member \
             {own_peak:.0} MiB",
            self.cluster.kind.name(),
            p99(&alone),
            p99(&beside)
        );
        Ok(())
    }

    fn wait_applied(&self, at: usize, goal: u64, start: Instant) -> Result<Duration> {
        loop {
            if self.cluster.status(at)?.is_some_and(|status| status.applied >= goal) {
                return Ok(start.elapsed());
            }
            if start.elapsed() > LIMIT {
                return Err(Error::Answer(format!("a member does not reach index {goal}")));
            }
            std::thread::sleep(POLL);
        }
    }
}
