//! The file survives what happens to files.

use super::*;
use crate::identity::LeafIdentity;
use crate::probe;

fn phase(name: &str, n: u64) -> PhaseFigures {
    PhaseFigures {
        name: name.into(),
        n,
        exceeded: 1,
        p50_ns: 400_002,
        p99_ns: 10_000_001,
        p999_ns: 10_000_001,
        max_ns: 10_000_001,
        syncs_per_second: 123.456,
    }
}

pub(crate) fn sample(outcome: Outcome, created: u64) -> Verdict {
    let identity = Identity {
        fs_uuid: Some("11111111-2222-3333-4444-555555555555".into()),
        leaves: vec![LeafIdentity { wwid: None, serial: Some("S1".into()), sectors: 1_000 }],
        ..Identity::default()
    };
    let latencies = [300_001, 400_002, 10_000_001];
    let summary = Summary::of(&latencies, 10_000_000);
    Verdict {
        schema: SCHEMA,
        tool: "bench-disk test".into(),
        outcome,
        limit_ns: 10_000_000,
        created,
        expires: expiry(created, &identity),
        profile: "boot".into(),
        device: "sda".into(),
        measured: Some(Measured {
            summary,
            percentiles: Percentiles::of(&latencies, &summary).expect("samples"),
            histogram: vec![(300_001, 1), (10_000_001, 2)],
            elapsed_ns: 1_000_000_000,
            end: None,
            bytes: 15_000,
            syncs: 9,
            flushes: Some(9),
            durability: "verified-path".into(),
            busy_before: Some(0.123_456_789),
            flush_cost: Some(FlushCost { write_ns: 30_000, synced_ns: 200_000 }),
            open_loop: Some(OpenLoop {
                interval_ns: 2_000_000,
                p99_ns: 1_000,
                p999_ns: 2_000,
                max_ns: 3_000,
            }),
            timeline: Vec::new(),
            phases: vec![phase("loaded", 3), phase("burst", 2)],
            sync: Distribution::of(&latencies),
            write: Distribution::of(&[2_000, 3_000, 3_000]),
            course: crate::distribution::course(&latencies, &[1_000, 2_000, 3_000]),
        }),
        findings: vec![Finding::note("x", "é \"quoted\"")],
        identity,
        conditions: Conditions::default(),
        attempts: Vec::new(),
        store: None,
    }
}

#[test]
fn a_verdict_survives_the_file_and_leaves_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(FILE_NAME);
    assert_eq!(Verdict::load(&path).expect("no file is no error"), None);
    let verdict = sample(Outcome::Pass, 1_000);
    for _ in 0..2 {
        verdict.store(&path).expect("stored");
        assert_eq!(Verdict::load(&path).expect("readable"), Some(verdict.clone()));
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 1);
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(FILE_NAME);
    let verdict = sample(Outcome::Pass, 1_000);
    verdict.store(&path).expect("stored");
    let good = std::fs::read(&path).expect("readable");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x04;
        std::fs::write(&path, &bad).expect("written");
        let read = Verdict::load(&path);
        assert!(matches!(read, Err(ReadError::Invalid { .. })), "byte {at}: {read:?}");
        std::fs::write(&path, &good[..at]).expect("written");
        assert!(matches!(Verdict::load(&path), Err(ReadError::Invalid { .. })), "cut at {at}");
    }
}

#[test]
fn another_version_and_a_directory_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(FILE_NAME);
    Verdict { schema: SCHEMA + 1, ..sample(Outcome::Pass, 1) }.store(&path).expect("stored");
    let error = Verdict::load(&path).expect_err("newer").to_string();
    assert!(error.contains("version 2") && error.contains(FILE_NAME), "{error}");
    assert!(matches!(Verdict::load(directory.path()), Err(ReadError::Invalid { .. })));
}

#[test]
fn storing_fails_cleanly_where_there_is_no_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = sample(Outcome::Pass, 1).store(&directory.path().join("gone/x.json"));
    assert!(matches!(error, Err(ProbeError::Io { .. })), "{error:?}");
    let error = sample(Outcome::Pass, 1).store(directory.path());
    assert!(error.is_err());
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
}

#[test]
fn the_history_is_bounded_and_a_pass_after_a_fail_is_told() {
    let mut verdict = sample(Outcome::Pass, 100_000);
    let earlier: Vec<Attempt> = (0..100)
        .map(|at| Attempt { at, outcome: Outcome::Pass, profile: "boot".into(), p99_ns: None })
        .collect();
    verdict.remember(earlier);
    assert_eq!(verdict.attempts.len(), MAX_ATTEMPTS);
    assert_eq!(verdict.attempts.last().map(|a| a.at), Some(100_000));
    assert!(!verdict.findings.iter().any(|f| f.code == "pass-after-fail"));

    let mut after = sample(Outcome::Pass, 100_000);
    let mut failed = sample(Outcome::Fail, 100_000 - 600);
    failed.remember(Vec::new());
    after.remember(failed.attempts.clone());
    assert!(after.findings[0].text.contains("10 min"), "{:?}", after.findings);
    let mut later = sample(Outcome::Pass, 100_000 + 2 * DAY);
    later.remember(failed.attempts);
    assert!(!later.findings.iter().any(|f| f.code == "pass-after-fail"));
}

#[test]
fn weak_identities_live_shorter() {
    let mut identity = sample(Outcome::Pass, 0).identity;
    assert_eq!(expiry(0, &identity), 30 * DAY);
    identity.leaves[0].serial = None;
    assert_eq!(expiry(0, &identity), 7 * DAY);
}

#[test]
fn the_shape_for_other_modules_is_the_shape_of_a_probe() {
    // A blank verdict of the real host has the same schema and a non-empty device.
    let environment = crate::env::Environment::inspect(Path::new("/")).expect("a root");
    let blank = probe::blank(&environment, "boot", Duration::from_millis(10), Outcome::Refused);
    assert_eq!((blank.schema, blank.limit_ns), (SCHEMA, 10_000_000));
}
