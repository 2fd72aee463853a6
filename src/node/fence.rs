//! Whether this member is fenced: its data differs from the majority's, so it serves no reads and
//! gives no votes until it is removed, emptied and added again.
//!
//! The fence is a replicated row in this member's own store, so it outlasts a restart.

use super::apply_thread::ApplyThread;
use super::handle::Handle;
use crate::consensus::Core;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use tokio::sync::watch;

/// The fences as other threads see them.
pub(super) struct Fence {
    /// Whether this member is fenced.
    up: AtomicBool,
    changed: watch::Sender<bool>,
    /// All fenced members.
    all: Mutex<Arc<[u64]>>,
    /// Whether the core does not know them yet.
    news: AtomicBool,
}

impl Default for Fence {
    fn default() -> Self {
        Fence {
            up: AtomicBool::new(false),
            changed: watch::channel(false).0,
            all: Mutex::default(),
            news: AtomicBool::new(false),
        }
    }
}

impl Fence {
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// True if they changed.
    fn set_all(&self, fences: Arc<[u64]>) -> bool {
        let mut all = self.all.lock();
        let differ = *all != fences;
        *all = fences;
        drop(all);
        self.news.fetch_or(differ, Release);
        differ
    }

    /// Tells the core what it does not know yet. Called in every turn.
    pub(super) fn tell(&self, core: &mut Core) {
        if self.news.load(Relaxed) && self.news.swap(false, Acquire) {
            core.set_fences(self.all.lock().iter().copied());
        }
    }

    /// True if it changed.
    fn set(&self, up: bool) -> bool {
        let before = self.up.swap(up, Relaxed);
        self.changed.send_replace(up);
        before != up
    }
}

/// What a fenced member says of itself: why, and how to leave it.
#[must_use]
pub fn text(member: u64) -> String {
    format!(
        "this member ({member:x}) is fenced: its data differs from that of the majority, so it \
         serves no reads and gives no votes. Remove it (etcdctl member remove {member:x}), empty \
         its data directory, add it again (etcdctl member add NAME --peer-urls=URL) and start it \
         with --initial-cluster-state=existing"
    )
}

impl ApplyThread {
    /// Takes over what is applied: whether this member is fenced, and how many are.
    pub(super) fn fences_changed(&self) {
        let fences = self.inner.reader.fences();
        let own = self.inner.identity.member_id;
        let up = fences.contains(&own);
        let metrics = &self.metrics.divergence;
        metrics.fenced.store(u64::from(up), Relaxed);
        metrics.fenced_members.store(fences.len() as u64, Relaxed);
        if self.inner.fence.set_all(fences) {
            // The core has to learn it, also when nothing else happens.
            self.node.push(super::input::NodeInput::Fenced);
        }
        if self.inner.fence.set(up) {
            match up {
                true => tracing::error!("{}", text(own)),
                false => tracing::warn!("this member is not fenced any more: somebody disarmed it"),
            }
        }
    }
}

impl Handle {
    /// Whether this member is fenced.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.0.fence.is_up()
    }

    /// Why, and what to do, if it is.
    #[must_use]
    pub fn fence_text(&self) -> Option<String> {
        self.is_fenced().then(|| text(self.identity().member_id))
    }

    /// Turns true when this member is fenced.
    #[must_use]
    pub fn fenced(&self) -> watch::Receiver<bool> {
        self.0.fence.changed.subscribe()
    }
}
