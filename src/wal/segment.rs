//! Segment files: names, the first sector, and what else may lie in the directory.
//!
//! The first eight bytes are a text that etcd's reader takes for a record length of 10^16 bytes: an
//! etcd started on this directory reports an oversized entry and exits. It must neither find a
//! length of zero (an empty log) nor a short record (which its repair would cut off).

use std::path::{Path, PathBuf};

use super::{FORMAT, WalError};
use crate::disk::{Disk, File, FileKind, Open};

/// Bytes of the header: one sector, so that it is written whole or not at all.
pub(super) const HEADER_BYTES: usize = 512;

const MAGIC: &[u8; 8] = b"ASSAYWAL";
const CRC_AT: usize = HEADER_BYTES - 4;
const FLAG_RESET: u32 = 1;

/// The first sector of a segment. It is synced, together with the frames of the head, before the
/// file gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the segment; never used twice in a directory.
    pub(super) sequence: u64,
    /// Number of the segment that the log continues from; zero for none.
    pub(super) previous: u64,
    /// Mixed into the checksums.
    pub(super) salt: u64,
    /// Sequence of the first frame. The previous segment counts only up to the frame before.
    pub(super) first_frame: u64,
    /// Frames up to here were synced before the file got its name.
    pub(super) head_through: u64,
    /// Everything before this segment is void.
    pub(super) reset: bool,
}

impl Header {
    /// The sector.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut sector = [0; HEADER_BYTES];
        sector[0..8].copy_from_slice(MAGIC);
        sector[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let flags = if self.reset { FLAG_RESET } else { 0 };
        sector[12..16].copy_from_slice(&flags.to_le_bytes());
        let numbers =
            [self.sequence, self.previous, self.salt, self.first_frame, self.head_through];
        for (at, number) in numbers.iter().enumerate() {
            sector[16 + 8 * at..24 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&sector[..CRC_AT]);
        sector[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        sector
    }

    fn decode(path: &Path, sector: &[u8; HEADER_BYTES]) -> Result<Self, WalError> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(CRC_AT) != crc32c::crc32c(&sector[..CRC_AT]) {
            let what = "the checksum of the segment header is wrong".to_owned();
            return Err(WalError::Damage { path: path.to_owned(), offset: 0, what });
        }
        if &sector[0..8] != MAGIC {
            return Err(WalError::Foreign { path: path.to_owned() });
        }
        if u32_at(8) > FORMAT {
            return Err(WalError::NewerFormat { path: path.to_owned(), found: u32_at(8) });
        }
        Ok(Header {
            sequence: u64_at(16),
            previous: u64_at(24),
            salt: u64_at(32),
            first_frame: u64_at(40),
            head_through: u64_at(48),
            reset: u32_at(12) & FLAG_RESET != 0,
        })
    }
}

/// Name of a segment whose log position is before `first_index`.
pub(super) fn segment_name(sequence: u64, first_index: u64) -> String {
    format!("{sequence:016x}-{first_index:016x}.wal")
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (sequence, index) = name.strip_suffix(".wal")?.split_once('-')?;
    let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok());
    Some((number(sequence)??, number(index)??))
}

/// Ending of files ready to become segments.
pub(super) const SPARE: &str = ".spare";
/// Ending of files under construction; worthless after a crash.
pub(super) const TEMPORARY: &str = ".tmp";

/// A segment found in the directory, its header read and checked.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) header: Header,
}

/// Everything the log has in its directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Segments by sequence.
    pub(super) segments: Vec<Found>,
    /// Spare files with their length.
    pub(super) spares: Vec<(PathBuf, u64)>,
    pub(super) temporaries: Vec<PathBuf>,
}

/// Reads the directory and the header of every segment.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing, WalError> {
    let mut listing = Listing::default();
    for entry in disk.list(dir)? {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            continue;
        }
        if entry.name.ends_with(TEMPORARY) {
            listing.temporaries.push(path);
        } else if entry.name.ends_with(SPARE) {
            listing.spares.push((path, entry.len));
        } else if entry.name.ends_with(".wal") {
            let Some((sequence, _)) = parse_name(&entry.name) else {
                return Err(WalError::Foreign { path });
            };
            let file = disk.open(&path, FileKind::Wal, Open::ReadWrite)?;
            let header = read_header(&file, entry.len)?;
            if header.sequence != sequence {
                let what = format!("the header belongs to segment {:016x}", header.sequence);
                return Err(WalError::Damage { path, offset: 0, what });
            }
            listing.segments.push(Found { path, file, len: entry.len, header });
        }
    }
    listing.segments.sort_unstable_by_key(|s| s.header.sequence);
    Ok(listing)
}

fn read_header(file: &File, len: u64) -> Result<Header, WalError> {
    let mut sector = [0; HEADER_BYTES];
    let present = HEADER_BYTES.min(usize::try_from(len).unwrap_or(HEADER_BYTES));
    file.read_at(&mut sector[..present], 0)?;
    if is_etcd(&sector) {
        return Err(WalError::Etcd { path: file.path().to_owned() });
    }
    Header::decode(file.path(), &sector)
}

/// Every etcd segment starts with a short record of type 4 (checksum): an eight-byte length whose
/// top byte may hold the padding, then the protobuf field 1 with value 4.
fn is_etcd(sector: &[u8; HEADER_BYTES]) -> bool {
    let short = sector[0] > 0 && sector[0] < 64 && sector[1..7].iter().all(|b| *b == 0);
    short && sector[8..10] == [0x08, 0x04]
}

/// What a directory holds, for the decision between a first and a later start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// No log; also a directory that does not exist or holds only what a crashed first start left.
    Nothing,
    /// A log of this program.
    Log,
    /// etcd's log.
    Etcd(PathBuf),
    /// A `.wal` file of unknown origin.
    Foreign(PathBuf),
}

/// Looks at names and first bytes only; changes nothing. A damaged log of ours is still a log.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<Contents, WalError> {
    if !disk.exists(dir)? {
        return Ok(Contents::Nothing);
    }
    let mut contents = Contents::Nothing;
    for entry in disk.list(dir)? {
        if entry.is_dir || !entry.name.ends_with(".wal") {
            continue;
        }
        let path = dir.join(&entry.name);
        let file = disk.open(&path, FileKind::Wal, Open::Read)?;
        let mut sector = [0; HEADER_BYTES];
        let present = HEADER_BYTES.min(usize::try_from(entry.len).unwrap_or(HEADER_BYTES));
        file.read_at(&mut sector[..present], 0)?;
        if is_etcd(&sector) {
            return Ok(Contents::Etcd(path));
        }
        // A name of our shape with a destroyed header is damage, to be reported by recovery.
        if parse_name(&entry.name).is_none() {
            return Ok(Contents::Foreign(path));
        }
        contents = Contents::Log;
    }
    Ok(contents)
}
