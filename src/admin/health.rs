//! `/health`, `/livez`, `/readyz` and `/version`.

use super::reply;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

/// How far the node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not ready yet; the text says where the start is, as in `replay 43 %`.
    Starting(String),
    /// Serving.
    Ready,
    /// Going down.
    Stopping,
}

/// An active alarm as far as health texts tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota or the disk is full.
    NoSpace,
    /// Members disagree about their data.
    Corrupt,
    /// An alarm of a newer version.
    Unknown,
}

impl AlarmKind {
    /// Name in texts and in `exclude=`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// Versions shown by `/version`; `None` while undecided.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// API level of this program, like `3.7.1`.
    pub server: String,
    /// Agreed cluster version, like `3.7.0`.
    pub cluster: Option<String>,
    /// Version of the stored data, like `3.7.0`.
    pub storage: Option<String>,
}

/// A read of the empty key range: fine, or the error text a client would get.
pub type ReadFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// The state that health answers are made of.
pub trait HealthSource: Send + Sync + 'static {
    /// How far the node is. Nothing else is asked before it is [`Phase::Ready`].
    fn phase(&self) -> Phase;
    /// Active alarms.
    fn alarms(&self) -> Vec<AlarmKind>;
    /// What limits the node without making it unhealthy, for people: shown, never decided by.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
    /// Why this member is fenced and what to do, if it is: it serves no reads.
    fn fenced(&self) -> Option<String> {
        None
    }
    /// Whether a leader is known.
    fn has_leader(&self) -> bool;
    /// Whether this member has no vote.
    fn is_learner(&self) -> bool;
    /// Reads one key: through the quorum, or locally. Ends within the request timeout.
    fn read(&self, linearizable: bool) -> ReadFuture;
    /// Versions.
    fn versions(&self) -> Versions;
    /// `/health` was answered (`etcd_server_health_success`, `..._failures`).
    fn health_answered(&self, _healthy: bool) {}
    /// One check of `livez` or `readyz` was made (`etcd_server_healthcheck{type,name}`).
    fn checked(&self, _kind: &'static str, _name: &'static str, _ok: bool) {}
}

type Source = Arc<dyn HealthSource>;
type Pairs = Query<Vec<(String, String)>>;

#[derive(Serialize)]
struct Health<'a> {
    health: &'a str,
    reason: &'a str,
}

pub(super) async fn health(
    State(source): State<Source>,
    method: Method,
    Query(query): Pairs,
) -> Response<Body> {
    if let Some(refused) = reply::only_get(&method) {
        return refused;
    }
    let reason = unhealthy(&*source, &query).await;
    source.health_answered(reason.is_none());
    let notices = source.notices().join("; ");
    let (health, text) = match &reason {
        None => ("true", notices.as_str()),
        Some(reason) => ("false", reason.as_str()),
    };
    // Two strings cannot fail to become JSON.
    let body = serde_json::to_string(&Health { health, reason: text }).unwrap_or_default();
    match reason {
        None => reply::with_type(StatusCode::OK, reply::TEXT, body),
        Some(_) => reply::error(StatusCode::SERVICE_UNAVAILABLE, body),
    }
}

async fn unhealthy(source: &dyn HealthSource, query: &[(String, String)]) -> Option<String> {
    if let Some(reason) = not_ready(source) {
        return Some(reason);
    }
    // No alarm that one could choose to overlook: nothing is served here.
    if let Some(text) = source.fenced() {
        return Some(format!("FENCED {text}"));
    }
    let excluded = |alarm: &AlarmKind| {
        query.iter().any(|(key, value)| key == "exclude" && value == alarm.as_str())
    };
    if let Some(alarm) = source.alarms().into_iter().find(|alarm| !excluded(alarm)) {
        return Some(format!("ALARM {}", alarm.as_str()));
    }
    let serializable =
        query.iter().find(|(key, _)| key == "serializable").is_some_and(|(_, v)| v == "true");
    if !serializable && !source.has_leader() {
        return Some("RAFT NO LEADER".to_owned());
    }
    source.read(!serializable).await.err().map(|error| format!("RANGE ERROR:{error}"))
}

fn not_ready(source: &dyn HealthSource) -> Option<String> {
    match source.phase() {
        Phase::Starting(what) => Some(format!("startup: {what}")),
        Phase::Ready => None,
        Phase::Stopping => Some("stopping".to_owned()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    NonLearner,
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
        }
    }

    /// `fenced` is why this member serves no reads, if it does not.
    async fn run(self, source: &dyn HealthSource, fenced: Option<&str>) -> Result<(), String> {
        let fail = |when: bool, text: &str| if when { Err(text.to_owned()) } else { Ok(()) };
        match (self, fenced) {
            (Self::DataCorruption, Some(text)) => return Err(text.to_owned()),
            (Self::SerializableRead | Self::LinearizableRead, Some(_)) => {
                return Err("this member is fenced".to_owned());
            }
            _ => {}
        }
        match self {
            Self::DataCorruption => {
                fail(source.alarms().contains(&AlarmKind::Corrupt), "alarm activated: CORRUPT")
            }
            Self::SerializableRead => source.read(false).await,
            Self::LinearizableRead => source.read(true).await,
            Self::NonLearner => fail(source.is_learner(), "not supported for learner"),
        }
    }
}

/// A set of checks under one path.
struct Kind {
    name: &'static str,
    checks: &'static [Check],
    /// Whether a start or a stop fails it.
    needs_ready: bool,
}

static LIVEZ: Kind = Kind { name: "livez", checks: &[Check::SerializableRead], needs_ready: false };
static READYZ: Kind = Kind {
    name: "readyz",
    checks: &[
        Check::DataCorruption,
        Check::SerializableRead,
        Check::LinearizableRead,
        Check::NonLearner,
    ],
    needs_ready: true,
};

pub(super) async fn livez(source: State<Source>, method: Method, query: Pairs) -> Response<Body> {
    all(&LIVEZ, source.0, method, query.0).await
}

pub(super) async fn readyz(source: State<Source>, method: Method, query: Pairs) -> Response<Body> {
    all(&READYZ, source.0, method, query.0).await
}

pub(super) async fn livez_one(
    source: State<Source>,
    Path(check): Path<String>,
    method: Method,
    query: Pairs,
) -> Response<Body> {
    one(&LIVEZ, source.0, &check, method, query.0).await
}

pub(super) async fn readyz_one(
    source: State<Source>,
    Path(check): Path<String>,
    method: Method,
    query: Pairs,
) -> Response<Body> {
    one(&READYZ, source.0, &check, method, query.0).await
}

async fn all(
    kind: &'static Kind,
    source: Source,
    method: Method,
    query: Vec<(String, String)>,
) -> Response<Body> {
    let excluded =
        |check: &Check| query.iter().any(|(key, value)| key == "exclude" && value == check.name());
    let checks = kind.checks.iter().copied().filter(|check| !excluded(check)).collect();
    answer(kind, source, checks, method, &query).await
}

async fn one(
    kind: &'static Kind,
    source: Source,
    check: &str,
    method: Method,
    query: Vec<(String, String)>,
) -> Response<Body> {
    match kind.checks.iter().copied().find(|known| known.name() == check) {
        None => reply::not_found().await,
        Some(check) => answer(kind, source, vec![check], method, &query).await,
    }
}

async fn answer(
    kind: &'static Kind,
    source: Source,
    checks: Vec<Check>,
    method: Method,
    query: &[(String, String)],
) -> Response<Body> {
    if let Some(refused) = reply::only_get(&method) {
        return refused;
    }
    if let Some(reason) = not_ready(&*source) {
        return if kind.needs_ready {
            reply::error(StatusCode::SERVICE_UNAVAILABLE, reason)
        } else {
            reply::text(StatusCode::OK, "ok\n".to_owned())
        };
    }
    // Alive all the same, but not ready whichever checks are asked for or left out.
    let fenced = source.fenced().filter(|_| kind.needs_ready);
    let (mut lines, mut failed) = (String::new(), false);
    if let Some(text) = fenced.as_ref().filter(|_| !checks.contains(&Check::DataCorruption)) {
        failed = true;
        lines.push_str(&format!("[-]fenced failed: {text}\n"));
    }
    for check in checks {
        let result = check.run(&*source, fenced.as_deref()).await;
        source.checked(kind.name, check.name(), result.is_ok());
        match result {
            Ok(()) => lines.push_str(&format!("[+]{} ok\n", check.name())),
            Err(error) => {
                failed = true;
                lines.push_str(&format!("[-]{} failed: {error}\n", check.name()));
            }
        }
    }
    if kind.needs_ready {
        lines.extend(source.notices().iter().map(|notice| format!("[!]{notice}\n")));
    }
    if failed {
        return reply::error(StatusCode::SERVICE_UNAVAILABLE, lines);
    }
    if !query.iter().any(|(key, _)| key == "verbose") {
        lines.clear();
    }
    lines.push_str("ok\n");
    reply::text(StatusCode::OK, lines)
}

#[derive(Serialize)]
struct VersionAnswer<'a> {
    etcdserver: &'a str,
    etcdcluster: &'a str,
    storage: &'a str,
}

pub(super) async fn version(State(source): State<Source>, method: Method) -> Response<Body> {
    if let Some(refused) = reply::only_get(&method) {
        return refused;
    }
    let versions = source.versions();
    let body = serde_json::to_string(&VersionAnswer {
        etcdserver: &versions.server,
        etcdcluster: versions.cluster.as_deref().unwrap_or("not_decided"),
        storage: versions.storage.as_deref().unwrap_or("unknown"),
    })
    // Three strings cannot fail to become JSON.
    .unwrap_or_default();
    reply::with_type(StatusCode::OK, HeaderValue::from_static("application/json"), body)
}
