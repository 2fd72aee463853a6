//! The result in the schema of fio 3.33, for scripts that read fio.
//!
//! Two of fio's own oddities are not copied: `sync.total_ios` holds the true count (fio leaves it at
//! zero), and percentiles are order statistics (fio's bucket midpoints can exceed the maximum). Our
//! own data stands under one further key, `bench_disk`, which strict readers ignore.

use crate::distribution::{Distribution, PERCENTILES};
use crate::env::Environment;
use crate::output::Document;
use crate::verdict::{Measured, Verdict};
use serde_json::{Map, Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// The version whose schema this is. Readers check it; who really measured is told under
/// `bench_disk`.
pub const SCHEMA_OF: &str = "fio-3.33";

/// Upper edges of `latency_ns`, `latency_us` and `latency_ms`, in their unit.
const EDGES: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1_000];

/// Depth classes that a job with one call in flight leaves empty.
const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// The document. Without a measurement there is no job to show, and `jobs` is empty.
pub fn document(environment: &Environment, verdict: &Verdict) -> Value {
    let jobs = verdict.measured.iter().map(|measured| job(environment, verdict, measured));
    json!({
        "fio version": SCHEMA_OF,
        "timestamp": verdict.created,
        "timestamp_ms": verdict.created * 1_000,
        "time": calendar(verdict.created),
        "jobs": jobs.collect::<Vec<_>>(),
        "disk_util": environment.leaves.iter().map(|leaf| utilisation(&leaf.name, verdict)).collect::<Vec<_>>(),
        "bench_disk": Document::new(environment, verdict),
    })
}

fn job(environment: &Environment, verdict: &Verdict, measured: &Measured) -> Value {
    let runtime_ms = measured.elapsed_ns / 1_000_000;
    json!({
        "jobname": format!("bench-disk-{}", verdict.profile),
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": measured.elapsed_ns.div_ceil(1_000_000_000),
        "job options": {
            "name": format!("bench-disk-{}", verdict.profile),
            "directory": environment.judged,
            "rw": "write",
            "ioengine": "sync",
            "fdatasync": "1",
            // A mix; the mean of what was appended per sync.
            "bs": (measured.bytes / measured.summary.n.max(1)).to_string(),
            "size": measured.bytes.to_string(),
        },
        "read": direction(None, 0, 0, 0),
        "write": direction(measured.write.as_ref(), measured.summary.n, measured.bytes, measured.elapsed_ns),
        "trim": direction(None, 0, 0, 0),
        "sync": {
            "total_ios": measured.summary.n,
            "lat_ns": latencies(measured.sync.as_ref(), true),
        },
        "job_runtime": runtime_ms,
        "usr_cpu": 0.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "iodepth_level": classes(&DEPTHS, "1"),
        "iodepth_submit": classes(&BATCHES, "4"),
        "iodepth_complete": classes(&BATCHES, "4"),
        "latency_ns": shares(measured, 1, false),
        "latency_us": shares(measured, 1_000, false),
        "latency_ms": shares(measured, 1_000_000, true),
        "latency_depth": 1,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    })
}

/// `read`, `write` or `trim`.
fn direction(calls: Option<&Distribution>, ios: u64, bytes: u64, elapsed_ns: u64) -> Value {
    let seconds = Duration::from_nanos(elapsed_ns).as_secs_f64();
    let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let per_second = rate(bytes);
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes >> 10,
        "bw_bytes": per_second as u64,
        "bw": per_second as u64 >> 10,
        "iops": rate(ios),
        "runtime": elapsed_ns / 1_000_000,
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latencies(None, false),
        "clat_ns": latencies(calls, true),
        "lat_ns": latencies(calls, false),
        "bw_min": per_second as u64 >> 10,
        "bw_max": per_second as u64 >> 10,
        "bw_agg": if ios > 0 { 100.0 } else { 0.0 },
        "bw_mean": per_second / 1_024.0,
        "bw_dev": 0.0,
        "bw_samples": u64::from(ios > 0),
        "iops_min": rate(ios) as u64,
        "iops_max": rate(ios) as u64,
        "iops_mean": rate(ios),
        "iops_stddev": 0.0,
        "iops_samples": u64::from(ios > 0),
    })
}

/// A block of latency statistics; as in fio, an empty one has no percentiles.
fn latencies(calls: Option<&Distribution>, percentiles: bool) -> Value {
    let Some(calls) = calls else {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    };
    let mut block = json!({
        "min": calls.min_ns,
        "max": calls.max_ns,
        "mean": calls.mean_ns,
        "stddev": calls.stddev_ns,
        "N": calls.n,
    });
    if percentiles && let Some(block) = block.as_object_mut() {
        let values = PERCENTILES.iter().zip(calls.percentiles_ns);
        let values = values.map(|(name, ns)| (format!("{name:.6}"), ns.into()));
        block.insert("percentile".into(), Value::Object(values.collect::<Map<_, _>>()));
    }
    block
}

fn classes(names: &[&str], full: &str) -> Value {
    names.iter().map(|&name| (name, if name == full { 100.0 } else { 0.0 })).collect()
}

/// Share of syncs per latency class of one unit, in percent.
fn shares(measured: &Measured, unit: u64, last: bool) -> Value {
    let n = measured.summary.n.max(1) as f64;
    let within = |from: u64, to: u64| {
        let counts = measured.histogram.iter().filter(|pair| pair.0 > from && pair.0 <= to);
        counts.map(|pair| pair.1).sum::<u64>() as f64 * 100.0 / n
    };
    let mut shares = Map::new();
    // The first class of a unit continues where the unit below ends.
    let mut from = if unit == 1 { 0 } else { unit };
    for edge in EDGES {
        shares.insert(edge.to_string(), within(from, edge * unit).into());
        from = edge * unit;
    }
    if last {
        shares.insert("2000".into(), within(from, 2_000 * unit).into());
        shares.insert(">=2000".into(), within(2_000 * unit, u64::MAX).into());
    }
    Value::Object(shares)
}

/// What fio tells about the disk. Only the share of busy time before the run is known here; the
/// counters of the run itself are in `bench_disk.verdict.measured`.
fn utilisation(name: &str, verdict: &Verdict) -> Value {
    let measured = verdict.measured.as_ref();
    json!({
        "name": name,
        "read_ios": 0,
        "write_ios": measured.map_or(0, |m| m.summary.n),
        "read_merges": 0,
        "write_merges": 0,
        "read_ticks": 0,
        "write_ticks": 0,
        "in_queue": 0,
        "util": measured.map_or(0.0, |m| {
            let syncing = m.sync.as_ref().map_or(0.0, |sync| sync.mean_ns * sync.n as f64);
            (syncing * 100.0 / m.elapsed_ns.max(1) as f64).min(100.0)
        }),
    })
}

/// `Mon Nov 30 22:01:16 2026`, in UTC.
pub(crate) fn calendar(unix: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = date(unix / 86_400);
    let second = unix % 86_400;
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(unix / 86_400 % 7) as usize],
        MONTHS[month as usize - 1],
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a number of days since 1970. Counted from March, the leap day is the last
/// of its year, and months follow a pattern of 153 days in five.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, of_year - (153 * march + 2) / 5 + 1)
}

/// The time of a verdict for people.
pub fn when(verdict: &Verdict) -> String {
    // Beyond the year 9999 no calendar matters.
    let far = UNIX_EPOCH.elapsed().map_or(u64::MAX, |since| since.as_secs().saturating_mul(100));
    format!("{} UTC", calendar(verdict.created.min(far)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_days_are_right_across_leap_years() {
        assert_eq!(calendar(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(calendar(951_827_696), "Tue Feb 29 12:34:56 2000");
        assert_eq!(calendar(1_796_076_076), "Mon Nov 30 22:01:16 2026");
        assert_eq!(calendar(4_107_542_399), "Sun Feb 28 23:59:59 2100");
    }
}
