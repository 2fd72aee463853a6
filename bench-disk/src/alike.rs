//! Which kind of disk answers like this: a rough orientation for people, never part of a verdict.

use std::time::Duration;

/// A kind, and the medians of a small synced append that are usual for it. The ranges overlap, since
/// the kinds do. Memory and virtual disks were measured; the others are what their makers and users
/// report.
struct Kind {
    name: &'static str,
    from: Duration,
    to: Duration,
}

const KINDS: [Kind; 6] = [
    Kind { name: "memory", from: Duration::ZERO, to: Duration::from_micros(2) },
    Kind {
        name: "an SSD with power-loss protection",
        from: Duration::from_micros(8),
        to: Duration::from_micros(80),
    },
    Kind {
        name: "a virtual disk on a local SSD",
        from: Duration::from_micros(60),
        to: Duration::from_micros(400),
    },
    Kind {
        name: "an SSD without power-loss protection",
        from: Duration::from_micros(300),
        to: Duration::from_millis(6),
    },
    Kind { name: "a cloud volume", from: Duration::from_micros(400), to: Duration::from_millis(6) },
    Kind { name: "a rotating disk", from: Duration::from_millis(4), to: Duration::from_millis(30) },
];

/// Kinds for which this median of a synced append is usual.
pub fn alike(median: Duration) -> String {
    let names: Vec<&str> = KINDS
        .iter()
        .filter(|kind| (kind.from..=kind.to).contains(&median))
        .map(|kind| kind.name)
        .collect();
    match names.as_slice() {
        [] if median < KINDS[1].from => "a cache in memory somewhere below".into(),
        [] => "a limit or a crowded storage system: slower than a rotating disk".into(),
        [only] => (*only).into(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_median_is_like_something_and_overlaps_are_told() {
        let of = |us| alike(Duration::from_micros(us));
        assert_eq!(of(1), "memory");
        assert!(of(5).contains("cache in memory"));
        assert_eq!(of(30), "an SSD with power-loss protection");
        assert_eq!(of(120), "a virtual disk on a local SSD");
        assert_eq!(of(2_000), "an SSD without power-loss protection or a cloud volume");
        assert_eq!(of(12_000), "a rotating disk");
        assert!(of(100_000).contains("slower than a rotating disk"));
    }
}
