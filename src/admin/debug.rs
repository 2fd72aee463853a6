//! `/debug`: numbers and changes of state for people with access to the machine.

use super::{Admin, access, reply};
use axum::body::Body;
use axum::extract::{Request, State};
use http::header::{ORIGIN, REFERER};
use http::{Extensions, HeaderName, HeaderValue, Method, Response, StatusCode};
use std::pin::Pin;
use std::sync::Arc;

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

/// Changes of state are POST, from people with access to the machine, and never from a browser.
pub(super) async fn finalize(State(admin): State<Admin>, request: Request) -> Response<Body> {
    if let Some(refused) = reply::only_post(request.method()).or_else(|| admin.refuse(&request)) {
        return refused;
    }
    match admin.debug.finalize_upgrade().await {
        Ok(text) => reply::text(StatusCode::OK, text + "\n"),
        Err(NotDone::Conflict(why)) => reply::error(StatusCode::CONFLICT, why),
        Err(NotDone::Unavailable(why)) => reply::error(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Who knows which level of commands, for `assay upgrade status`.
pub(super) async fn upgrade(State(admin): State<Admin>, request: Request) -> Response<Body> {
    if let Some(refused) = reply::only_get(request.method()).or_else(|| admin.refuse(&request)) {
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

pub(super) async fn vars(State(admin): State<Admin>, request: Request) -> Response<Body> {
    if let Some(refused) = reply::only_get(request.method()).or_else(|| admin.refuse(&request)) {
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

/// Who may see these pages and change the state of the node.
#[derive(Clone)]
pub struct Trust {
    /// Whether a request came from this machine or proved who it is.
    pub check: fn(&Extensions) -> bool,
    /// Where a request came from, for people.
    pub origin: fn(&Extensions) -> String,
    /// What somebody does who is not trusted and should be, for people.
    pub ways: Arc<str>,
}

/// Headers that a browser adds by itself, and that no page can take away. Old ones know only the last.
const OF_BROWSERS: [HeaderName; 3] = [ORIGIN, HeaderName::from_static("sec-fetch-site"), REFERER];

impl Admin {
    /// The answer to somebody who may not see these pages, or change anything through them.
    ///
    /// That a request comes from this machine says little while a browser runs there: a page from
    /// elsewhere can make it send one to any address, and with a name of its own that it points at
    /// this address (DNS rebinding) read the answer as well. So the host has to be an address or a name
    /// of this node, and no page may be behind the request; who types an address in is let through.
    fn refuse(&self, request: &Request) -> Option<Response<Body>> {
        if !(self.trust.check)(request.extensions()) {
            let Trust { origin, ways, .. } = &self.trust;
            let from = origin(request.extensions());
            return Some(forbidden(format!("this request comes from {from}: {ways}")));
        }
        if !self.access.is_own_host(request) {
            let host = access::host_name(request);
            return Some(forbidden(format!(
                "the host {host:?} is no name of this node: use an address, localhost, or a name \
                 from its URLs or --host-whitelist"
            )));
        }
        let typed = |name: &HeaderName, value: &HeaderValue| {
            request.method() == Method::GET && *name != ORIGIN && value == "none"
        };
        let headers = request.headers();
        let behind = OF_BROWSERS
            .into_iter()
            .find(|name| headers.get_all(name).iter().any(|value| !typed(name, value)));
        behind.map(|name| {
            forbidden(format!("no page of a browser may ask for this, and {name} tells of one"))
        })
    }
}

fn forbidden(text: String) -> Response<Body> {
    reply::error(StatusCode::FORBIDDEN, text)
}
