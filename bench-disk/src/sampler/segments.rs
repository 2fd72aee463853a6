//! The log's files: how the space of a segment comes to be, and the change to the next one.

use crate::ProbeError;
use crate::sampler::mix::Random;
use crate::sampler::node::Pulse;
use crate::sampler::scratch::{Scratch, ScratchFile};
use crate::sampler::shape::Preparation;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes per write and sync while a segment is filled ahead: as the node does it.
const STEP: usize = 1 << 20;

/// The present segment, and the one before it where the node would use that again.
pub struct Segments {
    scratch: Scratch,
    bytes: u64,
    preparation: Preparation,
    /// The segment that is written.
    pub(super) current: ScratchFile,
    /// Where the next append goes.
    pub(super) position: u64,
    old: Option<ScratchFile>,
    pulse: Arc<Pulse>,
}

impl Segments {
    /// Makes the first segment.
    pub fn start(
        scratch: Scratch,
        bytes: u64,
        preparation: Preparation,
        pulse: Arc<Pulse>,
    ) -> Result<Self, ProbeError> {
        let current = prepared(&scratch, bytes, preparation, &pulse)?;
        sync_all(&current, &pulse)?;
        Ok(Self { scratch, bytes, preparation, current, position: 0, old: None, pulse })
    }

    /// An append of this size needs another segment.
    pub fn full(&self, size: usize) -> bool {
        self.position + size as u64 > self.bytes
    }

    /// Takes the next segment into use, all but the sync of the directory. A node fills its next
    /// segments with zeros while it is idle, and after a while uses segments again whose entries
    /// are in the store.
    pub fn change(&mut self) -> Result<(), ProbeError> {
        let next = match (self.preparation, self.old.take()) {
            (Preparation::Node, Some(old)) => old,
            (Preparation::Node, None) => {
                prepared(&self.scratch, self.bytes, Preparation::Prewrite, &self.pulse)?
            }
            _ => prepared(&self.scratch, self.bytes, self.preparation, &self.pulse)?,
        };
        sync_all(&next, &self.pulse)?;
        let full = std::mem::replace(&mut self.current, next);
        if self.preparation == Preparation::Node {
            self.old = Some(full);
        }
        self.position = 0;
        Ok(())
    }

    /// Syncs the directory: the end of a change, which the caller times.
    pub fn sync_directory(&self) -> Result<(), ProbeError> {
        self.scratch.sync_directory()
    }
}

/// A file of this size whose space has this history.
pub fn prepared(
    scratch: &Scratch,
    bytes: u64,
    preparation: Preparation,
    pulse: &Pulse,
) -> Result<ScratchFile, ProbeError> {
    let file = match preparation {
        Preparation::Grow => return scratch.empty(),
        _ => scratch.create(bytes)?,
    };
    let mut random = Random(0x0FED_CBA9_8765_4321);
    let fill: Vec<u8> = match preparation {
        Preparation::Prewrite => vec![0; STEP],
        Preparation::Recycle => (0..STEP / 8).flat_map(|_| random.word().to_le_bytes()).collect(),
        Preparation::Node | Preparation::Reserve | Preparation::Grow => return Ok(file),
    };
    let mut offset = 0;
    while offset < bytes {
        let part = (bytes - offset).min(STEP as u64);
        file.file
            .write_all_at(&fill[..part as usize], offset)
            .map_err(ProbeError::io("write a file in", &file.path))?;
        pulse.bytes.fetch_add(part, Ordering::Relaxed);
        pulse.syncs.fetch_add(1, Ordering::Relaxed);
        file.file.sync_data().map_err(ProbeError::io("sync a file in", &file.path))?;
        offset += part;
    }
    Ok(file)
}

fn sync_all(file: &ScratchFile, pulse: &Pulse) -> Result<(), ProbeError> {
    pulse.syncs.fetch_add(1, Ordering::Relaxed);
    file.file.sync_all().map_err(ProbeError::io("sync a file in", &file.path))
}
