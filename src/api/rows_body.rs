//! The body of a large range: encoded piece by piece as the client takes it.
//!
//! tonic encodes a whole message in one go, which blocks the runtime for milliseconds and doubles
//! the memory of the answer. Here only the length is known up front; rows are copied into chunks
//! of some kilobytes, and large rows are not copied at all.

use super::body::PREFIX;
use super::budget::Permit;
use crate::proto::etcdserverpb::{RangeResponse, ResponseHeader};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;

/// Rows are gathered into frames of about this size: a few microseconds of copying per poll.
const CHUNK_BYTES: usize = 32 << 10;
/// Rows from this size on are sent as they are.
const WHOLE_ROW_BYTES: usize = 16 << 10;
/// Key of field 2 (`kvs`), length-delimited.
const KVS_KEY: u8 = 0x12;

/// A `RangeResponse` that is encoded while it is sent.
#[derive(Debug)]
pub(super) struct RowsBody {
    /// Prefix, header field.
    head: Bytes,
    rows: std::vec::IntoIter<Bytes>,
    /// A large row whose prefix has been sent.
    whole: Option<Bytes>,
    /// Fields after the rows; `None` when sent.
    tail: Option<Bytes>,
    ended: bool,
    _held: Permit,
}

impl RowsBody {
    /// `None` if the message would exceed the length field of gRPC.
    pub(super) fn new(
        header: ResponseHeader,
        rows: Vec<Bytes>,
        more: bool,
        count: i64,
        held: Permit,
    ) -> Option<Self> {
        let first = RangeResponse { header: Some(header), ..Default::default() };
        let last = RangeResponse { more, count, ..Default::default() }.encode_to_vec();
        let kvs: usize = rows.iter().map(|row| 1 + varint_len(row) + row.len()).sum();
        let length = u32::try_from(first.encoded_len() + kvs + last.len()).ok()?;
        let mut head = BytesMut::with_capacity(PREFIX + first.encoded_len());
        head.put_u8(0);
        head.put_u32(length);
        // A BytesMut grows: encoding into it cannot fail.
        let _ = first.encode(&mut head);
        Some(Self {
            head: head.freeze(),
            rows: rows.into_iter(),
            whole: None,
            tail: Some(last.into()),
            ended: false,
            _held: held,
        })
    }

    /// Data frames, then the trailers of success, then `None`.
    pub(super) fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if let Some(row) = self.whole.take() {
            return Some(Frame::data(row));
        }
        if let Some(tail) = &self.tail {
            let tail = tail.clone();
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES + WHOLE_ROW_BYTES);
            chunk.put(std::mem::take(&mut self.head));
            while chunk.len() < CHUNK_BYTES {
                let Some(row) = self.rows.next() else {
                    chunk.put(tail);
                    self.tail = None;
                    break;
                };
                chunk.put_u8(KVS_KEY);
                encode_varint(row.len() as u64, &mut chunk);
                if row.len() >= WHOLE_ROW_BYTES {
                    self.whole = Some(row);
                    break;
                }
                chunk.put(row);
            }
            return Some(Frame::data(chunk.freeze()));
        }
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        Some(Frame::trailers(trailers))
    }
}

fn varint_len(row: &Bytes) -> usize {
    encoded_len_varint(row.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    fn send(rows: Vec<Bytes>, more: bool, count: i64) -> (Vec<u8>, usize) {
        let budget = Budget::new(1 << 40);
        let held = budget.reserve(1).unwrap();
        let header = ResponseHeader { revision: 9, ..Default::default() };
        let mut body = RowsBody::new(header, rows, more, count, held).unwrap();
        let (mut bytes, mut largest, mut trailers) = (Vec::new(), 0, 0);
        while let Some(frame) = body.next_frame() {
            match frame.into_data() {
                Ok(data) => {
                    largest = largest.max(data.len());
                    bytes.extend_from_slice(&data);
                }
                Err(_) => trailers += 1,
            }
        }
        assert_eq!(trailers, 1);
        drop(body);
        assert_eq!(budget.used(), 0);
        (bytes, largest)
    }

    #[test]
    fn equals_the_plain_encoding() {
        for (count, size) in [(0, 0), (1, 0), (1, 5), (1_000, 100), (40, 16_383), (7, 1 << 20)] {
            let rows: Vec<Bytes> = (0..count).map(|i| vec![i as u8; size].into()).collect();
            let plain = RangeResponse {
                header: Some(ResponseHeader { revision: 9, ..Default::default() }),
                kvs: rows.clone(),
                more: count == 1,
                count: 3,
            };
            let (sent, largest) = send(rows, count == 1, 3);
            let length = u32::from_be_bytes(sent[1..5].try_into().unwrap()) as usize;
            assert_eq!(sent[0], 0);
            assert_eq!(length, sent.len() - PREFIX);
            assert_eq!(sent[PREFIX..], plain.encode_to_vec(), "{count} rows of {size}");
            assert!(largest <= CHUNK_BYTES + WHOLE_ROW_BYTES + 16 || size >= WHOLE_ROW_BYTES);
        }
    }
}
