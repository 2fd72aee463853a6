//! The network between members: what is lost, late, out of order, twice, or cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use assay::consensus::{DiskFacts, Wire, WireKind};
use assay::disk::SimRng;
use bytes::Bytes;

use super::broken::Broken;
use super::plan::{MS, Plan};
use super::snapshot::Rows;

/// Share of proposals that the mistake sends twice.
const SENT_AGAIN_PERMILLE: u64 = 100;

/// What travels.
#[derive(Clone, Debug)]
pub enum Packet {
    /// A message, and what its sender says about its disk.
    Message(Bytes, Option<DiskFacts>),
    /// The message of a snapshot with its rows, and the life of the sender that waits.
    Snapshot { wire: Bytes, rows: Arc<Rows>, life: u64 },
    /// Outcome of a snapshot, for the life of the member that sent it.
    Outcome { peer: u64, ok: bool, life: u64 },
}

/// What became of a packet that was handed to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Arrives after these delays: none if it is lost, two if it is doubled.
    Arrives([Option<u64>; 2]),
    /// The connection is refused, and the sender is told.
    Refused,
}

/// A direction that is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    until: u64,
    /// The sender is not told.
    silent: bool,
}

pub struct Network {
    delay_min: u64,
    delay_spread: u64,
    loss_permille: u64,
    duplicate_permille: u64,
    /// The mistake [`Broken::ProposalSentAgain`].
    sends_proposals_again: bool,
    reorder: bool,
    lossy_until: u64,
    cuts: BTreeMap<(usize, usize), Cut>,
    /// When the newest packet of a connection arrives: those behind it arrive later.
    last: BTreeMap<(usize, usize), u64>,
    rng: SimRng,
    pub lost: u64,
    pub doubled: u64,
}

impl Network {
    pub fn new(plan: &Plan) -> Network {
        Network {
            delay_min: plan.delay_min,
            delay_spread: plan.delay_spread,
            loss_permille: plan.loss_permille,
            duplicate_permille: plan.duplicate_permille,
            sends_proposals_again: plan.broken == Broken::ProposalSentAgain,
            reorder: plan.reorder,
            lossy_until: 0,
            cuts: BTreeMap::new(),
            last: BTreeMap::new(),
            rng: SimRng::new(plan.seed ^ 0x6e65_7400),
            lost: 0,
            doubled: 0,
        }
    }

    /// From here on only the delays remain.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.lossy_until = 0;
        self.loss_permille = 0;
        self.duplicate_permille = 0;
        self.sends_proposals_again = false;
    }

    pub fn cut(&mut self, from: usize, to: usize, until: u64, silent: bool) {
        // A member always reaches itself.
        if from != to {
            self.cuts.insert((from, to), Cut { until, silent });
        }
    }

    pub fn lossy(&mut self, until: u64) {
        self.lossy_until = until;
    }

    pub fn is_cut(&self, from: usize, to: usize, now: u64) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|cut| cut.until > now)
    }

    /// Decides about one packet. A forwarded proposal arrives at most once: a connection doubles
    /// nothing, and a member never sends a message again on the next one (`src/peer`, with a test). It
    /// has no identity below the state machine, so doubling it would apply it twice: the mistake
    /// [`Broken::ProposalSentAgain`] shows that this would be noticed.
    pub fn send(&mut self, from: usize, to: usize, now: u64, kind: Option<WireKind>) -> Fate {
        if let Some(cut) = self.cuts.get(&(from, to)).filter(|cut| cut.until > now) {
            self.lost += 1;
            return if cut.silent { Fate::Arrives([None; 2]) } else { Fate::Refused };
        }
        let lossy = self.lossy_until > now;
        let loss = if lossy { 300 } else { self.loss_permille };
        if self.rng.below(1_000) < loss {
            self.lost += 1;
            return Fate::Arrives([None; 2]);
        }
        let mut first = self.delay();
        if !self.reorder {
            let last = self.last.entry((from, to)).or_default();
            first = first.max((*last + 1).saturating_sub(now));
            *last = now + first;
        }
        // No draw where nothing may be doubled: seeds stay what they are.
        let permille = match kind {
            None | Some(WireKind::Snapshot) => None,
            Some(WireKind::Propose) => self.sends_proposals_again.then_some(SENT_AGAIN_PERMILLE),
            Some(_) => Some(self.duplicate_permille),
        };
        let doubles = permille.is_some_and(|permille| self.rng.below(1_000) < permille);
        self.doubled += u64::from(doubles);
        let second = doubles.then(|| first + self.delay());
        Fate::Arrives([Some(first), second])
    }

    fn delay(&mut self) -> u64 {
        let spike = if self.rng.below(300) == 0 { 400 * MS } else { self.delay_spread };
        self.delay_min + self.rng.below(spike)
    }
}

/// Encodes and decodes a message, as the wire does.
pub fn encode(wire: &Wire) -> Bytes {
    wire.encode().into()
}
