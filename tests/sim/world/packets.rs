//! Messages between members, and snapshots with their rows.

use std::sync::Arc;

use assay::consensus::{Input, Wire, WireKind};

use super::super::frame::{Verdict, Violation};
use super::super::invariants::messages;
use super::super::network::{self, Fate, Packet};
use super::super::node::{End, Node};
use super::super::snapshot::Rows;
use super::{Event, MS, Turn, World};

/// A transfer of a snapshot that nobody answered is given up after so many election timeouts.
const SNAPSHOT_ELECTIONS: u64 = 2;

impl World {
    pub(super) fn send(&mut self, at: usize, node: &mut Node, wire: Wire) -> Result<(), End> {
        messages::may_leave(&wire, &node.durable)?;
        let (kind, to) = (wire.kind(), wire.to());
        let Some(target) = self.index_of(to) else {
            self.unreachable(at, node, to, kind);
            return Ok(());
        };
        let bytes = network::encode(&wire);
        let again = Wire::decode(bytes.clone()).map_err(|e| Violation(format!("wire: {e}")))?;
        if again != wire {
            return World::violation("a message is another one when it is read".to_owned());
        }
        if kind != WireKind::Snapshot {
            let facts = self.says(at, node);
            return self.post(at, node, target, Packet::Message(bytes, facts), kind);
        }
        // Sent again after a failure that the core gave up by itself: no view, no stream.
        match node.views.remove(&to) {
            Some(rows) if Some(&rows.meta) == wire.snapshot().as_ref() => {
                let life = self.members[at].life;
                let rows = Arc::new(rows);
                self.post(at, node, target, Packet::Snapshot { wire: bytes, rows, life }, kind)
            }
            _ => {
                self.unreachable(at, node, to, kind);
                Ok(())
            }
        }
    }

    fn post(
        &mut self,
        at: usize,
        node: &mut Node,
        to: usize,
        packet: Packet,
        kind: WireKind,
    ) -> Result<(), End> {
        match self.net.send(at, to, self.now, Some(kind)) {
            Fate::Refused => self.unreachable(at, node, self.members[to].id, kind),
            Fate::Arrives(arrivals) => {
                let lost = arrivals[0].is_none();
                for delay in arrivals.into_iter().flatten() {
                    let delay = delay + self.transfer_time(&packet);
                    self.push(delay, Event::Arrive { from: at, to, packet: packet.clone() });
                }
                if lost && let Packet::Snapshot { life, .. } = packet {
                    self.snapshot_lost(to, at, life);
                }
            }
        }
        Ok(())
    }

    /// Rows take time.
    fn transfer_time(&mut self, packet: &Packet) -> u64 {
        match packet {
            Packet::Snapshot { rows, .. } => self.rng.below(50 * MS + 100 * rows.len() as u64),
            _ => 0,
        }
    }

    /// The sender of a snapshot learns what became of it, whatever the network does: at the latest
    /// its own clock tells it.
    fn outcome_after(&mut self, delay: u64, of: usize, to: usize, ok: bool, life: u64) {
        let peer = self.members[of].id;
        self.push(
            delay,
            Event::Arrive { from: to, to, packet: Packet::Outcome { peer, ok, life } },
        );
    }

    pub(super) fn snapshot_lost(&mut self, of: usize, to: usize, life: u64) {
        self.outcome_after(SNAPSHOT_ELECTIONS * self.plan.election(), of, to, false, life);
    }

    pub(super) fn arrive(&mut self, from: usize, to: usize, packet: Packet) -> Verdict {
        match packet {
            Packet::Message(bytes, facts) => {
                let wire = Wire::decode(bytes).map_err(|e| Violation(format!("wire: {e}")))?;
                // Who sent it: a message that was sent on still names the one that it came from.
                let of = self.members[from].id;
                self.with_node(to, |world, node| {
                    world.hears(node, &wire);
                    node.inputs.extend(facts.map(|facts| Input::PeerDisk { of, facts }));
                    node.inputs.push(Input::Wire(wire));
                    world.wake(to, node, "node", 50, Turn::Node);
                    Ok(())
                })
            }
            Packet::Snapshot { wire, rows, life } => {
                let wire = Wire::decode(wire).map_err(|e| Violation(format!("wire: {e}")))?;
                let mut taken = false;
                self.with_node(to, |world, node| {
                    if node.can_stage() {
                        world.stage(to, node, wire, &rows)?;
                        taken = true;
                    }
                    Ok(())
                })?;
                // The answer of the receiver may be lost as well.
                let timeout = SNAPSHOT_ELECTIONS * self.plan.election();
                let delay = match self.net.send(to, from, self.now, None) {
                    Fate::Arrives([Some(delay), _]) => delay,
                    _ => timeout,
                };
                self.outcome_after(delay, to, from, taken && delay < timeout, life);
                Ok(())
            }
            Packet::Outcome { peer, ok, life } if self.members[to].life == life => {
                self.with_node(to, |world, node| {
                    node.inputs.push(Input::SnapshotSent { to: peer, ok });
                    world.wake_node(to, node);
                    Ok(())
                })
            }
            Packet::Outcome { .. } => Ok(()),
        }
    }

    fn stage(&mut self, at: usize, node: &mut Node, wire: Wire, rows: &Rows) -> Result<(), End> {
        self.trace(at, "stage", rows.meta.index);
        node.stage(rows)?;
        let delay = self.rng.below(20 * MS);
        self.turn_in(at, delay, Turn::Staged(Box::new(wire)));
        Ok(())
    }

    /// Message and rows reach the core in any order.
    pub(super) fn staged(&mut self, at: usize, node: &mut Node, wire: Wire) {
        let Some(meta) = wire.snapshot() else { return };
        let (first, second) = (Input::SnapshotStaged(meta), Input::Wire(wire));
        if self.rng.below(2) == 0 {
            node.inputs.extend([first, second]);
        } else {
            node.inputs.extend([second, first]);
        }
        self.wake_node(at, node);
    }
}
