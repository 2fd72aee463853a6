//! Handing leadership over: when asked to, and before a stop.

use super::handle::{Handle, Refused};
use super::input::NodeInput;
use std::time::Duration;

/// How often the outcome is looked at.
const POLL: Duration = Duration::from_millis(5);

impl Handle {
    /// Hands leadership to this member and waits until it leads.
    ///
    /// # Errors
    /// [`Refused::NotLeader`], [`Refused::BadTransferee`], or [`Refused::TransferTimeout`] after an
    /// election timeout.
    pub async fn move_leader(&self, to: u64) -> Result<(), Refused> {
        if !self.raft().is_leader {
            return Err(Refused::NotLeader);
        }
        // A fenced member does not take it.
        let bad = self.reader().members().get(to).is_none_or(|member| member.is_learner);
        if bad || self.reader().fences().contains(&to) {
            return Err(Refused::BadTransferee);
        }
        if to == self.identity().member_id {
            return Ok(());
        }
        self.0.node.push(NodeInput::TransferLeader(to));
        match self.wait_for_leader(|leader| leader == to).await {
            true => Ok(()),
            false => {
                self.say_failed(to, "leadership was not handed over as it was asked for");
                Err(Refused::TransferTimeout)
            }
        }
    }

    /// Before a stop: hands leadership to the sound voter that has been connected longest, so that the
    /// others need no election timeout to notice.
    pub async fn hand_over(&self) {
        let own = self.identity().member_id;
        if !self.raft().is_leader {
            return;
        }
        let (members, fences) = (self.reader().members(), self.reader().fences());
        let takes = |id| id != own && !fences.contains(&id);
        let voters = members.iter().filter(|member| !member.is_learner && takes(member.id));
        let connected =
            voters.filter_map(|member| Some((self.peers().connected_since(member.id)?, member.id)));
        let Some((_, to)) = connected.min() else { return };
        self.0.node.push(NodeInput::TransferLeader(to));
        let done = self.wait_for_leader(|leader| leader != own && leader != 0).await;
        match done {
            true => {
                tracing::info!(to = format!("{to:x}"), "handed leadership over before the stop")
            }
            false => self.say_failed(
                to,
                "leadership was not handed over before the stop: the others have to notice by \
                 themselves that this leader is gone",
            ),
        }
    }

    fn say_failed(&self, to: u64, what: &str) {
        let waited_ms = self.timing().election_ms;
        let leader = self.raft().leader;
        tracing::warn!(to = format!("{to:x}"), waited_ms, leader = format!("{leader:x}"), "{what}");
    }

    async fn wait_for_leader(&self, found: impl Fn(u64) -> bool) -> bool {
        let limit = Duration::from_millis(self.timing().election_ms);
        let wait = async {
            while !found(self.raft().leader) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok()
    }
}
