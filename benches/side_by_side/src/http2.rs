//! As much of HTTP/2 and HPACK as a gRPC client with large windows needs, without I/O.
//!
//! One connection carries calls of one method, so that its request headers are the same six bytes
//! from the second call on. The server's encoder is told to use no dynamic table: then trailers can
//! be read without keeping one.

/// What a client sends first: preface, settings (no push, no header table, largest stream window)
/// and the largest window for the connection.
pub(crate) const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x12\x04\x00\x00\x00\x00\x00\
    \x00\x01\x00\x00\x00\x00\
    \x00\x02\x00\x00\x00\x00\
    \x00\x04\x7f\xff\xff\xff\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00";

/// Window of a connection or stream before anybody changes it, in bytes (RFC 9113, 6.9.2).
pub(crate) const INITIAL_WINDOW: i64 = 65_535;
/// Largest payload of a frame before anybody changes it, in bytes.
const MAX_FRAME: usize = 16_384;
const FRAME_HEADER: usize = 9;
/// Bytes received before the connection's window is opened again: half of what was announced.
const REOPEN_BYTES: u32 = 1 << 30;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, len: usize) {
    let len = (len as u32).to_be_bytes();
    out.extend_from_slice(&[len[1], len[2], len[3], kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Writes the calls of one method on one connection.
pub(crate) struct Calls {
    first_headers: Vec<u8>,
    next_stream: u32,
}

impl Calls {
    /// `path` as in `/etcdserverpb.KV/Put`.
    pub(crate) fn new(path: &str, authority: &str) -> Self {
        // POST, http; then path, authority, content type and te, each added to the dynamic table.
        let mut block = vec![0x83, 0x86];
        for (name, text) in [(0x44, path), (0x41, authority), (0x5f, "application/grpc")] {
            block.push(name);
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
        block.extend_from_slice(b"\x40\x02te\x08trailers");
        Self { first_headers: block, next_stream: 1 }
    }

    /// Bytes of window that a call with this message takes.
    pub(crate) fn window(message: &[u8]) -> i64 {
        message.len() as i64 + 5
    }

    /// Appends a call; `last` when no message follows. Returns its stream.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, message: &[u8], last: bool) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        // The four dynamic entries, oldest (path) at the highest index.
        const AGAIN: [u8; 6] = [0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];
        let block: &[u8] = if stream == 1 { &self.first_headers } else { &AGAIN };
        frame(out, HEADERS, END_HEADERS, stream, block.len());
        out.extend_from_slice(block);
        let prefix = [&[0][..], &(message.len() as u32).to_be_bytes()].concat();
        let head = message.len().min(MAX_FRAME - prefix.len());
        let (head, mut rest) = message.split_at(head);
        let flag = |rest: &[u8]| if last && rest.is_empty() { END_STREAM } else { 0 };
        frame(out, DATA, flag(rest), stream, prefix.len() + head.len());
        out.extend_from_slice(&prefix);
        out.extend_from_slice(head);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(MAX_FRAME));
            rest = after;
            frame(out, DATA, flag(rest), stream, part.len());
            out.extend_from_slice(part);
        }
        stream
    }
}

/// What a server sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Event<'a> {
    /// Part of the answer's messages, with their five-byte prefixes.
    Data { stream: u32, bytes: &'a [u8] },
    /// The end of a call with its gRPC status; `None` when the trailers hold none.
    End { stream: u32, status: Option<u32> },
    /// The server opened the connection's window by so many bytes.
    Window(i64),
}

/// Reads what a server sends, from pieces of any size.
#[derive(Default)]
pub(crate) struct Incoming {
    unacknowledged: u32,
}

impl Incoming {
    /// Reads the complete frames at the start of `input` and returns how many bytes they took.
    /// Answers to control frames are appended to `reply`.
    ///
    /// # Errors
    /// What the server sent that this client cannot go on with.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        reply: &mut Vec<u8>,
        mut sink: impl FnMut(Event<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut at = 0;
        while let Some(header) = input[at..].first_chunk::<FRAME_HEADER>() {
            let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let Some(payload) = input.get(at + FRAME_HEADER..at + FRAME_HEADER + len) else {
                break;
            };
            at += FRAME_HEADER + len;
            if matches!(kind, DATA | HEADERS) && flags & PADDED != 0 {
                return Err("padded frames are not supported".into());
            }
            match kind {
                DATA => {
                    self.unacknowledged += len as u32;
                    if self.unacknowledged >= REOPEN_BYTES {
                        frame(reply, WINDOW_UPDATE, 0, 0, 4);
                        reply.extend_from_slice(&self.unacknowledged.to_be_bytes());
                        self.unacknowledged = 0;
                    }
                    sink(Event::Data { stream, bytes: payload })?;
                    if flags & END_STREAM != 0 {
                        sink(Event::End { stream, status: None })?;
                    }
                }
                HEADERS if flags & END_HEADERS == 0 => {
                    return Err("header blocks of several frames are not supported".into());
                }
                HEADERS if flags & END_STREAM != 0 => {
                    sink(Event::End { stream, status: grpc_status(payload) })?;
                }
                SETTINGS if flags & ACK == 0 => {
                    check_settings(payload)?;
                    frame(reply, SETTINGS, ACK, 0, 0);
                }
                PING if flags & ACK == 0 => {
                    frame(reply, PING, ACK, 0, payload.len());
                    reply.extend_from_slice(payload);
                }
                WINDOW_UPDATE if stream == 0 => {
                    let bytes = payload.first_chunk().map_or(0, |by| u32::from_be_bytes(*by));
                    sink(Event::Window(i64::from(bytes & 0x7fff_ffff)))?;
                }
                RST_STREAM => return Err(format!("stream {stream} reset: {payload:02x?}")),
                GOAWAY => {
                    let text = String::from_utf8_lossy(payload.get(8..).unwrap_or_default());
                    return Err(format!("GOAWAY {:02x?} {text}", payload.get(4..8)));
                }
                CONTINUATION => return Err("an unexpected CONTINUATION frame".into()),
                _ => {}
            }
        }
        Ok(at)
    }
}

/// Refuses settings that would break what [`Calls`] takes for granted.
fn check_settings(payload: &[u8]) -> Result<(), String> {
    for setting in payload.as_chunks::<6>().0 {
        let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
        match u16::from_be_bytes([setting[0], setting[1]]) {
            1 if value < 4_096 => return Err(format!("the server's header table is {value} B")),
            4 if i64::from(value) < INITIAL_WINDOW => {
                return Err(format!("the server's stream window is {value} B"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `grpc-status`, in HPACK's Huffman code.
const GRPC_STATUS: [u8; 8] = [0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

/// The gRPC status in a header block written without a dynamic table.
fn grpc_status(block: &[u8]) -> Option<u32> {
    let mut rest = block;
    while let Some(&byte) = rest.first() {
        if byte & 0x80 != 0 {
            integer(&mut rest, 7)?; // An entry of the static table; none is a status of gRPC.
            continue;
        }
        if byte & 0xe0 == 0x20 {
            integer(&mut rest, 5)?; // The encoder confirms the size of the table.
            continue;
        }
        let index = integer(&mut rest, if byte & 0x40 != 0 { 6 } else { 4 })?;
        let ours = match index {
            0 => {
                let (huffman, name) = string(&mut rest)?;
                name == if huffman { &GRPC_STATUS[..] } else { &b"grpc-status"[..] }
            }
            _ => false,
        };
        let (huffman, value) = string(&mut rest)?;
        if ours {
            return if huffman { huffman_digits(value) } else { decimal(value) };
        }
    }
    None
}

fn integer(rest: &mut &[u8], bits: u32) -> Option<usize> {
    let mask = (1_u8 << bits) - 1;
    let (first, mut tail) = rest.split_first()?;
    let mut value = usize::from(first & mask);
    if value == usize::from(mask) {
        for shift in (0..28).step_by(7) {
            let (byte, after) = tail.split_first()?;
            tail = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Some(value)
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<(bool, &'a [u8])> {
    let huffman = rest.first()? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (text, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some((huffman, text))
}

fn decimal(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Digits in HPACK's Huffman code: 0 to 2 are the 5-bit codes 0 to 2, 3 to 9 the 6-bit codes 25 to 31.
fn huffman_digits(code: &[u8]) -> Option<u32> {
    let all = code.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = code.len() as u32 * 8;
    let mut value = None;
    while left >= 5 {
        let five = (all >> (left - 5)) & 31;
        let (digit, bits) = match five {
            0..=2 => (five, 5),
            12..=15 if left >= 6 => (((all >> (left - 6)) & 63) - 25 + 3, 6),
            _ => break, // Padding of ones.
        };
        value = Some(value.unwrap_or(0) * 10 + digit as u32);
        left -= bits;
    }
    value
}

#[cfg(test)]
mod tests;
