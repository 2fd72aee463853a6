//! `/debug/vars`: numbers for people with access to the machine.

use super::{Admin, reply};
use axum::body::Body;
use axum::extract::State;
use http::{Extensions, HeaderValue, Method, Response, StatusCode};

/// Values of `/debug/vars` that the node knows.
pub trait DebugSource: Send + Sync + 'static {
    /// Name and JSON value, for example `raft.status` and an object.
    fn vars(&self) -> Vec<(String, serde_json::Value)>;
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
