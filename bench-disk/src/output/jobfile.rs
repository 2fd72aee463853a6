//! A profile as a fio job file: the same load, for people who trust fio more than us.
//!
//! fio has no notion of segments that are changed, and its jobs do not wait for each other, so the
//! two are close but not equal; the comments in the file say where.

use crate::profile::Profile;
use crate::sampler::mix::Mix;
use crate::sampler::shape::{Appends, NEIGHBOUR_BYTES, Preparation, Shape};
use std::fmt::Write;
use std::path::Path;

/// Appends from which the sizes are taken.
const SAMPLE: usize = 10_000;

/// Groups of equal share into which their sizes are sorted, in percent, smallest first. The last
/// one holds the large batches.
const GROUPS: [usize; 21] = [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 1];

/// Largest file that a job makes, in bytes; longer runs go through it again.
const LARGEST_FILE: u64 = 1 << 30;

/// The job file for a directory.
pub fn render(directory: &Path, profile: &Profile) -> String {
    let mut out = format!(
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
    companions(&mut out, &profile.shape);
    out
}

fn log(out: &mut String, profile: &Profile) {
    let mut mix = Mix::of(profile.shape.appends.clone());
    let mut sizes: Vec<usize> = (0..SAMPLE).map(|_| mix.size()).collect();
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    sizes.sort_unstable();
    out.push_str("[wal]\n; Appends, each followed by fdatasync.\nrw=write\nfdatasync=1\n");
    let _ = match profile.shape.appends {
        Appends::Fixed(bytes) => writeln!(out, "bs={bytes}"),
        _ => writeln!(out, "bssplit={}", split(&sizes)),
    };
    out.push_str(match profile.shape.preparation {
        Preparation::Grow => "; The file grows.\nfallocate=none\n",
        Preparation::Node | Preparation::Reserve => "; Space is reserved.\nfallocate=native\n",
        Preparation::Prewrite | Preparation::Recycle => "; Written before.\noverwrite=1\n",
    });
    let bytes = (mean as u64).saturating_mul(profile.samples as u64).min(profile.byte_budget);
    if bytes <= LARGEST_FILE {
        let _ = writeln!(out, "size={bytes}");
    } else {
        let _ = writeln!(
            out,
            "; The file is gone through again and again.\nsize={LARGEST_FILE}\ntime_based=1"
        );
    }
    if let Some(pace) = profile.pace {
        let rate = (1.0 / pace.as_secs_f64()).round().max(1.0) as u64;
        let _ =
            writeln!(out, "; At most this many per second, as a loaded node.\nrate_iops={rate}");
    }
}

/// Who else uses the disk. They end with the log.
fn companions(out: &mut String, shape: &Shape) {
    if shape.load.store() {
        let _ = write!(
            out,
            "; The others end with the log.\n\
             exitall=1\n\n\
             [store]\n\
             ; Commits about every 100 ms: some random pages of a file written before, then a sync.\n\
             rw=randwrite\n\
             bs=4k\n\
             size={}\n\
             overwrite=1\n\
             fdatasync=10\n\
             thinktime=100ms\n\
             thinktime_blocks=10\n\
             time_based=1\n",
            shape.store_bytes
        );
    }
    for (wanted, name, way) in
        [(shape.load.reader(), "reader", "read"), (shape.load.writer(), "writer", "write")]
    {
        if wanted {
            let _ =
                write!(out, "\n[{name}]\nrw={way}\nbs=1m\nsize={NEIGHBOUR_BYTES}\ntime_based=1\n");
        }
    }
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

    #[test]
    fn the_recipe_is_the_recipe_and_a_soak_needs_no_disk_of_its_size() {
        let recipe = render(Path::new("/d"), &Profile::fio());
        assert!(recipe.contains("bs=2300\n") && !recipe.contains("[store]"), "{recipe}");
        let soak = render(Path::new("/d"), &Profile::soak());
        assert!(soak.contains("size=1073741824\ntime_based=1"), "{soak}");
        let all = render(Path::new("/d"), &Profile::quick().with_load(Load::All));
        assert!(all.contains("[reader]\nrw=read") && all.contains("[writer]\nrw=write"), "{all}");
    }
}
