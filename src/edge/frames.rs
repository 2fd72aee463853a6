//! Heads of HTTP/2 frames in a byte stream that belongs to somebody else.
//!
//! hyper answers PING frames itself and tells nobody; looking at the nine bytes in front of each
//! frame as they pass does.

use crate::framing::Position;
use std::convert::Infallible;

/// Bytes of a frame head.
pub(super) const HEAD_BYTES: usize = 9;
/// Type of DATA frames.
pub(super) const DATA: u8 = 0x0;
/// Type of HEADERS frames.
pub(super) const HEADERS: u8 = 0x1;
/// Type of PING frames.
pub(super) const PING: u8 = 0x6;
/// Type of GOAWAY frames.
pub(super) const GOAWAY: u8 = 0x7;
/// Type of CONTINUATION frames.
pub(super) const CONTINUATION: u8 = 0x9;
/// ACK flag of PING and SETTINGS frames.
pub(super) const ACK: u8 = 0x1;

/// Head of one frame; its payload has not been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Bytes of its payload.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frame {
    pub(super) fn parse(head: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = head;
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Self { len, kind, flags, stream: u32::from_be_bytes(stream) }
    }
}

/// Position in a stream of frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames(Position<HEAD_BYTES>);

impl Frames {
    /// Takes the next bytes of the stream and reports each head that became complete.
    pub(super) fn feed(&mut self, bytes: &[u8], mut seen: impl FnMut(Frame)) {
        let Ok(()) = self.0.feed(bytes, |head| {
            let frame = Frame::parse(head);
            seen(frame);
            Ok::<_, Infallible>(frame.len)
        });
    }

    /// Whether the stream stands between two frames.
    pub(super) fn at_boundary(&self) -> bool {
        self.0.at_boundary()
    }

    /// Bytes that may follow without crossing the next known boundary; zero at a boundary.
    pub(super) fn to_boundary(&self) -> usize {
        self.0.to_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_the_standard_says() {
        let mut frames = Frames::default();
        let mut seen = Vec::new();
        let head = [1, 2, 3, HEADERS, 4, 0, 0, 0, 5];
        frames.feed(&head, |frame| seen.push(frame));
        let len = 0x01_02_03;
        assert_eq!(seen, [Frame { len, kind: HEADERS, flags: 4, stream: 5 }]);
        assert_eq!((frames.at_boundary(), frames.to_boundary()), (false, len));
    }
}
