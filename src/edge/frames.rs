//! A reader of HTTP/2 frame heads in a byte stream that belongs to somebody else.
//!
//! hyper answers PING frames itself and tells nobody. Looking at the nine bytes in front of each
//! frame as they pass costs a few nanoseconds per frame and no copy.

/// Bytes of a frame head.
const HEAD: usize = 9;
/// Type of DATA frames.
pub(super) const DATA: u8 = 0x0;
/// Type of HEADERS frames.
pub(super) const HEADERS: u8 = 0x1;
/// Type of PING frames.
pub(super) const PING: u8 = 0x6;
/// Type of GOAWAY frames.
pub(super) const GOAWAY: u8 = 0x7;
/// ACK flag of PING and SETTINGS frames.
pub(super) const ACK: u8 = 0x1;

/// Head of one frame; its payload has not been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
}

/// Position in a stream of frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    head: [u8; HEAD],
    have: usize,
    left: usize,
}

impl Frames {
    /// Takes the next bytes of the stream and reports each head that became complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skip = self.left.min(bytes.len());
                self.left -= skip;
                bytes = &bytes[skip..];
                continue;
            }
            let take = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == HEAD {
                let [a, b, c, kind, flags, ..] = self.head;
                self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.have = 0;
                seen(Frame { kind, flags });
            }
        }
    }

    /// Whether the stream stands between two frames.
    pub(super) fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    /// Bytes that may follow without crossing the next known boundary; zero at a boundary.
    pub(super) fn to_boundary(&self) -> usize {
        match (self.have, self.left) {
            (0, left) => left,
            (have, _) => HEAD - have,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0, (payload >> 8) as u8, payload as u8, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD + payload, 0xab);
        bytes
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let stream = [frame(PING, 0, 8), frame(DATA, 1, 300), frame(PING, ACK, 8)].concat();
        for size in 1..stream.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for part in stream.chunks(size) {
                frames.feed(part, |f| seen.push((f.kind, f.flags)));
            }
            assert_eq!(seen, [(PING, 0), (DATA, 1), (PING, ACK)], "cut into {size}");
            assert!(frames.at_boundary());
        }
    }

    #[test]
    fn the_way_to_the_boundary_never_crosses_it() {
        let stream = [frame(DATA, 0, 100), frame(HEADERS, 4, 5)].concat();
        for cut in 1..109 {
            let mut frames = Frames::default();
            frames.feed(&stream[..cut], |_| {});
            let mut at = cut;
            while !frames.at_boundary() {
                let step = frames.to_boundary();
                frames.feed(&stream[at..at + step], |_| {});
                at += step;
            }
            assert_eq!(at, 109, "from {cut}");
        }
    }
}
