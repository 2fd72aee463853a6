//! Where verdicts are kept, which of them still counts, and in which order they are asked.

use crate::env::Environment;
use crate::identity::{Conditions, Identity};
use crate::judge::Outcome;
use crate::lock::RunDir;
use crate::verdict::{Attempt, FILE_NAME, Verdict};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A verdict this young holds for its device whatever the directory, and is not measured again:
/// nodes that start together share one probe, and restarts in a loop write nothing.
pub const FRESH: Duration = Duration::from_secs(10 * 60);

/// A verdict from further ahead than clocks are set by hand is not trusted: it would outlive its
/// expiry by as much.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// What the answer of a verdict is worth here and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answers the question. The texts say what changed around the device since.
    Valid(Vec<String>),
    /// It does not, for this reason.
    Void(String),
}

/// The question that a stored verdict may answer.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Which device.
    pub identity: &'a Identity,
    /// Under which circumstances.
    pub conditions: &'a Conditions,
    /// The limit, in nanoseconds.
    pub limit_ns: u64,
    /// Seconds since 1970.
    pub now: u64,
}

impl Question<'_> {
    /// Whether a verdict answers: same device, comparable limit, no decisive change, and not
    /// expired unless a node already runs on it.
    pub fn standing(&self, verdict: &Verdict, in_use: bool) -> Standing {
        if !self.identity.same_device(&verdict.identity) {
            return Standing::Void(self.another(&verdict.identity));
        }
        let answers = match verdict.outcome {
            Outcome::Pass => verdict.limit_ns <= self.limit_ns,
            Outcome::Fail => verdict.limit_ns >= self.limit_ns,
            Outcome::Inconclusive | Outcome::Refused => verdict.limit_ns == self.limit_ns,
        };
        if !answers {
            return Standing::Void(format!(
                "it is about a limit of {} ms",
                verdict.limit_ns as f64 / 1e6
            ));
        }
        let ahead = verdict.created.saturating_sub(self.now);
        if !in_use && ahead > AHEAD.as_secs() {
            let days = ahead / AHEAD.as_secs();
            return Standing::Void(format!("it was made {days} days from now, by this clock"));
        }
        if !in_use && self.now > verdict.expires {
            let days = verdict.expires.saturating_sub(verdict.created) / (24 * 60 * 60);
            return Standing::Void(format!("it expired unused after {days} days"));
        }
        let (changes, forced) = verdict.conditions.changes(self.conditions);
        if forced { Standing::Void(changes.join("; ")) } else { Standing::Valid(changes) }
    }

    fn another(&self, stored: &Identity) -> String {
        let differences = self.identity.differences(stored);
        if self.identity.unknown() {
            "it may be about another device: nothing identifies this one".into()
        } else {
            format!("it is about another device ({})", differences.join("; "))
        }
    }

    /// A verdict of the last minutes from the host's run directory, whatever its answer.
    pub fn fresh(&self, run_dir: Option<&RunDir>) -> Option<Verdict> {
        let file = run_dir?.verdict_file(&self.identity.key());
        let verdict = Verdict::load(&file).ok().flatten()?;
        let young = verdict.age(self.now).is_some_and(|age| age <= FRESH);
        let valid = matches!(self.standing(&verdict, false), Standing::Valid(_));
        (young && valid).then_some(verdict)
    }
}

/// The file inside a data directory.
pub fn inside(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// The file beside a directory, so that an empty directory stays empty. `None` for a root.
pub fn beside(directory: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(directory).ok()?;
    let name = absolute.file_name()?.to_string_lossy().into_owned();
    Some(absolute.parent()?.join(format!(".{name}.disk-verdict.json")))
}

/// Files in which a node looks, in this order, with whether a node has been running on it.
pub fn candidates(directory: &Path, named: Option<&Path>) -> Vec<(PathBuf, bool)> {
    let mut files = vec![(inside(directory), true)];
    files.extend(beside(directory).map(|file| (file, false)));
    files.extend(named.map(|file| (file.to_path_buf(), false)));
    files
}

/// A place that was looked at.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The file.
    pub path: PathBuf,
    /// What is in it; the text says why it cannot be read.
    pub found: Result<Option<Verdict>, String>,
    /// Whether it answers; only with a verdict.
    pub standing: Option<Standing>,
}

/// Looks at all places in the order in which a node asks them, the host's recent runs last.
pub fn look(
    question: &Question<'_>,
    files: &[(PathBuf, bool)],
    run_dir: Option<&RunDir>,
) -> Vec<Looked> {
    let recent = run_dir.map(|run_dir| run_dir.verdict_file(&question.identity.key()));
    let mut looked: Vec<Looked> = files
        .iter()
        .map(|(path, in_use)| {
            let found = Verdict::load(path).map_err(|error| error.to_string());
            let standing = found.as_ref().ok().and_then(Option::as_ref);
            let standing = standing.map(|verdict| question.standing(verdict, *in_use));
            Looked { path: path.clone(), found, standing }
        })
        .collect();
    if let (Some(path), Some(verdict)) = (recent, question.fresh(run_dir)) {
        let standing = Some(question.standing(&verdict, false));
        looked.push(Looked { path, found: Ok(Some(verdict)), standing });
    }
    looked
}

/// Earlier runs on this device from all places that remember.
pub fn history(files: &[PathBuf], run_dir: Option<&RunDir>, identity: &Identity) -> Vec<Attempt> {
    let cached = run_dir.map(|run_dir| run_dir.verdict_file(&identity.key()));
    let mut attempts: Vec<Attempt> = files
        .iter()
        .chain(cached.as_ref())
        .filter_map(|file| Verdict::load(file).ok().flatten())
        .filter(|verdict| identity.same_device(&verdict.identity))
        .flat_map(|verdict| verdict.attempts)
        .collect();
    attempts.sort_by_key(|attempt| attempt.at);
    attempts.dedup();
    attempts
}

/// Where `bench-disk run` leaves its verdict: inside a data directory that a node has used, else
/// beside the directory.
pub fn target(environment: &Environment) -> Option<PathBuf> {
    let directory = &environment.directory;
    if directory.join("FORMAT").is_file() { Some(inside(directory)) } else { beside(directory) }
}

/// Leaves a verdict for the other nodes of this host. What was contaminated cost no writes and is
/// tried again instead. A failure here costs the next start a probe and nothing else.
pub fn publish(run_dir: Option<&RunDir>, verdict: &Verdict) {
    let settled = verdict.measured.is_some() || verdict.outcome == Outcome::Fail;
    if let Some(run_dir) = run_dir.filter(|_| settled && !verdict.identity.unknown()) {
        let _ = verdict.store(&run_dir.verdict_file(&verdict.identity.key()));
    }
}
