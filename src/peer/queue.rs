//! Messages on their way to one peer, bounded by bytes, taken by the stream of the connection.

use super::disk;
use crate::consensus::{Wire, WireKind};
use crate::proto::peer as pb;
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::peer_stats::PeerNumbers;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio_stream::Stream;

/// Bytes that may wait for one peer; more is dropped, and raft sends it again later.
const QUEUE_MAX_BYTES: usize = 8 << 20;
/// Bytes of messages in one batch: large enough to amortise its cost, small enough that a
/// heartbeat behind it is not late.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Default)]
struct State {
    /// Heartbeats and votes: they overtake entries, or a busy link would look dead.
    urgent: VecDeque<Wire>,
    bulk: VecDeque<Wire>,
    bytes: usize,
    /// To be sent as soon as possible; 0: nothing.
    ping: u64,
    hello: Option<pb::Identity>,
    /// Counts connections; a stream of an earlier one ends. Even: none.
    connection: u64,
    waker: Option<Waker>,
}

impl State {
    fn is_open(&self) -> bool {
        self.connection & 1 == 1
    }
}

/// Shared by the node thread (puts in) and the stream of the connection (takes out).
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

impl Queue {
    /// Puts messages in. Returns how many were dropped because there is no connection or no room.
    pub(super) fn offer(&self, wires: Vec<Wire>) -> usize {
        let mut state = self.0.lock();
        if !state.is_open() {
            return wires.len();
        }
        let mut dropped = 0;
        for wire in wires {
            let bytes = wire.weight();
            // One message always fits, however large, or it could never be sent.
            if state.bytes > 0 && state.bytes + bytes > QUEUE_MAX_BYTES {
                dropped += 1;
                continue;
            }
            state.bytes += bytes;
            match wire.kind() {
                WireKind::Append
                | WireKind::AppendResponse
                | WireKind::Propose
                | WireKind::Snapshot => state.bulk.push_back(wire),
                _ => state.urgent.push_back(wire),
            }
        }
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
        dropped
    }

    /// Begins a connection: its stream says first who speaks.
    pub(super) fn open(
        self: &Arc<Self>,
        hello: pb::Identity,
        numbers: Arc<PeerNumbers>,
        disk: Arc<DiskHealth>,
    ) -> Outgoing {
        let mut state = self.0.lock();
        state.connection += if state.is_open() { 2 } else { 1 };
        state.hello = Some(hello);
        state.ping = 0;
        Outgoing { connection: state.connection, queue: self.clone(), numbers, disk }
    }

    /// The connection is gone, and with it what waits. Returns how many messages.
    pub(super) fn close(&self) -> usize {
        let mut state = self.0.lock();
        if state.is_open() {
            state.connection += 1;
        }
        let lost = state.urgent.len() + state.bulk.len();
        state.urgent.clear();
        state.bulk.clear();
        state.bytes = 0;
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
        lost
    }

    /// Asks the peer to send this number back.
    pub(super) fn ping(&self, number: u64) {
        let mut state = self.0.lock();
        state.ping = number;
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }
}

/// What a connection sends.
pub(super) struct Outgoing {
    connection: u64,
    queue: Arc<Queue>,
    numbers: Arc<PeerNumbers>,
    disk: Arc<DiskHealth>,
}

impl Stream for Outgoing {
    type Item = pb::Batch;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<pb::Batch>> {
        let mut state = self.queue.0.lock();
        if state.connection != self.connection {
            return Poll::Ready(None);
        }
        if let Some(identity) = state.hello.take() {
            return Poll::Ready(Some(pb::Batch { identity: Some(identity), ..Default::default() }));
        }
        let ping = std::mem::take(&mut state.ping);
        let mut wires: Vec<Wire> = state.urgent.drain(..).collect();
        let mut bytes: usize = wires.iter().map(Wire::weight).sum();
        while bytes < BATCH_BYTES
            && let Some(wire) = state.bulk.pop_front()
        {
            bytes += wire.weight();
            wires.push(wire);
        }
        state.bytes -= bytes;
        if wires.is_empty() && ping == 0 {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        let messages: Vec<Bytes> = wires.iter().map(|wire| wire.encode().into()).collect();
        let sent: usize = messages.iter().map(Bytes::len).sum();
        PeerNumbers::add(&self.numbers.sent_bytes, sent as u64);
        // As it is now, not when the messages were made: a disk may hang while they wait.
        let disk = Some(disk::said(self.disk.sample()));
        Poll::Ready(Some(pb::Batch { identity: None, messages, ping, disk }))
    }
}
