//! Encodings read back: text by line, protobuf by field.

use super::super::families::{Family, Kind, Unit};
use super::super::histogram::LatencyHistogram;
use super::*;

static GAUGE: Family = Family {
    name: "b_level",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["k"],
    help: "A \\ b.",
};
static COUNTER: Family =
    Family { name: "a_total", kind: Kind::Counter, unit: Unit::Count, labels: &[], help: "One." };
static TIMES: Family = Family {
    name: "c_seconds",
    kind: Kind::Histogram(&[10_000, 10_000_000, 1_024_000_000]),
    unit: Unit::Seconds,
    labels: &["op"],
    help: "Times.",
};

fn sample() -> Exposition {
    let times = LatencyHistogram::new();
    for ns in [9_000, 10_000_000, 10_000_001, 2_000_000_000] {
        times.record_ns(ns);
    }
    let mut out = Exposition::default();
    out.family(&GAUGE).value(&["x\"y\\z\n"], 1_048_576.0);
    out.family(&GAUGE).value(&[""], -0.5);
    out.value(&COUNTER, 3.0);
    out.family(&TIMES).histogram(&["sync"], &times.snapshot());
    out
}

#[test]
fn text_is_what_a_go_server_writes() {
    let text = String::from_utf8(sample().text()).unwrap();
    let expected = r#"# HELP a_total One.
# TYPE a_total counter
a_total 3
# HELP b_level A \\ b.
# TYPE b_level gauge
b_level{k="x\"y\\z\n"} 1.048576e+06
b_level{k=""} -0.5
# HELP c_seconds Times.
# TYPE c_seconds histogram
c_seconds_bucket{op="sync",le="1e-05"} 1
c_seconds_bucket{op="sync",le="0.01"} 2
c_seconds_bucket{op="sync",le="1.024"} 3
c_seconds_bucket{op="sync",le="+Inf"} 4
c_seconds_sum{op="sync"} 2.020009001
c_seconds_count{op="sync"} 4
"#;
    assert_eq!(text, expected);
}

#[test]
fn numbers_look_as_in_go() {
    // Written by strconv.FormatFloat(f, 'g', -1, 64).
    for (value, expected) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (0.0001, "0.0001"),
        (0.00002, "2e-05"),
        (999_999.0, "999999"),
        (1e6, "1e+06"),
        (2_147_483_648.0, "2.147483648e+09"),
        (18_446_744_073_709_551_615.0, "1.8446744073709552e+19"),
        (1.5e-10, "1.5e-10"),
        (1e100, "1e+100"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        let mut out = String::new();
        text::number(&mut out, value);
        assert_eq!(out, expected);
    }
}

/// Fields of an encoded message: number, wire type, value of varints and fixed64, bytes otherwise.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => out.push((key >> 3, varint(&mut bytes), Vec::new())),
            1 => {
                let (head, tail) = bytes.split_at(8);
                out.push((key >> 3, u64::from_le_bytes(head.try_into().unwrap()), Vec::new()));
                bytes = tail;
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (head, tail) = bytes.split_at(length);
                out.push((key >> 3, 0, head.to_vec()));
                bytes = tail;
            }
            other => panic!("wire type {other}"),
        }
    }
    out
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[test]
fn protobuf_carries_both_forms_of_a_histogram() {
    let bytes = sample().protobuf().unwrap();
    // Three delimited families; the histogram is the last.
    let mut rest = &bytes[..];
    let mut families = Vec::new();
    while !rest.is_empty() {
        let (mut length, mut at, mut shift) = (0_usize, 0, 0);
        loop {
            length |= usize::from(rest[at] & 0x7f) << shift;
            shift += 7;
            at += 1;
            if rest[at - 1] < 0x80 {
                break;
            }
        }
        families.push(&rest[at..at + length]);
        rest = &rest[at + length..];
    }
    assert_eq!(families.len(), 3);
    let family = fields(families[2]);
    let metric = fields(&family.iter().find(|f| f.0 == 4).unwrap().2);
    let histogram = fields(&metric.iter().find(|f| f.0 == 7).unwrap().2);
    let all = |number| histogram.iter().filter(move |f| f.0 == number);
    assert_eq!(all(1).next().unwrap().1, 4, "sample count");
    assert_eq!(all(3).count(), 3, "classic buckets");
    assert_eq!(unzigzag(all(5).next().unwrap().1), 3, "schema");
    assert_eq!(f64::from_bits(all(6).next().unwrap().1), 2_f64.powi(-21), "zero threshold");
    // Walk the spans as Prometheus does: index of each bucket and its count.
    let deltas: Vec<i64> = all(13).map(|f| unzigzag(f.1)).collect();
    let (mut index, mut count, mut at, mut seen) = (0_i64, 0, 0, Vec::new());
    for span in all(12) {
        let span = fields(&span.2);
        index += unzigzag(span.iter().find(|f| f.0 == 1).map_or(0, |f| f.1));
        for _ in 0..span.iter().find(|f| f.0 == 2).unwrap().1 {
            count += deltas[at];
            at += 1;
            seen.push((index, count));
            index += 1;
        }
    }
    assert_eq!(at, deltas.len());
    // Bucket i ends at 2^(i/8) s: 9 us in -134, both 10 ms in -53, 2 s exactly at the end of 8.
    assert_eq!(seen, [(-134, 1), (-53, 2), (8, 1)]);
}

#[test]
fn an_empty_native_histogram_has_one_span_of_nothing() {
    let mut histogram = Histogram::default();
    native(&mut histogram, &HistogramSnapshot::default());
    let spans: Vec<_> = histogram
        .special_fields
        .unknown_fields()
        .iter()
        .filter(|(number, _)| *number == field::POSITIVE_SPAN)
        .collect();
    assert_eq!(spans.len(), 1);
    assert_eq!(span(0, 0), [0x08, 0, 0x10, 0]);
}
