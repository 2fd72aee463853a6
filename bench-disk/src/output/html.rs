//! The result as one page for browsers: no script, no outside resource, light and dark.

use crate::consequence;
use crate::env::Environment;
use crate::explain;
use crate::finding::Finding;
use crate::output::{fio, plot};
use crate::report::{self, millis};
use crate::verdict::{Measured, Verdict};
use std::fmt::Write;
use std::time::Duration;

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub fn render(environment: &Environment, verdict: &Verdict) -> String {
    let outcome = verdict.outcome.as_str();
    let directory = environment.directory.display().to_string();
    let limit = millis(Duration::from_nanos(verdict.limit_ns));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{outcome}: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header class=\"{}\"><span class=\"badge\">{outcome}</span><h1>{}</h1><p>{}</p></header>\n",
        escape(&directory),
        outcome.to_lowercase(),
        escape(&directory),
        escape(&report::sentence(verdict, &limit)),
    );
    if let Some(measured) = &verdict.measured {
        figures(&mut out, verdict, measured);
        plots(&mut out, measured, verdict.limit_ns);
    }
    findings(&mut out, &verdict.findings);
    surroundings(&mut out, environment, verdict);
    history(&mut out, verdict);
    let _ = write!(
        out,
        "<footer>{}, profile {}, {}</footer>\n</main>\n</body>\n</html>\n",
        escape(&verdict.tool),
        escape(&verdict.profile),
        fio::when(verdict)
    );
    out
}

fn figures(out: &mut String, verdict: &Verdict, measured: &Measured) {
    let p = &measured.percentiles;
    let cells = [
        ("median", p.p50_ns),
        ("p90", p.p90_ns),
        ("p99", p.p99_ns),
        ("p99.9", p.p999_ns),
        ("maximum", p.max_ns),
    ];
    out.push_str("<section class=\"tiles\">");
    for (name, ns) in cells {
        let value = millis(Duration::from_nanos(ns));
        let _ = write!(out, "<div><b>{value}</b><span>{name}</span></div>");
    }
    out.push_str("</section>\n<section><table>");
    let summary = &measured.summary;
    row(out, "interval of p99", &report::interval(p, summary));
    let share = format!(
        "{} of {} ({:.2} % to {:.2} %), longest burst {}, design effect {:.1}",
        summary.exceeded,
        summary.n,
        summary.fraction_low * 100.0,
        summary.fraction_high * 100.0,
        summary.longest_burst,
        summary.design_effect
    );
    row(out, "above the limit", &share);
    row(out, "durability", &report::durability(measured));
    row(out, "timing", &consequence::timing(measured));
    row(out, "way out", &consequence::way_out(verdict).unwrap_or_default());
    let ms = |ns: u64| millis(Duration::from_nanos(ns));
    if let Some(open) = &measured.open_loop {
        let text = format!(
            "p99 {}, p99.9 {}, maximum {} for requests each {}",
            ms(open.p99_ns),
            ms(open.p999_ns),
            ms(open.max_ns),
            ms(open.interval_ns)
        );
        row(out, "open loop", &text);
    }
    if let Some(cost) = &measured.flush_cost {
        let (bare, synced) = (ms(cost.write_ns), ms(cost.synced_ns));
        row(out, "flush", &format!("a write of 4 KiB takes {bare}, with a sync {synced}"));
    }
    let elapsed = Duration::from_nanos(measured.elapsed_ns).as_secs_f64();
    row(out, "run", &format!("{elapsed:.1} s, {:.1} MB written", measured.bytes as f64 / 1e6));
    out.push_str("</table></section>\n");
    if measured.phases.len() > 1 {
        phases(out, measured);
    }
}

/// The phase that decides, and those measured beside it.
fn phases(out: &mut String, measured: &Measured) {
    out.push_str(
        "<section><h2>Phases (the first decides)</h2><table class=\"grid\"><tr><th>phase</th>\
         <th>median</th><th>p99</th><th>p99.9</th><th>maximum</th><th>syncs/s</th><th>slow</th></tr>",
    );
    for phase in &measured.phases {
        let _ = write!(out, "<tr><td>{}</td>", escape(&phase.name));
        for ns in [phase.p50_ns, phase.p99_ns, phase.p999_ns, phase.max_ns] {
            let _ = write!(out, "<td>{}</td>", millis(Duration::from_nanos(ns)));
        }
        let (rate, slow) = (phase.syncs_per_second, phase.exceeded);
        let _ = write!(out, "<td>{rate:.0}</td><td>{slow}</td></tr>");
    }
    out.push_str("</table></section>\n");
}

fn plots(out: &mut String, measured: &Measured, limit_ns: u64) {
    let figures = [
        ("How long syncs took", plot::histogram(&measured.histogram, limit_ns)),
        ("The slowest of them", plot::tail(&measured.histogram, limit_ns)),
        ("Over the run", plot::course(&measured.course, limit_ns)),
    ];
    for (title, plot) in figures {
        if plot.is_empty() {
            continue;
        }
        let _ = write!(out, "<section><h2>{title}</h2><figure>{plot}");
        if title == "Over the run" {
            out.push_str(
                "<figcaption><i class=\"p50\"></i> median <i class=\"p99\"></i> p99 \
                 <i class=\"max\"></i> maximum</figcaption>",
            );
        }
        out.push_str("</figure></section>\n");
    }
}

fn findings(out: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    out.push_str("<section><h2>Findings</h2>");
    for finding in findings {
        let _ = write!(
            out,
            "<article class=\"{}\"><h3>{} <code>{}</code></h3><p>{}</p>",
            finding.severity.as_str(),
            finding.severity.title(),
            escape(&finding.code),
            escape(&finding.text)
        );
        if let Some(explanation) = explain::of(&finding.code) {
            let _ = write!(
                out,
                "<p>{}</p><p><strong>What to do:</strong> {}</p>",
                escape(explanation.meaning),
                escape(explanation.remedy)
            );
        }
        out.push_str("</article>");
    }
    out.push_str("</section>\n");
}

fn surroundings(out: &mut String, environment: &Environment, verdict: &Verdict) {
    out.push_str("<section><h2>What lies under the directory</h2><table>");
    let because = environment.judged_because();
    if !because.is_empty() {
        row(out, "judged at", &format!("{} ({because})", environment.judged.display()));
    }
    let options = environment.mount.as_ref().map(|m| m.options.join(", ")).unwrap_or_default();
    row(out, "file system", &environment.filesystem);
    row(out, "mount options", &options);
    row(out, "device", &report::device(environment));
    row(out, "kernel", &environment.kernel);
    row(out, "limit", &millis(Duration::from_nanos(verdict.limit_ns)));
    for missing in &environment.unread {
        row(out, "not read", missing);
    }
    out.push_str("</table></section>\n");
}

fn history(out: &mut String, verdict: &Verdict) {
    if verdict.attempts.len() < 2 {
        return;
    }
    out.push_str("<section><h2>Runs on this device</h2><table>");
    for attempt in verdict.attempts.iter().rev() {
        let p99 = attempt.p99_ns.map(|ns| format!(", p99 {}", millis(Duration::from_nanos(ns))));
        let text = format!(
            "{}{} ({})",
            attempt.outcome.as_str(),
            p99.unwrap_or_default(),
            attempt.profile
        );
        row(out, &format!("{} UTC", fio::calendar(attempt.at)), &text);
    }
    out.push_str("</table></section>\n");
}

fn row(out: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
}

/// Text in a page, also inside attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;
    use crate::verdict::tests::sample;
    use std::path::Path;

    #[test]
    fn the_page_stands_alone_and_nothing_in_it_is_taken_for_markup() {
        let mut environment = Environment::inspect(Path::new("/")).expect("a root");
        environment.directory = "/<script>alert(1)</script>&\"'".into();
        let mut verdict = sample(Outcome::Fail, 1_000);
        verdict.findings.push(Finding::warn("above-limit", "<img src=x>"));
        let page = render(&environment, &verdict);
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)"));
        for outside in ["http:", "https:", "src=", "url(", "@import"] {
            assert!(
                !page.replace("src=x", "").contains(outside),
                "{outside} leads out of the page"
            );
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.matches("<svg").count() >= 2 && page.contains("What to do:"));
        assert!(page.contains("<td>burst</td>") && page.contains("<th>open loop</th>"), "{page}");
    }

    #[test]
    fn a_refusal_without_figures_has_a_page_too() {
        let environment = Environment::inspect(Path::new("/")).expect("a root");
        let mut verdict = sample(Outcome::Refused, 1_000);
        verdict.measured = None;
        let page = render(&environment, &verdict);
        assert!(page.contains("REFUSED") && !page.contains("<svg"));
    }
}
