//! The server's own fdatasync histogram, from `/metrics`.
//!
//! Assay exposes native histograms (buckets 9 % wide) to those who ask for protobuf; etcd has
//! classic buckets from 1 ms on, between which the median is interpolated.

use crate::error::{During, Error, Result};
use crate::messages::{Fields, Value};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const FAMILY: &str = "etcd_disk_wal_fsync_duration_seconds";
const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited,text/plain;q=0.5";
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts at or below upper bounds in seconds, rising.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fsyncs {
    count: f64,
    sum: f64,
    buckets: Vec<(f64, f64)>,
    native: bool,
}

impl Fsyncs {
    /// Reads the histogram of the write-ahead log's fdatasync calls.
    pub(crate) fn of(metrics: SocketAddr) -> Result<Self> {
        let mut socket = TcpStream::connect(metrics).during(|| format!("connect to {metrics}"))?;
        socket.set_read_timeout(Some(PATIENCE)).during(|| "set a timeout".into())?;
        let request =
            format!("GET /metrics HTTP/1.0\r\nHost: {metrics}\r\nAccept: {ACCEPT}\r\n\r\n");
        socket.write_all(request.as_bytes()).during(|| format!("ask {metrics}"))?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).during(|| format!("read {metrics}/metrics"))?;
        let split = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let split = split.ok_or_else(|| Error::Answer("no HTTP answer from /metrics".into()))?;
        let head = String::from_utf8_lossy(&answer[..split]).to_lowercase();
        let body = &answer[split + 4..];
        let found = if head.contains("vnd.google.protobuf") {
            from_protobuf(body)
        } else {
            from_text(&String::from_utf8_lossy(body))
        };
        found.ok_or_else(|| Error::Answer(format!("no {FAMILY} at {metrics}")))
    }

    /// What was added since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |bound: f64| {
            let at = earlier.buckets.partition_point(|(upper, _)| *upper <= bound);
            at.checked_sub(1).map_or(0.0, |at| earlier.buckets[at].1)
        };
        Self {
            count: self.count - earlier.count,
            sum: self.sum - earlier.sum,
            buckets: self.buckets.iter().map(|(upper, n)| (*upper, n - before(*upper))).collect(),
            native: self.native,
        }
    }

    /// Whether the buckets are native ones, narrow enough for a median.
    pub(crate) fn is_native(&self) -> bool {
        self.native
    }

    /// Number of calls.
    pub(crate) fn count(&self) -> f64 {
        self.count
    }

    /// Mean in microseconds, exact.
    pub(crate) fn mean_us(&self) -> f64 {
        self.sum * 1e6 / self.count.max(1.0)
    }

    /// A quantile in microseconds, interpolated within its bucket.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        let rank = self.count * quantile;
        let (mut lower, mut below) = (0.0, 0.0);
        for (upper, count) in &self.buckets {
            if *count >= rank && *count > below {
                let upper = if upper.is_finite() { *upper } else { lower };
                return (lower + (upper - lower) * (rank - below) / (count - below)) * 1e6;
            }
            (lower, below) = (*upper, *count);
        }
        lower * 1e6
    }
}

fn from_text(text: &str) -> Option<Fsyncs> {
    let mut fsyncs = Fsyncs::default();
    let mut found = false;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(FAMILY) else { continue };
        let value = rest.rsplit(' ').next()?.parse().ok()?;
        if let Some(bucket) = rest.strip_prefix("_bucket{le=\"") {
            let bound = bucket.split('"').next()?.replace("+Inf", "inf").parse().ok()?;
            fsyncs.buckets.push((bound, value));
        } else if rest.starts_with("_sum") {
            fsyncs.sum = value;
        } else if rest.starts_with("_count") {
            fsyncs.count = value;
            found = true;
        }
    }
    found.then_some(fsyncs)
}

/// Finds the family among length-delimited messages.
fn from_protobuf(body: &[u8]) -> Option<Fsyncs> {
    // A length-delimited stream reads like the bytes of repeated fields without their tags.
    let mut rest = body;
    while !rest.is_empty() {
        let tagged = [&[0x0a], rest].concat();
        let Some((_, Value::Bytes(family))) = Fields(&tagged).next() else { return None };
        let name = Fields(family).find(|(field, _)| *field == 1)?.1;
        if name == Value::Bytes(FAMILY.as_bytes()) {
            let metric = bytes_of(family, 4)?;
            return from_histogram(bytes_of(metric, 7)?);
        }
        let prefix = (1..).find(|n| rest[n - 1] & 0x80 == 0)?;
        rest = &rest[prefix + family.len()..];
    }
    None
}

fn bytes_of(message: &[u8], wanted: u64) -> Option<&[u8]> {
    Fields(message).find_map(|(field, value)| match value {
        Value::Bytes(bytes) if field == wanted => Some(bytes),
        _ => None,
    })
}

/// The native buckets of an `io.prometheus.client.Histogram`, or the classic ones without.
fn from_histogram(histogram: &[u8]) -> Option<Fsyncs> {
    let mut fsyncs = Fsyncs::default();
    let (mut schema, mut zero_bound, mut zeros) = (0, 0.0, 0.0);
    let (mut spans, mut deltas, mut classic) = (Vec::new(), Vec::new(), Vec::new());
    for (field, value) in Fields(histogram) {
        match (field, value) {
            (1, Value::Number(count)) => fsyncs.count = count as f64,
            (2, Value::Fixed(sum)) => fsyncs.sum = f64::from_bits(sum),
            (3, Value::Bytes(bucket)) => {
                let (mut count, mut upper) = (0.0, 0.0);
                for (field, value) in Fields(bucket) {
                    match (field, value) {
                        (1, Value::Number(n)) => count = n as f64,
                        (2, Value::Fixed(bound)) => upper = f64::from_bits(bound),
                        _ => {}
                    }
                }
                classic.push((upper, count));
            }
            (5, Value::Number(number)) => schema = zigzag(number),
            (6, Value::Fixed(bound)) => zero_bound = f64::from_bits(bound),
            (7, Value::Number(count)) => zeros = count as f64,
            (12, Value::Bytes(span)) => {
                let (mut offset, mut len) = (0, 0);
                for (field, value) in Fields(span) {
                    match (field, value) {
                        (1, Value::Number(n)) => offset = zigzag(n),
                        (2, Value::Number(n)) => len = n,
                        _ => {}
                    }
                }
                spans.push((offset, len));
            }
            (13, Value::Number(delta)) => deltas.push(zigzag(delta)),
            (13, Value::Bytes(packed)) => {
                let mut rest = packed;
                while !rest.is_empty() {
                    let tagged = [&[0x08], rest].concat();
                    let Some((_, Value::Number(delta))) = Fields(&tagged).next() else { break };
                    deltas.push(zigzag(delta));
                    let len = (1..).find(|n| rest[n - 1] & 0x80 == 0)?;
                    rest = &rest[len..];
                }
            }
            _ => {}
        }
    }
    if spans.is_empty() {
        fsyncs.buckets = classic;
        return Some(fsyncs);
    }
    fsyncs.native = true;
    fsyncs.buckets.push((zero_bound, zeros));
    let base = 2_f64.powf(2_f64.powi(-schema as i32));
    let (mut index, mut count, mut total) = (0_i64, 0_i64, zeros);
    let mut deltas = deltas.into_iter();
    for (offset, len) in spans {
        index += offset;
        // The bucket before the span is empty: its upper bound is where the span begins.
        fsyncs.buckets.push((base.powi(index as i32 - 1), total));
        for _ in 0..len {
            count += deltas.next()?;
            total += count as f64;
            fsyncs.buckets.push((base.powi(index as i32), total));
            index += 1;
        }
    }
    Some(fsyncs)
}

fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gives_interpolated_quantiles_of_a_difference() {
        let text = |a: u32, b: u32| {
            format!(
                "# TYPE x histogram\n{FAMILY}_bucket{{le=\"0.001\"}} {a}\n{FAMILY}_bucket\
                 {{le=\"0.002\"}} {b}\n{FAMILY}_bucket{{le=\"+Inf\"}} {b}\n{FAMILY}_sum 0.3\n\
                 {FAMILY}_count {b}\n"
            )
        };
        let (before, after) = (from_text(&text(10, 10)), from_text(&text(10, 110)));
        let fsyncs = after.expect("found").since(&before.expect("found"));
        assert_eq!(fsyncs.count(), 100.0);
        assert!((fsyncs.quantile_us(0.5) - 1_500.0).abs() < 1e-6);
        assert_eq!(from_text("other 1\n"), None);
    }

    #[test]
    fn native_buckets_are_read_from_delimited_protobuf() {
        // Schema 3; one span at index -80 (up to 2^-10 s), counts 10 and 30.
        let mut histogram = vec![0x08, 40, 0x28, 6, 0x62, 4, 0x08, 0x9f, 0x01, 0x10];
        histogram[5] = 5;
        histogram.extend_from_slice(&[2, 0x6a, 2, 20, 40]);
        let metric = [&[0x3a, histogram.len() as u8][..], &histogram].concat();
        let mut family = vec![0x0a, FAMILY.len() as u8];
        family.extend_from_slice(FAMILY.as_bytes());
        family.extend_from_slice(&[0x22, metric.len() as u8]);
        family.extend_from_slice(&metric);
        let mut body = vec![3, 0x0a, 1, b'x', family.len() as u8];
        body.extend_from_slice(&family);
        let fsyncs = from_protobuf(&body).expect("found");
        assert_eq!((fsyncs.count(), fsyncs.is_native()), (40.0, true));
        let bounds = |index: f64| 2_f64.powf(index / 8.0) * 1e6;
        let median = fsyncs.quantile_us(0.5);
        assert!(median > bounds(-80.0) && median < bounds(-79.0), "{median}");
        assert!(fsyncs.quantile_us(0.1) < bounds(-80.0));
        assert!(fsyncs.quantile_us(0.1) > bounds(-81.0));
    }
}
