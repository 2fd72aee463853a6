//! Assay and a real etcd get the same random operations and must give the same answers.
//!
//! `SEED=n` picks the operations (default 1), `OPS=n` their number (default 20,000: only then is the
//! coverage asserted). Revisions are compared, for both servers start empty. Not compared: ids of
//! cluster and member, terms, where a watch response ends and the next begins. The first mismatch
//! ends the test with the operation, both answers, the seed and the position.
//!
//! `TRACE=1` with `--nocapture` prints every operation and its answer.
//! `PARTS=kv` leaves out watches and leases (and the assertion of the coverage): for a quick look at
//! one part. `ASSAY_SUBJECT=etcd` compares etcd with etcd: they must agree.

#[path = "differential/answer.rs"]
mod answer;
mod common;
#[path = "differential/coverage.rs"]
mod coverage;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/generate_txn.rs"]
mod generate_txn;
#[path = "differential/mistakes.rs"]
mod mistakes;
#[path = "differential/no_space.rs"]
mod no_space;
#[path = "differential/ops.rs"]
mod ops;
#[path = "differential/stream.rs"]
mod stream;
#[path = "differential/watch_rules.rs"]
mod watch_rules;
#[path = "differential/watches.rs"]
mod watches;

use answer::Answer;
use assay::proto::etcdserverpb::{CompactionRequest, LeaseTimeToLiveRequest};
use common::{Launch, Tool};
use coverage::{Coverage, LEAST};
use generate::Generator;
use generate_txn::deletes_without_end;
use ops::{Op, Side};
use rand::Rng;
use std::collections::BTreeSet;
use std::path::Path;
use tonic::Code;
use watches::Watches;

/// Length of a run that asserts its coverage.
const FULL: usize = 20_000;
/// Operations between two checkpoints of the watches, each followed by a compaction.
const ROUND: usize = 120;
/// Every this many operations one goes to a watch stream.
const WATCH_EVERY: usize = 16;
/// Times that both servers are started again in between: after `kill -9`, then after SIGTERM.
const RESTARTS: usize = 2;
/// The oracle's minor version: the one whose behaviour the reference describes.
const ORACLE: &str = "3.7.";

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}?")))
}

/// Both servers, empty; `None` without an oracle. The subject is side 0.
async fn sides(extra: &[&str]) -> Option<[Side; 2]> {
    let etcd = Tool::Etcd.require()?;
    assert_oracle(&etcd);
    // Durability is not compared here, and the oracle's syncs would be half of the run.
    let mut oracle = Launch::etcd(&etcd).arg("--unsafe-no-fsync");
    let mut subject = Launch::subject();
    for flag in extra {
        oracle = oracle.arg(*flag);
        subject = subject.arg(*flag);
    }
    Some([Side::open(subject.start()).await, Side::open(oracle.start()).await])
}

fn assert_oracle(etcd: &Path) {
    let output = std::process::Command::new(etcd).arg("--version").output().expect("etcd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
    let version = version.unwrap_or_default();
    assert!(version.starts_with(ORACLE), "the oracle must be etcd {ORACLE}x, this is {version}");
}

#[tokio::test]
async fn the_same_operations_get_the_same_answers() {
    let Some(mut sides) = sides(&[]).await else { return };
    let seed = number("SEED", 1);
    let ops = number("OPS", FULL as u64) as usize;
    println!("SEED={seed} OPS={ops}");
    let kv_only = std::env::var_os("PARTS").is_some_and(|parts| parts == "kv");
    let mut run = Run {
        seed,
        kv_only,
        index: 0,
        it: Generator::new(seed),
        seen: Coverage::default(),
        watches: if kv_only { None } else { Some(Watches::open(&mut sides).await) },
        fatal: BTreeSet::new(),
        sides,
    };
    for kill in [true, false] {
        let part = ops / (RESTARTS + 1) * if kill { 1 } else { 2 };
        while run.index < part {
            run.round(part).await;
        }
        run = Box::pin(run.restart(kill)).await;
    }
    while run.index < ops {
        run.round(ops).await;
    }
    run.checkpoint().await;
    let events = run.watches.as_ref().map_or(0, Watches::events);
    println!("{} operations, {events} events", run.index);
    println!("{}", run.seen.table());
    if ops >= FULL && !kv_only {
        run.seen.require(LEAST);
    }
}

struct Run {
    seed: u64,
    kv_only: bool,
    index: usize,
    it: Generator,
    seen: Coverage,
    watches: Option<Watches>,
    /// Revisions at which etcd (seen with 3.7.3) must be neither compacted nor hashed: where one
    /// transaction deletes a key and puts it again, which its check lets pass for deletes without an
    /// end, it takes the new row for gone. Compaction at just that revision loses it, and the next
    /// read of it ends the process.
    fatal: BTreeSet<i64>,
    sides: [Side; 2],
}

impl Run {
    async fn round(&mut self, ops: usize) {
        for _ in 0..ROUND.min(ops - self.index) {
            self.index += 1;
            if self.index.is_multiple_of(WATCH_EVERY)
                && let Some(watches) = &mut self.watches
            {
                let done = watches.act(&mut self.it, &mut self.seen).await;
                self.no_mismatch(done);
                continue;
            }
            let op = self.it.next();
            if !(self.kv_only && op.is_lease()) && self.can_hash(&op) {
                self.apply(&op).await;
            }
        }
        self.checkpoint().await;
        // Everything has arrived: what a watch sees no longer depends on when the compaction comes.
        if self.it.revision > self.it.compacted {
            let keep = self.it.rng.random_range(0..60);
            let mut revision = (self.it.revision - keep).max(self.it.compacted + 1).max(1);
            let physical = self.it.chance(50);
            while self.fatal.contains(&revision) {
                revision += 1;
            }
            if revision > self.it.revision {
                return;
            }
            self.index += 1;
            self.apply(&Op::Compact(CompactionRequest { revision, physical })).await;
        }
    }

    /// Stops and starts both servers; everything written must still be there.
    async fn restart(mut self, kill: bool) -> Self {
        self.checkpoint().await;
        let [a, b] = self.sides;
        let mut sides = [a.restart(kill).await, b.restart(kill).await];
        if let Some(watches) = &mut self.watches {
            watches.reopen(&mut sides).await;
        }
        let mut run = Self { sides, ..self };
        run.checkpoint().await;
        if run.kv_only {
            return run;
        }
        run.apply(&Op::Leases).await;
        for id in run.it.leases.clone() {
            let asked = LeaseTimeToLiveRequest { id, keys: true };
            run.apply(&Op::TimeToLive(asked)).await;
        }
        run
    }

    async fn checkpoint(&mut self) {
        if let Some(watches) = &mut self.watches {
            let mut done = watches.checkpoint(self.it.revision, &mut self.seen).await;
            if done.is_ok() {
                done = watches.leftovers().map_or(Ok(()), Err);
            }
            if done.is_ok() {
                done = watches.cancel_some(&mut self.it, &mut self.seen).await;
            }
            self.no_mismatch(done);
        }
        if self.can_hash(&Op::HashKv(0)) {
            self.apply(&Op::HashKv(0)).await;
        }
    }

    /// Whether this is no hash, or none of a revision that etcd hashes wrongly.
    fn can_hash(&self, op: &Op) -> bool {
        match op {
            Op::HashKv(0) => !self.fatal.contains(&self.it.revision),
            Op::HashKv(revision) => !self.fatal.contains(revision),
            _ => true,
        }
    }

    async fn apply(&mut self, op: &Op) {
        let [a, b] = &mut self.sides;
        let (a, b) = tokio::join!(a.apply(op), b.apply(op));
        let unanswered = |answer: &Answer| {
            let code = answer.error.as_ref().map(|error| error.0);
            matches!(code, Some(Code::Cancelled | Code::Unavailable))
        };
        if a != b || unanswered(&a) {
            let asked = shorten(&format!("{op:?}"), 6_000);
            let words =
                format!("{asked}\n  subject: {a}\n  etcd:    {b}\n  differ in (subject | etcd):");
            let differ = a.difference(&b);
            let hashes = if matches!(op, Op::HashKv(_)) { self.hashes().await } else { "".into() };
            self.no_mismatch(Err(format!("{words}\n    {differ}\n{hashes}")));
        }
        if std::env::var_os("TRACE").is_some() {
            println!("{} {op:?}\n    {a}", self.index);
        }
        self.seen.note(op, &a);
        self.follow(op, &a);
    }

    /// Revisions at which the hashes differ, from the compact revision on: where to look.
    async fn hashes(&mut self) -> String {
        let [a, b] = &mut self.sides;
        let mut differ = Vec::new();
        for revision in self.it.compacted.max(0) + 1..=self.it.revision {
            let op = Op::HashKv(revision);
            let (a, b) = tokio::join!(a.apply(&op), b.apply(&op));
            if a != b {
                differ.push(revision);
            }
        }
        let mut words = format!("compacted at {}, hashes differ at {differ:?}", self.it.compacted);
        if let Some(watches) = &mut self.watches
            && watches.extend_history(self.it.revision).await.is_ok()
        {
            for line in differ.iter().take(3).flat_map(|revision| watches.written_at(*revision)) {
                words.push_str(&format!("\n  {line}"));
            }
        }
        words
    }

    /// Keeps what the generator knows in step with the servers.
    fn follow(&mut self, op: &Op, answer: &Answer) {
        if let Some(revision) = answer.revision() {
            self.it.revision = revision;
        }
        if answer.error.is_some() {
            return;
        }
        match op {
            Op::Compact(compact) => self.it.compacted = compact.revision,
            Op::Txn(txn) if deletes_without_end(txn) => {
                self.fatal.insert(self.it.revision);
            }
            Op::Grant(grant) => self.it.leases.push(grant.id),
            Op::Revoke(id) => self.it.leases.retain(|lease| lease != id),
            _ => {}
        }
    }

    fn no_mismatch(&self, done: Result<(), String>) {
        if let Err(words) = done {
            let (seed, index) = (self.seed, self.index);
            panic!("mismatch at operation {index} (replay: SEED={seed} OPS={index})\n{words}");
        }
    }
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}... {} characters", &text[..end], text.chars().count()),
        None => text.to_string(),
    }
}
