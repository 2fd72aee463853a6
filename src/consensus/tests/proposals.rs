//! Proposals: one message for all, refusals, forwarding, and messages that wait for the disk.

use super::group::Group;
use crate::consensus::*;
use bytes::Bytes;

fn proposals(tokens: std::ops::Range<u64>, bytes: usize) -> Vec<Input> {
    tokens
        .map(|n| Input::Propose { token: Token(n), data: Bytes::from(vec![b'x'; bytes]) })
        .collect()
}

#[test]
fn waiting_proposals_become_one_message() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.sent.clear();
    group.give(1, proposals(0..300, 10));
    let appends = group.sent.iter().filter(|w| w.kind() == WireKind::Append).count();
    assert_eq!(appends, 2, "one message to each follower");
    assert!(group.sent.iter().all(|w| w.entries() == 300));
}

#[test]
fn without_a_leader_proposals_are_refused() {
    let mut group = Group::new(3, 0, None);
    group.propose(1, 7, "a");
    assert_eq!(group.refusal(7), Some(Refusal::NoLeader));
}

#[test]
fn without_credit_proposals_are_refused_and_messages_flow() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.core(1).set_backpressure(true);
    group.propose(1, 7, "a");
    assert_eq!(group.refusal(7), Some(Refusal::Overloaded));
    group.propose(2, 8, "b");
    group.deliver();
    assert_eq!(group.applied(1, b"b"), 0, "a forwarded proposal is dropped as well");
    for _ in 0..30 {
        group.tick();
    }
    assert_eq!(group.status(1).role, Role::Leader, "heartbeats flow");
    group.core(1).set_backpressure(false);
    group.propose(1, 9, "c");
    group.deliver();
    assert_eq!(group.applied(1, b"c"), 1);
}

#[test]
fn bytes_that_are_not_committed_are_bounded() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.lose = |w| w.kind() == WireKind::Append;
    group.give(1, proposals(0..70, 1 << 20));
    assert_eq!(group.refusal(63), None);
    assert_eq!(group.refusal(64), Some(Refusal::Overloaded));
    assert_eq!(group.status(1).uncommitted_bytes, 64 << 20);
}

#[test]
fn a_state_machine_that_falls_behind_stops_proposals() {
    let mut group = Group::new(1, 0, None);
    group.elect(1);
    let core = group.core(1);
    let mut inputs = proposals(0..6_000, 1);
    let mut out = Vec::new();
    core.step(0, &mut inputs, &mut out);
    let batch = out.iter().find_map(|e| match e {
        Effect::Persist(batch) => Some(batch.number),
        _ => None,
    });
    inputs.push(Input::Persisted { batch: batch.unwrap() });
    core.step(0, &mut inputs, &mut out);
    assert!(core.status().overloaded, "6,000 entries are not applied");
    inputs.extend(proposals(7_000..7_001, 1));
    out.clear();
    core.step(0, &mut inputs, &mut out);
    let why = Refusal::Overloaded;
    assert!(matches!(&out[..], [Effect::Refuse { token: Token(7_000), why: w }] if *w == why));
    let index = core.status().handed_out;
    inputs.push(Input::Applied { index, durable: 0 });
    core.step(0, &mut inputs, &mut out);
    assert!(!core.status().overloaded);
}

#[test]
fn a_follower_forwards_and_a_leader_that_hands_over_refuses() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.propose(2, 7, "a");
    group.deliver();
    for id in 1..=3 {
        group.tick();
        assert_eq!(group.applied(id, b"a"), 1, "member {id}");
    }
    group.lose = |w| w.kind() == WireKind::TimeoutNow;
    group.give(1, [Input::TransferLeader { to: 2 }]);
    group.propose(1, 8, "b");
    assert_eq!(group.refusal(8), Some(Refusal::Dropped));
}

#[test]
fn forwarded_proposals_come_in_messages_of_bounded_size() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    group.sent.clear();
    group.give(2, proposals(0..10, 400 << 10));
    let forwards = group.sent.iter().filter(|w| w.kind() == WireKind::Propose);
    assert_eq!(forwards.map(Wire::entries).collect::<Vec<_>>(), [2; 5]);
}

/// Steps a core by hand and returns its effects.
fn step(core: &mut Core, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
    let mut out = Vec::new();
    core.step(0, &mut inputs.into_iter().collect(), &mut out);
    out
}

fn sent(effects: &[Effect]) -> Vec<Wire> {
    let wires = effects.iter().filter_map(|e| match e {
        Effect::Send(wires) => Some(wires.clone()),
        _ => None,
    });
    wires.flatten().collect()
}

fn batch(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|e| match e {
        Effect::Persist(batch) => Some(batch.number),
        _ => None,
    })
}

#[test]
fn acknowledgements_wait_for_the_disk_and_appends_do_not() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    let effects = step(group.core(1), proposals(0..1, 1));
    let appends = sent(&effects);
    assert_eq!(appends.len(), 2, "the leader does not wait for its own disk");
    let send = effects.iter().position(|e| matches!(e, Effect::Send(_)));
    let persist = effects.iter().position(|e| matches!(e, Effect::Persist(_)));
    assert!(send < persist, "followers and disk work in parallel");

    let append = appends.into_iter().find(|w| w.to() == 2).unwrap();
    let effects = step(group.core(2), [Input::Wire(append)]);
    assert!(sent(&effects).is_empty(), "said before it is durable");
    let first = batch(&effects).unwrap();
    // The answer to a heartbeat says nothing about the log: its term is on disk, so it may leave.
    let heartbeat = step(group.core(1), [Input::Tick]);
    let heartbeat = sent(&heartbeat).into_iter().find(|w| w.to() == 2).unwrap();
    let answer = sent(&step(group.core(2), [Input::Wire(heartbeat)]));
    assert_eq!(answer.iter().map(Wire::kind).collect::<Vec<_>>(), [WireKind::HeartbeatResponse]);
    assert_eq!(group.status(2).messages_held, 1);
    let released = sent(&step(group.core(2), [Input::Persisted { batch: first }]));
    let kinds: Vec<WireKind> = released.iter().map(Wire::kind).collect();
    assert_eq!(kinds, [WireKind::AppendResponse]);
}

#[test]
fn a_commit_index_that_moved_alone_waits_for_no_disk() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    let effects = step(group.core(1), proposals(0..1, 1));
    let entry = batch(&effects).unwrap();
    let mut said = Vec::new();
    for append in sent(&effects) {
        let follower = append.to();
        let written = batch(&step(group.core(follower), [Input::Wire(append)])).unwrap();
        said.extend(sent(&step(group.core(follower), [Input::Persisted { batch: written }])));
    }
    // Both followers are a quorum while the leader's own disk is late.
    let commit = step(group.core(1), said.into_iter().map(Input::Wire));
    let commit = sent(&commit).into_iter().find(|w| w.to() == 2).unwrap();
    assert_eq!((commit.kind(), commit.entries()), (WireKind::Append, 0));
    let effects = step(group.core(2), [Input::Wire(commit)]);
    assert_eq!(sent(&effects)[0].kind(), WireKind::AppendResponse, "waits for a disk");
    let written = effects.iter().find_map(|e| match e {
        Effect::Persist(batch) => Some(batch.sync),
        _ => None,
    });
    assert_eq!(written, Some(false), "written without a sync");
    assert!(effects.iter().any(|e| matches!(e, Effect::Apply(_))));
    let status = group.status(1);
    assert!(status.commit > status.persisted && status.batches_in_flight == 1);
    step(group.core(1), [Input::Persisted { batch: entry }]);
    assert_eq!(group.status(1).batches_in_flight, 0);
}

#[test]
fn a_vote_waits_for_the_disk() {
    let mut group = Group::new(3, 0, None);
    let mut effects = Vec::new();
    for _ in 0..20 {
        effects.extend(step(group.core(1), [Input::Tick]));
    }
    let question = sent(&effects).into_iter().find(|w| w.to() == 2).unwrap();
    assert_eq!(question.kind(), WireKind::PreVote);
    let answer = sent(&step(group.core(2), [Input::Wire(question)]));
    assert_eq!(
        answer[0].kind(),
        WireKind::PreVoteResponse,
        "nothing to write, nothing to wait for"
    );
    let effects = step(group.core(1), answer.into_iter().map(Input::Wire));
    assert!(sent(&effects).is_empty(), "asks for votes before its own vote is durable");
    let requests =
        sent(&step(group.core(1), [Input::Persisted { batch: batch(&effects).unwrap() }]));
    let request = requests.into_iter().find(|w| w.to() == 2).unwrap();
    assert_eq!(request.kind(), WireKind::Vote);
    let effects = step(group.core(2), [Input::Wire(request)]);
    assert!(sent(&effects).is_empty(), "votes before the vote is durable");
    let votes = sent(&step(group.core(2), [Input::Persisted { batch: batch(&effects).unwrap() }]));
    assert_eq!(votes[0].kind(), WireKind::VoteResponse);
}

#[test]
fn a_sole_voter_feeds_its_learner_only_when_its_term_is_durable() {
    let mut group = Group::new(1, 1, None);
    group.core(1).campaign();
    let effects = step(group.core(1), []);
    assert_eq!(group.status(1).role, Role::Leader);
    assert!(sent(&effects).is_empty(), "led in a term that a crash would forget");
    // A later turn is bound by the same batch, although it changes no vote itself.
    assert!(sent(&step(group.core(1), [Input::Tick])).is_empty());
    let released = step(group.core(1), [Input::Persisted { batch: batch(&effects).unwrap() }]);
    assert!(sent(&released).iter().any(|w| w.kind() == WireKind::Append));
}

#[test]
fn a_core_can_live_on_a_thread_of_its_own() {
    fn is_send<T: Send>() {}
    is_send::<Core>();
    is_send::<Input>();
    is_send::<Effect>();
}

#[test]
fn a_proposal_of_one_term_is_never_sent_on_to_another_leader() {
    let mut group = Group::new(3, 0, None);
    group.elect(1);
    let term = group.status(1).term;
    let propose = |token, term| {
        let data = Bytes::from(format!("t{token}"));
        [Input::ProposeInTerm { token: Token(token), data, term }]
    };
    group.give(2, propose(1, term));
    group.give(1, propose(2, term - 1));
    group.give(1, propose(3, term));
    group.deliver();
    assert_eq!(group.refusal(1), Some(Refusal::NotLeader), "a follower knows the leader");
    assert_eq!(group.refusal(2), Some(Refusal::NotLeader), "a term that is over");
    assert_eq!((group.applied(1, b"t1"), group.applied(1, b"t2")), (0, 0));
    assert_eq!(group.applied(1, b"t3"), 1);
    // Deposed by a message of the same step.
    group.elect(2);
    let old = group.status(1).term;
    group.give(1, propose(4, old));
    group.deliver();
    assert_eq!(group.applied(2, b"t4"), 0);
}

/// A group whose log in memory holds 16 MiB at most.
fn small_logs() -> Group {
    let mut group = Group::configured(3, 0, |config| {
        (config.log_bytes_max, config.log_cache_bytes) = (16 << 20, 4 << 20);
    });
    group.elect(1);
    group
}

/// Proposes 1 MiB so many times, each by itself; returns how many were refused.
fn load(group: &mut Group, tokens: std::ops::Range<u64>) -> usize {
    for n in tokens.clone() {
        group.give(1, proposals(n..n + 1, 1 << 20));
        group.deliver();
    }
    tokens.filter(|n| group.refusal(*n) == Some(Refusal::Overloaded)).count()
}

#[test]
fn a_log_that_the_store_does_not_keep_up_with_is_bounded() {
    let mut group = small_logs();
    group.idle_stores.extend([1, 2, 3]);
    assert_eq!(load(&mut group, 0..40), 40 - 16);
    assert!(group.status(1).log_bytes <= 17 << 20, "{} bytes", group.status(1).log_bytes);
    assert!(group.status(1).overloaded);
    group.idle_stores.clear();
    group.catch_up_stores();
    assert!(group.status(1).log_bytes <= 4 << 20, "only the tail is left");
    assert_eq!(load(&mut group, 40..41), 0);
}

#[test]
fn a_follower_whose_store_is_slower_takes_no_more_than_its_bound_and_catches_up() {
    let mut group = small_logs();
    group.idle_stores.insert(3);
    assert_eq!(load(&mut group, 0..40), 0, "the others go on");
    let (own, leader) = (group.status(3), group.status(1));
    assert!(own.log_bytes <= 17 << 20, "{} bytes", own.log_bytes);
    assert!(own.last < leader.last);
    for _ in 0..30 {
        group.tick();
    }
    assert_eq!(group.status(1).role, Role::Leader);
    assert!(group.status(3).log_bytes <= 17 << 20);
    group.idle_stores.clear();
    group.catch_up_stores();
    assert!(group.status(3).log_bytes <= 4 << 20);
    group.tick();
    // Behind by more than the tail: it asks for what the leader still has, or for a snapshot.
    let asks = |(_, e): &(NodeId, Effect)| matches!(e, Effect::BuildSnapshot { to: 3 });
    assert!(group.seen.iter().any(asks) || group.status(3).last == group.status(1).last);
}

#[test]
fn a_full_log_that_is_not_known_to_be_committed_takes_what_commits_it() {
    let mut group = small_logs();
    let last = group.status(1).last;
    load(&mut group, 0..10);
    // Started again with a log above its bound and a commit index of before.
    let entries: Vec<Entry> = group
        .seen
        .iter()
        .filter_map(|(id, effect)| match effect {
            Effect::Persist(batch) if *id == 3 => Some(batch.entries.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    let hard_state = HardState { term: group.status(3).term, vote: 1, commit: last };
    let conf_state = group.status(3).conf_state;
    let (base, applied) = ((1, 1), (1, 1));
    let restored = Restored { hard_state, base, entries, applied, conf_state };
    let mut config = Config::new(3);
    (config.log_bytes_max, config.log_cache_bytes) = (4 << 20, 1 << 20);
    group.cores[2] = Core::new(&config, restored).unwrap();
    // A new leader does not know what it has, and so does not tell what is committed.
    group.lose = |w| w.to() == 3;
    group.elect(2);
    group.lose = |_| false;
    group.propose(2, 100, "a");
    group.deliver();
    for _ in 0..10 {
        group.tick();
    }
    assert_eq!(group.applied(3, b"a"), 1);
    assert!(group.status(3).log_bytes <= 2 << 20);
}
