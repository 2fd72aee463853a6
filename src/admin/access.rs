//! Host and origin rules that every HTTP request on the client port passes.

use super::reply;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use tower::Layer;

const ALLOW_ORIGIN: HeaderName = HeaderName::from_static("access-control-allow-origin");
const ALLOW_METHODS: HeaderName = HeaderName::from_static("access-control-allow-methods");
const ALLOW_HEADERS: HeaderName = HeaderName::from_static("access-control-allow-headers");

/// Who may use the HTTP side of the client port.
#[derive(Clone, Debug)]
pub struct Access {
    /// `--host-whitelist`: host names accepted without TLS; `*` accepts all.
    pub hosts: Vec<String>,
    /// Names by which clients reach this node, from its URLs.
    pub names: Vec<String>,
    /// `--cors`: origins told to browsers as allowed; `*` allows all.
    pub origins: Vec<String>,
    /// Whether a request came over TLS: host names need no check then.
    pub is_encrypted: fn(&http::Extensions) -> bool,
}

impl Default for Access {
    /// etcd's defaults.
    fn default() -> Self {
        let all = || vec!["*".to_owned()];
        Self { hosts: all(), names: Vec::new(), origins: all(), is_encrypted: |_| false }
    }
}

/// The checks stand around the whole router: a layer of the router itself would run after the path
/// has been matched, too late to rewrite it.
pub(super) fn guard(access: Arc<Access>, routes: Router) -> Router {
    let checked = middleware::from_fn_with_state(access, check).layer(routes);
    Router::new().fallback_service(checked)
}

async fn check(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    if let Some(rest) =
        request.uri().path_and_query().and_then(|p| p.as_str().strip_prefix("/v3beta/"))
        && let Ok(uri) = format!("/v3/{rest}").parse::<Uri>()
    {
        *request.uri_mut() = uri;
    }
    let host = host_name(&request);
    if !(access.is_encrypted)(request.extensions()) && !allowed(&access.hosts, &host) {
        return reply::error(StatusCode::MISDIRECTED_REQUEST, unrecognized(&host));
    }
    let origin = access.origin(request.headers());
    let mut response = if request.method() == Method::OPTIONS {
        Response::new(Body::empty())
    } else {
        next.run(request).await
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(ALLOW_METHODS, HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"));
        headers.insert(ALLOW_ORIGIN, origin);
        headers
            .insert(ALLOW_HEADERS, HeaderValue::from_static("accept, content-type, authorization"));
    }
    response
}

impl Access {
    /// Whether a request names this node as its host. A page can point a name of its own at any
    /// address, but no address at another one, and no name that is ours. Over TLS the certificate
    /// has said it.
    pub(super) fn is_own_host(&self, request: &Request) -> bool {
        if (self.is_encrypted)(request.extensions()) {
            return true;
        }
        let host = host_name(request);
        let named = |name: &String| name.eq_ignore_ascii_case(&host);
        let once = request.headers().get_all(HOST).iter().count() <= 1;
        once && (host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || !host.is_empty() && self.names.iter().chain(&self.hosts).any(named))
    }

    fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.iter().any(|o| o == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        let origin = headers.get(ORIGIN)?;
        self.origins.iter().any(|o| o.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

fn allowed(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == name)
}

/// Host header (HTTP/1) or authority (HTTP/2) without the port.
pub(super) fn host_name(request: &Request) -> String {
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default(),
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => match host.rsplit_once(':') {
            Some((name, _)) if !name.contains(':') => name,
            _ => host,
        },
    };
    name.to_owned()
}

fn unrecognized(host: &str) -> String {
    format!(
        "\nThe Host header of this request was unrecognized, so it was not served.\n\n\
         A page that was made to point its own name at this address (DNS rebinding, \
         CVE-2018-5702) could otherwise use the API through a browser.\n\
         To allow this name start with: etcd --host-whitelist {host:?}\n\
         Requests over TLS are not checked.\n"
    )
}
