//! Where messages begin in a byte stream that belongs to somebody else.
//!
//! gRPC messages and HTTP/2 frames alike are a head of fixed size that holds the length of what
//! follows. Looking at the heads as the bytes pass costs a few nanoseconds each and no copy.

/// Position in a stream of messages with heads of `HEAD` bytes.
#[derive(Clone, Debug)]
pub struct Position<const HEAD: usize> {
    head: [u8; HEAD],
    have: usize,
    left: usize,
}

impl<const HEAD: usize> Default for Position<HEAD> {
    fn default() -> Self {
        Self { head: [0; HEAD], have: 0, left: 0 }
    }
}

impl<const HEAD: usize> Position<HEAD> {
    /// Takes the next bytes of the stream. `seen` is told of each head that became complete and
    /// returns how many bytes follow it.
    ///
    /// # Errors
    /// That of `seen`; the rest of the bytes is not looked at.
    pub fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut seen: impl FnMut([u8; HEAD]) -> Result<usize, E>,
    ) -> Result<(), E> {
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
                self.have = 0;
                self.left = seen(self.head)?;
            }
        }
        Ok(())
    }

    /// Whether the stream stands between two messages.
    pub fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    /// Bytes that may follow without crossing the next known boundary; zero at a boundary.
    pub fn to_boundary(&self) -> usize {
        match (self.have, self.left) {
            (0, left) => left,
            (have, _) => HEAD - have,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn message(kind: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![kind, (len >> 8) as u8, len as u8];
        bytes.resize(3 + len, 0xab);
        bytes
    }

    fn heads(position: &mut Position<3>, bytes: &[u8]) -> Vec<(u8, usize)> {
        let mut seen = Vec::new();
        let Ok(()) = position.feed(bytes, |[kind, a, b]| {
            let len = usize::from(a) << 8 | usize::from(b);
            seen.push((kind, len));
            Ok::<_, Infallible>(len)
        });
        seen
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let stream = [message(1, 0), message(2, 300), message(3, 5)].concat();
        for size in 1..=stream.len() {
            let mut position = Position::default();
            let seen: Vec<_> =
                stream.chunks(size).flat_map(|part| heads(&mut position, part)).collect();
            assert_eq!(seen, [(1, 0), (2, 300), (3, 5)], "cut into {size}");
            assert!(position.at_boundary());
        }
    }

    #[test]
    fn the_way_to_the_boundary_never_crosses_it() {
        let stream = [message(1, 100), message(2, 5)].concat();
        for cut in 1..103 {
            let mut position = Position::default();
            heads(&mut position, &stream[..cut]);
            let mut at = cut;
            while !position.at_boundary() {
                let step = position.to_boundary();
                heads(&mut position, &stream[at..at + step]);
                at += step;
            }
            assert!(at == 103 || at == stream.len(), "from {cut} to {at}");
        }
    }

    #[test]
    fn an_error_ends_it_where_it_is_met() {
        let stream = [message(1, 1), message(9, 1), message(3, 1)].concat();
        let mut seen = 0;
        let fed = Position::<3>::default().feed(&stream, |[kind, ..]| {
            seen += 1;
            if kind == 9 { Err("bad") } else { Ok(1) }
        });
        assert_eq!((fed, seen), (Err("bad"), 2));
    }
}
