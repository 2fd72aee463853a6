//! A profile as a fio job file: the same load, for people who trust fio more than us.
//!
//! fio has no notion of segments that are changed, and its jobs do not wait for each other, so the
//! two are close but not equal; the comments in the file say where.

use crate::profile::Profile;
use crate::sampler::mix::Mix;
use crate::sampler::neighbour::{READER_BYTES_PER_SECOND, WRITER_BYTES_PER_SECOND};
use crate::sampler::shape::{Appends, NEIGHBOUR_BYTES, Preparation, Shape};
use std::fmt::Write;
use std::path::Path;

/// Appends from which the sizes are taken.
const SAMPLE: usize = 10_000;

/// Groups of equal share into which their sizes are sorted, in percent, smallest first. The last
/// one holds the large batches.
const GROUPS: [usize; 21] = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 1];

/// Larger logs go round in a file of this size, in bytes: a soak writes more than a disk may hold.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The job file for a directory.
pub fn render(directory: &Path, profile: &Profile) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "; The load of bench-disk's profile {name} as a fio job file.\n\
         ; Run it with: fio --output-format=json FILE\n\
         ; The number to compare with your limit is jobs[0].sync.lat_ns.percentile[\"99.000000\"],\n\
         ; in nanoseconds (10 ms = 10000000).\n\
         ; Not the same: segments are not changed, and fio judges nothing. One short run is noise;\n\
         ; bench-disk adds bursts, flush counts and a confidence to the same samples.\n\n\
         [global]\n\
         directory={directory}\n\
         ioengine=sync\n\
         ; Storage that compresses or deduplicates must not have it easy.\n\
         refill_buffers=1\n\
         unlink=1\n\
         runtime={runtime}\n\n",
        name = profile.name,
        directory = escape(directory),
        runtime = profile.time_box.as_secs(),
    );
    log(&mut out, profile);
    store(&mut out, &profile.shape);
    if profile.shape.load.reader() {
        let _ = write!(
            out,
            "\n[reader]\n\
             ; Somebody who reads a snapshot, around the page cache.\n\
             rw=read\n\
             bs=1m\n\
             direct=1\n\
             size={NEIGHBOUR_BYTES}\n\
             rate={READER_BYTES_PER_SECOND}\n\
             time_based=1\n"
        );
    }
    if profile.shape.load.writer() {
        let _ = write!(
            out,
            "\n[writer]\n\
             ; Somebody who writes a stream without syncs, as a backup does.\n\
             rw=write\n\
             bs=1m\n\
             size={NEIGHBOUR_BYTES}\n\
             rate={WRITER_BYTES_PER_SECOND}\n\
             time_based=1\n"
        );
    }
    out
}

/// The job whose syncs are compared.
fn log(out: &mut String, profile: &Profile) {
    let shape = &profile.shape;
    let mut mix = Mix::of(shape.appends.clone());
    let mut sizes: Vec<usize> = (0..SAMPLE).map(|_| mix.size()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    sizes.sort_unstable();
    let blocks = match shape.appends {
        Appends::Fixed(bytes) => format!("bs={bytes}"),
        Appends::Typical | Appends::Recorded(_) => format!("bssplit={}", split(&sizes)),
    };
    let (kind, space) = match shape.preparation {
        Preparation::Node | Preparation::Reserve => ("a reserved file", "fallocate=native"),
        Preparation::Grow => ("a growing file", "fallocate=none"),
        Preparation::Prewrite | Preparation::Recycle => ("a file written before", "overwrite=1"),
    };
    let planned = u64::try_from(mean.saturating_mul(profile.samples)).unwrap_or(u64::MAX);
    // The recipe's file ends with an append that does not fit; its size is the known one.
    let planned = if *shape == Shape::fio() { shape.segment_bytes } else { planned };
    let whole = planned.min(profile.byte_budget);
    let _ = write!(
        out,
        "[wal]\n\
         ; Appends to {kind}, each followed by fdatasync.\n\
         rw=write\n\
         fdatasync=1\n\
         {space}\n\
         {blocks}\n\
         size={}\n",
        whole.min(MAX_FILE_BYTES)
    );
    if whole > MAX_FILE_BYTES {
        let _ = writeln!(out, "io_size={whole}");
    }
    if let Some(pace) = profile.pace {
        let rate = (1.0 / pace.as_secs_f64()).round().max(1.0) as u64;
        let _ = writeln!(out, "; At most this many per second.\nrate_iops={rate}");
    }
    if shape.load.store() {
        out.push_str("; The others end with the log.\nexitall=1\n");
    }
}

/// The store's commits beside it: typical ones, or as often and as large as recorded.
fn store(out: &mut String, shape: &Shape) {
    let recorded = shape.recorded().map(|recorded| (recorded.store_interval(), &recorded.store));
    let (what, block, writes, pause) = match recorded {
        _ if !shape.load.store() => return,
        Some((None, _)) => return,
        Some((Some(interval), store)) => {
            let per_sync = (store.writes / store.syncs().max(1)).max(1);
            let block = store.extent_bytes().next_multiple_of(512);
            ("as often and as large as recorded", block, per_sync, interval.as_millis())
        }
        None => ("about every 100 ms", 4 << 10, 10, 100),
    };
    let _ = write!(
        out,
        "\n[store]\n\
         ; Commits {what}: some random pages of a file written before, then a sync.\n\
         rw=randwrite\n\
         bs={block}\n\
         size={}\n\
         overwrite=1\n\
         fdatasync={writes}\n\
         thinktime={pause}ms\n\
         thinktime_blocks={writes}\n\
         time_based=1\n",
        shape.store_bytes
    );
}

/// `size/percent:...`, with the mean size of each group.
fn split(sorted: &[usize]) -> String {
    let mut from = 0;
    let groups = GROUPS.map(|percent| {
        let to = from + sorted.len() * percent / 100;
        let mean = sorted[from..to].iter().sum::<usize>() / (to - from);
        from = to;
        format!("{}/{percent}", mean.next_multiple_of(8))
    });
    groups.join(":")
}

/// fio splits directories at colons unless they are escaped.
fn escape(directory: &Path) -> String {
    directory.to_string_lossy().replace(':', "\\:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::shape::Load;

    #[test]
    fn the_sizes_keep_the_mean_of_the_mix_and_their_shares_add_up() {
        let text = render(Path::new("/data:1"), &Profile::standard());
        assert!(text.contains("directory=/data\\:1\n") && text.contains("rate_iops=500\n"));
        let line = text.lines().find_map(|line| line.strip_prefix("bssplit=")).expect("sizes");
        let groups: Vec<(f64, f64)> = line
            .split(':')
            .filter_map(|group| group.split_once('/'))
            .map(|(size, share)| (size.parse().expect("bytes"), share.parse().expect("percent")))
            .collect();
        assert_eq!(groups.iter().map(|group| group.1).sum::<f64>(), 100.0);
        let mean = groups.iter().map(|group| group.0 * group.1).sum::<f64>() / 100.0;
        assert!((4_500.0..6_000.0).contains(&mean), "{mean}");
        assert!(!render(Path::new("/d"), &Profile::boot()).contains("rate_iops"));
    }

    fn lines(profile: &Profile) -> Vec<String> {
        render(Path::new("/d"), profile).lines().map(str::to_string).collect()
    }

    #[test]
    fn the_recipe_comes_out_as_people_know_it() {
        let lines = lines(&Profile::fio());
        for line in ["bs=2300", "size=23068672", "fdatasync=1", "fallocate=native"] {
            assert!(lines.iter().any(|known| known == line), "{line}: {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line == "[store]" || line.starts_with("exitall")));
    }

    #[test]
    fn everybody_beside_the_log_is_a_job() {
        let all = lines(&Profile::soak().with_load(Load::All));
        for job in ["[wal]", "[store]", "[reader]", "[writer]", "exitall=1"] {
            assert!(all.iter().any(|line| line == job), "{job}: {all:#?}");
        }
        assert!(all.iter().any(|line| line == "size=1073741824"), "{all:#?}");
        assert!(all.iter().any(|line| line.starts_with("io_size=")), "{all:#?}");
        assert!(!lines(&Profile::quick().with_load(Load::None)).contains(&"[store]".to_string()));
    }
}
