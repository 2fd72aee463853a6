//! Keep-alives and times of leases: only the leader's clock knows them, so other members ask it.

use super::handle::{Handle, Refused};
use super::input::InTerm;
use super::remote;
use crate::lease::Renewal;
use crate::proto::etcdserverpb::{InternalRaftRequest, LeaseCheckpoint, LeaseCheckpointRequest};
use crate::proto::peer as pb;
use crate::proto::peer::call_request::What;
use std::time::Duration;

/// First and longest pause before a keep-alive that has to wait for the log looks again. What it
/// waits for takes one write to the log, about a millisecond on a good disk.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Pause before the leader is looked for again.
const RETRY: Duration = Duration::from_millis(50);

/// Remaining and granted seconds of a lease; `None` for one that is unknown or over.
pub(super) type Times = Option<(i64, i64)>;

/// The command that saves remaining times: pairs of lease and seconds.
pub(super) fn checkpoint(leases: Vec<(i64, i64)>) -> InternalRaftRequest {
    let checkpoints =
        leases.into_iter().map(|(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl });
    InternalRaftRequest {
        lease_checkpoint: Some(LeaseCheckpointRequest { checkpoints: checkpoints.collect() }),
        ..InternalRaftRequest::default()
    }
}

impl Handle {
    /// Keeps a lease alive, through the leader; the new time to live, 0 for a lease that is gone.
    ///
    /// # Errors
    /// [`Refused::NoLeader`] when none was found within the request timeout; the node stops.
    pub async fn keep_alive(&self, id: i64) -> Result<i64, Refused> {
        let times = self.by_the_leader(What::LeaseRenew(id)).await?;
        Ok(times.map_or(0, |(ttl, _)| ttl))
    }

    /// Times of a lease, from the leader.
    ///
    /// # Errors
    /// As [`Handle::keep_alive`].
    pub async fn time_to_live(&self, id: i64) -> Result<Option<(i64, i64)>, Refused> {
        self.by_the_leader(What::LeaseTimeToLive(id)).await
    }

    /// Asks the leader, whoever it is by then: asking twice does no harm.
    async fn by_the_leader(&self, what: What) -> Result<Times, Refused> {
        let asking = async {
            loop {
                let raft = self.raft();
                if raft.is_leader {
                    match self.lease_here(&what).await {
                        Err(Refused::NotLeader | Refused::LeaderChanged) => {}
                        done => return done,
                    }
                } else if raft.leader != 0
                    && let Ok(answer) = self.peers().call(raft.leader, what.clone()).await
                {
                    match remote::refusal(answer.refused) {
                        None => return Ok(answer.lease.map(|t| (t.remaining, t.granted))),
                        // It does not lead any more, or stops: there will be another one.
                        Some(Refused::NotLeader | Refused::LeaderChanged | Refused::Stopping) => {}
                        Some(refused) => return Err(refused),
                    }
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        let mut stopping = self.stopping();
        tokio::select! {
            done = tokio::time::timeout(self.timing().request_timeout(), asking) => {
                done.unwrap_or(Err(Refused::NoLeader))
            }
            _ = stopping.wait_for(|stopping| *stopping) => Err(Refused::Stopping),
        }
    }

    /// Answers as the leader. [`Refused::NotLeader`] if this member is none, or cannot prove it.
    pub(super) async fn lease_here(&self, what: &What) -> Result<Times, Refused> {
        let mut caught_up = false;
        loop {
            let (id, InTerm { said: times, term }) = match what {
                What::LeaseRenew(id) => (*id, self.renew_here(*id).await?),
                What::LeaseTimeToLive(id) => (*id, self.lease_remaining(*id).await?),
                What::Change(_) | What::HashPoints(_) | What::FullHash(_) => {
                    return Err(Refused::Dropped);
                }
            };
            self.led_until_now(term).await?;
            // Another member may have applied and answered a grant or a revoke that this one had
            // not. By now it has: what the clock did not know, or knew as another lease of the same
            // name, is looked for once more, and one that was revoked is gone.
            let granted = self.reader().lease(id).map(|lease| lease.record.ttl);
            match times {
                None if !caught_up => {}
                Some(_) if granted.is_none() => return Ok(None),
                Some((_, ttl)) if granted != Some(ttl) && !caught_up => {}
                _ => return Ok(times),
            }
            caught_up = true;
        }
    }

    /// A leader that was deposed does not know it yet: what its clock said counts only if it still
    /// led afterwards, in the same term. That the next leader answers a read proves nothing: it
    /// counts from its own first moment on and never heard of this keep-alive.
    async fn led_until_now(&self, term: u64) -> Result<(), Refused> {
        // One member has nobody who could have deposed it.
        if self.reader().members().len() <= 1 {
            return Ok(());
        }
        self.linearize_in(Some(term)).await.map_err(|why| match why {
            Refused::Timeout | Refused::LeaderChanged => Refused::NotLeader,
            other => other,
        })
    }

    async fn renew_here(&self, id: i64) -> Result<InTerm<Times>, Refused> {
        let mut pause = PAUSE_FIRST;
        loop {
            let InTerm { said, term } = self.lease_renew(id).await?;
            match said {
                Renewal::Renewed { ttl } => return Ok(InTerm { said: Some((ttl, ttl)), term }),
                Renewal::Unknown => return Ok(InTerm { said: None, term }),
                Renewal::NotLeader => return Err(Refused::NotLeader),
                // Both end with a log entry that is on its way.
                Renewal::Ending | Renewal::ClearRemaining => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }
}

/// The message of what the leader knows.
pub(super) fn answer(times: Times) -> pb::CallResponse {
    let lease = times.map(|(remaining, granted)| pb::LeaseTimes { remaining, granted });
    pb::CallResponse { lease, ..pb::CallResponse::default() }
}
