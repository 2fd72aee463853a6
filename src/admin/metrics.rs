//! `/metrics`: text or protobuf as the scraper asks, compressed if it can.

use super::reply;
use axum::body::Body;
use axum::extract::State;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::io::Write;
use std::sync::Arc;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const PROTOBUF: HeaderValue = HeaderValue::from_static(
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
);

/// Renders the metrics of this process.
pub trait MetricsSource: Send + Sync + 'static {
    /// Prometheus text format 0.0.4.
    fn text(&self) -> Vec<u8>;
    /// Length-delimited `io.prometheus.client.MetricFamily` messages; `None` if not offered.
    fn protobuf(&self) -> Option<Vec<u8>>;
}

pub(super) async fn serve(
    State(source): State<Arc<dyn MetricsSource>>,
    headers: HeaderMap,
) -> Response<Body> {
    let protobuf = prefers_protobuf(&headers);
    let gzip = accepts_gzip(&headers);
    // Rendering and compressing some hundred kilobytes takes milliseconds: not on this runtime.
    let rendered = tokio::task::spawn_blocking(move || render(&*source, protobuf, gzip)).await;
    match rendered {
        Ok(Ok((content_type, body))) => {
            let mut response = reply::with_type(StatusCode::OK, content_type, body);
            if gzip {
                let headers = response.headers_mut();
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            }
            response
        }
        // Only a runtime that is going down drops the work.
        Ok(Err(_)) | Err(_) => {
            reply::error(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping".to_owned())
        }
    }
}

fn render(
    source: &dyn MetricsSource,
    protobuf: bool,
    gzip: bool,
) -> std::io::Result<(HeaderValue, Vec<u8>)> {
    let (content_type, body) = match protobuf.then(|| source.protobuf()).flatten() {
        Some(body) => (PROTOBUF, body),
        None => (TEXT, source.text()),
    };
    if !gzip {
        return Ok((content_type, body));
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(&body)?;
    Ok((content_type, encoder.finish()?))
}

/// Quality in thousandths of one element of an Accept header; 1,000 if it has none.
fn quality(parameters: &str) -> u32 {
    parameters
        .split(';')
        .find_map(|p| p.trim().strip_prefix("q=").map(str::trim))
        .map_or(1_000, |q| q.parse::<f32>().map_or(0, |q| (q.clamp(0.0, 1.0) * 1_000.0) as u32))
}

fn elements(headers: &HeaderMap, name: http::HeaderName) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|element| {
            let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
            (name.trim(), parameters)
        })
}

/// Whether delimited protobuf is wanted at least as much as text.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let (mut protobuf, mut text) = (0, 0);
    for (name, parameters) in elements(headers, ACCEPT) {
        let q = quality(parameters);
        if name == "application/vnd.google.protobuf" {
            let has = |wanted: &str| parameters.split(';').any(|p| p.trim() == wanted);
            if has("proto=io.prometheus.client.MetricFamily") && has("encoding=delimited") {
                protobuf = protobuf.max(q);
            }
        } else if matches!(name, "text/plain" | "text/*" | "*/*") {
            text = text.max(q);
        }
    }
    protobuf > 0 && protobuf >= text
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    elements(headers, ACCEPT_ENCODING)
        .any(|(name, parameters)| name == "gzip" && quality(parameters) > 0)
}
