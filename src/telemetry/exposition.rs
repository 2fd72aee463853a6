//! One scrape: samples of all families, written as text 0.0.4 or as delimited protobuf.
//!
//! The messages are those of the `prometheus` crate. It knows no native histograms, so their fields
//! travel as unknown fields of the same message: protobuf cannot tell the difference, the text
//! format does not have them. Text is written here and not by the crate because numbers have to
//! look as from a Go server (`1.048576e+06`, `le="1e-05"`), or the same series would get another
//! `le` when a Prometheus changes from one format to the other.

use super::doubling::DoublingSnapshot;
use super::families::{Family, Kind};
use super::histogram::{
    HistogramSnapshot, NATIVE_FIRST_INDEX, NATIVE_SCHEMA, NATIVE_ZERO_THRESHOLD,
};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use prometheus::{Encoder, ProtobufEncoder};
use std::collections::BTreeMap;

const NS_PER_SECOND: f64 = 1e9;

/// Field numbers of native histograms in `io.prometheus.client.Histogram`.
mod field {
    pub(super) const SCHEMA: u32 = 5;
    pub(super) const ZERO_THRESHOLD: u32 = 6;
    pub(super) const ZERO_COUNT: u32 = 7;
    pub(super) const POSITIVE_SPAN: u32 = 12;
    pub(super) const POSITIVE_DELTA: u32 = 13;
}

/// Samples of one scrape, by family name.
#[derive(Default)]
pub struct Exposition {
    families: BTreeMap<&'static str, MetricFamily>,
}

impl Exposition {
    /// The series of a family; call it again to add more.
    pub fn family(&mut self, family: &'static Family) -> Series<'_> {
        let message = self.families.entry(family.name).or_insert_with(|| {
            let mut message = MetricFamily::default();
            message.set_name(family.name.to_string());
            message.set_help(family.help.to_string());
            message.set_field_type(match family.kind {
                Kind::Counter => MetricType::COUNTER,
                Kind::Gauge => MetricType::GAUGE,
                Kind::Histogram(_) | Kind::Doubling => MetricType::HISTOGRAM,
            });
            message
        });
        Series { family, message }
    }

    /// Adds the only series of a family without labels.
    pub fn value(&mut self, family: &'static Family, value: f64) {
        self.family(family).value(&[], value);
    }

    /// Adds the only series of a histogram without labels.
    pub fn histogram(&mut self, family: &'static Family, snapshot: &HistogramSnapshot) {
        self.family(family).histogram(&[], snapshot);
    }

    /// Text format 0.0.4, families in the order of their names.
    pub fn text(&self) -> Vec<u8> {
        let mut out = String::with_capacity(256 << 10);
        self.families.values().for_each(|family| text::family(&mut out, family));
        out.into_bytes()
    }

    /// Delimited protobuf with native and classic histograms; `None` if a message cannot be
    /// encoded, which no family of this program can bring about.
    pub fn protobuf(&self) -> Option<Vec<u8>> {
        let families: Vec<MetricFamily> = self.families.values().cloned().collect();
        let mut out = Vec::with_capacity(256 << 10);
        ProtobufEncoder::new().encode(&families, &mut out).ok().map(|()| out)
    }
}

/// The series of one family.
pub struct Series<'a> {
    family: &'static Family,
    message: &'a mut MetricFamily,
}

impl Series<'_> {
    /// Adds a counter or gauge; `labels` are values in the order of [`Family::labels`].
    pub fn value(&mut self, labels: &[&str], value: f64) {
        let mut metric = self.metric(labels);
        match self.family.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            _ => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.message.mut_metric().push(metric);
    }

    /// Adds a histogram.
    pub fn histogram(&mut self, labels: &[&str], snapshot: &HistogramSnapshot) {
        let Kind::Histogram(edges) = self.family.kind else { return };
        let mut metric = self.metric(labels);
        let mut histogram = Histogram::default();
        histogram.set_sample_count(snapshot.count);
        histogram.set_sample_sum(snapshot.sum_ns as f64 / NS_PER_SECOND);
        histogram.set_bucket(
            edges
                .iter()
                .map(|edge| {
                    let mut bucket = Bucket::default();
                    bucket.set_upper_bound(*edge as f64 / NS_PER_SECOND);
                    bucket.set_cumulative_count(snapshot.at_or_below(*edge));
                    bucket
                })
                .collect(),
        );
        native(&mut histogram, snapshot);
        metric.set_histogram(histogram);
        self.message.mut_metric().push(metric);
    }

    /// Adds a histogram with doubling edges.
    pub fn doubling(&mut self, labels: &[&str], snapshot: &DoublingSnapshot) {
        let mut metric = self.metric(labels);
        let mut histogram = Histogram::default();
        histogram.set_sample_count(snapshot.count);
        histogram.set_sample_sum(snapshot.sum);
        let buckets = snapshot.buckets.iter().map(|(edge, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*edge);
            bucket.set_cumulative_count(*count);
            bucket
        });
        histogram.set_bucket(buckets.collect());
        metric.set_histogram(histogram);
        self.message.mut_metric().push(metric);
    }

    fn metric(&self, values: &[&str]) -> Metric {
        debug_assert_eq!(self.family.labels.len(), values.len(), "{}", self.family.name);
        let pairs = self.family.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_string());
            pair.set_value((*value).to_string());
            pair
        });
        Metric::from_label(pairs.collect())
    }
}

/// Adds the native form of a histogram.
fn native(histogram: &mut Histogram, snapshot: &HistogramSnapshot) {
    let fields = histogram.special_fields.mut_unknown_fields();
    fields.add_varint(field::SCHEMA, zigzag(i64::from(NATIVE_SCHEMA)));
    fields.add_fixed64(field::ZERO_THRESHOLD, NATIVE_ZERO_THRESHOLD.to_bits());
    fields.add_varint(field::ZERO_COUNT, snapshot.native_zero);
    let spans = spans(&snapshot.native);
    if spans.is_empty() {
        // One span of nothing tells an empty native histogram from none.
        fields.add_length_delimited(field::POSITIVE_SPAN, span(0, 0));
        return;
    }
    let mut next = 0;
    for (first, length) in &spans {
        // The first offset is an index, the others are gaps.
        let index = NATIVE_FIRST_INDEX + *first as i32;
        fields.add_length_delimited(field::POSITIVE_SPAN, span(index - next, *length as u64));
        next = index + *length as i32;
    }
    let mut before = 0;
    for (first, length) in spans {
        for count in &snapshot.native[first..first + length] {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            fields.add_varint(field::POSITIVE_DELTA, zigzag(count - before));
            before = count;
        }
    }
}

/// Stretches of buckets that are not empty: position and length.
fn spans(buckets: &[u64]) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (at, _) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        match spans.last_mut() {
            Some((first, length)) if *first + *length == at => *length += 1,
            _ => spans.push((at, 1)),
        }
    }
    spans
}

/// An encoded `BucketSpan`: sint32 offset = 1, uint32 length = 2.
fn span(offset: i32, length: u64) -> Vec<u8> {
    let mut out = vec![0x08];
    varint(&mut out, zigzag(i64::from(offset)));
    out.push(0x10);
    varint(&mut out, length);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

mod text;

#[cfg(test)]
mod tests;
