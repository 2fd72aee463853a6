//! Locks: one probe per device and host, and no probe where a node lives.

use crate::ProbeError;
use crate::probe::{OnProgress, Phase, Progress};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Overrides the run directory, for containers that share one and for tests.
pub const RUN_DIR_VARIABLE: &str = "BENCH_DISK_RUN_DIR";

/// Polling distance while another probe holds the disk.
const POLL: Duration = Duration::from_millis(20);

/// Each process adds up to this much of its own, so that waiting nodes do not move in step.
const JITTER: Duration = Duration::from_millis(30);

/// Files that a running node holds locked in its data directory: our own, and etcd's database.
const LIVE_LOCKS: [&str; 2] = ["LOCK", "member/snap/db"];

/// Where probes of this host meet: locks, and verdicts of the last minutes.
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// The directory of this host and user: `$BENCH_DISK_RUN_DIR`, else `/run/bench-disk`, else a
    /// private one among the temporary files. `None` if none can be written: probes then do not
    /// see each other.
    pub fn locate() -> Option<Self> {
        if let Some(chosen) = std::env::var_os(RUN_DIR_VARIABLE).filter(|value| !value.is_empty()) {
            return Self::at(PathBuf::from(chosen));
        }
        let user = nix::unistd::geteuid();
        let private = std::env::temp_dir().join(format!("bench-disk-{user}"));
        Self::at(PathBuf::from("/run/bench-disk")).or_else(|| Self::at(private))
    }

    /// The same without creating one, for those who only read.
    pub fn find() -> Option<Self> {
        let chosen = std::env::var_os(RUN_DIR_VARIABLE).filter(|value| !value.is_empty());
        let private = format!("bench-disk-{}", nix::unistd::geteuid());
        let places = match chosen {
            Some(chosen) => vec![PathBuf::from(chosen)],
            None => vec!["/run/bench-disk".into(), std::env::temp_dir().join(private)],
        };
        places.into_iter().filter(|path| path.is_dir()).find_map(Self::at)
    }

    /// Uses this directory, creating it if needed. It must be ours: others could plant verdicts.
    pub fn at(path: PathBuf) -> Option<Self> {
        let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        let ours = metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw();
        let private = metadata.mode() & 0o022 == 0;
        (ours && private && (created.is_ok() || writable(&path))).then_some(Self(path))
    }

    /// The file of a verdict about this file system.
    pub fn verdict_file(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.verdict.json"))
    }

    /// Opens the lock of a disk, without taking it.
    pub fn lock_of(&self, disk_key: &str) -> Result<DeviceLock, ProbeError> {
        let path = self.0.join(format!("{disk_key}.lock"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(ProbeError::io("open the lock file", &path))?;
        Ok(DeviceLock { file, path })
    }
}

fn writable(path: &Path) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// The lock of one disk. Once taken it is held until this is dropped; the kernel releases it even
/// after `kill -9`. The file stays: removing a lock file that others wait for lets two of them in.
#[derive(Debug)]
pub struct DeviceLock {
    file: File,
    path: PathBuf,
}

impl DeviceLock {
    /// Tries to become the one probe of the disk.
    pub fn try_take(&self) -> Result<bool, ProbeError> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(ProbeError::io("lock", &self.path)(error)),
        }
    }

    /// Waits until this is the one probe of the disk. `interrupt` ends the waiting, and so does
    /// `patience`: whoever holds a lock for longer is stuck.
    pub fn take(
        self,
        patience: Duration,
        interrupt: &AtomicBool,
        progress: &mut OnProgress<'_>,
    ) -> Result<Self, ProbeError> {
        let began = Instant::now();
        let pause = POLL + jitter();
        while !self.try_take()? {
            if interrupt.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            let elapsed = began.elapsed();
            if elapsed >= patience {
                return Err(ProbeError::Locked(elapsed));
            }
            progress(&Progress {
                phase: Phase::Locked,
                samples: 0,
                exceeded: 0,
                target: 0,
                elapsed,
                time_box: patience,
                p99: None,
            });
            std::thread::sleep(pause);
        }
        Ok(self)
    }
}

/// Differs between processes that start together.
fn jitter() -> Duration {
    let seed = crc32c::crc32c(&std::process::id().to_le_bytes());
    JITTER.mul_f64(f64::from(seed) / f64::from(u32::MAX))
}

/// The lock file by which a running node holds this data directory, if one does.
pub fn live_node(directory: &Path) -> Option<PathBuf> {
    LIVE_LOCKS.iter().map(|name| directory.join(name)).find(|path| held(path))
}

fn held(path: &Path) -> bool {
    // Only a lock attempt tells. It is shared, so that two probes do not see each other here, and
    // it ends with the file handle.
    let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
