//! One watch stream of one side.

use crate::answer::show_row;
use crate::common::{Clients, event};
use assay::proto::etcdserverpb::watch_request::RequestUnion;
use assay::proto::etcdserverpb::{WatchRequest, WatchResponse};
use assay::proto::mvccpb::event::EventType;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Longest wait for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An event as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) revision: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) deleted: bool,
    /// Every field, with the row before.
    pub(crate) text: String,
}

/// What a response without events says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) watch_id: i64,
    pub(crate) created: bool,
    pub(crate) canceled: bool,
    pub(crate) revision: Option<i64>,
    pub(crate) compact_revision: i64,
    pub(crate) reason: String,
}

/// The stream and what came on it and was not yet looked at.
pub(crate) struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    responses: mpsc::UnboundedReceiver<Result<WatchResponse, Status>>,
    /// Events by watch.
    pub(crate) events: BTreeMap<i64, VecDeque<Seen>>,
    /// Answers to creations, in order.
    pub(crate) created: VecDeque<Notice>,
    /// Ends of watches.
    pub(crate) canceled: VecDeque<Notice>,
    /// Revisions of progress answers for the whole stream.
    pub(crate) progress: VecDeque<i64>,
    last: BTreeMap<i64, i64>,
}

impl WatchStream {
    /// Opens a stream; the first request goes with it, for a server sends headers with its first
    /// answer.
    pub(crate) async fn open(clients: &mut Clients, first: RequestUnion) -> Self {
        let (requests, stream) = mpsc::channel(16);
        let first = WatchRequest { request_union: Some(first) };
        requests.send(first).await.expect("room in the channel");
        let answer = clients.watch.watch(ReceiverStream::new(stream)).await;
        let mut answers = answer.expect("a watch stream").into_inner();
        // Read as it comes: what lies unread takes window from the other calls of the connection.
        let (arrived, responses) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(response) = answers.message().await.transpose() {
                if arrived.send(response).is_err() {
                    break;
                }
            }
        });
        Self {
            requests,
            responses,
            events: BTreeMap::new(),
            created: VecDeque::new(),
            canceled: VecDeque::new(),
            progress: VecDeque::new(),
            last: BTreeMap::new(),
        }
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: RequestUnion) {
        let request = WatchRequest { request_union: Some(request) };
        self.requests.send(request).await.expect("the watch stream is open");
    }

    /// Reads until `enough`, or until `limit` has passed; says whether it was enough.
    pub(crate) async fn read_for(
        &mut self,
        limit: Duration,
        enough: impl Fn(&Self) -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        while !enough(self) {
            match timeout_at(deadline, self.responses.recv()).await {
                Err(_) => return false,
                Ok(Some(Ok(response))) => self.take(response),
                Ok(end) => panic!("the watch stream ended: {end:?}"),
            }
        }
        true
    }

    /// As [`WatchStream::read_for`] with all the patience there is.
    pub(crate) async fn read_until(&mut self, enough: impl Fn(&Self) -> bool) -> bool {
        self.read_for(PATIENCE, enough).await
    }

    fn take(&mut self, response: WatchResponse) {
        let revision = response.header.as_ref().map(|header| header.revision);
        let notice = Notice {
            watch_id: response.watch_id,
            created: response.created,
            canceled: response.canceled,
            revision,
            compact_revision: response.compact_revision,
            reason: response.cancel_reason,
        };
        if notice.created {
            assert!(response.events.is_empty(), "events in the answer to a creation");
            return self.created.push_back(notice);
        }
        if notice.canceled {
            assert!(response.events.is_empty(), "events in the end of a watch");
            return self.canceled.push_back(notice);
        }
        if response.events.is_empty() {
            // A progress answer of one watch needs no comparison: it comes by the clock.
            if notice.watch_id == -1 {
                self.progress.push_back(revision.unwrap_or_default());
            }
            return;
        }
        let events = self.events.entry(notice.watch_id).or_default();
        let last = self.last.entry(notice.watch_id).or_default();
        for bytes in &response.events {
            let (kind, row, before) = event(bytes);
            let row = row.expect("an event has a row");
            let before = before.map_or_else(|| "nothing".into(), |row| show_row(&row));
            assert!(row.mod_revision >= *last, "revisions of one watch go back");
            *last = row.mod_revision;
            events.push_back(Seen {
                revision: row.mod_revision,
                deleted: kind == EventType::Delete as i32,
                text: format!("type {kind} {} before {before}", show_row(&row)),
                key: row.key.to_vec(),
            });
        }
        let header = revision.unwrap_or_default();
        assert!(header >= *last, "header revision {header} below that of an event, {last}");
    }
}
