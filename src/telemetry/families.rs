//! Every metric of the process, declared once: name, type, unit, labels, help and buckets.
//!
//! Collectors take a [`Family`] and values; boards, rules and documentation are tested against
//! [`all`]. Names that begin with `etcd_`, `grpc_`, `os_`, `process_` and `promhttp_` have the
//! meaning that existing boards and alerts give them; our own begin with `assay_`.

pub mod assay;
pub mod etcd;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Distribution of times, with these classic edges in nanoseconds (part of
    /// `histogram::EDGES_NS`) and native buckets.
    Histogram(&'static [u64]),
    /// Distribution of other values, with doubling edges ([`super::doubling`]) and no native form.
    Doubling,
}

impl Kind {
    /// Name in the exposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) | Kind::Doubling => "histogram",
        }
    }
}

/// Unit of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds, in names that were given long ago.
    Milliseconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// 0 or 1.
    Flag,
    /// Always 1; the labels carry the information.
    Info,
    /// Position in the log.
    Index,
    /// Revision of the key-value store, or of its users and roles.
    Revision,
    /// Seconds since 1970.
    UnixTime,
}

impl Unit {
    /// Word for the documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
            Unit::Flag => "0 or 1",
            Unit::Info => "always 1",
            Unit::Index => "log index",
            Unit::Revision => "revision",
            Unit::UnixTime => "unix seconds",
        }
    }
}

/// A metric with all its series.
#[derive(Debug)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// Type and buckets.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// Names of the labels, sorted.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// All metrics: those with etcd's names, then our own.
pub fn all() -> impl Iterator<Item = &'static Family> {
    etcd::ALL.iter().chain(assay::ALL).copied()
}

/// Declares constants and the list of them.
macro_rules! families {
    ($($id:ident $kind:expr, $unit:ident, $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $id: Family = Family {
                name: $name,
                kind: $kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// Every metric of this module.
        pub static ALL: &[&Family] = &[$(&$id),*];
    };
}
use families;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// 1 ms to 8.192 s by doubling as in etcd, finer from 10 microseconds, 10 ms, and two more up to
/// the time where disks are slow but elections do not begin yet.
pub const DISK_EDGES: &[u64] = &[
    10 * US,
    25 * US,
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2 * MS,
    4 * MS,
    8 * MS,
    10 * MS,
    16 * MS,
    20 * MS,
    30 * MS,
    32 * MS,
    64 * MS,
    128 * MS,
    256 * MS,
    512 * MS,
    1_024 * MS,
    2_048 * MS,
    4_096 * MS,
    8_192 * MS,
];

/// 0.1 ms to 52.4288 s by doubling as in etcd, finer from 10 microseconds, and 10 ms.
pub const APPLY_EDGES: &[u64] = &[
    10 * US,
    25 * US,
    50 * US,
    100 * US,
    200 * US,
    400 * US,
    800 * US,
    1_600 * US,
    3_200 * US,
    6_400 * US,
    10 * MS,
    12_800 * US,
    25_600 * US,
    51_200 * US,
    102_400 * US,
    204_800 * US,
    409_600 * US,
    819_200 * US,
    1_638_400 * US,
    3_276_800 * US,
    6_553_600 * US,
    13_107_200 * US,
    26_214_400 * US,
    52_428_800 * US,
];

/// The defaults of Prometheus' Go client from 5 ms to 10 s as in etcd, finer from 10 microseconds.
pub const CALL_EDGES: &[u64] = &[
    10 * US,
    25 * US,
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    1_000 * MS,
    2_500 * MS,
    5_000 * MS,
    10_000 * MS,
];

/// 10 ms to 163.84 s by doubling as in etcd: for work that walks all data.
pub const WALK_EDGES: &[u64] = &[
    10 * MS,
    20 * MS,
    40 * MS,
    80 * MS,
    160 * MS,
    320 * MS,
    640 * MS,
    1_280 * MS,
    2_560 * MS,
    5_120 * MS,
    10_240 * MS,
    20_480 * MS,
    40_960 * MS,
    81_920 * MS,
    163_840 * MS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::histogram::EDGES_NS;
    use std::collections::BTreeSet;

    #[test]
    fn declared_once_and_well() {
        let mut names = BTreeSet::new();
        for family in all() {
            assert!(names.insert(family.name), "{} is declared twice", family.name);
            assert!(family.labels.is_sorted(), "{}: labels are not sorted", family.name);
            assert!(family.help.ends_with('.'), "{}: help is no sentence", family.name);
            assert!(!family.labels.contains(&"le"), "{}: le is reserved", family.name);
            if let Kind::Histogram(edges) = family.kind {
                assert_eq!(family.unit, Unit::Seconds, "{}", family.name);
                assert!(edges.contains(&(10 * MS)), "{}: no edge at 10 ms", family.name);
                for edge in edges {
                    assert!(EDGES_NS.binary_search(edge).is_ok(), "{}: {edge}", family.name);
                }
                assert!(edges.is_sorted());
            }
        }
    }

    #[test]
    fn own_names_follow_the_conventions() {
        for family in assay::ALL {
            let name = family.name;
            assert!(name.starts_with("assay_"), "{name}");
            assert_eq!(matches!(family.kind, Kind::Counter), name.ends_with("_total"), "{name}");
            match family.unit {
                Unit::Seconds => assert!(name.ends_with("_seconds"), "{name}"),
                Unit::Bytes => {
                    assert!(name.trim_end_matches("_total").ends_with("_bytes"), "{name}")
                }
                Unit::UnixTime => assert!(name.ends_with("_timestamp_seconds"), "{name}"),
                _ => assert!(!name.ends_with("_seconds") && !name.ends_with("_bytes"), "{name}"),
            }
        }
    }
}
