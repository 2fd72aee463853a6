//! Lets clients in whose `:authority` is a whole URL.
//!
//! etcd clients up to 3.4 send `:authority: http://host:port` when a call is addressed to one
//! endpoint (`etcdctl endpoint status`, `endpoint hashkv`). Go's server does not mind, the HTTP/2
//! library here resets such a stream. The first header block of a connection decides: if its
//! authority is well formed the bytes pass untouched from then on, at no cost; if not, every header
//! block of the connection is decoded and written anew with the host and port alone.

use super::frames::{CONTINUATION, Frame, HEAD_BYTES, HEADERS};
use bytes::BytesMut;
use loona_hpack::Decoder;
use std::io;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
/// Largest frame that a peer must accept without being asked (RFC 9113, 4.2).
const FRAME_BYTES_MAX: usize = 16 << 10;
/// Header bytes of one request, encoded or decoded, beyond which the connection ends: four times
/// what the server accepts as a header list.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Rewrites the inbound side of one connection.
pub(super) struct Authorities {
    /// Received, not passed on: an incomplete frame, or a header block that goes on.
    held: BytesMut,
    decoder: Decoder<'static>,
    mode: Mode,
    /// The header block being collected: stream, flags of its HEADERS frame, fragment so far.
    block: Option<(u32, u8, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// No header block was seen yet.
    Undecided,
    /// Every header block is written anew.
    Rewrite,
    /// Bytes pass.
    Pass,
}

type Headers = Vec<(Vec<u8>, Vec<u8>)>;

impl Authorities {
    pub(super) fn new() -> Self {
        Authorities {
            held: BytesMut::new(),
            decoder: Decoder::new(),
            mode: Mode::Undecided,
            block: None,
        }
    }

    /// Whether bytes pass untouched from here on.
    pub(super) fn passes(&self) -> bool {
        self.mode == Mode::Pass && self.held.is_empty()
    }

    /// Takes received bytes and appends to `out` what the library may see of them.
    ///
    /// # Errors
    /// A header block that cannot be decoded or is too large.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut BytesMut) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        while self.mode != Mode::Pass
            && let Some(head) = self.held.first_chunk::<HEAD_BYTES>()
        {
            let Frame { len, kind, flags, stream } = Frame::parse(*head);
            if !matches!(kind, HEADERS | CONTINUATION) || len > FRAME_BYTES_MAX {
                // Too large a frame is for the library to refuse; it needs no more than the head.
                let pass = (HEAD_BYTES + len).min(self.held.len());
                if pass < HEAD_BYTES + len && len <= FRAME_BYTES_MAX {
                    break;
                }
                out.extend_from_slice(&self.held.split_to(pass));
                if len > FRAME_BYTES_MAX {
                    self.mode = Mode::Pass;
                }
                continue;
            }
            if self.held.len() < HEAD_BYTES + len {
                break;
            }
            let frame = self.held.split_to(HEAD_BYTES + len);
            self.header_frame(kind, flags, stream, &frame, out)?;
        }
        if self.mode == Mode::Pass {
            out.extend_from_slice(&self.held.split());
        }
        Ok(())
    }

    fn header_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> io::Result<()> {
        let payload = &frame[HEAD_BYTES..];
        match (kind, &mut self.block) {
            (HEADERS, None) => {
                let fragment = fragment(flags, payload)?.to_vec();
                self.block = Some((stream, flags, fragment));
            }
            (CONTINUATION, Some((of, _, fragment))) if *of == stream => {
                fragment.extend_from_slice(payload);
            }
            _ => return Err(malformed("header frames out of order")),
        }
        let complete = flags & END_HEADERS != 0;
        let Some((_, first_flags, block)) = self.block.take_if(|_| complete) else {
            let size = self.block.as_ref().map_or(0, |(_, _, fragment)| fragment.len());
            return if size > BLOCK_BYTES_MAX {
                Err(malformed("headers too large"))
            } else {
                Ok(())
            };
        };
        let mut headers = self.decode(&block)?;
        let repaired = repair(&mut headers);
        if self.mode == Mode::Undecided {
            self.mode = if repaired { Mode::Rewrite } else { Mode::Pass };
        }
        if self.mode == Mode::Pass {
            // Nothing of this connection was changed, so the library's own table stays in step. A
            // block in several frames is joined, which means the same.
            write(stream, first_flags, &block, out);
        } else {
            write(stream, first_flags, &encode(&headers), out);
        }
        Ok(())
    }

    fn decode(&mut self, block: &[u8]) -> io::Result<Headers> {
        let mut headers = Headers::new();
        let mut bytes = 0usize;
        let decoded = self.decoder.decode_with_cb(block, |name, value| {
            // A small block can stand for a large list: what is beyond the bound is not kept.
            bytes = bytes.saturating_add(name.len() + value.len());
            if bytes <= BLOCK_BYTES_MAX {
                headers.push((name.into_owned(), value.into_owned()));
            }
        });
        match decoded {
            Ok(()) if bytes <= BLOCK_BYTES_MAX => Ok(headers),
            Ok(()) => Err(malformed("headers too large")),
            Err(_) => Err(malformed("headers cannot be decoded")),
        }
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The header block fragment of a HEADERS frame, without padding and priority.
fn fragment(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    let short = || malformed("HEADERS frame is too short");
    let (mut from, mut to) = (0, payload.len());
    if flags & PADDED != 0 {
        let padding = usize::from(*payload.first().ok_or_else(short)?);
        from = 1;
        to = to.checked_sub(padding).ok_or_else(short)?;
    }
    if flags & PRIORITY != 0 {
        from += PRIORITY_BYTES;
    }
    payload.get(from..to).ok_or_else(short)
}

/// Leaves host and port of an authority that is a URL; true if there was one.
fn repair(headers: &mut Headers) -> bool {
    let Some((_, value)) = headers.iter_mut().find(|(name, _)| name == b":authority") else {
        return false;
    };
    if http::uri::Authority::try_from(value.as_slice()).is_ok() {
        return false;
    }
    let text = String::from_utf8_lossy(value);
    let host = text.split_once("://").map_or(&*text, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let valid = http::uri::Authority::try_from(host).is_ok();
    *value = if valid { host.as_bytes().to_vec() } else { b"localhost".to_vec() };
    true
}

/// Literal fields without indexing and without Huffman coding (RFC 7541, 6.2.2): they touch no
/// table, so nothing has to be kept in step.
fn encode(headers: &Headers) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a seven-bit prefix (RFC 7541, 5.1).
fn length(mut len: usize, block: &mut Vec<u8>) {
    const PREFIX: usize = 0x7f;
    if len < PREFIX {
        block.push(len as u8);
        return;
    }
    block.push(PREFIX as u8);
    len -= PREFIX;
    while len >= 0x80 {
        block.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    block.push(len as u8);
}

/// Writes a header block as one HEADERS frame and as many CONTINUATION frames as it needs.
fn write(stream: u32, flags: u8, block: &[u8], out: &mut BytesMut) {
    let mut parts = block.chunks(FRAME_BYTES_MAX).peekable();
    let mut kind = HEADERS;
    let mut flags = flags & END_STREAM;
    loop {
        let part = parts.next().unwrap_or_default();
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        out.extend_from_slice(&(part.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(part);
        if parts.peek().is_none() {
            return;
        }
        kind = CONTINUATION;
        flags = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(stream: u32, authority: &str, flags: u8) -> Vec<u8> {
        let long = "x".repeat(300);
        let headers: Headers = [
            (":method", "POST"),
            (":authority", authority),
            (":path", "/etcdserverpb.Maintenance/Status"),
            ("x-long", long.as_str()),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let mut frame = BytesMut::new();
        write(stream, flags, &encode(&headers), &mut frame);
        frame.to_vec()
    }

    fn run(stream: &[u8], cut: usize) -> Vec<u8> {
        let (mut authorities, mut out) = (Authorities::new(), BytesMut::new());
        for part in stream.chunks(cut) {
            authorities.feed(part, &mut out).expect("well formed");
        }
        out.to_vec()
    }

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const DATA: [u8; 12] = [0, 0, 3, 0, 1, 0, 0, 0, 1, 7, 7, 7];

    #[test]
    fn a_url_is_cut_to_host_and_port_in_every_request_of_the_connection() {
        for (bad, good) in [
            ("http://127.0.0.1:2379", "127.0.0.1:2379"),
            ("https://[::1]:2379/x", "[::1]:2379"),
            ("http://", "localhost"),
        ] {
            let sent =
                [&SETTINGS[..], &request(1, bad, 0), &DATA, &request(3, bad, END_STREAM)].concat();
            let want = [&SETTINGS[..], &request(1, good, 0), &DATA, &request(3, good, END_STREAM)]
                .concat();
            for cut in [1, 2, 7, 100, sent.len()] {
                assert_eq!(run(&sent, cut), want, "{bad} cut into {cut}");
            }
        }
    }

    #[test]
    fn a_well_formed_connection_passes_untouched() {
        let sent = [&SETTINGS[..], &request(1, "localhost:2379", 0), &DATA].concat();
        let junk: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let sent = [sent, junk].concat();
        for cut in [1, 13, sent.len()] {
            assert_eq!(run(&sent, cut), sent, "cut into {cut}");
        }
    }

    #[test]
    fn hostile_header_frames_end_in_an_error_and_not_in_memory() {
        let head = |len: u32, kind: u8, flags: u8| {
            let mut head = len.to_be_bytes()[1..].to_vec();
            head.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
            head
        };
        let feed = |bytes: &[u8]| Authorities::new().feed(bytes, &mut BytesMut::new());
        assert!(feed(&head(0, CONTINUATION, END_HEADERS)).is_err());
        assert!(feed(&head(0, HEADERS, END_HEADERS | PADDED)).is_err());
        assert!(feed(&[head(2, HEADERS, END_HEADERS), vec![0xff, 0xff]].concat()).is_err());
        let mut endless = [head(1, HEADERS, 0), vec![0x82]].concat();
        for _ in 0..8 {
            endless.extend(head(FRAME_BYTES_MAX as u32, CONTINUATION, 0));
            endless.resize(endless.len() + FRAME_BYTES_MAX, 0x82);
        }
        assert!(feed(&endless).is_err());
        // One indexed field of 4,000 bytes, repeated: a small block, a large list.
        let mut block = vec![0x40];
        length(1, &mut block);
        block.push(b'a');
        length(3900, &mut block);
        block.resize(block.len() + 3900, b'v');
        block.resize(block.len() + 1000, 0x80 | 62);
        let bomb = [head(block.len() as u32, HEADERS, END_HEADERS), block].concat();
        assert!(feed(&bomb).is_err());
    }
}
