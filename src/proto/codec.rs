//! The codec of every service: prost, with buffers that fit the messages.
//!
//! tonic's own codec begins with 8 KiB per call and doubles while it encodes. A decoded key keeps
//! its receive buffer alive, and an answer of a thousand rows would be copied several times.

use bytes::BufMut as _;
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec as TonicCodec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// First size of receive and send buffers: a put with a small value, or its answer, fits.
const BUFFER_BYTES: usize = 1 << 10;
/// Messages of one stream are collected up to this before they are handed on.
const YIELD_BYTES: usize = 32 << 10;

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

/// Encodes `T`, decodes `U`.
#[derive(Clone, Copy, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> TonicCodec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder(PhantomData)
    }
}

/// Encoder of one stream.
#[derive(Debug)]
pub struct ProstEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for ProstEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(item.encoded_len());
        debug_assert!(buf.has_remaining_mut());
        item.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

/// Decoder of one stream.
#[derive(Debug)]
pub struct ProstDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for ProstDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let decoded = U::decode(buf);
        let fail =
            |error| Status::internal(format!("grpc: error unmarshalling request: proto: {error}"));
        decoded.map(Some).map_err(fail)
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
