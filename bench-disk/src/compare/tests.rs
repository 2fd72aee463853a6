//! The odd one of made-up nodes, and files that are no results.

use super::*;
use crate::stats::{Percentiles, Summary};
use crate::verdict;

/// A result whose p99 is about `us`, with an interval of a few percent.
fn node(name: &str, us: u64) -> (PathBuf, Verdict) {
    let latencies: Vec<u64> = (0..20_000u64).map(|i| us * 1_000 * (900 + i % 100) / 999).collect();
    let summary = Summary::of(&latencies, 10_000_000);
    let mut verdict = verdict::tests::sample(Outcome::Pass, 1_000);
    let measured = verdict.measured.as_mut().expect("measured");
    measured.summary = summary;
    measured.percentiles = Percentiles::of(&latencies, &summary).expect("samples");
    (PathBuf::from(name), verdict)
}

fn odd(nodes: &[u64]) -> Vec<bool> {
    let files = nodes.iter().enumerate().map(|(i, &us)| node(&format!("{i}.json"), us)).collect();
    compare(files).expect("alike").into_iter().map(|node| node.odd).collect()
}

#[test]
fn the_slow_one_of_three_is_odd_and_so_is_a_fast_one() {
    assert_eq!(odd(&[300, 310, 2_900]), [false, false, true]);
    assert_eq!(odd(&[300, 20, 310]), [false, true, false]);
    assert_eq!(odd(&[300, 310, 500]), [false; 3]);
    assert_eq!(odd(&[300, 310, 290, 305, 4_000]), [false, false, false, false, true]);
    assert_eq!(odd(&[300, 3_000]), [false, true]);
}

#[test]
fn different_plans_are_not_compared() {
    let mut files = vec![node("a", 300), node("b", 300)];
    files[1].1.limit_ns = 20_000_000;
    let error = compare(files).expect_err("unlike");
    assert!(error.to_string().contains("differ in the limit"), "{error}");
    let mut files = vec![node("a", 300), node("b", 300)];
    files[0].1.profile = "quick".into();
    assert!(compare(files).expect_err("unlike").to_string().contains("the profile"));
    let mut files = vec![node("a", 300)];
    files[0].1.measured = None;
    assert!(compare(files).expect_err("empty").to_string().contains("nothing was measured"));
}

#[test]
fn both_kinds_of_files_are_read_and_others_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, verdict) = node("v.json", 300);
    let path = directory.path().join(path);
    verdict.store(&path).expect("stored");
    assert_eq!(load(&path).expect("a verdict file"), verdict);
    let document = serde_json::json!({"schema": 1, "verdict": verdict, "environment": {}});
    std::fs::write(&path, document.to_string()).expect("written");
    assert_eq!(load(&path).expect("a document"), verdict);
    std::fs::write(&path, "{}").expect("written");
    assert!(matches!(load(&path), Err(CompareError::Invalid { .. })));
    assert!(matches!(load(Path::new("/nowhere")), Err(CompareError::Io { .. })));
}

#[test]
fn the_table_fits_80_columns_and_names_the_odd_one() {
    let nodes = compare(vec![node("a", 300), node("b", 310), node("c", 2_900)]).expect("alike");
    let text = render(&nodes);
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.contains("odd one out: c (9."), "{text}");
}
