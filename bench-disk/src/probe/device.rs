//! What the kernel counts about the disks, and whether the directory is still the same.

use crate::ProbeError;
use crate::env::{Environment, block};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Flushes completed by each disk; `None` if one of them does not count.
pub(super) fn flushes(environment: &Environment) -> Option<Vec<u64>> {
    let root = Path::new("/");
    let counts: Option<Vec<u64>> =
        environment.leaves.iter().map(|leaf| block::stat(root, &leaf.name)?.flushes).collect();
    counts.filter(|counts| !counts.is_empty())
}

/// The disk whose counter rose most counts: several paths to one disk share the requests.
pub(super) fn largest_rise(before: &[u64], after: &[u64]) -> u64 {
    before.iter().zip(after).map(|(b, a)| a.saturating_sub(*b)).max().unwrap_or(0)
}

/// Writes completed by each disk since boot; `None` if one of them does not count.
pub(super) fn writes(leaves: &[String]) -> Option<Vec<u64>> {
    // Field 5 of the device's statistics, counted from one.
    let count = |name: &String| {
        let file = Path::new("/sys/class/block").join(name).join("stat");
        std::fs::read_to_string(file).ok()?.split_whitespace().nth(4)?.parse().ok()
    };
    let counts: Option<Vec<u64>> = leaves.iter().map(count).collect();
    counts.filter(|counts| !counts.is_empty())
}

/// Recognises a directory that somebody removed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64, u64);

impl Place {
    pub(super) fn of(directory: &Path) -> Result<Self, ProbeError> {
        let metadata =
            std::fs::metadata(directory).map_err(ProbeError::io("look at", directory))?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }

    /// An error if the directory is another one now, or none.
    pub(super) fn check(self, directory: &Path) -> Result<(), ProbeError> {
        match std::fs::metadata(directory) {
            Ok(now) if (now.dev(), now.ino()) == (self.0, self.1) => Ok(()),
            _ => Err(ProbeError::Vanished(directory.to_path_buf())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_removed_or_replaced_is_noticed() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("data");
        std::fs::create_dir(&path).expect("made");
        let place = Place::of(&path).expect("seen");
        assert!(place.check(&path).is_ok());
        std::fs::rename(&path, base.path().join("away")).expect("moved");
        assert!(matches!(place.check(&path), Err(ProbeError::Vanished(_))));
        std::fs::create_dir(&path).expect("made");
        assert!(matches!(place.check(&path), Err(ProbeError::Vanished(_))));
        assert_eq!(writes(&["no-such-disk".into()]), None);
        assert_eq!(largest_rise(&[5, 1], &[7, 9]), 8);
    }
}
