//! Turns with the raft library: what it wants written, sent and applied, in the only right order.

use super::config::BrokenRule;
use super::core::{Core, Installing, send};
use super::log;
use super::types::{Batch, Committed, Effect, EntryKind, HardState, SnapshotMeta};
use super::wire::{self, Wire, WireKind};
use raft::eraftpb;

impl Core {
    /// Takes turns until the library has nothing more to say.
    pub(super) fn settle(&mut self, out: &mut Vec<Effect>) {
        while self.installing.is_none() && self.raft.has_ready() {
            // A snapshot replaces log and state machine; nothing older may be on its way to them.
            let waits = self.raft.snap().is_some() && self.busy().is_some();
            if waits && !self.config.breaks(BrokenRule::SnapshotWhileBusy) {
                break;
            }
            self.turn(out);
        }
    }

    fn turn(&mut self, out: &mut Vec<Effect>) {
        // Until `advance_append_async` no other call into the library is allowed.
        let mut ready = self.raft.ready();
        let number = ready.number();
        let sync = ready.must_sync();
        let snapshot = (!ready.snapshot().is_empty()).then(|| wire::meta(ready.snapshot()));
        let raft_entries = ready.take_entries();
        let entries: Vec<_> = raft_entries.iter().map(log::from_raft).collect();
        let hard_state =
            ready.hs().map(|h| HardState { term: h.term, vote: h.vote, commit: h.commit });
        // A log that begins anew must know it, whether it changed or not.
        let hard_state = hard_state.or(snapshot.as_ref().map(|_| self.hard_state));
        // The library reads the log from us as soon as the turn ends.
        let store = self.raft.mut_store();
        if let Some(meta) = &snapshot {
            store.reset((meta.index, meta.term));
        }
        store.append(raft_entries);
        let changes_vote = hard_state
            .is_some_and(|h| (h.term, h.vote) != (self.hard_state.term, self.hard_state.vote));
        let (free, held) = self.sort(&mut ready, changes_vote);
        let reads = ready.take_read_states();
        let committed = ready.take_committed_entries();
        self.raft.advance_append_async(ready);

        send(free, out);
        self.hard_state = hard_state.unwrap_or(self.hard_state);
        // A commit index on disk is a hint: nothing that is said depends on it.
        let waits = sync || !entries.is_empty() || snapshot.is_some();
        if waits {
            self.held.push(number, changes_vote, held);
        } else if let Err(nothing_to_wait_for) = self.held.join(number, held) {
            self.raft.on_persist_ready(number);
            send(nothing_to_wait_for, out);
        }
        if let Some(meta) = snapshot {
            self.install(meta, number, out);
        }
        if waits || hard_state.is_some() {
            out.push(Effect::Persist(Batch { number, entries, hard_state, sync }));
        }
        for state in reads {
            let tokens = self.reads.answered(&state.request_ctx);
            if !tokens.is_empty() {
                out.push(Effect::ReadAt { index: state.index, tokens });
            }
        }
        self.hand_out(committed, out);
        self.fix_election_timeout();
    }

    /// Splits the turn's messages into those that may leave now and those that wait for the disk.
    ///
    /// A leader's messages may overtake its own disk: followers and disk then work in parallel. The
    /// exception is a term or vote that is not on disk: a sole voter with learners that loses it in
    /// a crash would be elected again in the same term and fill the same positions anew.
    /// Everything that others say is a statement about their own disk, except the answer to a
    /// heartbeat: it states the term only. It leaves as soon as that is on disk, or every leader
    /// would fall whenever the disks of its followers hang for an election timeout.
    fn sort(&self, ready: &mut raft::Ready, changes_vote: bool) -> (Vec<Wire>, Vec<Wire>) {
        let wires = |messages: Vec<eraftpb::Message>| messages.into_iter().map(Wire).collect();
        let mut free: Vec<Wire> = wires(ready.take_messages());
        let mut held: Vec<Wire> = wires(ready.take_persisted_messages());
        let vote_unsynced = changes_vote || self.held.vote_unsynced();
        if vote_unsynced && !self.config.breaks(BrokenRule::LeadBeforeVotePersisted) {
            held.append(&mut free);
        }
        if !vote_unsynced || self.config.breaks(BrokenRule::AnswerBeforeTerm) {
            let answers = |wire: &mut Wire| wire.kind() == WireKind::HeartbeatResponse;
            free.extend(held.extract_if(.., answers));
        }
        if self.config.breaks(BrokenRule::SendBeforePersist) {
            free.append(&mut held);
        }
        (free, held)
    }

    fn install(&mut self, meta: SnapshotMeta, batch: u64, out: &mut Vec<Effect>) {
        self.conf = meta.conf_state.clone();
        self.handed = meta.index;
        let (persisted, installed) = (false, false);
        self.installing = Some(Installing { meta: meta.clone(), batch, persisted, installed });
        out.push(Effect::Install(meta));
    }

    fn hand_out(&mut self, committed: Vec<eraftpb::Entry>, out: &mut Vec<Effect>) {
        let Some(last) = committed.last() else { return };
        let last = last.index;
        let mut bytes = 0;
        let mut apply = Vec::with_capacity(committed.len());
        for raft_entry in &committed {
            let entry = log::from_raft(raft_entry);
            bytes += entry.data.len();
            let conf_state = match entry.kind {
                EntryKind::Normal => None,
                EntryKind::Change => self.apply_change(&entry.data),
            };
            apply.push(Committed { entry, conf_state });
        }
        self.handed = last;
        self.unapplied.push_back((last, bytes));
        self.unapplied_bytes += bytes;
        out.push(Effect::Apply(apply));
    }
}
