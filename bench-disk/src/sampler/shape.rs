//! What a probe writes: sizes of appends, handling of segments, and who else uses the disk.

use crate::sampler::recorded::Recorded;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::Arc;

/// Size of a log segment, as the node makes them.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Size of the companion file of short probes: random pages of it are all over the file, and writing
/// it first costs little.
pub const SMALL_STORE_BYTES: u64 = 16 << 20;

/// Size of the companion file of the longer profiles.
pub const STORE_BYTES: u64 = 64 << 20;

/// Size of the file that a reader or a writer beside the log goes through.
pub const NEIGHBOUR_BYTES: u64 = 64 << 20;

/// Appends of the fio recipe, in bytes.
pub const FIO_APPEND: usize = 2_300;

/// File of the fio recipe: `--size=22m`.
pub const FIO_FILE_BYTES: u64 = 22 << 20;

/// Sizes of the synced appends.
#[derive(Clone, Debug, PartialEq)]
pub enum Appends {
    /// The typical mix of a node under moderate load.
    Typical,
    /// One size, in bytes.
    Fixed(usize),
    /// What a node has recorded, its rates included.
    Recorded(Arc<Recorded>),
}

/// How the space of a segment comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preparation {
    /// As the node does: the first segment is reserved, the second filled with zeros ahead, later
    /// ones are old segments once more.
    Node,
    /// Nothing: every append makes the file longer.
    Grow,
    /// Blocks are reserved (`fallocate`), so a sync also marks them as written.
    Reserve,
    /// Filled with zeros and synced before.
    Prewrite,
    /// Filled with old records and synced before.
    Recycle,
}

impl Preparation {
    /// Those that are compared with each other, the slowest first on most file systems.
    pub const COMPARED: [Preparation; 4] =
        [Preparation::Grow, Preparation::Reserve, Preparation::Prewrite, Preparation::Recycle];

    /// The word for people and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Preparation::Node => "node",
            Preparation::Grow => "grow",
            Preparation::Reserve => "fallocate",
            Preparation::Prewrite => "pre-written",
            Preparation::Recycle => "recycled",
        }
    }
}

/// Who else uses the disk during the phase that decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nobody: the log alone, as simple disk checks do.
    None,
    /// The store's commits, as in every node.
    #[default]
    Node,
    /// The store, and somebody who reads a snapshot.
    Reader,
    /// The store, and somebody who writes a stream without syncs, as a backup or a copy does.
    Writer,
    /// All of them.
    All,
}

impl Load {
    /// All words.
    pub const ALL: [Load; 5] = [Load::None, Load::Node, Load::Reader, Load::Writer, Load::All];

    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Load::None => "none",
            Load::Node => "node",
            Load::Reader => "reader",
            Load::Writer => "writer",
            Load::All => "all",
        }
    }

    /// The store commits beside the log.
    pub fn store(self) -> bool {
        self != Load::None
    }

    /// Somebody reads.
    pub fn reader(self) -> bool {
        matches!(self, Load::Reader | Load::All)
    }

    /// Somebody writes a stream.
    pub fn writer(self) -> bool {
        matches!(self, Load::Writer | Load::All)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Load::ALL
            .into_iter()
            .find(|load| load.as_str() == text)
            .ok_or_else(|| format!("no load {text:?}: use none, node, reader, writer or all"))
    }
}

/// Everything about what is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Sizes of the appends.
    pub appends: Appends,
    /// Space of the segments.
    pub preparation: Preparation,
    /// Size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Who else uses the disk.
    pub load: Load,
    /// Size of the companion file, in bytes.
    pub store_bytes: u64,
}

impl Shape {
    /// A node, with a companion file of this size.
    pub fn node(store_bytes: u64) -> Self {
        Self {
            appends: Appends::Typical,
            preparation: Preparation::Node,
            segment_bytes: SEGMENT_BYTES,
            load: Load::Node,
            store_bytes,
        }
    }

    /// The recipe `fio --rw=write --fdatasync=1 --bs=2300 --size=22m`: one reserved file, nothing
    /// beside it.
    pub fn fio() -> Self {
        Self {
            appends: Appends::Fixed(FIO_APPEND),
            preparation: Preparation::Reserve,
            segment_bytes: FIO_FILE_BYTES,
            load: Load::None,
            store_bytes: SMALL_STORE_BYTES,
        }
    }

    /// Room that the files take, in bytes: two segments (old and new at a change) unless `one` is
    /// never left, the companion, and the files of reader and writer.
    pub fn room(&self, one: bool) -> u64 {
        let segments = if one { 1 } else { 2 } * self.segment_bytes;
        let store = if self.load.store() { self.store_bytes } else { 0 };
        let others = u64::from(self.load.reader()) + u64::from(self.load.writer());
        segments + store + others * NEIGHBOUR_BYTES
    }

    /// The recording behind the sizes, if there is one.
    pub fn recorded(&self) -> Option<&Arc<Recorded>> {
        match &self.appends {
            Appends::Recorded(recorded) => Some(recorded),
            Appends::Typical | Appends::Fixed(_) => None,
        }
    }
}
