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
    /// Raises the level of commands that the cluster uses to what all members know; what happened,
    /// or why not.
    fn finalize_upgrade(&self) -> TextFuture;
}

/// A text for people, once something has happened; `Err` if it has not.
pub type TextFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

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
        Err(why) => reply::error(StatusCode::CONFLICT, why),
    }
}

pub(super) async fn vars(
    State(admin): State<Admin>,
    method: Method,
    extensions: Extensions,
) -> Response<Body> {
    if let Some(refused) = reply::only_get(&method) {
        return refused;
    }
    if !(admin.trusted)(&extensions) {
        let text = "debug pages are served to clients of this machine only".to_owned();
        return reply::error(StatusCode::FORBIDDEN, text);
    }
    let lines: Vec<String> = admin
        .debug
        .vars()
        .into_iter()
        .map(|(name, value)| format!("{}: {value}", serde_json::Value::String(name)))
        .collect();
    let body = format!("{{\n{}\n}}\n", lines.join(",\n"));
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    reply::with_type(StatusCode::OK, json, body)
}
