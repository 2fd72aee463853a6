//! Reading the frames of one segment, and looking for evidence behind the first bad one.

use bytes::Bytes;

use super::WalError;
use super::record::{ALIGN, FrameHeader, HEADER, Kind, segment_seed};
use super::segment::Found;

/// Bytes read at once: large enough to stream, small enough not to matter for memory.
const CHUNK: u64 = 1024 * 1024;

/// A good frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) sequence: u64,
    pub(super) synced_through: u64,
    pub(super) payload: Bytes,
    /// Offset of the frame, and of what follows it.
    pub(super) at: u64,
    pub(super) end: u64,
}

/// What is at a position.
pub(super) enum Next {
    Frame(Frame),
    /// Not the frame that belongs here.
    Bad(&'static str),
}

/// What is behind the first bad frame.
pub(super) struct Behind {
    /// A later frame that says the bad one was on disk.
    pub(super) vouched_by: Option<u64>,
    /// Bytes up to the last that is not zero.
    pub(super) bytes: u64,
}

pub(super) struct Reader<'a> {
    found: &'a Found,
    seed: u32,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(found: &'a Found) -> Self {
        let seed = segment_seed(found.header.sequence, found.header.salt);
        Reader { found, seed, window: Vec::new(), window_at: 0 }
    }

    /// The bytes at a position; `None` when the file ends before.
    fn bytes(&mut self, at: u64, count: usize) -> Result<Option<&[u8]>, WalError> {
        let Some(end) = at.checked_add(count as u64).filter(|end| *end <= self.found.len) else {
            return Ok(None);
        };
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || end > window_end {
            let wanted = CHUNK.max(count as u64).min(self.found.len - at);
            self.window.resize(wanted as usize, 0);
            self.window_at = at;
            self.found.file.read_at(&mut self.window, at)?;
        }
        let from = (at - self.window_at) as usize;
        Ok(Some(&self.window[from..from + count]))
    }

    /// The frame at a position, which must have this sequence.
    pub(super) fn next(&mut self, at: u64, sequence: u64) -> Result<Next, WalError> {
        let seed = self.seed;
        let Some(head) = self.bytes(at, HEADER)? else {
            return Ok(Next::Bad("the file ends there"));
        };
        let Some(header) = FrameHeader::decode(seed, at, head) else {
            return Ok(Next::Bad("the checksum of the frame header is wrong"));
        };
        if header.sequence != sequence {
            return Ok(Next::Bad("the frame has the wrong sequence"));
        }
        let Some(frame) = self.bytes(at, header.frame_len())? else {
            return Ok(Next::Bad("the file ends within the frame"));
        };
        let body = &frame[HEADER..];
        if !header.matches(body) {
            return Ok(Next::Bad("the checksum of the frame is wrong"));
        }
        Ok(Next::Frame(Frame {
            kind: header.kind,
            sequence,
            synced_through: header.synced_through,
            payload: Bytes::copy_from_slice(&body[..header.length]),
            at,
            end: at + header.frame_len() as u64,
        }))
    }

    /// Looks through the rest of the file behind the bad frame `n` at `at`.
    pub(super) fn behind(&mut self, at: u64, n: u64) -> Result<Behind, WalError> {
        let seed = self.seed;
        let highest = n.saturating_add(self.found.len.saturating_sub(at) / HEADER as u64);
        let mut behind = Behind { vouched_by: None, bytes: 0 };
        let mut position = at;
        while position < self.found.len {
            // Windows overlap by a header so that none is missed at their edge.
            let count = CHUNK.min(self.found.len - position) as usize;
            let Some(window) = self.bytes(position, count)? else { break };
            for start in (0..window.len()).step_by(ALIGN) {
                let rest = &window[start..];
                if rest.len() >= HEADER && FrameHeader::may_vouch(rest, n, highest) {
                    let place = position + start as u64;
                    if let Some(header) = FrameHeader::decode(seed, place, rest) {
                        behind.vouched_by = Some(header.sequence);
                        return Ok(behind);
                    }
                }
            }
            if let Some(last) = window.iter().rposition(|b| *b != 0) {
                behind.bytes = position + last as u64 + 1 - at;
            }
            if count <= HEADER || position + count as u64 == self.found.len {
                break;
            }
            position += (count - HEADER) as u64;
        }
        Ok(behind)
    }
}
