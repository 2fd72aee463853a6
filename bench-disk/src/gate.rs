//! The gate: what a node asks before it opens its data directory.
//!
//! | data directory | `enforce` |
//! |---|---|
//! | stored PASS for the same device, any age once a node runs on it | no probe |
//! | no valid verdict | probe; FAIL or REFUSED do not start, INCONCLUSIVE starts unqualified |
//! | I/O error, barriers off, volatile or network file system | no start |
//!
//! `strict` also refuses INCONCLUSIVE and rotating disks, and trusts no verdict older than ten
//! minutes. `warn` measures and starts whatever the answer; `off` does not even measure.
//!
//! The gate qualifies the admission of a disk. It must never be why a cluster stays down: a verdict
//! that a node runs on does not expire, and doubt starts.

mod host;
pub mod live;
mod text;

pub use crate::probe::{Phase, Progress};
pub use host::Host;

use crate::ProbeError;
use crate::env::Environment;
use crate::finding::Finding;
use crate::identity::{Conditions, Identity};
use crate::judge::{Outcome, nanos};
use crate::place::{self, Question, Standing};
use crate::probe;
use crate::profile::Profile;
use crate::verdict::Verdict;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A store commit may take this many times the limit of a log sync: 25 ms for 10 ms.
const STORE_FACTOR: f64 = 2.5;

/// Exit codes of a node that does not start.
mod exit {
    pub(super) const CONFIGURATION: u8 = 1;
    pub(super) const FAIL: u8 = 20;
    pub(super) const INCONCLUSIVE: u8 = 21;
    pub(super) const REFUSED: u8 = 22;
    pub(super) const IO: u8 = 74;
}

/// How strictly the gate decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Bad disks do not start, doubt does.
    #[default]
    Enforce,
    /// Doubt does not start either, and stored verdicts are not trusted.
    Strict,
    /// Everything starts, and what is bad stays visible.
    Warn,
    /// Nothing is measured.
    Off,
}

/// A word that is no gate mode.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid disk gate mode {0:?}: use enforce, strict, warn or off")]
pub struct ModeError(String);

impl Mode {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Strict => "strict",
            Mode::Warn => "warn",
            Mode::Off => "off",
        }
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Mode::Enforce, Mode::Strict, Mode::Warn, Mode::Off]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| ModeError(text.into()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Told about a running probe.
pub type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// What the node asks.
pub struct Options {
    /// The data directory; may not exist yet.
    pub data_dir: PathBuf,
    /// The log's directory, if it is elsewhere. Its disk decides.
    pub wal_dir: Option<PathBuf>,
    /// How strictly.
    pub mode: Mode,
    /// Limit for the 99th percentile of a sync.
    pub p99_limit: Duration,
    /// A further file in which to look for a verdict.
    pub verdict_file: Option<PathBuf>,
    /// Told about a running probe about twenty times per second.
    pub progress: Option<OnProgress>,
    /// Ends a probe, or the waiting for one, when set: within two seconds, and within the time that
    /// a hung sync takes of them. The decision then means nothing.
    pub interrupt: Arc<AtomicBool>,
}

/// What becomes of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The disk is fit.
    Pass,
    /// Too slow, or it answered with an error.
    Fail,
    /// Not proven either way.
    Inconclusive,
    /// Unfit whatever its speed.
    Refused,
    /// `warn` let a bad or unmeasured disk through.
    Overridden,
    /// Not asked.
    Off,
}

impl State {
    /// All states, for metrics that begin at zero.
    pub const ALL: [State; 6] = [
        State::Pass,
        State::Fail,
        State::Inconclusive,
        State::Refused,
        State::Overridden,
        State::Off,
    ];

    /// The label of a metric.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pass => "pass",
            State::Fail => "fail",
            State::Inconclusive => "unqualified",
            State::Refused => "refused",
            State::Overridden => "overridden",
            State::Off => "off",
        }
    }
}

/// The gate's answer.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Start, or exit with `exit_code`.
    pub start: bool,
    /// 0 to start, else 1 unusable path, 20 FAIL, 21 INCONCLUSIVE, 22 REFUSED, 74 I/O error.
    pub exit_code: u8,
    /// For the metric.
    pub state: State,
    /// For people: directory, device, figures, limit, meaning, ways out.
    pub text: String,
    /// One line for the start-up text.
    pub summary: String,
    /// The measured 99th percentile.
    pub p99: Option<Duration>,
    /// Nothing was measured now.
    pub from_stored: bool,
    /// The verdict behind the decision.
    pub verdict: Option<Verdict>,
    /// What asking cost.
    pub elapsed: Duration,
}

/// Decides whether a node may start. Never panics, and leaves nothing of the probe behind.
pub fn check(options: Options) -> Decision {
    let interrupt = options.interrupt.clone();
    check_on(options, &mut host::Real::new(interrupt))
}

/// Copies the verdict into the data directory, once the node has created it: from then on it does
/// not expire. Does nothing if there is none, or if it is there already.
pub fn adopt(decision: &Decision, data_dir: &Path) -> io::Result<()> {
    let Some(verdict) = &decision.verdict else { return Ok(()) };
    let file = place::inside(data_dir);
    if Verdict::load(&file).ok().flatten().is_some_and(|there| there == *verdict) {
        return Ok(());
    }
    keep(verdict, data_dir)
}

/// Keeps a verdict that the running node's own syncs have settled, as [`adopt`] does.
///
/// # Errors
/// The file cannot be replaced.
pub fn keep(verdict: &Verdict, data_dir: &Path) -> io::Result<()> {
    verdict.store(&place::inside(data_dir)).map_err(|error| match error {
        ProbeError::Io { source, .. } => source,
        other => io::Error::other(other),
    })
}

/// An answer about one file system.
pub(crate) struct Answer {
    pub(crate) environment: Environment,
    pub(crate) verdict: Verdict,
    pub(crate) from_stored: bool,
    /// What changed around the device, and files that were ignored.
    pub(crate) remarks: Vec<String>,
}

/// The gate on any host: tests bring their own.
pub fn check_on(mut options: Options, host: &mut dyn Host) -> Decision {
    let began = Instant::now();
    let mut decision = if options.mode == Mode::Off {
        text::off(&options)
    } else {
        match ask_all(&mut options, host) {
            Ok((log, store)) => decide(&options, log, store),
            Err(error) => failed(&options, &error),
        }
    };
    decision.elapsed = began.elapsed();
    decision
}

/// Asks about the log's file system, and about the store's if it is another one.
fn ask_all(
    options: &mut Options,
    host: &mut dyn Host,
) -> Result<(Answer, Option<Answer>), ProbeError> {
    let mut progress = options.progress.take();
    let mut report = |state: &Progress| {
        if let Some(progress) = &mut progress {
            progress(state);
        }
    };
    let data = host.inspect(&options.data_dir)?;
    let mut log = match &options.wal_dir {
        Some(directory) => Some(host.inspect(directory)?),
        None => None,
    };
    // One file system is probed once, whatever the number of directories on it.
    let same = |log: &Environment| Identity::of(log).same_device(&Identity::of(&data));
    if log.as_ref().is_some_and(same) {
        log = None;
    }
    let limit = options.p99_limit;
    Ok(match log {
        None => (ask(options, host, data, limit, false, &mut report)?, None),
        Some(log) => {
            let log = ask(options, host, log, limit, false, &mut report)?;
            let limit = limit.mul_f64(STORE_FACTOR);
            (log, Some(ask(options, host, data, limit, true, &mut report)?))
        }
    })
}

/// Asks about one file system: refusals first, then what is stored, then the disk itself.
fn ask(
    options: &Options,
    host: &mut dyn Host,
    environment: Environment,
    limit: Duration,
    store: bool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Answer, ProbeError> {
    let answer = |environment, verdict, from_stored, remarks| {
        Ok(Answer { environment, verdict, from_stored, remarks })
    };
    let profile = Profile::boot();
    if environment.refusals().next().is_some() {
        let verdict = probe::blank(&environment, profile.name, limit, Outcome::Refused);
        return answer(environment, verdict, false, Vec::new());
    }
    let identity = Identity::of(&environment);
    let conditions = Conditions::of(&environment);
    let question = Question {
        identity: &identity,
        conditions: &conditions,
        limit_ns: nanos(limit),
        now: host.now(),
    };
    let files = place::candidates(&options.data_dir, options.verdict_file.as_deref());
    let mut remarks = Vec::new();
    if options.mode != Mode::Strict
        && let Some(verdict) = stored(&question, &files, store, &mut remarks)
    {
        return answer(environment, verdict, true, remarks);
    }
    let paths: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
    let (verdict, from_stored) =
        match host.fresh_or_measure(&environment, &profile, limit, &question, &paths, progress) {
            Ok(found) => found,
            Err(error) => (doubt(&environment, profile.name, limit, error)?, false),
        };
    answer(environment, verdict, from_stored, remarks)
}

/// What kept the probe from measuring without speaking against the disk leaves it in doubt; an
/// error of the disk stays one.
fn doubt(
    environment: &Environment,
    profile: &str,
    limit: Duration,
    error: ProbeError,
) -> Result<Verdict, ProbeError> {
    let full = matches!(&error, ProbeError::Io { source, .. }
        if source.kind() == io::ErrorKind::StorageFull);
    let code = match &error {
        ProbeError::NoSpace { .. } => "no-space",
        ProbeError::Locked(_) => "locked",
        _ if full => "no-space",
        _ => return Err(error),
    };
    let mut verdict = probe::blank(environment, profile, limit, Outcome::Inconclusive);
    verdict.findings.insert(0, Finding::warn(code, format!("not measured: {error}")));
    Ok(verdict)
}

/// The first stored PASS that answers. Other answers are not trusted: disks get replaced, and a
/// FAIL that was stored long ago must not keep a node down.
fn stored(
    question: &Question<'_>,
    files: &[(PathBuf, bool)],
    store: bool,
    remarks: &mut Vec<String>,
) -> Option<Verdict> {
    for (path, in_use) in files {
        let verdict = match Verdict::load(path) {
            Ok(Some(verdict)) => verdict,
            Ok(None) => continue,
            Err(error) => {
                remarks.push(error.to_string());
                continue;
            }
        };
        // A verdict about two file systems holds the store's inside the log's.
        let about = match (store, verdict.store.as_deref()) {
            (true, Some(inner)) => inner,
            _ => &verdict,
        };
        match question.standing(about, *in_use) {
            Standing::Valid(changes) if about.outcome == Outcome::Pass => {
                remarks.extend(changes);
                return Some(about.clone());
            }
            Standing::Valid(_) => {}
            Standing::Void(reason) => {
                remarks.push(format!("the verdict in {} does not count: {reason}", path.display()));
            }
        }
    }
    None
}

/// Turns answers into a decision by the table above.
fn decide(options: &Options, mut log: Answer, store: Option<Answer>) -> Decision {
    if options.mode == Mode::Strict
        && log.verdict.outcome == Outcome::Pass
        && let Some(leaf) = log.environment.rotating()
    {
        let text = format!("{} is a rotating disk, which strict mode does not accept", leaf.name);
        log.verdict.outcome = Outcome::Refused;
        log.verdict.findings.insert(0, Finding::refuse("rotating-disk", text));
    }
    let decisive = match &store {
        Some(store) if store.verdict.outcome == Outcome::Refused => store,
        _ => &log,
    };
    let outcome = decisive.verdict.outcome;
    let (state, exit_code) = match (outcome, options.mode) {
        (Outcome::Pass, _) => (State::Pass, 0),
        (Outcome::Inconclusive, Mode::Enforce) => (State::Inconclusive, 0),
        (_, Mode::Warn | Mode::Off) => (State::Overridden, 0),
        (Outcome::Inconclusive, Mode::Strict) => (State::Inconclusive, exit::INCONCLUSIVE),
        (Outcome::Fail, _) => (State::Fail, exit::FAIL),
        (Outcome::Refused, _) => (State::Refused, exit::REFUSED),
    };
    let text = text::decision(options, decisive, store.as_ref(), exit_code == 0);
    let summary = text::summary(decisive, state);
    let from_stored = log.from_stored && store.as_ref().is_none_or(|store| store.from_stored);
    let p99 = log.verdict.p99();
    log.verdict.store = store.map(|store| Box::new(store.verdict));
    Decision {
        start: exit_code == 0,
        exit_code,
        state,
        text,
        summary,
        p99,
        from_stored,
        // A refusal is about the place, not about a measured device.
        verdict: (outcome != Outcome::Refused).then_some(log.verdict),
        elapsed: Duration::ZERO,
    }
}

/// The disk could not be asked. A wrong path is no answer of a disk: no mode starts on it.
fn failed(options: &Options, error: &ProbeError) -> Decision {
    let path = of_the_path(error);
    let start = options.mode == Mode::Warn && !path;
    Decision {
        start,
        exit_code: match (start, path) {
            (true, _) => 0,
            (false, true) => exit::CONFIGURATION,
            (false, false) => exit::IO,
        },
        state: if start { State::Overridden } else { State::Fail },
        text: text::failed(options, error, start, path),
        summary: format!("not measured: {error}"),
        p99: None,
        from_stored: false,
        verdict: None,
        elapsed: Duration::ZERO,
    }
}

/// Whether an error is about the path that was named, or about who may use it, not about the disk.
fn of_the_path(error: &ProbeError) -> bool {
    use io::ErrorKind::{
        InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    match error {
        ProbeError::NotADirectory(_) => true,
        ProbeError::Io { source, .. } => {
            source.raw_os_error() == Some(libc::ELOOP)
                || matches!(
                    source.kind(),
                    NotFound
                        | NotADirectory
                        | PermissionDenied
                        | ReadOnlyFilesystem
                        | InvalidFilename
                        | InvalidInput
                )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
