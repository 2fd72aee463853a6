//! Answers in the exact form of Go's `net/http`, which etcd's clients and probes see.

use axum::body::Body;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
/// Content type of plain texts.
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer with a content type.
pub(super) fn with_type(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Plain text that browsers must not guess at.
pub(super) fn text(status: StatusCode, body: String) -> Response<Body> {
    let mut response = with_type(status, TEXT, body);
    response.headers_mut().insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// Go's `http.Error`: the text and one newline.
pub(super) fn error(status: StatusCode, mut body: String) -> Response<Body> {
    body.push('\n');
    text(status, body)
}

/// The answer to an unknown path.
pub(super) async fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "404 page not found".to_owned())
}

/// `Some(405)` unless the method is GET (HEAD is refused too).
pub(super) fn only_get(method: &Method) -> Option<Response<Body>> {
    only(method, &Method::GET)
}

/// `Some(405)` unless the method is POST.
pub(super) fn only_post(method: &Method) -> Option<Response<Body>> {
    only(method, &Method::POST)
}

fn only(method: &Method, allowed: &Method) -> Option<Response<Body>> {
    (method != allowed).then(|| {
        let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned());
        let value = HeaderValue::from_str(allowed.as_str());
        response.headers_mut().extend(value.map(|value| (ALLOW, value)));
        response
    })
}
