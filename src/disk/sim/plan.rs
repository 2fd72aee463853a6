//! What a test can ask of the simulated disk: faults, power losses, and the numbers behind chance.

use std::path::PathBuf;

use crate::disk::{FileKind, IoOp};

/// A small seeded generator (splitmix64): the same seed gives the same disk on every machine.
#[derive(Clone, Debug)]
pub struct SimRng(u64);

impl SimRng {
    /// A generator whose whole sequence is a function of `seed`.
    pub fn new(seed: u64) -> Self {
        SimRng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// What of the unsynced state survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLoss {
    /// Everything: as if the device had just finished.
    KeepAll,
    /// Nothing.
    LoseAll,
    /// Each sector by itself kept or lost or in an earlier unsynced version, and with `torn` also
    /// half written; lengths separately; names in order up to a random point per directory.
    Random {
        /// Whether a sector may be cut in the middle.
        torn: bool,
    },
    /// Bit `i` decides about unsynced choice `i` (see [`SimDisk::unsynced`]); names at random.
    Subset(u64),
}

impl PowerLoss {
    pub(super) fn keeps(self, bit: &mut u32, rng: &mut SimRng) -> bool {
        let at = *bit;
        *bit += 1;
        match self {
            PowerLoss::KeepAll => true,
            PowerLoss::LoseAll => false,
            PowerLoss::Random { .. } => rng.below(2) == 0,
            PowerLoss::Subset(bits) => bits.checked_shr(at).unwrap_or(0) & 1 == 1,
        }
    }

    pub(super) fn keeps_name(self, rng: &mut SimRng) -> bool {
        match self {
            PowerLoss::KeepAll => true,
            PowerLoss::LoseAll => false,
            PowerLoss::Random { .. } | PowerLoss::Subset(_) => rng.below(3) > 0,
        }
    }
}

/// What reads return after a failed sync dropped dirty sectors and marked them clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReads {
    /// The new content, from the cache, until the cache is dropped or the power fails.
    New,
    /// The old content, at once.
    Old,
}

/// What happens to one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is carried out.
    Proceed,
    /// The process dies before it: this and every later operation fails until a restart.
    Crash,
    /// The process dies within it: half of a write is done; everything else is not.
    CrashHalfway,
    /// It fails with this error number and changes nothing.
    Fail(i32),
    /// A write does its first half, then fails with this error number.
    ShortWrite(i32),
    /// It reports success and does nothing: a lying device, or a forgotten sync.
    Pretend,
    /// A sync fails with an I/O error, drops the dirty sectors and marks them clean.
    DropDirty(StaleReads),
}

/// One changing operation, as the hook and the record see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOp {
    /// Its number since the disk was created.
    pub number: u64,
    /// What the file is for.
    pub kind: FileKind,
    /// What is done.
    pub op: IoOp,
    /// To which file or directory.
    pub path: PathBuf,
    /// At which offset, for writes.
    pub offset: u64,
    /// How many bytes, for writes.
    pub bytes: u64,
}
