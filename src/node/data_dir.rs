//! The data directory: whose it is, who holds it, and in which formats it was written.
//!
//! ```text
//! FORMAT               versions and ids, written once (JSON)
//! LOCK                 held while a node runs
//! ballast              space to give back when the file system is full
//! disk-verdict.json    what bench-disk said of the device
//! fixtures/            self-signed certificates (`--auto-tls`, `--peer-auto-tls`)
//! member/wal/*.wal     write-ahead log; etcd's reader rejects these files, so an etcd started here
//!                      by a rolled-back manifest stops instead of beginning an empty cluster
//! member/store.redb    rows and tables
//! ```

use crate::disk::{Disk, Fault, File, Open};
use crate::telemetry::io::FileKind;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of the directory's layout that this program writes.
pub const FORMAT: u32 = 1;
/// First program version that reads what this one writes.
const MIN_VERSION: &str = "0.1.0";

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
/// See [`super::space`].
pub(super) const BALLAST_FILE: &str = "ballast";
/// Entries that neither make a directory foreign nor occupied: file systems and snapshot tools put
/// them there, and so do we before the directory is ours.
const NEUTRAL: [&str; 6] =
    ["lost+found", ".snapshot", LOCK_FILE, BALLAST_FILE, "disk-verdict.json", "fixtures"];

/// Why a directory is not opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// Another process runs on it.
    #[error(
        "data directory {0} is locked by another process; stop that node first or choose another \
         directory"
    )]
    Locked(PathBuf),
    /// An etcd lives there.
    #[error(
        "data directory {0} belongs to etcd; nothing was changed. Moving its data with `assay \
         migrate` is not in this version: start with an empty --data-dir and copy the keys over"
    )]
    Etcd(PathBuf),
    /// Something else lives there.
    #[error(
        "data directory {dir} holds {what}, which is not ours; nothing was changed. Choose an \
         empty --data-dir"
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// First entry that is not known.
        what: String,
    },
    /// Written by a newer version.
    #[error(
        "data directory {dir} was written in format {found}, this program reads up to {FORMAT}; \
         start version {min_version} or newer"
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Format found.
        found: u32,
        /// Lowest program version that reads it.
        min_version: String,
    },
    /// The `FORMAT` file cannot be read.
    #[error("{path}: {why}; restore the file from a backup of the directory")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Belongs to another member or cluster.
    #[error(
        "{what} belongs to member {found_member:x} of cluster {found_cluster:x}, data directory \
         {dir} to member {member:x} of cluster {cluster:x}; give each member its own directories"
    )]
    OtherCluster {
        /// The data directory.
        dir: PathBuf,
        /// Which part differs.
        what: String,
        /// Ids of the directory.
        member: u64,
        /// Ids of the directory.
        cluster: u64,
        /// Ids of the part.
        found_member: u64,
        /// Ids of the part.
        found_cluster: u64,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl DirError {
    /// Exit code of the process (`operations.md` 2).
    pub fn exit_code(&self) -> u8 {
        match self {
            DirError::Locked(_) => 75,
            DirError::Fault(_) => 74,
            _ => 78,
        }
    }
}

/// Content of the `FORMAT` file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Layout of the directory.
    pub format: u32,
    /// Frames of the log.
    pub wal: u32,
    /// Tables of the store.
    pub store: u32,
    /// Snapshots.
    pub snapshot: u32,
    /// Lowest program version that reads all of these.
    pub min_version: String,
    /// Cluster id, hexadecimal.
    pub cluster_id: String,
    /// Member id, hexadecimal.
    pub member_id: String,
}

impl Format {
    /// What this version writes for these ids.
    pub fn new(cluster_id: u64, member_id: u64) -> Format {
        Format {
            format: FORMAT,
            wal: FORMAT,
            store: FORMAT,
            snapshot: FORMAT,
            min_version: MIN_VERSION.into(),
            cluster_id: format!("{cluster_id:x}"),
            member_id: format!("{member_id:x}"),
        }
    }

    /// Cluster and member id.
    pub fn ids(&self) -> Option<(u64, u64)> {
        let parse = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((parse(&self.cluster_id)?, parse(&self.member_id)?))
    }
}

/// Locks that were taken before the directories are opened. Without [`DataDir`] they end with this.
#[derive(Default)]
pub struct Held(Vec<(PathBuf, File)>);

impl Held {
    /// Locks a directory that was used before; a new one has no lock yet.
    fn add(&mut self, disk: &dyn Disk, dir: &Path) -> Result<(), DirError> {
        if disk.exists(&dir.join(LOCK_FILE))? {
            self.0.push((dir.to_path_buf(), lock(disk, dir)?));
        }
        Ok(())
    }

    /// The lock of this directory, taken now if it is not held.
    fn take(&mut self, disk: &dyn Disk, dir: &Path) -> Result<File, DirError> {
        match self.0.iter().position(|(path, _)| path == dir) {
            Some(at) => Ok(self.0.swap_remove(at).1),
            None => lock(disk, dir),
        }
    }
}

/// An opened directory, locked for as long as this value lives.
pub struct DataDir {
    /// The directory.
    pub path: PathBuf,
    /// Its `FORMAT` file, if the directory was used before.
    pub format: Option<Format>,
    disk: Arc<dyn Disk>,
    /// Held, never read.
    locks: Vec<File>,
    held: Held,
}

impl DataDir {
    /// Whether a node may use these directories, as far as can be seen without a change: they are not
    /// somebody else's, not in use and not of a newer format. What does not exist yet is fine. The
    /// locks are held from now on, so that who comes second is told before it measures a disk that
    /// the first one works on.
    ///
    /// # Errors
    /// See [`DirError`].
    pub fn look(disk: &dyn Disk, path: &Path, wal: Option<&Path>) -> Result<Held, DirError> {
        let mut held = Held::default();
        if disk.exists(path)? {
            refuse_foreign(disk, path)?;
            held.add(disk, path)?;
            read_format(disk, path)?;
        }
        if let Some(wal) = wal {
            held.add(disk, wal)?;
        }
        Ok(held)
    }

    /// Opens or creates the directory and locks it. `held` is what [`DataDir::look`] locked.
    ///
    /// # Errors
    /// See [`DirError`].
    pub fn open(disk: Arc<dyn Disk>, path: &Path, mut held: Held) -> Result<DataDir, DirError> {
        if disk.exists(path)? {
            refuse_foreign(&*disk, path)?;
            warn_if_wide(path);
        } else {
            disk.create_dir(path)?;
        }
        let locks = vec![held.take(&*disk, path)?];
        let format = read_format(&*disk, path)?;
        Ok(DataDir { path: path.to_path_buf(), format, disk, locks, held })
    }

    /// Locks a further directory of this member as well, a separate one of the log: two data
    /// directories must not share it. Created if it does not exist.
    ///
    /// # Errors
    /// Another process holds it, or a failed disk operation.
    pub fn lock_also(&mut self, path: &Path) -> Result<(), DirError> {
        self.disk.create_dir(path)?;
        self.locks.push(self.held.take(&*self.disk, path)?);
        Ok(())
    }

    /// Writes the `FORMAT` file of a new directory, durably.
    ///
    /// # Errors
    /// A failed disk operation.
    pub fn write_format(&mut self, format: Format) -> Result<(), DirError> {
        let text = serde_json::to_vec_pretty(&format).unwrap_or_default();
        let target = self.path.join(FORMAT_FILE);
        let temporary = self.path.join("FORMAT.tmp");
        if self.disk.exists(&temporary)? {
            self.disk.remove(&temporary, FileKind::Meta)?;
        }
        let file = self.disk.open(&temporary, FileKind::Meta, Open::CreateNew)?;
        file.write_at(&text, 0)?;
        file.sync_all()?;
        self.disk.rename(&temporary, &target, FileKind::Meta)?;
        self.disk.sync_dir(&self.path, FileKind::Meta)?;
        self.format = Some(format);
        Ok(())
    }

    /// Directory of the member's files, created with mode 0700.
    ///
    /// # Errors
    /// A failed disk operation.
    pub fn member_dir(&self) -> Result<PathBuf, DirError> {
        let member = self.path.join("member");
        if !self.disk.exists(&member)? {
            self.disk.create_dir(&member)?;
            self.disk.sync_dir(&self.path, FileKind::Meta)?;
        }
        Ok(member)
    }
}

fn lock(disk: &dyn Disk, dir: &Path) -> Result<File, DirError> {
    let file = disk.open(&dir.join(LOCK_FILE), FileKind::Lock, Open::CreateOrOpen)?;
    if file.try_lock()? { Ok(file) } else { Err(DirError::Locked(dir.to_path_buf())) }
}

fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<Format>, DirError> {
    // Far beyond what this file needs; a larger one is not ours.
    const FORMAT_MAX_BYTES: u64 = 64 << 10;
    let path = dir.join(FORMAT_FILE);
    if !disk.exists(&path)? {
        return Ok(None);
    }
    let damaged = |why: String| DirError::Damaged { path: path.clone(), why };
    let file = disk.open(&path, FileKind::Meta, Open::Read)?;
    let len = file.len()?;
    if len > FORMAT_MAX_BYTES {
        return Err(damaged(format!("{len} bytes are too many for a FORMAT file")));
    }
    let mut text = vec![0; len as usize];
    file.read_at(&mut text, 0)?;
    // The version is read first: a newer file may have members that this program cannot parse.
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let found = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if found > u64::from(FORMAT) {
        return Err(DirError::Newer {
            dir: dir.to_path_buf(),
            found: u32::try_from(found).unwrap_or(u32::MAX),
            min_version: value
                .get("min_version")
                .and_then(serde_json::Value::as_str)
                .unwrap_or("unknown")
                .to_string(),
        });
    }
    let format: Format =
        serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    if format.ids().is_none() {
        return Err(damaged("cluster_id and member_id are not hexadecimal numbers".into()));
    }
    Ok(Some(format))
}

/// Volumes of some platforms cannot be narrower; `member/` itself always is 0700.
fn warn_if_wide(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        tracing::warn!(
            dir = %path.display(),
            mode = format!("{mode:04o}"),
            "the data directory is open to other users of this machine; 0700 is recommended"
        );
    }
}

fn refuse_foreign(disk: &dyn Disk, path: &Path) -> Result<(), DirError> {
    let entries = disk.list(path)?;
    if entries.iter().any(|entry| entry.name == FORMAT_FILE) {
        return Ok(());
    }
    let unknown = entries
        .iter()
        .find(|entry| !NEUTRAL.contains(&entry.name.as_str()) && !entry.name.ends_with(".tmp"));
    match unknown {
        None => Ok(()),
        Some(entry) if entry.name == "member" => {
            if disk.exists(&path.join("member").join("store.redb"))? {
                let why = "it is missing, but member/store.redb is there".to_string();
                return Err(DirError::Damaged { path: path.join(FORMAT_FILE), why });
            }
            Err(DirError::Etcd(path.to_path_buf()))
        }
        Some(entry) => Err(DirError::Foreign { dir: path.to_path_buf(), what: entry.name.clone() }),
    }
}
