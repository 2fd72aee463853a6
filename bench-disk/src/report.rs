//! The verdict for people: percentiles, a histogram and the reasons, in 80 columns.

mod extras;
pub mod inspect;

use crate::consequence;
use crate::env::Environment;
use crate::judge::Outcome;
use crate::stats::{Percentiles, Summary};
use crate::verdict::{Measured, Verdict};
use std::fmt::Write;
use std::time::Duration;

/// Width of running text, in characters.
const COLUMNS: usize = 80;

/// Width of the longest bar, in characters.
const BAR: usize = 44;

/// Upper edges of the histogram's rows, in microseconds: two per octave is more than a terminal
/// needs, and 10 ms is an edge.
const EDGES_US: [u64; 22] = [
    20, 40, 60, 80, 100, 150, 200, 300, 500, 750, 1_000, 1_500, 2_500, 5_000, 7_500, 10_000,
    15_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
];

/// A latency with three significant digits, in milliseconds.
pub fn millis(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    let digits = match ms {
        ms if ms >= 100.0 || ms.fract() == 0.0 => 0,
        ms if ms >= 10.0 => 1,
        ms if ms >= 0.1 => 2,
        _ => 3,
    };
    format!("{ms:.digits$} ms")
}

/// The interval of the 99th percentile.
pub fn interval(percentiles: &Percentiles, summary: &Summary) -> String {
    let confidence = summary.confidence_percent();
    let low = millis(Duration::from_nanos(percentiles.p99_low_ns));
    match percentiles.p99_high_ns {
        Some(high) => {
            format!("{confidence} % interval {low} to {}", millis(Duration::from_nanos(high)))
        }
        None => format!("{confidence} % interval {low} or more (too few samples for an upper end)"),
    }
}

/// A duration in its largest unit: `2 d`, `3 h`, `4 min`, `5 s`.
pub fn age(duration: Duration) -> String {
    match duration.as_secs() {
        s if s >= 2 * 86_400 => format!("{} d", s / 86_400),
        s if s >= 2 * 3_600 => format!("{} h", s / 3_600),
        s if s >= 120 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// The whole report.
pub fn render(environment: &Environment, verdict: &Verdict) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<11} {}", printable(&value));
    };
    row("directory", environment.directory.display().to_string());
    let because = environment.judged_because();
    if !because.is_empty() {
        row("judged at", format!("{} ({because})", environment.judged.display()));
    }
    let options = environment.mount.as_ref().map(|m| m.options.join(",")).unwrap_or_default();
    row("file system", format!("{} ({options})", environment.filesystem));
    row("device", device(environment));
    for missing in &environment.unread {
        row("not read", missing.clone());
    }
    if let Some(measured) = &verdict.measured {
        let elapsed = Duration::from_nanos(measured.elapsed_ns).as_secs_f64();
        row(
            "measured",
            format!(
                "{} synced appends in {elapsed:.1} s, {:.1} MB, profile {}",
                measured.summary.n,
                measured.bytes as f64 / 1e6,
                verdict.profile
            ),
        );
        if let Some(end) = measured.end {
            row("ended by", end.words().into());
        }
        row("durability", durability(measured));
        out.push('\n');
        out.push_str(&histogram(&measured.histogram, verdict.limit_ns));
        out.push('\n');
        out.push_str(&table(measured));
        out.push_str(&extras::render(measured));
    }
    out.push('\n');
    let limit = millis(Duration::from_nanos(verdict.limit_ns));
    let answer = format!("{}: {}", verdict.outcome.as_str(), sentence(verdict, &limit));
    out.push_str(&wrap("", 2, &answer));
    for finding in &verdict.findings {
        let mark = finding.severity.title();
        out.push_str(&wrap("  ", 4, &format!("{mark}: {} [{}]", finding.text, finding.code)));
    }
    if let Some(measured) = &verdict.measured {
        out.push_str(&wrap("  ", 4, &format!("timing: {}", consequence::timing(measured))));
        if let Some(way_out) = consequence::way_out(verdict) {
            out.push_str(&wrap("  ", 4, &format!("way out: {way_out}")));
        }
    }
    out
}

/// The text for one line of a terminal: what would steer it, in names of files above all, is escaped.
pub fn printable(text: &str) -> String {
    // Characters that turn the direction of writing hide what a name is.
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Breaks a text between words. The first line begins with `indent`, further ones are indented by
/// `hang` blanks.
pub fn wrap(indent: &str, hang: usize, text: &str) -> String {
    let text = printable(text);
    let mut out = String::from(indent);
    let mut width = indent.len();
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > indent.len() && width + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(hang));
            width = hang;
        } else if width > indent.len() {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out.push('\n');
    out
}

pub(crate) fn device(environment: &Environment) -> String {
    let mut text = if environment.layers.is_empty() {
        environment.device_name()
    } else {
        environment.layers.join(" on ")
    };
    for leaf in &environment.leaves {
        let model = leaf.model.as_deref().unwrap_or("no model");
        let cache = leaf.write_cache.as_deref().unwrap_or("unknown write cache");
        let gigabytes = leaf.sectors as f64 * 512.0 / 1e9;
        let _ = write!(text, "; {}: {model}, {gigabytes:.0} GB, {cache}", leaf.name);
        if leaf.weak() {
            text.push_str(", no serial number");
        }
    }
    text
}

pub(crate) fn durability(measured: &Measured) -> String {
    match measured.flushes {
        Some(flushes) => {
            format!("{} ({flushes} flushes for {} syncs)", measured.durability, measured.syncs)
        }
        None => format!("{} (flushes are not counted here)", measured.durability),
    }
}

pub(crate) fn sentence(verdict: &Verdict, limit: &str) -> String {
    match (&verdict.measured, verdict.outcome) {
        (_, Outcome::Refused) => "not a place for a consensus log".into(),
        (Some(measured), outcome) => {
            let p99 = millis(Duration::from_nanos(measured.percentiles.p99_ns));
            let relation = match outcome {
                Outcome::Pass => "within",
                Outcome::Fail => "above",
                // The figures alone would decide; a finding says why they do not.
                _ if measured.summary.fails() => "above",
                _ if measured.summary.passes() => "within",
                _ => "not proven to be within or above",
            };
            let but = match outcome {
                Outcome::Inconclusive if !relation.starts_with("not") => {
                    ", but that is no proof here: see the findings"
                }
                _ => "",
            };
            format!(
                "p99 {p99} is {relation} the limit of {limit} ({}){but}",
                interval(&measured.percentiles, &measured.summary)
            )
        }
        (None, Outcome::Fail) => format!("no sync within the limit of {limit}"),
        (None, _) => "nothing was measured".into(),
    }
}

/// Rows from the first to the last with samples, and a mark where the limit lies.
fn histogram(pairs: &[(u64, u64)], limit_ns: u64) -> String {
    let mut counts = vec![0u64; EDGES_US.len() + 1];
    for &(value, count) in pairs {
        let row = EDGES_US.iter().position(|&edge| value <= edge * 1_000);
        counts[row.unwrap_or(EDGES_US.len())] += count;
    }
    let largest = counts.iter().copied().max().unwrap_or(0).max(1);
    let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
    let mut out = String::new();
    for row in first..=last {
        let label = match EDGES_US.get(row) {
            Some(&edge) => format!("<= {}", millis(Duration::from_micros(edge))),
            None => "   more".into(),
        };
        let count = counts[row];
        // The smallest count still shows: rare slow syncs are what this is about.
        let length = (count as u128 * BAR as u128).div_ceil(u128::from(largest)) as usize;
        let above = row > 0 && EDGES_US[row - 1] * 1_000 >= limit_ns;
        let bar = if above { "!" } else { "#" }.repeat(length);
        let _ = writeln!(out, "{label:>12} {count:>8} {bar}");
    }
    out
}

fn table(measured: &Measured) -> String {
    let p = &measured.percentiles;
    let summary = &measured.summary;
    let cells = [
        ("p50", p.p50_ns),
        ("p90", p.p90_ns),
        ("p99", p.p99_ns),
        ("p99.9", p.p999_ns),
        ("max", p.max_ns),
    ];
    let mut out = String::new();
    for (name, _) in &cells {
        let _ = write!(out, "{name:>13}");
    }
    out.push('\n');
    for (_, value) in &cells {
        let _ = write!(out, "{:>13}", millis(Duration::from_nanos(*value)));
    }
    out.push('\n');
    let counts = format!(
        "{} of {} above the limit ({:.2} % to {:.2} %), longest burst {}, design effect {:.1}",
        summary.exceeded,
        summary.n,
        summary.fraction_low * 100.0,
        summary.fraction_high * 100.0,
        summary.longest_burst,
        summary.design_effect
    );
    out.push_str(&wrap("", 2, &counts));
    if summary.exceeded == 0 {
        let _ = writeln!(out, "bursts of up to {} syncs are covered", summary.covered_burst());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_two_or_three_digits() {
        let shown = |us| millis(Duration::from_micros(us));
        assert_eq!(shown(7), "0.007 ms");
        assert_eq!(shown(310), "0.31 ms");
        assert_eq!(shown(10_000), "10 ms");
        assert_eq!(shown(15_900), "15.9 ms");
        assert_eq!(shown(123_456), "123 ms");
    }

    #[test]
    fn bars_scale_and_mark_what_is_above_the_limit() {
        let text = histogram(&[(290_000, 880), (9_999_999, 1), (12_000_000, 2)], 10_000_000);
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[0].contains("<= 0.30 ms") && rows[0].ends_with(&"#".repeat(BAR)));
        assert!(rows.iter().all(|row| row.len() <= COLUMNS));
        let marked: Vec<&&str> = rows.iter().filter(|row| row.contains('!')).collect();
        assert!(marked.len() == 1 && marked[0].contains("<= 15 ms"), "{text}");
    }

    #[test]
    fn the_answer_does_not_contradict_its_figures() {
        let said = |slow: usize, n: usize| {
            let latencies: Vec<u64> =
                (0..n).map(|i| if i < slow { 15_000_000 } else { 300_000 }).collect();
            let mut verdict = crate::verdict::tests::sample(Outcome::Inconclusive, 1_000);
            let measured = verdict.measured.as_mut().expect("measured");
            measured.summary = Summary::of(&latencies, 10_000_000);
            measured.percentiles = Percentiles::of(&latencies, &measured.summary).expect("samples");
            sentence(&verdict, "10 ms")
        };
        let proof = "but that is no proof here";
        assert!(
            said(900, 1_000).contains("is above the limit") && said(900, 1_000).contains(proof)
        );
        let within = said(0, 20_000);
        assert!(within.contains("is within the limit") && within.contains(proof), "{within}");
        let open = said(12, 1_000);
        assert!(open.contains("not proven to be") && !open.contains(proof), "{open}");
    }

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        let name = "a\nb\u{1b}[2Jc\u{202e}d\u{9b}é µ";
        assert_eq!(printable(name), "a\\nb\\u{1b}[2Jc\\u{202e}d\\u{9b}é µ");
        assert_eq!(wrap("", 2, name).trim_end(), printable(name));
    }

    #[test]
    fn text_is_broken_between_words() {
        let text = wrap("  ", 4, &"word ".repeat(40));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= COLUMNS));
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
