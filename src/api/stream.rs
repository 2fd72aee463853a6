//! The messages of a `RangeStream`: pieces of a range, read one ahead of the client.

use super::budget::{Budget, Pool};
use super::node::Pieces;
use super::status;
use crate::machine::{Chunk, ChunkEnd};
use crate::proto::etcdserverpb::{RangeResponse, RangeStreamResponse, ResponseHeader};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

type Item = Result<RangeStreamResponse, Status>;

/// Reads `pieces` on the pool as long as the client takes them. Only the last message has a
/// header, `more` and `count`.
pub(super) fn start(
    mut pieces: Box<dyn Pieces>,
    pool: Arc<Pool>,
    budget: Arc<Budget>,
    header: impl Fn(i64) -> ResponseHeader + Send + 'static,
) -> ReceiverStream<Item> {
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        // Room in the channel first: nothing is read for a client that does not take it.
        while let Ok(place) = send.reserve().await {
            let read = pool.run(move || (pieces.next_chunk(), pieces)).await;
            let chunk = match read {
                Ok((Ok(Some(chunk)), rest)) => {
                    pieces = rest;
                    chunk
                }
                Ok((Ok(None), _)) => return,
                Ok((Err(error), _)) => return place.send(Err(status::of_read(&error))),
                Err(refused) => return place.send(Err(refused)),
            };
            let bytes: u64 = chunk.kvs.iter().map(|row| row.len() as u64).sum();
            // Only asks whether there is room: a piece is encoded and gone before the next one.
            if let Err(refused) = budget.reserve(bytes) {
                return place.send(Err(refused));
            }
            let last = chunk.end.is_some();
            place.send(Ok(message(chunk, &header)));
            if last {
                return;
            }
        }
    });
    ReceiverStream::new(receive)
}

fn message(chunk: Chunk, header: &impl Fn(i64) -> ResponseHeader) -> RangeStreamResponse {
    let mut response = RangeResponse { kvs: chunk.kvs, ..RangeResponse::default() };
    if let Some(ChunkEnd { more, count, revision }) = chunk.end {
        response.header = Some(header(revision));
        (response.more, response.count) = (more, count);
    }
    RangeStreamResponse { range_response: Some(response) }
}
