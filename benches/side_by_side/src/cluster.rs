//! Three members of Assay beside three of etcd, on the same machine and disk.

mod behind;
pub(crate) mod figures;
mod kills;
mod loaded;
mod logs;
mod members;
mod numbers;
mod pulse;

use crate::closed_loop::{self, Load, Next, Outcome, Span};
use crate::connection::Method;
use crate::error::Result;
use crate::open_loop;
use crate::report::Report;
use crate::server::Kind;
use crate::workloads::{BENCH, LOADS_IN_FLIGHT, Sizes, VALUE_BYTES, gets, loads, puts, value};
use figures::STAGES;
use members::Cluster;
use numbers::Numbers;
use std::net::SocketAddr;
use std::path::Path;

/// Times of the stages of a proposal.
const STAGE: &str = "assay_proposal_stage_duration_seconds";
/// Entries that became committed on a leader.
const COMMITTED: &str = "assay_raft_leader_committed_entries_total";
/// Times from sending entries to a follower until it has them on disk.
const APPEND: &str = "assay_peer_append_duration_seconds";
/// Both servers have it.
const FSYNC: &str = "etcd_disk_wal_fsync_duration_seconds";

/// A measured cluster and where its figures go.
pub(crate) struct Bench<'a> {
    cluster: Cluster,
    report: &'a mut Report,
    sizes: Sizes,
}

impl<'a> Bench<'a> {
    /// Starts a cluster on fresh files below `dir` and waits until it is quiet.
    pub(crate) fn start(
        kind: Kind,
        programs: &crate::server::Programs,
        dir: &Path,
        report: &'a mut Report,
        sizes: Sizes,
    ) -> Result<Self> {
        let cluster = Cluster::start(kind, programs, dir)?;
        let written = cluster.settle()?;
        report.add("start_written", kind, written as f64 / f64::from(1 << 20));
        Ok(Self { cluster, report, sizes })
    }

    fn add(&mut self, id: &str, figure: f64) {
        self.report.add(id, self.cluster.kind, figure);
    }

    fn closed(
        &self,
        servers: Vec<SocketAddr>,
        method: Method,
        in_flight: usize,
        next: Next,
    ) -> Result<Outcome> {
        self.closed_for(servers, method, in_flight, next, Span::Time(self.sizes.span))
    }

    fn closed_for(
        &self,
        servers: Vec<SocketAddr>,
        method: Method,
        in_flight: usize,
        next: Next,
        span: Span,
    ) -> Result<Outcome> {
        let least_bytes = if method == Method::Range { VALUE_BYTES as u64 } else { 1 };
        let cpus = self.cluster.cpus();
        let refusals = false;
        closed_loop::run(Load {
            servers,
            method,
            in_flight,
            span,
            least_bytes,
            next,
            refusals,
            cpus,
        })
    }

    fn leader_address(&self) -> Result<SocketAddr> {
        Ok(self.cluster.members[self.cluster.leader()?].address)
    }

    fn add_outcome(&mut self, prefix: &str, outcome: &Outcome) {
        self.report.add_outcome(prefix, self.cluster.kind, outcome);
        // Microseconds per put are tenths of seconds per 100,000.
        self.add(&format!("{prefix}_cpu_100k"), outcome.server_us() / 10.0);
    }

    /// Puts through the leader, then through all members, at these numbers in flight.
    pub(crate) fn measure_puts(&mut self, in_flight: &[usize]) -> Result<()> {
        for &in_flight in in_flight {
            let leader = &self.cluster.members[self.cluster.leader()?];
            let (address, metrics) = (leader.address, leader.metrics);
            let before = Numbers::of(metrics)?;
            let next = puts(self.sizes.keys);
            let outcome = self.closed(vec![address], Method::Put, in_flight, next)?;
            let gained = Numbers::of(metrics)?.since(&before);
            let prefix = format!("put_{in_flight}");
            self.add_outcome(&prefix, &outcome);
            let fsyncs = gained.sum(&format!("{FSYNC}_count"));
            self.add(&format!("{prefix}_per_fsync"), outcome.all_calls as f64 / fsyncs.max(1.0));
            self.add(&format!("{prefix}_fsync_mean"), gained.mean_us(FSYNC, ""));
            if self.cluster.kind == Kind::Assay {
                self.add_stages(&prefix, &gained);
            }
        }
        for &in_flight in in_flight.iter().filter(|in_flight| **in_flight > 1) {
            let (servers, next) = (self.cluster.addresses(), puts(self.sizes.keys));
            let outcome = self.closed(servers, Method::Put, in_flight, next)?;
            self.add_outcome(&format!("spread_{in_flight}"), &outcome);
        }
        Ok(())
    }

    /// Where the time of a proposal goes on the leader, and how much of it runs side by side: with
    /// entries sent before the own sync, followers and the own disk work at the same time.
    fn add_stages(&mut self, prefix: &str, gained: &Numbers) {
        let early = gained.sum(&format!("{COMMITTED}{{own_sync=\"pending\""));
        let share = early * 100.0 / gained.sum(COMMITTED).max(1.0);
        let append = gained.mean_us(APPEND, "");
        self.add(&format!("{prefix}_early"), share);
        self.add(&format!("{prefix}_append_mean"), append);
        let mut words = Vec::new();
        for stage in STAGES {
            let mean = gained.mean_us(STAGE, &format!("{{stage=\"{stage}\"}}"));
            self.add(&format!("{prefix}_stage_{stage}"), mean);
            words.push(format!("{stage} {mean:.0}"));
        }
        eprintln!(
            "          stages of the leader, mean us: {}; follower's append {append:.0}; {share:.0} % \
             committed before the own sync",
            words.join(", ")
        );
    }

    /// Linearizable gets of the leader, then of all members.
    pub(crate) fn measure_gets(&mut self) -> Result<()> {
        let leader = vec![self.leader_address()?];
        let all = loads(BENCH, self.sizes.keys, value(VALUE_BYTES));
        let span = Span::UntilDone;
        self.closed_for(leader.clone(), Method::Txn, LOADS_IN_FLIGHT, all, span)?;
        // Reads are measured, not what the disks have still to do for the writes before.
        self.cluster.settle()?;
        let everybody = self.cluster.addresses();
        for (servers, in_flight, prefix) in [
            (leader.clone(), 1, "get_lin_1"),
            (leader, 64, "get_lin_64"),
            (everybody, 64, "get_spread_64"),
        ] {
            let next = gets(self.sizes.keys, false);
            let outcome = self.closed(servers, Method::Range, in_flight, next)?;
            self.report.add_outcome(prefix, self.cluster.kind, &outcome);
        }
        Ok(())
    }

    /// Puts through the leader at a fixed rate.
    pub(crate) fn measure_open(&mut self, rate: f64) -> Result<()> {
        let leader = self.leader_address()?;
        // Connections and files as under load, not as after a start.
        self.closed(vec![leader], Method::Put, 64, puts(self.sizes.keys))?;
        let mut next = puts(self.sizes.keys);
        let outcome = open_loop::run(leader, rate, self.sizes.span, None, &mut next)?;
        self.report.add_open(self.cluster.kind, &outcome);
        Ok(())
    }
}
