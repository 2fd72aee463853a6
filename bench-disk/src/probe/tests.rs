//! What surrounds the measuring: named limits, room, and durability from what was counted.

use super::*;
use crate::env::cgroup;
use crate::verdict::tests::sample;

fn environment() -> (tempfile::TempDir, Environment) {
    let directory = tempfile::tempdir().expect("a directory");
    let environment = Environment::inspect(directory.path()).expect("seen");
    (directory, environment)
}

#[test]
fn a_slow_answer_inside_a_limited_group_names_the_limit_first() {
    let (_directory, mut environment) = environment();
    environment.limits.clear();
    let mut verdict = sample(Outcome::Fail, 1_000);
    name_limit(&environment, &mut verdict);
    assert!(verdict.findings.iter().all(|finding| finding.code != "limit-not-disk"));
    environment.limits.push(cgroup::Limit {
        group: "/pods/a".into(),
        device: "8:16".into(),
        kind: "wiops".into(),
        value: 20,
    });
    name_limit(&environment, &mut verdict);
    assert_eq!(verdict.findings[0].code, "limit-not-disk");
    assert!(verdict.findings[0].text.contains("wiops=20 on 8:16 by /pods/a"));
    let mut pass = sample(Outcome::Pass, 1_000);
    name_limit(&environment, &mut pass);
    assert!(pass.findings.iter().all(|finding| finding.code != "limit-not-disk"));
}

#[test]
fn too_little_room_is_an_error_before_anything_is_written() {
    let (directory, mut environment) = environment();
    let go = AtomicBool::new(false);
    for profile in [Profile::boot(), Profile::standard(), Profile::fio()] {
        let needed = needed_bytes(&profile);
        environment.free_bytes = needed - 1;
        let limit = Duration::from_millis(10);
        let error = measure(&environment, &profile, limit, &go, &mut |_| {});
        assert!(matches!(error, Err(ProbeError::NoSpace { .. })), "{error:?}");
        assert!((32 << 20..400_000_000).contains(&needed), "{}: {needed}", profile.name);
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
}

#[test]
fn flushes_that_do_not_arrive_refuse_and_cheap_ones_are_suspect() {
    use crate::env::block::Leaf;
    use crate::verdict::FlushCost;
    let (_directory, mut environment) = environment();
    environment.leaves = vec![Leaf { write_cache: Some("write back".into()), ..Leaf::default() }];
    let judged = |syncs, flushes, cost: Option<(u64, u64)>, p50_ns| {
        let mut verdict = sample(Outcome::Pass, 1_000);
        let mut measured = verdict.measured.take().expect("measured");
        (measured.syncs, measured.flushes) = (syncs, flushes);
        measured.percentiles.p50_ns = p50_ns;
        measured.flush_cost = cost.map(|(write_ns, synced_ns)| FlushCost { write_ns, synced_ns });
        let word = honesty::durability(&environment, &measured, &mut verdict);
        let codes: Vec<String> = verdict.findings.iter().map(|f| f.code.clone()).collect();
        (word, verdict.outcome, codes)
    };
    let honest = judged(1_000, Some(1_000), Some((40_000, 80_000)), 80_000);
    assert_eq!((honest.0, honest.1), ("verified-path", Outcome::Pass));
    let none = judged(1_000, Some(3), None, 80_000);
    assert_eq!((none.0, none.1), ("refused", Outcome::Refused));
    assert_eq!(none.2[0], "flushes-missing");
    assert_eq!(judged(1_000, Some(300), None, 80_000).0, "suspect");
    assert_eq!(judged(50, Some(0), None, 80_000).0, "unverified", "too few to tell");
    let cheap = judged(1_000, Some(1_000), Some((40_000, 42_000)), 80_000);
    assert!(cheap.0 == "suspect" && cheap.2.contains(&"flush-too-cheap".to_string()));
    let memory = judged(1_000, Some(1_000), None, 300);
    assert!(memory.0 == "suspect" && memory.2.contains(&"memory-speed".to_string()));
}

#[test]
fn the_price_of_a_flush_is_measured_on_a_real_directory_or_not_told() {
    let (directory, environment) = environment();
    let scratch = Scratch::new(directory.path(), &environment.filesystem);
    let cost = honesty::cost(&scratch).expect("no error");
    assert!(cost.is_none_or(|cost| cost.write_ns > 0 && cost.synced_ns > 0), "{cost:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
}
