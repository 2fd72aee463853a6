//! Progress on a terminal; silence anywhere else.

use bench_disk::probe::{Phase, Progress};
use bench_disk::report::millis;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// A bar on standard error.
pub(crate) struct Bar {
    bar: ProgressBar,
}

/// Time is shown in thousandths of the phase.
const STEPS: u64 = 1_000;

impl Bar {
    /// A bar that draws only if standard error is a terminal.
    pub(crate) fn new() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        let style = ProgressStyle::with_template("{msg:52} [{bar:18}] {percent:>3} %")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        Self { bar }
    }

    /// Shows a state. `samples` of the profile or its time, whichever is further behind.
    pub(crate) fn show(&self, progress: &Progress, shortest: Duration) {
        let seconds = progress.elapsed.as_secs_f64();
        let message = match progress.phase {
            Phase::Locked => "another probe of this device runs, waiting".into(),
            Phase::Quiet => "others keep the device busy, waiting".into(),
            Phase::Prepare => "preparing files".into(),
            Phase::Side(name) => format!("the verdict is known; phase {name} beside it"),
            Phase::Measure => measuring(progress, shortest),
        };
        let part = |done: f64, whole: f64| if whole > 0.0 { (done / whole).min(1.0) } else { 1.0 };
        let position = match progress.phase {
            Phase::Measure => {
                let by_count = part(progress.samples as f64, progress.target as f64);
                let by_time = part(seconds, shortest.as_secs_f64());
                by_count.min(by_time).max(part(seconds, progress.time_box.as_secs_f64()))
            }
            _ => part(seconds, progress.time_box.as_secs_f64()),
        };
        self.bar.set_message(message);
        self.bar.set_position((position * STEPS as f64) as u64);
    }
}

/// `12034 syncs, p99 0.31 ms, 2 slow, 42 s left`: at most 52 characters for any run that ends.
fn measuring(progress: &Progress, shortest: Duration) -> String {
    let mut text = format!("{} syncs", progress.samples);
    if let Some(p99) = progress.p99 {
        let _ = write!(text, ", p99 {}", millis(p99));
    }
    if progress.exceeded > 0 {
        let _ = write!(text, ", {} slow", progress.exceeded);
    }
    let left = left(progress, shortest);
    let _ = match left.as_secs() {
        s if s >= 120 => write!(text, ", {} min left", s.div_ceil(60)),
        s => write!(text, ", {s} s left"),
    };
    text
}

/// Time to the planned end: the shortest duration or the missing samples at the rate so far,
/// whichever takes longer, and never past the time box.
fn left(progress: &Progress, shortest: Duration) -> Duration {
    let elapsed = progress.elapsed;
    let missing = progress.target.saturating_sub(progress.samples) as f64;
    let rate = progress.samples as f64 / elapsed.as_secs_f64().max(1e-3);
    let by_count = Duration::try_from_secs_f64(missing / rate.max(1e-3)).unwrap_or(Duration::MAX);
    let by_time = shortest.saturating_sub(elapsed);
    by_count.max(by_time).min(progress.time_box.saturating_sub(elapsed))
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(samples: u64, elapsed: u64) -> Progress {
        Progress {
            phase: Phase::Measure,
            samples,
            exceeded: 12_345,
            target: 30_000,
            elapsed: Duration::from_secs(elapsed),
            time_box: Duration::from_secs(180),
            p99: Some(Duration::from_micros(15_900)),
        }
    }

    #[test]
    fn the_time_left_follows_what_is_further_behind() {
        let shortest = Duration::from_secs(60);
        assert_eq!(left(&progress(15_000, 30), shortest), Duration::from_secs(30));
        assert_eq!(left(&progress(29_999, 10), shortest), Duration::from_secs(50));
        assert_eq!(left(&progress(0, 20), shortest), Duration::from_secs(160));
        assert_eq!(left(&progress(10, 200), shortest), Duration::ZERO);
    }

    #[test]
    fn the_line_says_what_a_watcher_wants_and_fits() {
        let text = measuring(&progress(15_000, 30), Duration::from_secs(60));
        assert_eq!(text, "15000 syncs, p99 15.9 ms, 12345 slow, 30 s left");
        assert!(text.len() <= 52);
    }
}
