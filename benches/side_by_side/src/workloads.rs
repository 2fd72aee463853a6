//! What is measured on one server.

use crate::closed_loop::{self, Load, Next, Outcome, Span, quantile_us};
use crate::connection::{Method, call};
use crate::error::{Error, Result};
use crate::messages::{end_of, key, put, range, txn_of_puts};
use crate::open_loop;
use crate::recording::{self, Recording};
use crate::report::Report;
use crate::scrape::Fsyncs;
use crate::server::{Kind, Server};
use crate::watchers::Watchers;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a value, except where the million keys are measured.
pub(crate) const VALUE_BYTES: usize = 512;
/// Bytes of a value of the million keys.
pub(crate) const SMALL_VALUE_BYTES: usize = 256;
/// Keys of one range request.
const RANGE_KEYS: u64 = 1_000;
/// Ranges in flight.
const RANGES_IN_FLIGHT: usize = 8;
/// Puts in flight under the watchers.
const WATCHED_IN_FLIGHT: usize = 16;
/// Keys that the watched puts go to.
const WATCHED_KEYS: u64 = 1_000;
/// Most puts in one transaction, and transactions in flight, when keys are loaded.
const LOAD_PUTS: u64 = 100;
/// Bytes of values in one transaction: with its keys it fits the window that a stream begins with,
/// which some servers open further only when they see a message that does not fit.
const LOAD_BYTES: u64 = 48 << 10;
pub(crate) const LOADS_IN_FLIGHT: usize = 8;
/// Keys in one page of the listing client.
const PAGE_KEYS: u64 = 10_000;
/// Puts per second beside the listing client.
const LIST_RATE: f64 = 1_000.0;
/// Rest between loading and looking at memory.
const SETTLE: Duration = Duration::from_secs(3);
/// Longest wait for watchers.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prefix of the keys of puts, gets and ranges; of the watched keys; of the million keys.
pub(crate) const BENCH: &str = "bench/";
const WATCHED: &str = "watched/";
const MANY: &str = "many/";

/// Sizes of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Length of each measurement.
    pub(crate) span: Duration,
    /// Keys of puts, gets and ranges.
    pub(crate) keys: u64,
    /// Watchers.
    pub(crate) watchers: usize,
    /// Puts that the watchers see.
    pub(crate) watched_puts: u64,
    /// Keys for memory, restart and listing.
    pub(crate) many: u64,
    /// Bytes that a member of a cluster misses.
    pub(crate) missed: u64,
}

/// Xorshift: cheap, and good enough to pick keys.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `limit`, which is far below 2^32.
    fn below(&mut self, limit: u64) -> u64 {
        ((self.next() >> 32) * limit) >> 32
    }
}

/// Bytes that do not compress.
pub(crate) fn value(len: usize) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|_| random.next() as u8).collect()
}

fn set_digits(message: &mut [u8], at: usize, mut number: u64) {
    for digit in message[at..at + 8].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Puts of random keys.
pub(crate) fn puts(keys: u64) -> Next {
    let mut template = Vec::new();
    put(&mut template, &key(BENCH, 0), &value(VALUE_BYTES));
    let mut random = Random(u64::from(std::process::id()) | 1 << 40);
    Box::new(move |message| {
        set_digits(&mut template, 2 + BENCH.len(), random.below(keys));
        message.extend_from_slice(&template);
        true
    })
}

pub(crate) fn gets(keys: u64, serializable: bool) -> Next {
    let mut template = Vec::new();
    range(&mut template, &key(BENCH, 0), b"", 0, serializable);
    let mut random = Random(1 << 41 | 1);
    Box::new(move |message| {
        set_digits(&mut template, 2 + BENCH.len(), random.below(keys));
        message.extend_from_slice(&template);
        true
    })
}

fn ranges(keys: u64) -> Next {
    let mut random = Random(1 << 42 | 1);
    Box::new(move |message| {
        let first = random.below(keys.saturating_sub(RANGE_KEYS).max(1));
        range(message, &key(BENCH, first), &key(BENCH, first + RANGE_KEYS), 0, false);
        true
    })
}

/// Transactions that put each key once.
pub(crate) fn loads(prefix: &str, keys: u64, value: Vec<u8>) -> Next {
    let (prefix, mut from) = (prefix.to_owned(), 0);
    let puts = (LOAD_BYTES / value.len().max(1) as u64).clamp(1, LOAD_PUTS);
    Box::new(move |message| {
        let to = (from + puts).min(keys);
        txn_of_puts(message, (from..to).map(|number| (key(&prefix, number), &value[..])));
        let more = from < keys;
        from = to;
        more
    })
}

/// A measured server and where its figures go.
pub(crate) struct Bench<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) report: &'a mut Report,
    pub(crate) sizes: Sizes,
}

impl Bench<'_> {
    fn add(&mut self, id: &str, figure: f64) {
        self.report.add(id, self.server.kind, figure);
    }

    fn closed(
        &self,
        method: Method,
        in_flight: usize,
        least: usize,
        next: Next,
    ) -> Result<Outcome> {
        self.closed_for(method, in_flight, least, next, Span::Time(self.sizes.span))
    }

    fn closed_for(
        &self,
        method: Method,
        in_flight: usize,
        least: usize,
        next: Next,
        span: Span,
    ) -> Result<Outcome> {
        closed_loop::run(Load {
            servers: vec![self.server.address],
            method,
            in_flight,
            span,
            least_bytes: least as u64,
            next,
            refusals: false,
            cpus: vec![self.server.cpu()?],
        })
    }

    fn add_outcome(&mut self, prefix: &str, outcome: &Outcome) {
        self.report.add_outcome(prefix, self.server.kind, outcome);
    }

    /// Puts at these numbers in flight; `nothing_p50` is the floor of this round. The node's own
    /// recording of the last of them goes to `mix`.
    pub(crate) fn measure_puts(
        &mut self,
        in_flight: &[usize],
        nothing_p50: f64,
        mix: Option<&Path>,
    ) -> Result<()> {
        let mix = mix.filter(|_| self.server.kind == Kind::Assay);
        for &in_flight in in_flight {
            let before = Fsyncs::of(self.server.metrics)?;
            let recorded = mix.map(|_| Recording::of(self.server.address)).transpose()?;
            let outcome = self.closed(Method::Put, in_flight, 1, puts(self.sizes.keys))?;
            let fsyncs = Fsyncs::of(self.server.metrics)?.since(&before);
            if let (Some(path), Some(recorded)) = (mix, recorded) {
                let added = Recording::of(self.server.address)?.since(&recorded);
                recording::save(&added, path)?;
            }
            self.add_outcome(&format!("put_{in_flight}"), &outcome);
            let per_fsync = outcome.all_calls as f64 / fsyncs.count().max(1.0);
            self.add(&format!("put_{in_flight}_per_fsync"), per_fsync);
            self.add(&format!("put_{in_flight}_fsync_mean"), fsyncs.mean_us());
            if fsyncs.is_native() {
                self.add(&format!("put_{in_flight}_fsync_p50"), fsyncs.quantile_us(0.5));
                self.add(&format!("put_{in_flight}_fsync_p99"), fsyncs.quantile_us(0.99));
            }
            if in_flight == 1 && self.server.kind == Kind::Assay {
                if !fsyncs.is_native() {
                    eprintln!("  no native histogram: the median fdatasync is interpolated");
                }
                let fsync_p50 = fsyncs.quantile_us(0.5);
                if !fsyncs.is_native() {
                    self.add("put_1_fsync_p50", fsync_p50);
                }
                let p50 = quantile_us(&outcome.latency, 0.5);
                self.add("put_1_overhead", p50 - nothing_p50 - fsync_p50);
            }
        }
        Ok(())
    }

    /// Calls of the do-nothing server; returns p50 at 1 in flight in microseconds.
    pub(crate) fn measure_nothing(&mut self) -> Result<f64> {
        let mut p50 = 0.0;
        for in_flight in [64, 1] {
            let outcome = self.closed(Method::Put, in_flight, 1, puts(self.sizes.keys))?;
            self.add_outcome(&format!("put_{in_flight}"), &outcome);
            p50 = quantile_us(&outcome.latency, 0.5);
        }
        Ok(p50)
    }

    /// Puts every key once, so that gets and ranges find all.
    pub(crate) fn fill(&mut self) -> Result<()> {
        let next = loads(BENCH, self.sizes.keys, value(VALUE_BYTES));
        self.closed_for(Method::Txn, LOADS_IN_FLIGHT, 1, next, Span::UntilDone)?;
        Ok(())
    }

    /// Linearizable and serializable gets at 1 and 64 in flight.
    pub(crate) fn measure_gets(&mut self) -> Result<()> {
        for (serializable, name) in [(false, "get_lin"), (true, "get_ser")] {
            for in_flight in [1, 64] {
                let next = gets(self.sizes.keys, serializable);
                let outcome = self.closed(Method::Range, in_flight, VALUE_BYTES, next)?;
                self.add_outcome(&format!("{name}_{in_flight}"), &outcome);
            }
        }
        Ok(())
    }

    /// Linearizable ranges of 1,000 keys.
    pub(crate) fn measure_ranges(&mut self) -> Result<()> {
        let least = VALUE_BYTES * RANGE_KEYS.min(self.sizes.keys) as usize;
        let next = ranges(self.sizes.keys);
        let outcome = self.closed(Method::Range, RANGES_IN_FLIGHT, least, next)?;
        self.add_outcome("range_1000", &outcome);
        Ok(())
    }

    /// Puts that all watchers must receive.
    pub(crate) fn measure_watchers(&mut self) -> Result<()> {
        let Sizes { watchers: count, watched_puts, .. } = self.sizes;
        let epoch = Instant::now();
        let watchers = Watchers::start(self.server.address, count, WATCHED, epoch, PATIENCE)?;
        let value = value(VALUE_BYTES);
        let (mut random, mut left) = (Random(1 << 43 | 1), watched_puts);
        let next: Next = Box::new(move |message| {
            if left == 0 {
                return false;
            }
            left -= 1;
            let mut stamped = value.clone();
            stamped[..8].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_le_bytes());
            put(message, &key(WATCHED, random.below(WATCHED_KEYS)), &stamped);
            true
        });
        let (cpu, start) = (self.server.cpu()?, Instant::now());
        let cpu_before = cpu.used();
        let in_flight = WATCHED_IN_FLIGHT;
        let outcome = self.closed_for(Method::Put, in_flight, 1, next, Span::UntilDone)?;
        let events = outcome.all_calls * count as u64;
        let elapsed = (watchers.wait_events(events, PATIENCE)? - start).as_secs_f64();
        let cpu_us = (cpu.used() - cpu_before).as_secs_f64() * 1e6 / events as f64;
        let lag = watchers.stop()?.lag;
        self.add("watch_puts", outcome.all_calls as f64 / elapsed);
        self.add("watch_events", events as f64 / elapsed);
        self.add("watch_cpu", cpu_us);
        self.add("watch_lag_p50", quantile_us(&lag, 0.5));
        self.add("watch_lag_p99", quantile_us(&lag, 0.99));
        eprintln!(
            "  {:<7} watch        {:>9.0} events/s  lag p99 {:.0} us  server {cpu_us:.2} us/event",
            self.server.kind.name(),
            events as f64 / elapsed,
            quantile_us(&lag, 0.99),
        );
        Ok(())
    }

    /// Puts at a fixed rate.
    pub(crate) fn measure_open(&mut self, rate: f64) -> Result<()> {
        // Connections and files as under load, not as after a start.
        self.closed(Method::Put, 64, 1, puts(self.sizes.keys))?;
        let mut next = puts(self.sizes.keys);
        let outcome = open_loop::run(self.server.address, rate, self.sizes.span, None, &mut next)?;
        self.report.add_open(self.server.kind, &outcome);
        Ok(())
    }

    /// Memory, files, restart and listing with many small keys.
    pub(crate) fn measure_many(&mut self) -> Result<()> {
        const MIB: f64 = (1 << 20) as f64;
        let next = loads(MANY, self.sizes.many, value(SMALL_VALUE_BYTES));
        let loaded = self.closed_for(Method::Txn, LOADS_IN_FLIGHT, 1, next, Span::UntilDone)?;
        self.add("many_load", loaded.rate() * LOAD_PUTS as f64);
        std::thread::sleep(SETTLE);
        let memory = self.server.memory()?;
        self.add("many_rss", memory.resident as f64 / MIB);
        self.add("many_rss_anonymous", memory.anonymous as f64 / MIB);
        self.add("many_rss_peak", memory.peak as f64 / MIB);
        self.add("many_disk", self.server.disk_bytes() as f64 / MIB);
        self.server.kill()?;
        let killed = self.server.restart()?;
        self.add("many_restart_killed", killed.as_secs_f64() * 1e3);
        std::thread::sleep(SETTLE);
        self.add("many_rss_restarted", self.server.memory()?.resident as f64 / MIB);
        let stop = self.server.terminate()?;
        self.add("many_stop", stop.as_secs_f64() * 1e3);
        let clean = self.server.restart()?;
        self.add("many_restart_clean", clean.as_secs_f64() * 1e3);
        eprintln!(
            "  {:<7} many         rss {:.0} MiB, peak {:.0} MiB, restart after kill {:.0} ms, after \
             SIGTERM {:.0} ms",
            self.server.kind.name(),
            memory.resident as f64 / MIB,
            memory.peak as f64 / MIB,
            killed.as_secs_f64() * 1e3,
            clean.as_secs_f64() * 1e3,
        );
        Ok(())
    }

    /// What a client that lists everything in a loop does to the latency of puts; `nothing` is a
    /// do-nothing server: what the same client does to calls that end there is not this server's.
    pub(crate) fn measure_listing(&mut self, nothing: SocketAddr) -> Result<()> {
        let (address, span, many) = (self.server.address, self.sizes.span, self.sizes.many);
        let mut next = puts(self.sizes.keys);
        let alone = open_loop::run(address, LIST_RATE, span, None, &mut next)?;
        let (stop, listed) = (AtomicBool::new(false), AtomicU64::new(0));
        let (beside, rate, floor) = std::thread::scope(|scope| {
            let lister = scope.spawn(|| list(address, many, &stop, &listed));
            let start = Instant::now();
            let beside = open_loop::run(address, LIST_RATE, span, None, &mut next);
            let rate = listed.load(Relaxed) as f64 / start.elapsed().as_secs_f64();
            let floor = open_loop::run(nothing, LIST_RATE, span, None, &mut next);
            stop.store(true, Relaxed);
            lister.join().map_err(|_| Error::Answer("the lister panicked".into()))??;
            Ok::<_, Error>((beside?, rate, floor?))
        })?;
        let [before, after, floor, late] =
            [&alone.latency, &beside.latency, &floor.latency, &beside.late]
                .map(|found| quantile_us(found, 0.99));
        self.add("list_p99_alone", before);
        self.add("list_p99_beside", after);
        self.add("list_factor", after / before);
        self.add("list_floor", floor);
        self.add("list_late_p99", late);
        self.add("list_keys", rate);
        eprintln!(
            "  {:<7} list         put p99 {before:.0} us alone, {after:.0} us beside {rate:.0} \
             keys/s (do-nothing {floor:.0} us, sent late p99 {late:.0} us)",
            self.server.kind.name(),
        );
        Ok(())
    }
}

/// Lists all of the many keys, page by page, again and again.
fn list(address: SocketAddr, many: u64, stop: &AtomicBool, listed: &AtomicU64) -> Result<()> {
    let runtime = closed_loop::runtime()?;
    let end = end_of(MANY);
    loop {
        for from in (0..many).step_by(PAGE_KEYS as usize) {
            if stop.load(Relaxed) {
                return Ok(());
            }
            let mut request = Vec::new();
            range(&mut request, &key(MANY, from), &end, PAGE_KEYS, false);
            let answer = runtime.block_on(call(address, Method::Range, &request))?;
            let keys = PAGE_KEYS.min(many - from);
            if (answer.len() as u64) < keys * SMALL_VALUE_BYTES as u64 {
                return Err(Error::Answer(format!("a page of {} B", answer.len())));
            }
            listed.fetch_add(keys, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::{Calls, INITIAL_WINDOW};

    #[test]
    fn what_loads_keys_fits_the_window_that_a_stream_begins_with() {
        for bytes in [1, 256, 491, 4_096, 16 << 10] {
            let mut next = loads("prefix/12/", 1_000, value(bytes));
            let (mut message, mut messages) = (Vec::new(), 0);
            while next(&mut message) {
                assert!(Calls::window(&message) <= INITIAL_WINDOW, "values of {bytes} B");
                message.clear();
                messages += 1;
            }
            assert!(messages >= 1_000 / LOAD_PUTS, "values of {bytes} B: {messages} messages");
        }
    }
}
