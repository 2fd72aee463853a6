//! A profile as a fio job file: the same load, for people who trust fio more than us.
//!
//! fio has no notion of segments that are changed, and its jobs do not wait for each other, so the
//! two are close but not equal; the comments in the file say where.

use crate::profile::Profile;
use crate::sampler::companion::FILE_BYTES;
use crate::sampler::mix::Mix;
use std::fmt::Write;
use std::path::Path;

/// Appends from which the sizes are taken.
const SAMPLE: usize = 10_000;

/// Groups of equal share into which their sizes are sorted, in percent, smallest first. The last
/// one holds the large batches.
const GROUPS: [usize; 21] = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 1];

/// The job file for a directory.
pub fn render(directory: &Path, profile: &Profile) -> String {
    let mut mix = Mix::default();
    let mut sizes: Vec<usize> = (0..SAMPLE).map(|_| mix.size()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    sizes.sort_unstable();
    let mut out = String::new();
    let pace = profile.pace.map(|pace| (1.0 / pace.as_secs_f64()).round() as u64);
    let _ = write!(
        out,
        "; The load of bench-disk's profile {name} as a fio job file.\n\
         ; Run it with: fio --output-format=json FILE\n\
         ; The number to compare is jobs[0].sync.lat_ns.percentile[\"99.000000\"]; write what follows\n\
         ; the percentile in nanoseconds beside your limit (10 ms = 10000000).\n\
         ; Not the same: segments are not changed, and fio judges nothing. One short run is noise;\n\
         ; bench-disk adds bursts, flush counts and a confidence to the same samples.\n\n\
         [global]\n\
         directory={directory}\n\
         ioengine=sync\n\
         ; Storage that compresses or deduplicates must not have it easy.\n\
         refill_buffers=1\n\
         unlink=1\n\
         runtime={runtime}\n\n\
         [wal]\n\
         ; Appends to a reserved file, each followed by fdatasync.\n\
         rw=write\n\
         fdatasync=1\n\
         fallocate=native\n\
         bssplit={split}\n\
         size={size}\n",
        name = profile.name,
        directory = escape(directory),
        runtime = profile.time_box.as_secs(),
        split = split(&sizes),
        size = mean * profile.samples,
    );
    if let Some(rate) = pace {
        let _ =
            writeln!(out, "; At most this many per second, as a loaded node.\nrate_iops={rate}");
    }
    let _ = write!(
        out,
        "; The companion ends with the log.\n\
         exitall=1\n\n\
         [store]\n\
         ; Commits about every 100 ms: some random pages of a file written before, then a sync.\n\
         rw=randwrite\n\
         bs=4k\n\
         size={FILE_BYTES}\n\
         overwrite=1\n\
         fdatasync=10\n\
         thinktime=100ms\n\
         thinktime_blocks=10\n\
         time_based=1\n"
    );
    out
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
}
