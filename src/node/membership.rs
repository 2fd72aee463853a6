//! Changes of the membership: etcd's checks, then the log. Only the leader proposes them; other
//! members pass them on.

use super::answers;
use super::handle::{Handle, Refused};
use super::input::{NodeInput, Proposal, Reply};
use crate::consensus::{ChangeOp, MemberChange};
use crate::machine::{Answer, Member, Members, ids};
use crate::peer::CallError;
use crate::proto::etcdserverpb::{InternalRaftRequest, MemberUpdateRequest};
use crate::proto::peer as pb;
use crate::proto::peer::member_change::Kind;
use crate::telemetry::clock;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Pause before a change is tried again that met another one or a change of leaders.
const RETRY: Duration = Duration::from_millis(50);
/// Connections count for the strict checks when they have held this long, as in etcd.
const STEADY_NS: u64 = 5_000_000_000;

/// What is to happen to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOp {
    /// A new member with these peer URLs.
    Add {
        /// Its peer URLs.
        peer_urls: Vec<String>,
        /// Without a vote.
        learner: bool,
    },
    /// The member leaves for good.
    Remove(u64),
    /// The learner gets a vote.
    Promote(u64),
    /// The member gets other peer URLs.
    Update {
        /// The member.
        id: u64,
        /// Its new peer URLs.
        peer_urls: Vec<String>,
    },
}

/// A change that took effect.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Whom it was about; for an addition the new id.
    pub member: u64,
    /// All members after it.
    pub members: Vec<Member>,
}

impl Handle {
    /// Changes the membership, through the leader if this member does not lead.
    ///
    /// # Errors
    /// A check that failed, or the request timeout; after [`Refused::is_timeout`] nobody knows
    /// whether the change takes effect.
    pub async fn change_members(&self, op: MemberOp) -> Result<Changed, Refused> {
        let limit = self.timing().request_timeout();
        let began = clock::now_ns();
        let done = tokio::time::timeout(limit, self.change_somewhere(op)).await;
        done.unwrap_or(Err(Refused::Timeout)).map_err(|why| match why {
            Refused::Timeout => self.write_timed_out(began),
            other => other,
        })
    }

    async fn change_somewhere(&self, op: MemberOp) -> Result<Changed, Refused> {
        let own = self.identity().member_id;
        loop {
            let raft = self.raft();
            if raft.is_leader {
                let voters = self.reader().members().voters();
                if op == MemberOp::Remove(own) && voters > 1 {
                    // Whoever stays should lead, before it is too late to choose.
                    self.hand_over().await;
                    // The other one of two would not even hear of the change from a leader that goes,
                    // and could elect nobody: it has to lead first.
                    if !self.raft().is_leader || voters == 2 {
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                }
                match self.change_here(&op).await {
                    Err(Refused::NotLeader | Refused::ChangePending | Refused::Dropped) => {}
                    done => return done,
                }
            } else if raft.leader != 0 {
                let what = pb::call_request::What::Change(forwarded(&op));
                match self.peers().call(raft.leader, what).await {
                    Ok(answer) => match super::remote::refusal(answer.refused) {
                        Some(Refused::NotLeader) => {}
                        Some(refused) => return Err(refused),
                        None => {
                            let members = answer.members.into_iter().map(member).collect();
                            return Ok(Changed { member: answer.member_id, members });
                        }
                    },
                    Err(CallError::NotConnected) => {}
                    Err(CallError::Lost(_) | CallError::Unknown) => return Err(Refused::Timeout),
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Proposes a change on the leader and waits until it is applied.
    pub(super) async fn change_here(&self, op: &MemberOp) -> Result<Changed, Refused> {
        // What the checks look at must not be older than the request.
        self.linearize().await?;
        let members = self.reader().members();
        let (id, step, context) = match op {
            MemberOp::Add { peer_urls, learner } => {
                let now = clock::wall().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
                let id = ids::member_id(peer_urls, &now.to_string());
                self.check_add(&members, id, peer_urls, *learner)?;
                let added = Member {
                    id,
                    peer_urls: peer_urls.clone(),
                    is_learner: *learner,
                    ..Member::default()
                };
                let step = if *learner { ChangeOp::AddLearner } else { ChangeOp::AddVoter };
                (id, step, json(&added, false))
            }
            MemberOp::Remove(id) => {
                known(&members, *id)?;
                self.check_remove(&members, *id)?;
                (*id, ChangeOp::Remove, Bytes::new())
            }
            MemberOp::Promote(id) => {
                let learner = known(&members, *id)?;
                if !learner.is_learner {
                    return Err(Refused::MemberNotLearner);
                }
                let voters = members.voters();
                if self.0.membership.strict && started(&members) < voters.div_ceil(2) {
                    return Err(Refused::NotEnoughStarted);
                }
                (*id, ChangeOp::AddVoter, json(learner, true))
            }
            MemberOp::Update { id, peer_urls } => {
                known(&members, *id)?;
                taken(&members, peer_urls, *id)?;
                return self.update(*id, peer_urls.clone()).await;
            }
        };
        let request = self.0.ids.next();
        let change = MemberChange::one(request, step, id, context);
        let (to, wait) = oneshot::channel();
        let reply = Some(Reply { runtime: answers::runtime(), to });
        let received_ns = clock::now_ns();
        let proposal = Proposal { id: request, data: Bytes::new(), received_ns, reply };
        self.0.node.push(NodeInput::Change { change, proposal });
        let done = self.within_deadline(wait).await?;
        changed(id, done.answer)
    }

    async fn update(&self, id: u64, peer_urls: Vec<String>) -> Result<Changed, Refused> {
        let update = MemberUpdateRequest { id, peer_ur_ls: peer_urls };
        let request =
            InternalRaftRequest { member_update: Some(update), ..InternalRaftRequest::default() };
        changed(id, self.propose(request).await?.answer)
    }

    fn check_add(
        &self,
        members: &Members,
        id: u64,
        peer_urls: &[String],
        learner: bool,
    ) -> Result<(), Refused> {
        let voters = members.voters();
        if self.0.membership.strict {
            let started = started(members);
            let enough = started > voters.div_ceil(2) || (started == 1 && voters == 1);
            if !learner && !enough {
                return Err(Refused::NotEnoughStarted);
            }
            if voters > 1 && self.steady(members) <= voters.div_ceil(2) {
                return Err(Refused::Unhealthy);
            }
        }
        if members.get(id).is_some() || members.is_removed(id) {
            return Err(Refused::MemberExists);
        }
        taken(members, peer_urls, id)?;
        let learners = members.len() - voters;
        if learner && learners >= self.0.membership.learners_max {
            return Err(Refused::TooManyLearners);
        }
        Ok(())
    }

    fn check_remove(&self, members: &Members, id: u64) -> Result<(), Refused> {
        let leaves = members.get(id).is_some_and(|member| !member.is_learner);
        if !self.0.membership.strict || !leaves {
            return Ok(());
        }
        let left = members.voters() - 1;
        let started_left =
            members.iter().filter(|m| !m.is_learner && m.id != id && !m.name.is_empty()).count();
        if started_left < left / 2 + 1 {
            return Err(Refused::NotEnoughStarted);
        }
        let own = id == self.identity().member_id;
        if !own && self.peers().connected_since(id).is_none() {
            // It is down already: nothing gets worse.
            return Ok(());
        }
        if self.steady(members) - 1 < left / 2 + 1 {
            return Err(Refused::Unhealthy);
        }
        Ok(())
    }

    /// Voters with which a connection has held for a while, this member counted.
    fn steady(&self, members: &Members) -> usize {
        let now = clock::now_ns();
        let own = self.identity().member_id;
        let holds = |id: u64| {
            let since = self.peers().connected_since(id);
            id == own || since.is_some_and(|since| now.saturating_sub(since) >= STEADY_NS)
        };
        members.iter().filter(|member| !member.is_learner && holds(member.id)).count()
    }
}

/// Voters that have been started once.
fn started(members: &Members) -> usize {
    members.iter().filter(|member| !member.is_learner && !member.name.is_empty()).count()
}

fn known(members: &Members, id: u64) -> Result<&Member, Refused> {
    members.get(id).ok_or(Refused::MemberNotFound)
}

/// Refuses peer URLs that another member has.
fn taken(members: &Members, urls: &[String], own: u64) -> Result<(), Refused> {
    let mut others = members.iter().filter(|member| member.id != own);
    match others.any(|member| member.peer_urls.iter().any(|url| urls.contains(url))) {
        true => Err(Refused::PeerUrlExists),
        false => Ok(()),
    }
}

/// etcd's member object, as the change carries it.
fn json(member: &Member, promote: bool) -> Bytes {
    let mut value = serde_json::to_value(member).unwrap_or_default();
    if promote {
        value["isPromote"] = true.into();
    }
    value.to_string().into()
}

fn changed(member: u64, answer: Answer) -> Result<Changed, Refused> {
    match answer {
        Answer::Members(members) => Ok(Changed { member, members: list(&members) }),
        // Another command never has this request's id.
        _ => Err(Refused::Dropped),
    }
}

fn list(members: &Arc<Members>) -> Vec<Member> {
    members.iter().cloned().collect()
}

fn member(message: pb::Member) -> Member {
    Member {
        id: message.id,
        peer_urls: message.peer_urls,
        is_learner: message.is_learner,
        name: message.name,
        client_urls: message.client_urls,
    }
}

fn forwarded(op: &MemberOp) -> pb::MemberChange {
    let (kind, id, peer_urls) = match op.clone() {
        MemberOp::Add { peer_urls, learner: false } => (Kind::Add, 0, peer_urls),
        MemberOp::Add { peer_urls, learner: true } => (Kind::AddLearner, 0, peer_urls),
        MemberOp::Remove(id) => (Kind::Remove, id, Vec::new()),
        MemberOp::Promote(id) => (Kind::Promote, id, Vec::new()),
        MemberOp::Update { id, peer_urls } => (Kind::Update, id, peer_urls),
    };
    pb::MemberChange { kind: kind as i32, id, peer_urls }
}

/// What another member passed on; `None` for a kind that this version does not know.
pub(super) fn received(change: pb::MemberChange) -> Option<MemberOp> {
    let pb::MemberChange { kind, id, peer_urls } = change;
    Some(match Kind::try_from(kind).ok()? {
        Kind::Add => MemberOp::Add { peer_urls, learner: false },
        Kind::AddLearner => MemberOp::Add { peer_urls, learner: true },
        Kind::Remove => MemberOp::Remove(id),
        Kind::Promote => MemberOp::Promote(id),
        Kind::Update => MemberOp::Update { id, peer_urls },
    })
}
