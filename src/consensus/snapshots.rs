//! Snapshots on their way out, and the one that is on its way in.
//!
//! The raft message of a snapshot carries index, term and configuration only; the rows stream on a
//! connection of their own. While a follower receives one, the log must keep what comes behind it,
//! or the follower could never catch up.

use super::types::{NodeId, SnapshotMeta};
use super::wire::Wire;
use std::collections::BTreeMap;

#[derive(Debug)]
enum Stage {
    /// The library asked; the shell does not know yet.
    Wanted,
    /// The shell opens a view.
    Building,
    /// The view is open; the library has not asked again yet.
    Ready(SnapshotMeta),
    /// The message left; the rows are streaming.
    Streaming,
    /// The follower holds the rows and puts them in place; it says nothing until that is done.
    Settling,
    /// The follower goes on by the log. It has as much to fetch as was written since the view was
    /// opened, which may be far more than the tail that is kept for everybody.
    Following,
}

/// Ticks without progress after which a snapshot, or the log for who got one, is not kept any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until the library fetches a view that is ready, and between two acknowledgements.
    pub(super) progress: u64,
    /// Until a follower that holds the rows has put them in place.
    pub(super) install: u64,
}

#[derive(Debug)]
struct Sending {
    stage: Stage,
    /// Entries behind this index are still needed.
    pin: u64,
    /// Tick at which the stage began, or at which the follower acknowledged something new.
    since: u64,
}

/// Snapshots on their way to followers, by follower.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    to: BTreeMap<NodeId, Sending>,
    /// Newest tick.
    ticks: u64,
}

impl Outgoing {
    /// The library wants to send a snapshot. Gives one that is ready and new enough, else notes
    /// the wish.
    pub(super) fn take(&mut self, to: NodeId, at_least: u64) -> Option<SnapshotMeta> {
        let since = self.ticks;
        let new = || Sending { stage: Stage::Wanted, pin: u64::MAX, since };
        let sending = self.to.entry(to).or_insert_with(new);
        if let Stage::Ready(meta) = &sending.stage {
            let meta = meta.clone();
            let fits = meta.index >= at_least && meta.index > 0;
            sending.stage = if fits { Stage::Streaming } else { Stage::Wanted };
            sending.since = since;
            return fits.then_some(meta);
        }
        if matches!(sending.stage, Stage::Settling | Stage::Following) {
            sending.stage = Stage::Wanted;
            sending.since = since;
        }
        None
    }

    /// Followers for whom the shell has to open a view; it will hold at least `durable`.
    pub(super) fn wanted(&mut self, durable: u64) -> Vec<NodeId> {
        let mut wanted = Vec::new();
        for (to, sending) in &mut self.to {
            if matches!(sending.stage, Stage::Wanted) {
                sending.stage = Stage::Building;
                sending.pin = durable;
                wanted.push(*to);
            }
        }
        wanted
    }

    pub(super) fn ready(&mut self, to: NodeId, meta: SnapshotMeta) {
        let since = self.ticks;
        if let Some(sending) = self.to.get_mut(&to)
            && matches!(sending.stage, Stage::Building)
        {
            *sending = Sending { pin: meta.index, stage: Stage::Ready(meta), since };
        }
    }

    pub(super) fn sent(&mut self, to: NodeId, ok: bool) {
        let since = self.ticks;
        match self.to.get_mut(&to) {
            Some(sending) if ok && matches!(sending.stage, Stage::Streaming) => {
                sending.stage = Stage::Settling;
                sending.since = since;
            }
            _ => drop(self.to.remove(&to)),
        }
    }

    /// Moves the pins of followers that go on by the log with what they acknowledged, and forgets
    /// those that need nothing any more: who is so `close` that the log keeps what they lack anyway,
    /// and who makes no progress within the patience.
    pub(super) fn tick(
        &mut self,
        patience: Patience,
        matched: impl Fn(NodeId) -> u64,
        close: impl Fn(u64) -> bool,
    ) {
        self.ticks += 1;
        let ticks = self.ticks;
        self.to.retain(|to, sending| {
            let waited = ticks - sending.since;
            match sending.stage {
                Stage::Ready(_) => waited < patience.progress,
                Stage::Settling | Stage::Following => {
                    let matched = matched(*to);
                    let following = matches!(sending.stage, Stage::Following);
                    if matched > sending.pin || (!following && matched == sending.pin) {
                        *sending = Sending { stage: Stage::Following, pin: matched, since: ticks };
                        return !close(matched);
                    }
                    match following {
                        true => waited < patience.progress && !close(matched),
                        false => waited < patience.install,
                    }
                }
                Stage::Wanted | Stage::Building | Stage::Streaming => true,
            }
        });
    }

    /// Entries behind this index must stay; `u64::MAX` if nothing is pinned.
    pub(super) fn pin(&self) -> u64 {
        self.to.values().map(|s| s.pin).min().unwrap_or(u64::MAX)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(NodeId) -> bool) {
        self.to.retain(|to, _| keep(*to));
    }
}

/// The snapshot that this member receives: its message waits until the rows are safe aside.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    wire: Option<Wire>,
    staged: Option<SnapshotMeta>,
}

impl Incoming {
    /// The message arrived. Returns it if its rows are here already.
    pub(super) fn message(&mut self, wire: Wire) -> Option<Wire> {
        self.wire = Some(wire);
        self.matching()
    }

    /// The rows are here. Returns the message if it arrived already.
    pub(super) fn staged(&mut self, meta: SnapshotMeta) -> Option<Wire> {
        self.staged = Some(meta);
        self.matching()
    }

    fn matching(&mut self) -> Option<Wire> {
        let meta = self.wire.as_ref()?.snapshot()?;
        if self.staged.as_ref() != Some(&meta) {
            return None;
        }
        self.staged = None;
        self.wire.take()
    }
}
