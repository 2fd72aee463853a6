//! The connection to one peer: made, watched, made again.

use super::call::CallError;
use super::dial::{Dialer, whole};
use super::identity::Identity;
use super::queue::Queue;
use super::{Address, Local};
use crate::consensus::Wire;
use crate::proto::peer as pb;
use crate::proto::peer::peer_client::PeerClient;
use crate::telemetry::clock;
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::peer_stats::PeerNumbers;
use crate::telemetry::repeats::Repeats;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::codec::Streaming;
use tonic::transport::Channel;

/// How often the peer is asked to answer.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Silence after which a connection counts as dead, as `--raft-read-timeout` of etcd.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// First and longest pause before the next try.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause after a refusal: it takes a person to change something.
const PAUSE_REFUSED: Duration = Duration::from_secs(2);
/// Batches hold one message beyond their bound; the largest request decides.
pub(super) const BATCH_MAX_BYTES: usize = 64 << 20;
/// Answers to calls are small: a list of members.
const ANSWER_MAX_BYTES: usize = 4 << 20;

/// Where this member announces that it can be reached.
pub(super) type OwnUrls = Arc<RwLock<Vec<String>>>;

/// One peer.
pub(super) struct Link {
    own: Identity,
    own_urls: OwnUrls,
    address: Address,
    queue: Arc<Queue>,
    numbers: Arc<PeerNumbers>,
    local: Arc<dyn Local>,
    dialer: Dialer,
    disk: Arc<DiskHealth>,
    /// Process clock plus 1 when the present connection came up; 0: there is none.
    since: AtomicU64,
    /// Of the present connection, with its URL.
    channel: Mutex<Option<(Channel, String)>>,
    /// The peer has shown that it is there: the pause before the next try ends.
    hurry: Notify,
    runtime: Handle,
    task: Mutex<Option<AbortHandle>>,
}

impl Link {
    /// Starts the task that keeps the connection.
    #[allow(clippy::too_many_arguments, reason = "the parts of a link, built in one place")]
    pub(super) fn start(
        runtime: &Handle,
        own: Identity,
        own_urls: OwnUrls,
        address: Address,
        local: Arc<dyn Local>,
        numbers: Arc<PeerNumbers>,
        dialer: Dialer,
        disk: Arc<DiskHealth>,
    ) -> Arc<Link> {
        let link = Arc::new(Link {
            own,
            own_urls,
            address,
            queue: Arc::default(),
            numbers,
            local,
            dialer,
            disk,
            since: AtomicU64::new(0),
            channel: Mutex::default(),
            hurry: Notify::new(),
            runtime: runtime.clone(),
            task: Mutex::default(),
        });
        let task = runtime.spawn(link.clone().keep());
        *link.task.lock() = Some(task.abort_handle());
        link
    }

    pub(super) fn urls(&self) -> &[String] {
        &self.address.urls
    }

    /// URL of the present connection.
    pub(super) fn connected_to(&self) -> Option<String> {
        self.channel.lock().as_ref().map(|(_, url)| url.clone())
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn numbers(&self) -> &Arc<PeerNumbers> {
        &self.numbers
    }

    pub(super) fn hello(&self) -> pb::Identity {
        self.own.to(self.address.id, self.own_urls.read().clone())
    }

    pub(super) fn connected_since(&self) -> Option<u64> {
        self.since.load(Acquire).checked_sub(1)
    }

    pub(super) fn send(&self, wires: Vec<Wire>) {
        let dropped = self.queue.offer(wires);
        if dropped > 0 {
            PeerNumbers::add(&self.numbers.sent_failures, dropped as u64);
            if self.connected_since().is_some() {
                self.local.unreachable(self.address.id);
            }
        }
    }

    /// The peer has connected to this member: if there is no connection to it, the next try is made
    /// now. A member that returns needs messages in both directions before it can vote or be elected.
    pub(super) fn hurry(&self) {
        if self.connected_since().is_none() {
            self.hurry.notify_one();
        }
    }

    /// Ends the task; what waits is dropped.
    pub(super) fn end(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.down();
    }

    pub(super) async fn call(
        &self,
        what: pb::call_request::What,
    ) -> Result<pb::CallResponse, CallError> {
        let channel = self.channel.lock().clone();
        let (channel, _) = channel.ok_or(CallError::NotConnected)?;
        let mut client = PeerClient::new(channel).max_decoding_message_size(ANSWER_MAX_BYTES);
        let identity = Some(self.hello());
        let answer = client.call(pb::CallRequest { identity, what: Some(what) }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
            tonic::Code::Unimplemented => CallError::Unknown,
            _ => CallError::Lost(status.message().to_owned()),
        })
    }

    async fn keep(self: Arc<Self>) {
        let mut pause = PAUSE_FIRST;
        let said = Repeats::default();
        let mut turn = 0;
        loop {
            let began = clock::now_ns();
            let url = &self.address.urls[turn % self.address.urls.len().max(1)];
            turn += 1;
            let why = match self.connection(url).await {
                Ok(never) => match never {},
                Err(why) => why,
            };
            let was_up = self.down();
            if was_up {
                pause = PAUSE_FIRST;
                self.local.unreachable(self.address.id);
            }
            let now = clock::now_ns();
            let (text, refused) = match why {
                Broken::Lost(text) => (text, false),
                Broken::Refused(text) => (text, true),
            };
            let fresh = said.admit(text.clone(), now);
            if fresh.is_some() || was_up {
                tracing::warn!(
                    peer = format!("{:x}", self.address.id),
                    url,
                    after_ms = (now - began) / 1_000_000,
                    withheld = fresh.unwrap_or_default(),
                    "no connection to a peer: {text}"
                );
            } else {
                let peer = format!("{:x}", self.address.id);
                tracing::debug!(peer, url, "still no connection to a peer: {text}");
            }
            tokio::select! {
                () = sleep(if refused { PAUSE_REFUSED } else { pause }) => {
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                () = self.hurry.notified() => pause = PAUSE_FIRST,
            }
        }
    }

    /// Marks the connection as gone; true if there was one.
    fn down(&self) -> bool {
        *self.channel.lock() = None;
        let lost = self.queue.close();
        PeerNumbers::add(&self.numbers.sent_failures, lost as u64);
        let was_up = self.since.swap(0, Relaxed) != 0;
        if was_up {
            self.numbers.active.store(0, Relaxed);
            PeerNumbers::add(&self.numbers.disconnected, 1);
        }
        was_up
    }

    /// One connection from its beginning to its end.
    async fn connection(&self, url: &str) -> Result<std::convert::Infallible, Broken> {
        let channel = self.dialer.channel(url).await;
        let channel = channel.map_err(|error| Broken::Lost(error.to_string()))?;
        let outgoing = self.queue.open(self.hello(), self.numbers.clone(), self.disk.clone());
        let mut client = PeerClient::new(channel.clone())
            .max_decoding_message_size(ANSWER_MAX_BYTES)
            .max_encoding_message_size(BATCH_MAX_BYTES);
        let silent = || Broken::Lost(format!("no answer for {} s", SILENCE_MAX.as_secs()));
        let answer = timeout(SILENCE_MAX, client.messages(outgoing)).await.map_err(|_| silent())?;
        let mut notes = answer.map_err(|status| self.refused(&status))?.into_inner();
        let hello = timeout(SILENCE_MAX, notes.message()).await.map_err(|_| silent())?;
        let hello = hello.map_err(|status| self.refused(&status))?;
        let said = hello.and_then(|note| note.identity);
        let level = self.local.feature_level();
        let who = self.own.check(said.as_ref(), level).map_err(Broken::Refused)?;
        if who != self.address.id {
            return Err(Broken::Refused(format!(
                "member {who:x} answers at the address of member {:x}; check the peer URLs",
                self.address.id
            )));
        }
        let (level, version) = said.map(|s| (s.feature_level, s.version)).unwrap_or_default();
        self.numbers.feature_level.store(u64::from(level), Relaxed);
        *self.channel.lock() = Some((channel, url.to_owned()));
        // Whoever sees the connection sees the level of this one, not of the one before.
        self.since.store(clock::now_ns() + 1, Release);
        self.numbers.active.store(1, Relaxed);
        let peer = format!("{who:x}");
        tracing::info!(peer, url, version, feature_level = level, "connected to a peer");
        self.watch(&mut notes).await
    }

    /// Pings, and ends when the peer is silent or the connection breaks.
    async fn watch(
        &self,
        notes: &mut Streaming<pb::Note>,
    ) -> Result<std::convert::Infallible, Broken> {
        let mut ticks = interval(PING_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = clock::now_ns();
        let mut looked = heard;
        loop {
            tokio::select! {
                note = notes.message() => match note {
                    Ok(Some(note)) => {
                        heard = clock::now_ns();
                        if note.pong != 0 {
                            self.numbers.round_trip.record_ns(heard.saturating_sub(note.pong));
                        }
                    }
                    Ok(None) => return Err(Broken::Lost("the peer closed the connection".into())),
                    Err(status) => return Err(self.refused(&status)),
                },
                _ = ticks.tick() => {
                    let now = clock::now_ns();
                    heard = not_before_pause(heard, looked, now);
                    looked = now;
                    if Duration::from_nanos(now.saturating_sub(heard)) > SILENCE_MAX {
                        return Err(Broken::Lost(format!(
                            "no answer for {} s", SILENCE_MAX.as_secs()
                        )));
                    }
                    self.queue.ping(now.max(1));
                }
            }
        }
    }

    fn refused(&self, status: &tonic::Status) -> Broken {
        match status.code() {
            tonic::Code::FailedPrecondition => Broken::Refused(status.message().to_owned()),
            tonic::Code::PermissionDenied => {
                self.local.we_are_removed();
                Broken::Refused(status.message().to_owned())
            }
            // With TLS 1.3 a member refuses our certificate after the handshake: the cause says so.
            _ => Broken::Lost(whole(status)),
        }
    }
}

/// When the peer was heard last, moved by the time in which this process did not look: that silence
/// is not the peer's.
fn not_before_pause(heard: u64, looked: u64, now: u64) -> u64 {
    let pause = now.saturating_sub(looked).saturating_sub(PING_EVERY.as_nanos() as u64);
    (heard + pause).min(now)
}

/// Why a connection ended.
enum Broken {
    Lost(String),
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_this_process_is_no_silence_of_the_peer() {
        const SECOND: u64 = 1_000_000_000;
        let silence = |heard, looked, now| (now - not_before_pause(heard, looked, now)) / SECOND;
        assert_eq!(silence(10 * SECOND, 14 * SECOND, 15 * SECOND), 5, "looked all the time");
        assert_eq!(silence(10 * SECOND, 10 * SECOND, 40 * SECOND), 1, "stood still");
        assert_eq!(silence(10 * SECOND, 13 * SECOND, 40 * SECOND), 4, "was silent before");
    }
}
