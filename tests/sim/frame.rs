//! What every simulation shares: which seeds run, how a panic becomes a violation, what a failing
//! seed prints, and how many seeds a deliberate mistake may take.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A broken rule of the simulation: which, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

pub type Verdict = Result<(), Violation>;

/// Fails with a formatted [`Violation`] unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::sim::frame::Violation(format!($($text)+)).into());
        }
    };
}

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds to run: `SEED` alone, or `SEEDS` (else `default`) of them from `FROM` on.
pub fn seeds(default: u64) -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("FROM").unwrap_or(0);
            from..from + number("SEEDS").unwrap_or(default)
        }
    }
}

/// Runs something; a panic of a part is a broken rule as well.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        Err(Violation(format!("panic: {text}")))
    })
}

/// Ends a test with the line that replays the seed.
pub fn fail(test: &str, seed: u64, violation: &Violation) -> ! {
    panic!(
        "seed {seed}: {}\nreplay: SEED={seed} cargo test --test sim {test} -- --exact --nocapture",
        violation.0
    )
}

/// The first seed that notices a mistake: the one that did so before, else the first of `within`.
/// `ALL=1` counts from the beginning, `SEED` tries one alone.
pub fn caught<T>(
    mistake: &str,
    before: Option<u64>,
    within: u64,
    mut run: impl FnMut(u64) -> Result<T, Violation>,
) -> u64 {
    let before = before.filter(|_| std::env::var_os("ALL").is_none());
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => before.into_iter().chain(0..within).collect(),
    };
    let found = seeds
        .into_iter()
        .find_map(|seed| guarded(|| run(seed)).err().map(|violation| (seed, violation)));
    let Some((seed, violation)) = found else {
        panic!("{mistake} was not noticed in {within} seeds")
    };
    let text = violation.0.lines().next().unwrap_or_default();
    println!("{mistake}: noticed by seed {seed} of {within}: {text}");
    seed
}

/// Virtual seconds per real second.
pub struct Speed(Instant);

impl Speed {
    #[expect(clippy::disallowed_methods, reason = "measures real time")]
    pub fn start() -> Speed {
        Speed(Instant::now())
    }

    /// Real seconds so far.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}
