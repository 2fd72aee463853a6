//! Commands that came while no leader was known: they wait for one until their callers give up, as
//! a client of etcd expects.

use super::handle::{WAITING_BYTES_MAX, WAITING_MAX};
use super::input::Proposal;

/// See the module text.
#[derive(Default)]
pub(super) struct Parked {
    proposals: Vec<Proposal>,
    bytes: usize,
}

impl Parked {
    /// Keeps a command.
    ///
    /// # Errors
    /// The command, if too many wait already or nobody waits for this one.
    pub(super) fn keep(&mut self, proposal: Proposal) -> Result<(), Proposal> {
        let fits = self.proposals.len() < WAITING_MAX
            && self.bytes + proposal.data.len() <= WAITING_BYTES_MAX;
        if !fits || proposal.reply.is_none() {
            return Err(proposal);
        }
        self.bytes += proposal.data.len();
        self.proposals.push(proposal);
        Ok(())
    }

    /// Forgets those whose callers have gone.
    pub(super) fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.proposals.retain(|proposal| {
            let waits = proposal.reply.as_ref().is_some_and(|reply| !reply.to.is_closed());
            if !waits {
                *bytes -= proposal.data.len();
            }
            waits
        });
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// Everything that waits, in the order it came.
    pub(super) fn take(&mut self) -> Vec<Proposal> {
        self.bytes = 0;
        std::mem::take(&mut self.proposals)
    }
}
