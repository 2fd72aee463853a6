//! `/debug`: numbers and changes of state for people with access to the machine.

use super::{Admin, reply};
use axum::body::Body;
use axum::extract::State;
use http::header::ORIGIN;
use http::{Extensions, HeaderMap, HeaderValue, Method, Response, StatusCode};
use std::pin::Pin;

/// Values of `/debug/vars` that the node knows.
pub trait DebugSource: Send + Sync + 'static {
    /// Name and JSON value, for example `raft.status` and an object.
    fn vars(&self) -> Vec<(String, serde_json::Value)>;
    /// Levels of commands of the cluster and of its members; `None` before the node is started.
    fn upgrade(&self) -> Option<serde_json::Value>;
    /// Raises the level of commands that the cluster uses to what all members know; what happened,
    /// or why not.
    fn finalize_upgrade(&self) -> TextFuture;
}

/// A text for people, once something has happened; `Err` if it has not.
pub type TextFuture = Pin<Box<dyn Future<Output = Result<String, NotDone>> + Send>>;

/// Why something was not done, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// It cannot be done as things are (409).
    Conflict(String),
    /// Nobody can tell now: no leader, no quorum, no answer in time (503).
    Unavailable(String),
}

/// Changes of state are POST, from people with access to the machine, and never from a browser: a
/// page elsewhere could make one send this, and browsers say where a POST comes from.
pub(super) async fn finalize(
    State(admin): State<Admin>,
    method: Method,
    headers: HeaderMap,
    extensions: Extensions,
) -> Response<Body> {
    if let Some(refused) = reply::only_post(&method) {
        return refused;
    }
    if !(admin.trusted)(&extensions) || headers.contains_key(ORIGIN) {
        let text = "only clients of this machine change its state, and no browser".to_owned();
        return reply::error(StatusCode::FORBIDDEN, text);
    }
    match admin.debug.finalize_upgrade().await {
        Ok(text) => reply::text(StatusCode::OK, text + "\n"),
        Err(NotDone::Conflict(why)) => reply::error(StatusCode::CONFLICT, why),
        Err(NotDone::Unavailable(why)) => reply::error(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Who knows which level of commands, for `assay upgrade status`.
pub(super) async fn upgrade(
    State(admin): State<Admin>,
    method: Method,
    extensions: Extensions,
) -> Response<Body> {
    if let Some(refused) = only_trusted_get(&admin, &method, &extensions) {
        return refused;
    }
    match admin.debug.upgrade() {
        Some(value) => reply::with_type(StatusCode::OK, JSON, format!("{value}\n")),
        None => {
            let text = "this member is starting; try again".to_owned();
            reply::error(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

pub(super) async fn vars(
    State(admin): State<Admin>,
    method: Method,
    extensions: Extensions,
) -> Response<Body> {
    if let Some(refused) = only_trusted_get(&admin, &method, &extensions) {
        return refused;
    }
    let lines: Vec<String> = admin
        .debug
        .vars()
        .into_iter()
        .map(|(name, value)| format!("{}: {value}", serde_json::Value::String(name)))
        .collect();
    let body = format!("{{\n{}\n}}\n", lines.join(",\n"));
    reply::with_type(StatusCode::OK, JSON, body)
}

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

fn only_trusted_get(
    admin: &Admin,
    method: &Method,
    extensions: &Extensions,
) -> Option<Response<Body>> {
    reply::only_get(method).or_else(|| {
        (!(admin.trusted)(extensions)).then(|| {
            let text = "debug pages are served to clients of this machine only".to_owned();
            reply::error(StatusCode::FORBIDDEN, text)
        })
    })
}
