//! One voter: bootstrap, election, commit, and a restart at every point.

use crate::consensus::*;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Commands per step, so that there are many points to crash at.
const CHUNK: u64 = 50;
const COMMANDS: u64 = 1_000;
/// The store saves after this many pieces of applied entries, so that it lags behind.
const SAVE_EVERY: u64 = 3;

#[derive(Clone, Default)]
struct Disk {
    restored: Restored,
    /// Commands by index, durable up to `restored.applied`.
    commands: BTreeMap<u64, Bytes>,
}

/// A shell that can stop after any effect.
struct Solo {
    core: Core,
    disk: Disk,
    effects: VecDeque<Effect>,
    inputs: Vec<Input>,
    commands: BTreeMap<u64, Bytes>,
    applied: (u64, u64),
    conf_state: ConfState,
    applies: u64,
    now: Millis,
    /// Last index on disk.
    last: u64,
}

fn founded() -> Restored {
    let context_json = Bytes::from_static(br#"{"id":1,"peerURLs":["http://localhost:2380"]}"#);
    let (entries, hard_state) = bootstrap(&[BootstrapMember { id: 1, context_json }]);
    Restored { entries, hard_state, ..Restored::default() }
}

impl Solo {
    fn start(disk: Disk) -> Solo {
        let mut core = Core::new(&Config::new(1), disk.restored.clone()).unwrap();
        core.campaign();
        Solo {
            core,
            effects: VecDeque::new(),
            inputs: Vec::new(),
            commands: disk.commands.clone(),
            applied: disk.restored.applied,
            conf_state: disk.restored.conf_state.clone(),
            applies: 0,
            now: 0,
            last: disk.restored.entries.last().map_or(disk.restored.base.0, |e| e.index),
            disk,
        }
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        self.core.step(self.now, &mut self.inputs, &mut out);
        self.effects.extend(out);
    }

    fn leads(&self) -> bool {
        self.core.status().role == Role::Leader
    }

    /// Carries out one effect.
    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(batch) => {
                let log = &mut self.disk.restored;
                if let Some(first) = batch.entries.first() {
                    log.entries.truncate((first.index - log.base.0 - 1) as usize);
                    log.entries.extend(batch.entries);
                }
                log.hard_state = batch.hard_state.unwrap_or(log.hard_state);
                self.last = log.entries.last().map_or(log.base.0, |e| e.index);
                self.inputs.push(Input::Persisted { batch: batch.number });
            }
            Effect::Apply(entries) => {
                for c in entries {
                    assert!(c.entry.index <= self.last, "handed out before it was on disk");
                    assert_eq!(c.entry.index, self.applied.0 + 1);
                    self.applied = (c.entry.index, c.entry.term);
                    self.conf_state = c.conf_state.unwrap_or(self.conf_state.clone());
                    if c.entry.kind == EntryKind::Normal && !c.entry.data.is_empty() {
                        self.commands.insert(c.entry.index, c.entry.data);
                    }
                }
                self.applies += 1;
                if self.applies.is_multiple_of(SAVE_EVERY) {
                    self.disk.restored.applied = self.applied;
                    self.disk.restored.conf_state = self.conf_state.clone();
                    self.disk.commands = self.commands.clone();
                }
                let (index, durable) = (self.applied.0, self.disk.restored.applied.0);
                self.inputs.push(Input::Applied { index, durable });
            }
            Effect::Truncated { index, term } => {
                let log = &mut self.disk.restored;
                log.entries.drain(..(index - log.base.0) as usize);
                log.base = (index, term);
            }
            Effect::Send(_) => panic!("nobody to send to"),
            Effect::Refuse { why, .. } => panic!("refused: {why}"),
            _ => {}
        }
    }

    /// Steps and carries out effects until nothing happens any more.
    fn run(&mut self) {
        loop {
            self.step();
            let Some(effect) = self.effects.pop_front() else { break };
            self.effect(effect);
        }
    }
}

#[test]
fn a_sole_voter_founds_a_cluster_and_leads_at_once() {
    let mut solo = Solo::start(Disk { restored: founded(), ..Disk::default() });
    solo.step();
    let Some(Effect::Apply(entries)) = solo.effects.pop_front() else { panic!("no apply") };
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].conf_state.as_ref().unwrap().voters, [1]);
    let change = MemberChange::of(&entries[0].entry).unwrap();
    assert_eq!(change.steps, [(ChangeOp::AddVoter, 1)]);
    assert!(change.context.starts_with(br#"{"id":1"#));
    assert!(!solo.leads(), "the configuration is not applied yet");

    solo.effect(Effect::Apply(entries));
    solo.step();
    assert!(solo.leads());
    let Some(Effect::Persist(batch)) = solo.effects.pop_front() else { panic!("no batch") };
    assert_eq!(batch.hard_state, Some(HardState { term: 2, vote: 1, commit: 1 }));
    assert_eq!((batch.entries.len(), batch.entries[0].index, batch.sync), (1, 2, true));
    assert!(batch.entries[0].data.is_empty());
}

#[test]
fn nothing_is_handed_out_before_it_is_on_disk() {
    let mut solo = Solo::start(Disk { restored: founded(), ..Disk::default() });
    solo.run();
    let propose = |n: u64| Input::Propose { token: Token(n), data: Bytes::from(n.to_string()) };
    solo.inputs.extend((0..COMMANDS).map(propose));
    solo.step();
    let Some(Effect::Proposed { first_index, term, tokens }) = solo.effects.pop_front() else {
        panic!("not proposed")
    };
    assert_eq!((first_index, term, tokens.len() as u64), (3, 2, COMMANDS));
    let Some(Effect::Persist(batch)) = solo.effects.pop_front() else { panic!("no batch") };
    assert_eq!((batch.entries.len() as u64, batch.sync), (COMMANDS, true));
    assert_eq!(batch.hard_state, None);
    assert!(solo.effects.is_empty(), "one batch, nothing else");
    solo.inputs.push(Input::Tick);
    solo.step();
    assert!(solo.effects.is_empty(), "time alone hands out nothing");

    solo.inputs.push(Input::Persisted { batch: batch.number });
    solo.step();
    let Some(Effect::Persist(commit)) = solo.effects.pop_front() else { panic!("no batch") };
    assert!(!commit.sync && commit.entries.is_empty(), "the commit index needs no sync");
    let Some(Effect::Apply(entries)) = solo.effects.pop_front() else { panic!("no apply") };
    assert_eq!(entries.len() as u64, COMMANDS);
    assert_eq!(entries[0].entry.data, "0");
}

/// Runs the whole script, with a crash after `crash` effects. Returns false if there were fewer.
fn run_with_crash(crash: u64) -> bool {
    let mut solo = Solo::start(Disk { restored: founded(), ..Disk::default() });
    let mut acknowledged: BTreeMap<u64, Bytes> = BTreeMap::new();
    let mut answered = 0;
    let mut crashed = false;
    let mut effects = 0;
    let mut next = 0;
    while next < COMMANDS || !solo.effects.is_empty() || !solo.inputs.is_empty() {
        if effects == crash && !crashed {
            crashed = true;
            solo = Solo::start(solo.disk);
            solo.run();
            assert!(solo.leads(), "no leader after a crash at {crash}");
            for (index, data) in &acknowledged {
                assert_eq!(solo.commands.get(index), Some(data), "lost by a crash at {crash}");
            }
        }
        if next < COMMANDS && solo.leads() && solo.effects.is_empty() {
            let propose =
                |n: u64| Input::Propose { token: Token(n), data: Bytes::from(n.to_string()) };
            solo.inputs.extend((next..next + CHUNK).map(propose));
            next += CHUNK;
        }
        solo.step();
        if let Some(effect) = solo.effects.pop_front() {
            solo.effect(effect);
            effects += 1;
        }
        // Whatever is applied in memory may have been answered.
        let news = solo.commands.range(answered + 1..).map(|(i, d)| (*i, d.clone()));
        acknowledged.extend(news);
        answered = acknowledged.keys().next_back().copied().unwrap_or(0);
    }
    let kept = solo.commands.len() as u64;
    assert!(kept >= COMMANDS - CHUNK * u64::from(crashed), "{kept} commands left");
    crashed
}

#[test]
fn a_restart_at_every_point_loses_nothing_acknowledged() {
    let points = (0..).take_while(|crash| run_with_crash(*crash)).count();
    assert!(points > 60, "only {points} points to crash at");
}

#[test]
fn a_restored_state_that_contradicts_itself_is_refused() {
    let config = Config::new(1);
    let mut gap = founded();
    gap.entries[0].index = 2;
    assert!(matches!(Core::new(&config, gap), Err(Error::Damaged { index: 2, .. })));
    let mut term = founded();
    term.entries.push(Entry { index: 2, term: 0, ..term.entries[0].clone() });
    assert!(matches!(Core::new(&config, term), Err(Error::Damaged { index: 2, .. })));
    let mut high = founded();
    high.entries[0].term = 7;
    assert!(matches!(Core::new(&config, high), Err(Error::Damaged { index: 1, .. })));
    let conf_state = ConfState { learners: vec![2], ..ConfState::default() };
    let conf = Restored { conf_state, ..founded() };
    assert!(matches!(Core::new(&config, conf), Err(Error::Configuration(_))));
    assert!(matches!(Core::new(&Config::new(0), founded()), Err(Error::Setting(_))));
}

#[test]
fn the_store_is_the_base_of_truth_at_start() {
    let conf_state = ConfState { voters: vec![1], ..ConfState::default() };
    // The log ends before the applied position: a crash between swapping the store for a snapshot
    // and beginning the log anew.
    let mut restored = Restored { applied: (90, 7), conf_state, ..founded() };
    restored.hard_state.vote = 1;
    let status = Core::new(&Config::new(1), restored).unwrap().status();
    assert_eq!((status.first, status.last, status.commit, status.applied), (91, 90, 90, 90));
    assert_eq!((status.term, status.vote), (7, 0), "the vote belonged to an older term");
}

#[test]
fn the_shell_is_told_to_begin_a_dropped_log_anew() {
    let conf_state = ConfState { voters: vec![1], ..ConfState::default() };
    let start = |applied| {
        let restored = Restored { applied, conf_state: conf_state.clone(), ..founded() };
        Core::new(&Config::new(1), restored).unwrap()
    };
    assert_eq!(start((1, 1)).new_log(), None, "the log contains the applied position");
    let hard_state = HardState { term: 7, vote: 0, commit: 90 };
    let new = NewLog { base: (90, 7), hard_state };
    assert_eq!(start((90, 7)).new_log(), Some(new));
    // Same index, another term: the log belongs to a history that was overtaken.
    assert_eq!(start((1, 2)).new_log().map(|new| new.base), Some((1, 2)));
}

#[test]
fn the_log_in_memory_is_bounded_in_entries_and_bytes() {
    let bound = 100 << 10;
    let config = Config { log_cache_bytes: bound, log_cache_entries: 200, ..Config::new(1) };
    let mut solo = Solo::start(Disk { restored: founded(), ..Disk::default() });
    solo.core = Core::new(&config, founded()).unwrap();
    solo.core.campaign();
    solo.run();
    for (size, most) in [(10, 200), (10_000, 11)] {
        for n in 0..600 {
            solo.inputs.push(Input::Propose { token: Token(n), data: vec![7; size].into() });
            solo.run();
        }
        let status = solo.core.status();
        let kept = status.last - status.first + 1;
        let unsaved = status.last - status.durable;
        assert!(kept <= most + unsaved, "{kept} entries of {size} bytes kept, {unsaved} unsaved");
        assert!(kept >= 3, "a tail is kept");
        assert!(status.log_bytes <= bound + 4 * (size + 200), "{} bytes", status.log_bytes);
        assert_eq!(status.first, solo.disk.restored.base.0 + 1, "the disk was told");
    }
}
