//! Rows of a snapshot on their way to another member, on a connection of their own: it must not
//! delay heartbeats.

use super::dial::Dialer;
use super::link::{BATCH_MAX_BYTES, Link};
use crate::proto::peer as pb;
use crate::proto::peer::peer_client::PeerClient;
use crate::telemetry::clock;
use crate::telemetry::peer_stats::PeerNumbers;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;

/// Parts that are read ahead of the network: one on its way, one waiting.
const AHEAD: usize = 2;
/// Time without progress after which a transfer is given up, on both sides.
pub(super) const STALLED: Duration = Duration::from_secs(30);
/// Time for the receiver to make the last part durable.
const FINISH: Duration = Duration::from_secs(300);

/// A transfer to another member.
pub struct Transfer {
    parts: mpsc::Sender<pb::SnapshotPart>,
    done: oneshot::Receiver<Result<(), String>>,
    runtime: tokio::runtime::Handle,
}

impl Transfer {
    /// Hands the next part over; waits while the network is slower. Not to be called on a runtime.
    ///
    /// # Errors
    /// The transfer has failed or makes no progress.
    pub fn send(&self, part: pb::snapshot_part::Part) -> Result<(), String> {
        let part = pb::SnapshotPart { part: Some(part) };
        let sent = async { tokio::time::timeout(STALLED, self.parts.send(part)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("the receiver broke the transfer off".into()),
            Err(_) => Err(format!("no progress for {} s", STALLED.as_secs())),
        }
    }

    /// Waits until the receiver holds everything, checked and durable. Not to be called on a
    /// runtime.
    ///
    /// # Errors
    /// What the receiver says, or that it says nothing.
    pub fn finish(self) -> Result<(), String> {
        let Transfer { parts, done, runtime } = self;
        drop(parts);
        let wait = async { tokio::time::timeout(FINISH, done).await };
        match runtime.block_on(wait) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err("the transfer was ended".into()),
            Err(_) => Err(format!("no answer for {} s", FINISH.as_secs())),
        }
    }
}

/// The parts as a request body.
struct Parts {
    parts: mpsc::Receiver<pb::SnapshotPart>,
}

impl Stream for Parts {
    type Item = pb::SnapshotPart;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.parts.poll_recv(cx)
    }
}

impl Link {
    /// Begins a transfer; `None` if there is no connection to the member now.
    pub(super) fn transfer(self: &Arc<Self>) -> Option<Transfer> {
        let url = self.connected_to()?;
        let (parts, receiver) = mpsc::channel(AHEAD);
        let (done_sender, done) = oneshot::channel();
        let runtime = self.runtime().clone();
        let numbers = self.numbers().clone();
        let dialer = self.dialer().clone();
        runtime.spawn(async move {
            let began = clock::now_ns();
            numbers.snapshots_in_flight.fetch_add(1, Relaxed);
            let outcome = deliver(&dialer, &url, receiver).await;
            numbers.snapshots_in_flight.fetch_sub(1, Relaxed);
            match &outcome {
                Ok(()) => {
                    PeerNumbers::add(&numbers.snapshots_sent, 1);
                    numbers.snapshot_send.record_ns(clock::now_ns().saturating_sub(began));
                }
                Err(_) => PeerNumbers::add(&numbers.snapshots_failed, 1),
            }
            // Nobody waits any more if the sender gave up first.
            let _ = done_sender.send(outcome);
        });
        Some(Transfer { parts, done, runtime })
    }
}

async fn deliver(
    dialer: &Dialer,
    url: &str,
    parts: mpsc::Receiver<pb::SnapshotPart>,
) -> Result<(), String> {
    let channel = dialer.channel(url).await.map_err(|error| error.to_string())?;
    let mut client = PeerClient::new(channel).max_encoding_message_size(BATCH_MAX_BYTES);
    let done = client.snapshot(Parts { parts }).await;
    done.map(drop).map_err(|status| status.message().to_owned())
}
