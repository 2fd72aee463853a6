//! How much is written before each sync: what a disk probe has to replay to load a disk as this
//! process does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Size classes per octave.
const PER_OCTAVE: u32 = 4;
/// The first class takes everything up to 2^6 = 64 bytes.
const FIRST_OCTAVE: u32 = 6;
/// The last class ends at 2^26 = 64 MiB and takes everything above.
const LAST_OCTAVE: u32 = 26;
const CLASSES: usize = ((LAST_OCTAVE - FIRST_OCTAVE) * PER_OCTAVE + 1) as usize;

/// A longer time between two syncs says that there was nothing to do, not how a busy process works.
const MAX_GAP_NS: u64 = 1_000_000_000;

/// Places that are remembered until the next sync; of more writes than that only the number is kept.
const MAX_PLACES: usize = 65_536;

/// Writes and syncs of one kind of file. One thread writes such a file, so its lock is free.
#[derive(Debug)]
pub struct SyncMix {
    unsynced: AtomicU64,
    /// Offset and length of the writes since the last sync, neighbours in time and place merged.
    places: Mutex<Vec<(u64, u64)>>,
    extents: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
    /// Second of the process clock of the last sync, plus one.
    last_second: AtomicU64,
    active_seconds: AtomicU64,
    /// End of the last sync plus one; zero before the first.
    last_end_ns: AtomicU64,
    classes: [Class; CLASSES],
}

/// Syncs of about the same size.
#[derive(Debug)]
struct Class {
    syncs: AtomicU64,
    /// Time from the ends of the syncs before to the starts of these.
    gap_ns: AtomicU64,
}

impl Class {
    const fn new() -> Self {
        Class { syncs: AtomicU64::new(0), gap_ns: AtomicU64::new(0) }
    }
}

/// A moment of a [`SyncMix`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncMixSnapshot {
    /// Write calls that succeeded.
    pub writes: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Contiguous stretches that the bytes of each sync made up: what the disk gets to write.
    pub extents: u64,
    /// Seconds in which there was a sync.
    pub active_seconds: u64,
    /// Pairs of size in bytes and number of syncs with at most that many bytes written since the
    /// sync before and more than the size of the class before; empty classes are left out.
    pub bytes_per_sync: Vec<(u64, u64)>,
    /// For each of these pairs the time in microseconds from the end of the sync before to the start
    /// of such a sync, all of them together, without pauses of more than a second.
    pub gap_micros: Vec<u64>,
}

/// Upper end of a class in bytes.
fn upper(class: usize) -> u64 {
    let Some(step) = (class as u32).checked_sub(1) else { return 1 << FIRST_OCTAVE };
    let base = 1_u64 << (FIRST_OCTAVE + step / PER_OCTAVE);
    base + base / u64::from(PER_OCTAVE) * u64::from(step % PER_OCTAVE + 1)
}

fn class_of(bytes: u64) -> usize {
    let (mut low, mut high) = (0, CLASSES - 1);
    while low < high {
        let middle = (low + high) / 2;
        if upper(middle) < bytes { low = middle + 1 } else { high = middle }
    }
    low
}

impl SyncMix {
    pub(super) const fn new() -> Self {
        SyncMix {
            unsynced: AtomicU64::new(0),
            places: Mutex::new(Vec::new()),
            extents: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last_second: AtomicU64::new(0),
            active_seconds: AtomicU64::new(0),
            last_end_ns: AtomicU64::new(0),
            classes: [const { Class::new() }; CLASSES],
        }
    }

    pub(super) fn wrote(&self, offset: u64, bytes: u64) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let room = places.len() < MAX_PLACES;
        match places.last_mut() {
            Some((start, length)) if *start + *length == offset => *length += bytes,
            _ if room => places.push((offset, bytes)),
            _ => _ = self.extents.fetch_add(1, Relaxed),
        }
        drop(places);
        self.writes.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.unsynced.fetch_add(bytes, Relaxed);
    }

    pub(super) fn synced(&self, start_ns: u64, now_ns: u64) {
        let bytes = self.unsynced.swap(0, Relaxed);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        self.extents.fetch_add(extents(&mut places), Relaxed);
        places.clear();
        drop(places);
        let class = &self.classes[class_of(bytes)];
        class.syncs.fetch_add(1, Relaxed);
        let before = self.last_end_ns.swap(now_ns + 1, Relaxed);
        let gap_ns = start_ns.saturating_sub(before.saturating_sub(1));
        if before > 0 && gap_ns <= MAX_GAP_NS {
            class.gap_ns.fetch_add(gap_ns, Relaxed);
        }
        let second = now_ns / 1_000_000_000 + 1;
        if self.last_second.swap(second, Relaxed) != second {
            self.active_seconds.fetch_add(1, Relaxed);
        }
    }

    /// What there was so far.
    pub fn snapshot(&self) -> SyncMixSnapshot {
        let used = || {
            let all = self.classes.iter().enumerate();
            all.filter(|(_, class)| class.syncs.load(Relaxed) > 0)
        };
        SyncMixSnapshot {
            writes: self.writes.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            extents: self.extents.load(Relaxed),
            active_seconds: self.active_seconds.load(Relaxed),
            bytes_per_sync: used()
                .map(|(number, class)| (upper(number), class.syncs.load(Relaxed)))
                .collect(),
            gap_micros: used().map(|(_, class)| class.gap_ns.load(Relaxed) / 1_000).collect(),
        }
    }
}

/// Number of contiguous stretches.
fn extents(places: &mut [(u64, u64)]) -> u64 {
    places.sort_unstable();
    let (mut count, mut end) = (0, None);
    for &(start, length) in &*places {
        if end.is_none_or(|end| start > end) {
            count += 1;
        }
        end = end.max(Some(start + length));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_lie_together_are_one_extent_in_whatever_order_they_are_written() {
        let mix = SyncMix::new();
        for page in [7, 3, 4, 5, 6, 20] {
            mix.wrote(page * 4_096, 4_096);
        }
        assert_eq!(mix.snapshot().extents, 0, "known at the sync");
        mix.synced(0, 1);
        assert_eq!(mix.snapshot().extents, 2);
        mix.wrote(0, 320);
        mix.wrote(0, 320);
        mix.synced(2, 2);
        mix.synced(3, 3);
        assert_eq!(mix.snapshot().extents, 3);
    }

    #[test]
    fn classes_ascend_and_take_their_own_ends() {
        let ends: Vec<u64> = (0..CLASSES).map(upper).collect();
        assert_eq!(ends[..6], [64, 80, 96, 112, 128, 160]);
        assert_eq!(ends.last(), Some(&(64 << 20)));
        assert!(ends.is_sorted_by(|a, b| a < b));
        for (class, end) in ends.iter().enumerate() {
            assert_eq!(class_of(*end), class);
            assert_eq!(class_of(*end + 1), (class + 1).min(CLASSES - 1));
        }
        assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASSES - 1));
    }

    #[test]
    fn bytes_count_for_the_sync_that_follows_and_seconds_once() {
        let mix = SyncMix::new();
        mix.wrote(0, 60);
        mix.wrote(60, 40);
        mix.synced(4_000_000_000, 5_000_000_000);
        mix.synced(5_600_000_000, 5_900_000_000);
        mix.wrote(100, 600);
        mix.synced(8_000_000_000, 9_000_000_000);
        mix.wrote(700, 10);
        mix.synced(9_000_200_000, 9_000_300_000);
        let seen = mix.snapshot();
        assert_eq!((seen.writes, seen.bytes, seen.active_seconds), (4, 710, 2));
        assert_eq!(seen.extents, 3);
        assert_eq!(seen.bytes_per_sync, [(64, 2), (112, 1), (640, 1)]);
        // 600 ms and 200 us; the first has none before it, the pause of two seconds is no gap.
        assert_eq!(seen.gap_micros, [600_200, 0, 0]);
    }
}
