//! Messages that wait for the disk.
//!
//! What a member says about its log, its term or its vote may leave only when its own disk holds
//! it. This queue is the only place that decides so; a shell cannot send too early, because it does
//! not see these messages before.

use super::wire::Wire;
use std::collections::VecDeque;

struct Slot {
    /// Number of the batch at the disk.
    batch: u64,
    /// Newest turn that waits for it. Turns that write nothing join the batch before them.
    turn: u64,
    /// Whether the batch changes term or vote.
    vote: bool,
    messages: Vec<Wire>,
}

/// Batches at the disk, oldest first, each with the messages that wait for it.
#[derive(Default)]
pub(super) struct Held {
    slots: VecDeque<Slot>,
}

impl Held {
    /// Notes a batch that goes to the disk.
    pub(super) fn push(&mut self, batch: u64, vote: bool, messages: Vec<Wire>) {
        self.slots.push_back(Slot { batch, turn: batch, vote, messages });
    }

    /// Adds a turn that writes nothing to the newest batch at the disk. Gives the messages back if
    /// there is none: then nothing has to be waited for.
    pub(super) fn join(&mut self, turn: u64, messages: Vec<Wire>) -> Result<(), Vec<Wire>> {
        let Some(slot) = self.slots.back_mut() else { return Err(messages) };
        slot.turn = turn;
        slot.messages.extend(messages);
        Ok(())
    }

    /// Every batch up to this one is on disk: the newest turn that is settled by it, and what may
    /// be said now.
    pub(super) fn release(&mut self, batch: u64) -> Option<(u64, Vec<Wire>)> {
        let mut settled = None;
        let mut messages = Vec::new();
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.batch <= batch) {
            settled = Some(slot.turn);
            messages.extend(slot.messages);
        }
        settled.map(|turn| (turn, messages))
    }

    /// Whether a term or vote is on its way to the disk.
    pub(super) fn vote_unsynced(&self) -> bool {
        self.slots.iter().any(|slot| slot.vote)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn batches(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn messages(&self) -> usize {
        self.slots.iter().map(|slot| slot.messages.len()).sum()
    }
}
