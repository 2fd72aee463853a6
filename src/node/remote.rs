//! Requests that only the leader can carry out, passed on by other members, and the numbers that
//! refusals have on the way back.

use super::handle::{Handle, Refused};
use super::local::message;
use super::{divergence, leases, membership};
use crate::proto::peer as pb;
use crate::proto::peer::call_request::What;

/// Number of "a request that this version does not know".
const UNKNOWN: u32 = u32::MAX;

macro_rules! refusals {
    ($($name:ident $number:literal,)*) => {
        /// Number of a refusal between members.
        fn number(refused: &Refused) -> u32 {
            match refused {
                $(Refused::$name => $number,)*
                // An answer of the state machine to a forwarded request: only this one is possible.
                Refused::Answer(_) => number(&Refused::MemberNotFound),
            }
        }

        /// The refusal with this number; `None` for 0, "not refused".
        pub(super) fn refusal(number: u32) -> Option<Refused> {
            match number {
                0 => None,
                $($number => Some(Refused::$name),)*
                _ => Some(Refused::Dropped),
            }
        }

        #[cfg(test)]
        const NUMBERS: &[u32] = &[$($number,)*];
    };
}

refusals! {
    NoLeader 1,
    LeaderChanged 2,
    TooManyRequests 3,
    RequestTooLarge 4,
    Timeout 5,
    Stopping 6,
    Dropped 7,
    NotLeader 8,
    BadTransferee 9,
    TransferTimeout 10,
    NoSpace 11,
    ChangePending 12,
    MemberExists 13,
    PeerUrlExists 14,
    MemberNotFound 15,
    MemberNotLearner 16,
    LearnerNotReady 17,
    TooManyLearners 18,
    NotEnoughStarted 19,
    Unhealthy 20,
    NotCapable 21,
    TimeoutLeaderFail 22,
    TimeoutConnectionLost 23,
}

/// Carries out what another member passed on.
pub(super) async fn answer(handle: &Handle, what: What) -> pb::CallResponse {
    match what {
        // Of every member, not of the leader alone.
        What::HashPoints(_) => return divergence::answer_points(handle).await,
        What::FullHash(asked) => return divergence::answer_full(handle, asked).await,
        What::Change(_) | What::LeaseRenew(_) | What::LeaseTimeToLive(_) => {}
    }
    match carry_out(handle, what).await {
        Ok(response) => response,
        Err(number) => pb::CallResponse { refused: number, ..pb::CallResponse::default() },
    }
}

async fn carry_out(handle: &Handle, what: What) -> Result<pb::CallResponse, u32> {
    if !handle.raft().is_leader {
        return Err(number(&Refused::NotLeader));
    }
    match what {
        What::Change(change) => {
            let op = membership::received(change).ok_or(UNKNOWN)?;
            let limit = handle.timing().request_timeout();
            let done = tokio::time::timeout(limit, handle.change_members(op)).await;
            let changed = done.unwrap_or(Err(Refused::Timeout)).map_err(|why| number(&why))?;
            Ok(pb::CallResponse {
                member_id: changed.member,
                members: changed.members.iter().map(message).collect(),
                ..pb::CallResponse::default()
            })
        }
        What::LeaseRenew(_) | What::LeaseTimeToLive(_) => {
            let times = handle.lease_here(&what).await.map_err(|why| number(&why))?;
            Ok(leases::answer(times))
        }
        What::HashPoints(_) | What::FullHash(_) => Err(UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_comes_back_as_itself() {
        for known in NUMBERS {
            let refused = refusal(*known).expect("a refusal");
            assert_eq!(number(&refused), *known);
        }
        assert_eq!(refusal(0), None);
    }
}
