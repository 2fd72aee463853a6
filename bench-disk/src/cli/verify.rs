//! `bench-disk verify`: does a stored verdict hold for this device now? Measures nothing.

use crate::cli::run::{Failure, duration};
use crate::cli::{exit, outputs};
use bench_disk::env::Environment;
use bench_disk::identity::{Conditions, Identity};
use bench_disk::judge::Outcome;
use bench_disk::lock::RunDir;
use bench_disk::output::{JSON_SCHEMA, fio};
use bench_disk::place::{self, Looked, Question, Standing};
use bench_disk::report::{age, millis, wrap};
use bench_disk::verdict::{Verdict, unix_now};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 a stored PASS holds, 1 a stored FAIL holds, 2 usage, 3 no \
    stored verdict holds or it is INCONCLUSIVE, 4 REFUSED, 5 I/O error.\n\nLooks where a node looks: in the directory, \
    beside it, in --verdict-file, and at runs of the last 10 minutes on this host.")]
pub(crate) struct Arguments {
    /// Directory that holds the data, or will
    #[arg(long, value_name = "D")]
    dir: PathBuf,
    /// Limit that the verdict must answer for
    #[arg(long, default_value = "10ms", value_parser = duration, value_name = "TIME")]
    threshold: Duration,
    /// A further file in which to look
    #[arg(long, value_name = "F")]
    verdict_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    directory: &'a PathBuf,
    /// The outcome that holds now; absent if none does.
    holds: Option<Outcome>,
    /// Seconds since 1970 at the end of the measurement that holds.
    created: Option<u64>,
    /// Why not, or what changed since.
    reasons: Vec<String>,
    /// What a node would do at its next start.
    next_start: &'static str,
    looked: Vec<Line<'a>>,
}

/// One place that was looked at.
#[derive(Serialize)]
struct Line<'a> {
    path: &'a PathBuf,
    state: &'static str,
    outcome: Option<Outcome>,
    reason: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let environment = Environment::inspect(&arguments.dir)?;
    let identity = Identity::of(&environment);
    let conditions = Conditions::of(&environment);
    let limit_ns = u64::try_from(arguments.threshold.as_nanos()).unwrap_or(u64::MAX);
    let question =
        Question { identity: &identity, conditions: &conditions, limit_ns, now: unix_now() };
    let files = place::candidates(&arguments.dir, arguments.verdict_file.as_deref());
    let looked = place::look(&question, &files, RunDir::find().as_ref());
    let holding = holding(&looked);
    let refused: Vec<String> = environment.refusals().map(|f| f.text.clone()).collect();
    // What others measured in the last minutes is not measured again, whatever it says.
    let again = match question.fresh(RunDir::find().as_ref()) {
        Some(_) => "reuses this until it is 10 minutes old, then measures",
        None => "measures again at its next start",
    };
    let (code, next_start) = match holding.map(|(_, verdict, _)| verdict.outcome) {
        _ if !refused.is_empty() => (exit::REFUSED, "refused"),
        Some(Outcome::Pass) => (exit::PASS, "starts without measuring"),
        Some(Outcome::Fail) => (exit::FAIL, again),
        Some(_) => (exit::INCONCLUSIVE, again),
        None => (exit::INCONCLUSIVE, "measures at its next start"),
    };
    let lines: Vec<Line<'_>> = looked.iter().map(line).collect();
    if arguments.json {
        let holding = holding.filter(|_| refused.is_empty());
        let reasons = match holding {
            _ if !refused.is_empty() => refused,
            Some((_, _, changes)) => changes.clone(),
            None => {
                lines.iter().filter(|l| l.state != "absent").map(|l| l.reason.clone()).collect()
            }
        };
        outputs::say_json(&Document {
            schema: JSON_SCHEMA,
            directory: &environment.directory,
            holds: holding.map(|(_, verdict, _)| verdict.outcome),
            created: holding.map(|(_, verdict, _)| verdict.created),
            reasons,
            next_start,
            looked: lines,
        })?;
    } else {
        let mut text = String::new();
        for line in &lines {
            let state = format!("{}: {}", line.path.display(), line.reason);
            text.push_str(&wrap("", 2, &state));
        }
        let _ = writeln!(text);
        text.push_str(&answer(holding, &refused, next_start));
        outputs::say(&text)?;
    }
    Ok(code)
}

/// The verdict that decides: a PASS before anything else, as the node sees it.
fn holding(looked: &[Looked]) -> Option<(&PathBuf, &Verdict, &Vec<String>)> {
    let valid = || {
        looked.iter().filter_map(|looked| match (&looked.found, &looked.standing) {
            (Ok(Some(verdict)), Some(Standing::Valid(changes))) => {
                Some((&looked.path, verdict, changes))
            }
            _ => None,
        })
    };
    valid().find(|(_, verdict, _)| verdict.outcome == Outcome::Pass).or_else(|| valid().next())
}

fn line(looked: &Looked) -> Line<'_> {
    let (state, outcome, reason) = match (&looked.found, &looked.standing) {
        (Err(error), _) => ("unreadable", None, error.clone()),
        (Ok(Some(verdict)), Some(Standing::Valid(_))) => {
            let made = match verdict.age(unix_now()) {
                Some(since) => format!("made {} ago", age(since)),
                None => "made later than it is by this clock".into(),
            };
            let outcome = verdict.outcome;
            ("valid", Some(outcome), format!("{}, {made}, holds", outcome.as_str()))
        }
        (Ok(Some(verdict)), Some(Standing::Void(reason))) => {
            let outcome = verdict.outcome;
            ("void", Some(outcome), format!("{} does not hold: {reason}", outcome.as_str()))
        }
        (Ok(_), _) => ("absent", None, "no verdict".into()),
    };
    Line { path: &looked.path, state, outcome, reason }
}

/// The last lines of the text.
fn answer(
    holding: Option<(&PathBuf, &Verdict, &Vec<String>)>,
    refused: &[String],
    next_start: &str,
) -> String {
    let mut out = String::new();
    if !refused.is_empty() {
        for reason in refused {
            out.push_str(&wrap("", 2, &format!("REFUSED: {reason}")));
        }
        return out;
    }
    match holding {
        Some((_, verdict, changes)) => {
            let word = match verdict.outcome {
                Outcome::Pass => "VALID: a stored PASS holds",
                Outcome::Fail => "FAIL: a stored FAIL holds",
                _ => "INCONCLUSIVE: the stored answer decides nothing",
            };
            let p99 = verdict.p99().map(|p99| format!("p99 {}, ", millis(p99)));
            let text = format!(
                "{word} ({}limit {}, measured {}); a node {next_start}",
                p99.unwrap_or_default(),
                millis(Duration::from_nanos(verdict.limit_ns)),
                fio::when(verdict)
            );
            out.push_str(&wrap("", 2, &text));
            for change in changes {
                out.push_str(&wrap("  ", 4, &format!("changed since: {change}")));
            }
            if !changes.is_empty() {
                let text = "these changes do not void it; a running node judges its own syncs";
                out.push_str(&wrap("  ", 4, text));
            }
        }
        None => out.push_str(&wrap(
            "",
            2,
            &format!("NOT VALID: no stored verdict holds for this device now; a node {next_start}"),
        )),
    }
    out
}
