//! The `divergence` thread: while this member leads, it asks the others for hashes, and does what the
//! checker says about those that differ. See `divergence` for what is compared and decided.

use super::handle::Handle;
use super::input::{HashInput, Reply};
use crate::divergence::{
    Action, Checker, FullHash, Judgement, Looked, MemberId, Mode, Next, Point, Points, Seat,
    Verdict,
};
use crate::machine::{ACTION_FENCE, AlarmKind, Reader, level};
use crate::mvcc::HashKv;
use crate::peer::CallError;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::{AlarmRequest, AlarmType, InternalRaftRequest};
use crate::proto::peer as pb;
use crate::proto::peer::call_request::What;
use crate::telemetry::clock;
use crate::telemetry::divergence::Divergence;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

/// How often the leader asks. A question costs each member a few kilobytes and no disk access.
const EVERY_NS: u64 = 5_000_000_000;
/// How often the thread looks whether this member leads, and pause between two full hashes: what was
/// a slip of the moment shall have passed.
const LOOK: Duration = Duration::from_secs(1);
/// Time for an answer that needs no disk.
const ANSWER: Duration = Duration::from_secs(2);
/// Time for a full hash: it reads every row, at 50 MB/s a store of 8 GiB in less than three minutes.
const FULL_ANSWER: Duration = Duration::from_secs(300);
/// Full hashes asked for in one go: two that agree, and some more if a member or a compaction came
/// in between.
const FULL_TRIES: u32 = 5;
/// How often a member looks whether it has applied the revision that it was asked for.
const CATCH_UP_POLL: Duration = Duration::from_millis(5);
const NS_PER_MS: u64 = 1_000_000;

/// What the thread needs.
pub(super) struct DivergenceThread {
    pub(super) handle: Handle,
    /// Where calls to other members run.
    pub(super) runtime: Runtime,
    pub(super) mode: Mode,
    pub(super) stop: Arc<AtomicBool>,
}

/// One leadership.
struct Tenure {
    term: u64,
    checker: Checker,
    looked_ns: u64,
    /// What was said of each member the last time, for the log.
    verdicts: BTreeMap<MemberId, Verdict>,
}

impl DivergenceThread {
    /// Body of the thread. Returns when told to stop.
    pub(super) fn run(self) {
        let mut tenure: Option<Tenure> = None;
        while !self.stop.load(Relaxed) {
            std::thread::park_timeout(LOOK);
            let raft = self.handle.raft();
            if !raft.is_leader || self.mode == Mode::Off {
                self.numbers().suspected.store(0, Relaxed);
                tenure = None;
                continue;
            }
            let own = self.handle.identity().member_id;
            let current = tenure.take().filter(|tenure| tenure.term == raft.term);
            let mut current = current.unwrap_or_else(|| Tenure {
                term: raft.term,
                checker: Checker::new(own, self.mode),
                looked_ns: 0,
                verdicts: BTreeMap::new(),
            });
            let now = clock::now_ns();
            if current.looked_ns == 0 || now >= current.looked_ns + EVERY_NS {
                current.looked_ns = now;
                self.look(&mut current);
            }
            tenure = Some(current);
        }
    }

    fn numbers(&self) -> &Divergence {
        &self.handle.metrics().divergence
    }

    /// One round: cheap hashes, and full ones if they differ.
    fn look(&self, tenure: &mut Tenure) {
        let seats = self.seats();
        if seats.len() < 2 {
            return;
        }
        let known = self.known();
        let said = self.points(&seats);
        let now_ms = clock::now_ns() / NS_PER_MS;
        let Looked { verdicts, suspicious, next } =
            tenure.checker.look(now_ms, &seats, &said, &known);
        let numbers = self.numbers();
        for verdict in verdicts.values() {
            Divergence::count(&numbers.compared, verdict.as_str());
        }
        if verdicts.values().all(|verdict| *verdict == Verdict::Equal) {
            let wall = clock::wall().duration_since(UNIX_EPOCH);
            numbers.all_equal.store(wall.map_or(0, |since| since.as_secs()), Relaxed);
        }
        numbers.suspected.store(u64::from(suspicious), Relaxed);
        say(&tenure.verdicts, &verdicts);
        tenure.verdicts = verdicts;
        let mut next = next;
        for _ in 0..FULL_TRIES {
            match next {
                Next::Rest => return,
                Next::Act(actions) => {
                    actions.iter().for_each(|action| self.act(action));
                    return;
                }
                Next::Confirm => {
                    let answers = said.keys().copied().collect();
                    next = self.confirm(tenure, &seats, &answers, &known);
                }
            }
            std::thread::park_timeout(LOOK);
            if self.stop.load(Relaxed) || self.handle.raft().term != tenure.term {
                return;
            }
        }
        tracing::warn!("full hashes of the members changed from try to try; they are asked again");
    }

    fn seats(&self) -> Vec<Seat> {
        let members = self.handle.reader().members();
        members.iter().map(|member| Seat { id: member.id, voter: !member.is_learner }).collect()
    }

    /// Members of which it is known that they differ.
    fn known(&self) -> BTreeSet<MemberId> {
        let alarms = self.handle.reader().alarms();
        let corrupt = alarms.iter().filter(|alarm| alarm.kind == AlarmKind::Corrupt);
        corrupt.map(|alarm| alarm.member).collect()
    }

    /// Asks all other members at once; those that do not answer in time are left out.
    fn ask<T>(
        &self,
        seats: &[Seat],
        what: &What,
        limit: Duration,
        take: impl Fn(pb::CallResponse) -> Option<T>,
    ) -> BTreeMap<MemberId, Result<T, CallError>> {
        let own = self.handle.identity().member_id;
        let calls: Vec<_> = seats
            .iter()
            .filter(|seat| seat.id != own)
            .map(|seat| {
                let (id, peers, what) = (seat.id, self.handle.peers().clone(), what.clone());
                let call = async move { tokio::time::timeout(limit, peers.call(id, what)).await };
                (id, self.runtime.spawn(call))
            })
            .collect();
        let mut answers = BTreeMap::new();
        for (id, call) in calls {
            let answer = match self.runtime.block_on(call) {
                Ok(Ok(Ok(response))) => match take(response) {
                    Some(taken) => Ok(taken),
                    None => continue,
                },
                Ok(Ok(Err(error))) => Err(error),
                // Too late, or the runtime ends.
                Ok(Err(_)) | Err(_) => continue,
            };
            answers.insert(id, answer);
        }
        answers
    }

    fn points(&self, seats: &[Seat]) -> BTreeMap<MemberId, Points> {
        let what = What::HashPoints(pb::HashPointsRequest {});
        let answers = self.ask(seats, &what, ANSWER, |response| response.hash_points.map(points));
        let mut said = BTreeMap::new();
        for (id, answer) in answers {
            // A member that is away, or of a version that does not know the question, says nothing.
            if let Ok(points) = answer {
                said.insert(id, points);
            }
        }
        said.insert(self.handle.identity().member_id, points(hash_points(self.handle.reader())));
        said
    }

    /// Full hashes at one revision, judged.
    fn confirm(
        &self,
        tenure: &mut Tenure,
        seats: &[Seat],
        answering: &BTreeSet<MemberId>,
        known: &BTreeSet<MemberId>,
    ) -> Next {
        let revision = self.handle.reader().revision();
        tracing::warn!(revision, "hashes of members differ or are not known: comparing all rows");
        let own = self.handle.identity().member_id;
        let own_hash = self.handle.hash_rows(revision);
        let own_hash = self.runtime.spawn(own_hash);
        let what = What::FullHash(pb::FullHashRequest { revision });
        let asked: Vec<Seat> =
            seats.iter().filter(|seat| answering.contains(&seat.id)).copied().collect();
        let answers =
            self.ask(&asked, &what, FULL_ANSWER, |response| response.full_hash.map(full_hash));
        let mut hashes: BTreeMap<MemberId, FullHash> =
            answers.into_iter().filter_map(|(id, answer)| Some((id, answer.ok()?))).collect();
        if let Ok(Some(hash)) = self.runtime.block_on(own_hash) {
            hashes.insert(own, hash);
        }
        let now_ms = clock::now_ns() / NS_PER_MS;
        // That may have taken minutes: members came or went meanwhile.
        let (judgement, next) = tenure.checker.confirm(now_ms, &self.seats(), &hashes, known);
        let verdict = match &judgement {
            Judgement::Equal => Verdict::Equal,
            Judgement::NotCompared => Verdict::Unknown,
            Judgement::Different { .. } | Judgement::NoMajority => Verdict::Different,
        };
        Divergence::count(&self.numbers().confirmed, verdict.as_str());
        match &judgement {
            Judgement::Equal => tracing::warn!(
                revision,
                "all rows of the members are equal: what differs is outside of the keys (leases, \
                 members, alarms) or in the hash itself"
            ),
            Judgement::NotCompared => {
                tracing::warn!(revision, "the rows of the members could not be compared");
            }
            Judgement::Different { minority, majority } => tracing::error!(
                revision,
                minority = %ids(minority),
                majority = %ids(majority),
                "the rows of members differ from those of the majority"
            ),
            Judgement::NoMajority => tracing::error!(
                revision,
                "the rows of members differ, and no majority of the voters agrees"
            ),
        }
        next
    }

    fn act(&self, action: &Action) {
        self.numbers().actions.fetch_add(1, Relaxed);
        match action {
            Action::Fence(id) if self.handle.reader().feature_level() < level::FENCES => {
                tracing::error!(
                    member = format!("{id:x}"),
                    "a member differs from the majority and is not fenced before the upgrade is \
                     finalized, because the version before would not understand it; finalize the \
                     upgrade (assay upgrade finalize), or remove the member yourself"
                );
            }
            Action::Fence(id) => {
                tracing::error!(
                    member = format!("{id:x}"),
                    "fencing a member whose data differs from that of the majority; remove it, empty \
                     its data directory and add it again"
                );
                self.alarm(ACTION_FENCE, *id);
            }
            Action::Alarm(id) => {
                tracing::error!(
                    member = format!("{id:x}"),
                    "raising the CORRUPT alarm: writes are refused until it is disarmed"
                );
                self.alarm(AlarmAction::Activate as i32, *id);
            }
            Action::HandOver(to) => self.hand_over(to),
        }
    }

    fn alarm(&self, action: i32, member_id: MemberId) {
        let alarm = AlarmType::Corrupt as i32;
        let request = InternalRaftRequest {
            alarm: Some(AlarmRequest { action, member_id, alarm }),
            ..InternalRaftRequest::default()
        };
        if let Err(refused) = self.runtime.block_on(self.handle.propose(request)) {
            tracing::warn!(%refused, "it could not be done now and is tried again");
        }
    }

    /// The data of this leader is the odd one: another has to lead and to find out by itself.
    fn hand_over(&self, to: &[MemberId]) {
        for id in to {
            let moved = self.runtime.block_on(self.handle.move_leader(*id));
            tracing::error!(
                to = format!("{id:x}"),
                done = moved.is_ok(),
                "this leader's data differs from that of the majority: handing leadership over"
            );
            if moved.is_ok() {
                return;
            }
        }
    }
}

/// Writes what changed since the last look: each verdict of a member once.
fn say(before: &BTreeMap<MemberId, Verdict>, now: &BTreeMap<MemberId, Verdict>) {
    for (id, verdict) in now {
        if before.get(id) == Some(verdict) {
            continue;
        }
        let member = format!("{id:x}");
        match verdict {
            Verdict::Equal => tracing::info!(member, "a member's data is equal to this leader's"),
            Verdict::Different => {
                tracing::error!(member, "a member's running hash differs from this leader's");
            }
            Verdict::Unknown => {
                tracing::warn!(member, "a member's data could not be compared with this leader's");
            }
        }
    }
}

fn ids(ids: &[MemberId]) -> String {
    ids.iter().map(|id| format!("{id:x}")).collect::<Vec<_>>().join(", ")
}

/// Everything this member can say without reading rows.
fn hash_points(reader: &Reader) -> pb::HashPoints {
    let running = reader.running_points().points.into_iter();
    let compactions = reader.compaction_hashes().into_iter();
    pb::HashPoints {
        running: running.map(|(index, hash)| pb::RunningPoint { index, hash }).collect(),
        compactions: compactions
            .map(|hash| pb::CompactionPoint {
                at: hash.hash_revision,
                compact_revision: hash.compact_revision,
                hash: hash.hash,
            })
            .collect(),
    }
}

fn points(said: pb::HashPoints) -> Points {
    let running = said.running.into_iter().map(|p| (Point::Applied(p.index), p.hash));
    let compactions = said
        .compactions
        .into_iter()
        .map(|p| (Point::Compaction { at: p.at, from: p.compact_revision }, u64::from(p.hash)));
    running.chain(compactions).collect()
}

fn full_hash(said: pb::FullHash) -> FullHash {
    let pb::FullHash { revision, compact_revision, hash } = said;
    FullHash { revision, compact_revision, hash }
}

/// Answers the leader.
pub(super) async fn answer_points(handle: &Handle) -> pb::CallResponse {
    let hash_points = Some(hash_points(handle.reader()));
    pb::CallResponse { hash_points, ..pb::CallResponse::default() }
}

/// Answers the leader; without a hash if this member cannot make it, or did not get there in time.
pub(super) async fn answer_full(handle: &Handle, asked: pb::FullHashRequest) -> pb::CallResponse {
    let hash = handle.hash_rows(asked.revision).await;
    let full_hash = hash.map(|hash| pb::FullHash {
        revision: hash.revision,
        compact_revision: hash.compact_revision,
        hash: hash.hash,
    });
    pb::CallResponse { full_hash, ..pb::CallResponse::default() }
}

impl Handle {
    /// The hash over all rows up to `revision`, once it is applied here; made on the hash thread.
    fn hash_rows(&self, revision: i64) -> impl Future<Output = Option<FullHash>> + Send + 'static {
        let handle = self.clone();
        async move {
            let applied = async {
                while handle.reader().revision() < revision {
                    tokio::time::sleep(CATCH_UP_POLL).await;
                }
            };
            tokio::time::timeout(handle.timing().request_timeout(), applied).await.ok()?;
            let (to, wait) = oneshot::channel();
            let reader = handle.reader().clone();
            let reply = Reply { runtime: None, to };
            handle.0.hash.push(HashInput::Rows { reader, revision, reply });
            let HashKv { hash, compact_revision, hash_revision, .. } = wait.await.ok()?.ok()?;
            Some(FullHash { revision: hash_revision, compact_revision, hash })
        }
    }
}
