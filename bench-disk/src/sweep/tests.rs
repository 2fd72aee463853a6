//! Knees and advice on made-up curves, and one short sweep of a real directory.

use super::*;

fn point(bytes: usize, committers: usize, preparation: Preparation, us: u64, rate: f64) -> Point {
    Point {
        bytes,
        committers,
        preparation: preparation.as_str(),
        n: 1_000,
        p50_ns: us * 1_000,
        p99_ns: us * 2_000,
        syncs_per_second: rate,
    }
}

#[test]
fn the_size_knee_is_the_last_cheap_size() {
    let of = |us: [u64; 4]| {
        let sizes = [256, 4_096, 65_536, 262_144];
        let points: Vec<Point> = sizes
            .into_iter()
            .zip(us)
            .map(|(b, us)| point(b, 1, Preparation::Reserve, us, 1.0))
            .collect();
        size_knee(&points)
    };
    assert_eq!(of([100, 110, 149, 400]), 65_536);
    assert_eq!(of([100, 151, 120, 110]), 256);
    assert_eq!(of([100, 100, 100, 100]), 262_144);
    assert_eq!(size_knee(&[]), 0);
}

#[test]
fn the_committer_knee_is_where_the_rate_stops_to_grow() {
    let of = |rates: [f64; 4]| {
        let points: Vec<Point> = COMMITTERS
            .into_iter()
            .zip(rates)
            .map(|(c, rate)| point(2_300, c, Preparation::Reserve, 100, rate))
            .collect();
        committer_knee(&points)
    };
    assert_eq!(of([1_000.0, 1_900.0, 2_000.0, 2_100.0]), 2);
    assert_eq!(of([1_000.0, 1_100.0, 5_000.0, 9_000.0]), 1);
    assert_eq!(of([1_000.0, 2_000.0, 4_000.0, 8_000.0]), 8);
}

#[test]
fn writing_ahead_is_advised_where_it_saves_a_tenth() {
    let of = |reserve, prewrite| {
        advice(&[
            point(1, 1, Preparation::Reserve, reserve, 1.0),
            point(1, 1, Preparation::Prewrite, prewrite, 1.0),
        ])
    };
    assert!(of(118, 89).contains("saves 25 %"), "{}", of(118, 89));
    assert!(of(100, 97).contains("brings little"));
}

#[test]
fn a_short_sweep_of_a_real_directory_has_every_point_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let environment = Environment::inspect(directory.path()).expect("seen");
    let mut steps = Vec::new();
    let go = AtomicBool::new(false);
    let sweep =
        sweep(&environment, Some(&environment), Duration::from_millis(5), &go, &mut |done, all| {
            steps.push((done, all));
        })
        .expect("measured");
    assert_eq!(sweep.sizes.iter().map(|p| p.bytes).collect::<Vec<_>>(), SIZES);
    assert_eq!(sweep.committers.iter().map(|p| p.committers).collect::<Vec<_>>(), COMMITTERS);
    let preparations: Vec<&str> = sweep.preparations.iter().map(|p| p.preparation).collect();
    assert_eq!(preparations, ["grow", "fallocate", "pre-written", "recycled"]);
    assert!(sweep.sizes.iter().all(|p| p.n > 0 && p.p50_ns <= p.p99_ns));
    let separate = sweep.separate.as_ref().expect("another directory");
    assert!(separate.together.n > 0 && separate.apart.n > 0, "{separate:?}");
    assert!(sweep.render().contains("beside the store's commits"), "{}", sweep.render());
    assert_eq!(steps.last(), Some(&(48, 48)));
    assert!(sweep.render().lines().all(|line| line.len() <= 80), "{}", sweep.render());
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
    let stopped = super::sweep(
        &environment,
        None,
        Duration::from_secs(9),
        &AtomicBool::new(true),
        &mut |_, _| {},
    );
    assert!(matches!(stopped, Err(ProbeError::Interrupted)));
}
