//! Progress on a terminal; silence anywhere else.

use bench_disk::probe::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

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
        let style = ProgressStyle::with_template("{msg:44} [{bar:26}] {percent:>3} %")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        Self { bar }
    }

    /// Shows a state. `samples` of the profile or its time, whichever is further behind.
    pub(crate) fn show(&self, progress: &Progress, shortest: std::time::Duration) {
        let seconds = progress.elapsed.as_secs_f64();
        let message = match progress.phase {
            Phase::Locked => "another probe of this device runs, waiting".into(),
            Phase::Quiet => "others keep the device busy, waiting".into(),
            Phase::Prepare => "preparing files".into(),
            Phase::Side(name) => format!("the verdict is known; phase {name} beside it"),
            Phase::Measure => {
                let (samples, above) = (progress.samples, progress.exceeded);
                format!("{samples} syncs, {above} above the limit, {seconds:.0} s")
            }
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

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
