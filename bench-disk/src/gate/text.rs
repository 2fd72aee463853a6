//! What the gate tells people: one clear text, and one line for the start-up text.

use crate::ProbeError;
use crate::env::nearest_existing;
use crate::finding::{Finding, Severity};
use crate::gate::{Answer, Decision, Mode, Options, State};
use crate::judge::Outcome;
use crate::place::FRESH;
use crate::report::{age, interval, millis, wrap};
use crate::verdict::{self, Verdict};
use std::fmt::Write;
use std::time::Duration;

/// Where values begin: lines after the first are aligned with it.
const VALUE_COLUMN: usize = 13;

/// The decision of a gate that was not asked.
pub(super) fn off(options: &Options) -> Decision {
    let place = options.wal_dir.as_ref().unwrap_or(&options.data_dir).display();
    let text = format!(
        "disk gate off: {place} was not measured. A disk whose p99 sync is above {} makes leaders \
         lose their terms; remove --disk-gate=off outside of development.",
        millis(options.p99_limit)
    );
    Decision {
        start: true,
        exit_code: 0,
        state: State::Off,
        text,
        summary: "not measured (--disk-gate=off)".into(),
        p99: None,
        from_stored: false,
        verdict: None,
        elapsed: Duration::ZERO,
    }
}

/// One line, for example `PASS, p99 0.31 ms (stored 2 d ago)`.
pub(super) fn summary(answer: &Answer, state: State) -> String {
    let verdict = &answer.verdict;
    let mut line = match state {
        State::Overridden => format!("{} OVERRIDDEN", verdict.outcome.as_str()),
        State::Inconclusive => "INCONCLUSIVE, unqualified".into(),
        _ => verdict.outcome.as_str().to_string(),
    };
    if let Some(p99) = verdict.p99() {
        let _ = write!(line, ", p99 {}", millis(p99));
        // Without it "FAIL, p99 8 ms" looks like a mistake: what decides is the proof, not this figure.
        if state != State::Pass {
            let limit = millis(Duration::from_nanos(verdict.limit_ns));
            let _ = write!(line, ", limit {limit}");
        }
    }
    if answer.from_stored {
        let stored = verdict.age(verdict::unix_now()).map(age);
        let _ = write!(line, " (stored {} ago)", stored.unwrap_or_else(|| "some time".into()));
    } else if let Some(measured) = &verdict.measured {
        let elapsed = Duration::from_nanos(measured.elapsed_ns).as_secs_f64();
        let _ = write!(line, " (measured in {elapsed:.1} s)");
    } else if let Some(reason) = verdict.findings.first() {
        let _ = write!(line, ": {}", reason.code);
    }
    line
}

/// The whole text.
pub(super) fn decision(
    options: &Options,
    answer: &Answer,
    store: Option<&Answer>,
    start: bool,
) -> String {
    let verdict = &answer.verdict;
    let environment = &answer.environment;
    let mut text = format!("disk gate: {}\n", headline(verdict, start));
    let mut row = |name: &str, value: &str| {
        text.push_str(&wrap("  ", VALUE_COLUMN, &format!("{name:<9}  {value}")))
    };
    row("directory", &environment.directory.display().to_string());
    let because = environment.judged_because();
    if !because.is_empty() {
        row("judged at", &format!("{} ({because})", environment.judged.display()));
    }
    row("device", &format!("{} ({})", environment.device_name(), environment.filesystem));
    if let Some(measured) = &verdict.measured {
        let source = match (answer.from_stored, verdict.age(verdict::unix_now())) {
            (true, Some(since)) => format!(", measured {} ago", age(since)),
            (true, None) => ", stored".into(),
            (false, _) => String::new(),
        };
        row(
            "p99 sync",
            &format!(
                "{}, {}, {} samples{source}",
                millis(Duration::from_nanos(measured.percentiles.p99_ns)),
                interval(&measured.percentiles, &measured.summary),
                measured.summary.n
            ),
        );
    }
    row("limit", &millis(Duration::from_nanos(verdict.limit_ns)));
    for finding in decisive(verdict) {
        row(if finding.severity == Severity::Note { "note" } else { "reason" }, &finding.text);
    }
    for remark in &answer.remarks {
        row("note", remark);
    }
    if let Some(store) = store.filter(|store| !std::ptr::eq(*store, answer)) {
        row("store", &format!("{} in {}", other(store), store.environment.directory.display()));
    }
    row("meaning", meaning(verdict.outcome));
    for way in ways_out(options, answer, start) {
        row("way out", &way);
    }
    text.trim_end().to_string()
}

fn headline(verdict: &Verdict, start: bool) -> String {
    let outcome = verdict.outcome.as_str();
    match (verdict.outcome, start) {
        (Outcome::Pass, _) => format!("{outcome}, the disk is fit"),
        (Outcome::Inconclusive, true) => format!("{outcome}, starting unqualified"),
        (_, true) => format!("{outcome}, OVERRIDDEN by --disk-gate=warn, starting all the same"),
        (_, false) => format!("{outcome}, not starting"),
    }
}

/// The decisive finding first, then warnings; notes only where nothing else explains the answer.
fn decisive(verdict: &Verdict) -> impl Iterator<Item = &Finding> {
    let quiet = verdict.outcome == Outcome::Pass;
    verdict
        .findings
        .iter()
        .filter(move |finding| finding.severity != Severity::Note && !(quiet && routine(finding)))
}

/// Findings that a start with a PASS need not repeat every time.
fn routine(finding: &Finding) -> bool {
    finding.code == "heartbeat-stall"
}

fn other(store: &Answer) -> String {
    match store.verdict.p99() {
        Some(p99) => format!("{}, p99 {}", store.verdict.outcome.as_str(), millis(p99)),
        None => store.verdict.outcome.as_str().into(),
    }
}

fn meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "syncs are fast enough for the default heartbeat and election timeouts",
        Outcome::Fail => {
            "every write waits for a sync: on this disk writes are slow, heartbeats come late, and \
             a leader loses its term under load"
        }
        Outcome::Inconclusive => {
            "neither fit nor unfit is proven; the running node's own syncs will settle it"
        }
        Outcome::Refused => "acknowledged writes could be lost or damaged here",
    }
}

fn ways_out(options: &Options, answer: &Answer, start: bool) -> Vec<String> {
    let place = options.wal_dir.as_ref().unwrap_or(&options.data_dir).display();
    if start {
        return Vec::new();
    }
    match answer.verdict.outcome {
        Outcome::Pass => Vec::new(),
        Outcome::Fail => vec![
            "use a faster disk for this directory, or for the log alone with --wal-dir".into(),
            if answer.from_stored {
                format!(
                    "measure again now: bench-disk run --dir {place} (a start does so by itself \
                     {} min after the last measurement)",
                    FRESH.as_secs() / 60
                )
            } else {
                format!("look closer: bench-disk run --dir {place}")
            },
            "start all the same: --disk-gate=warn (stays visible in text, metric and alert), or \
             raise --disk-gate-p99"
                .into(),
        ],
        Outcome::Inconclusive => vec![
            format!("settle it on a quiet device: bench-disk run --dir {place} --profile standard"),
            "start in doubt: --disk-gate=enforce".into(),
        ],
        Outcome::Refused => vec![
            "mount a fit volume (ext4 or XFS on a local disk) for this directory".into(),
            "start all the same, for development only: --disk-gate=warn".into(),
        ],
    }
}

/// The text for a disk that could not be asked; `path` tells that the named path is the reason.
pub(super) fn failed(options: &Options, error: &ProbeError, start: bool, path: bool) -> String {
    let directory = options.wal_dir.as_ref().unwrap_or(&options.data_dir);
    let headline = match (start, path) {
        (true, _) => "I/O ERROR, OVERRIDDEN by --disk-gate=warn, starting all the same",
        (false, true) => "NOT MEASURED, not starting",
        (false, false) => "I/O ERROR, not starting",
    };
    let mut text = format!("disk gate: {headline}\n  directory  {}\n", directory.display());
    if let Ok(judged) = nearest_existing(directory) {
        let _ = writeln!(text, "  judged at  {}", judged.display());
    }
    let _ = writeln!(text, "  reason     {error}");
    if path {
        text.push_str(
            "  meaning    no data can be kept in this directory, whatever its disk\n  \
             way out    mend what the reason names, or choose another directory\n",
        );
    } else if !start {
        let _ = writeln!(
            text,
            "  meaning    a disk that fails one write or sync during a probe would fail the log\n  \
             way out    mend what the reason names; --disk-gate={} starts all the same, for \
             development only",
            Mode::Warn
        );
    }
    text.trim_end().to_string()
}
