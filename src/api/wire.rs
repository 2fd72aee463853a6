//! What grpc-go says where tonic and h2 have words of their own.

use super::body::ReplyBody;
use super::method::Service;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use std::time::Duration;
use tonic::{Code, Status};

/// An answer instead of a call; boxed because it is large and rare.
pub(super) type Refusal = Box<Response<ReplyBody>>;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Longest `grpc-timeout` digits by the protocol.
const TIMEOUT_DIGITS: usize = 8;

/// A status without any message: everything is in the headers.
pub(super) fn trailers_only(status: &Status) -> Response<ReplyBody> {
    aborted(StatusCode::OK, status)
}

fn aborted(http: StatusCode, status: &Status) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = http;
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    // Fails only for metadata of the status, which ours has none of.
    let _ = status.add_header(response.headers_mut());
    response
}

/// `application/grpc`, alone or followed by `+codec` or `;parameters`.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    match value.strip_prefix(b"application/grpc") {
        Some([] | [b'+' | b';', ..]) => Ok(()),
        _ => {
            let shown = String::from_utf8_lossy(value);
            let text = format!("invalid gRPC request content-type {shown:?}");
            let status = Status::invalid_argument(text);
            Err(Box::new(aborted(StatusCode::UNSUPPORTED_MEDIA_TYPE, &status)))
        }
    }
}

pub(super) fn check_http_method(method: &Method) -> Result<(), Refusal> {
    if method == Method::POST {
        return Ok(());
    }
    let text =
        format!("Received a HEADERS frame with :method {:?} which should be POST", method.as_str());
    Err(Box::new(aborted(StatusCode::METHOD_NOT_ALLOWED, &Status::internal(text))))
}

/// The client's deadline: up to eight digits and a unit.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    match parse_timeout(value.as_bytes()) {
        Ok(timeout) => Ok(Some(timeout)),
        Err(why) => {
            let status = Status::internal(format!("malformed grpc-timeout: {why}"));
            Err(Box::new(aborted(StatusCode::BAD_REQUEST, &status)))
        }
    }
}

fn parse_timeout(value: &[u8]) -> Result<Duration, String> {
    let shown = || String::from_utf8_lossy(value).into_owned();
    let (unit, digits) = match value.split_last() {
        Some((unit, digits)) if !digits.is_empty() => (*unit, digits),
        _ => return Err(format!("transport: timeout string is too short: {:?}", shown())),
    };
    if digits.len() > TIMEOUT_DIGITS {
        return Err(format!("transport: timeout string is too long: {:?}", shown()));
    }
    if !matches!(unit, b'H' | b'M' | b'S' | b'm' | b'u' | b'n') {
        return Err(format!("transport: timeout unit is not recognized: {:?}", shown()));
    }
    let amount = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let Some(Ok(amount)) = amount.map(str::parse::<u64>) else {
        return Err(format!("transport: timeout is not a number: {:?}", shown()));
    };
    Ok(match unit {
        b'H' => Duration::from_secs(amount * 3_600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        _ => Duration::from_nanos(amount),
    })
}

/// Whether the messages may be compressed. gzip is known: the etcd binary registers it (with its
/// tracing exporter), others it refuses.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<bool, Refusal> {
    match headers.get("grpc-encoding").map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            let text = format!("grpc: Decompressor is not installed for grpc-encoding {shown:?}");
            Err(Box::new(trailers_only(&Status::unimplemented(text))))
        }
    }
}

/// The answer to a path without a row.
pub(super) fn unknown(path: &str) -> Response<ReplyBody> {
    let name = path.strip_prefix('/').unwrap_or(path);
    let text = match name.rsplit_once('/') {
        None => format!("malformed method name: {path:?}"),
        Some((service, method)) if Service::by_name(service).is_some() => {
            format!("unknown method {method} for service {service}")
        }
        Some((service, _)) => format!("unknown service {service}"),
    };
    trailers_only(&Status::unimplemented(text))
}

/// Statuses that tonic makes itself, in grpc-go's words. `None`: it is not one of them.
pub(super) fn translate(status: &Status) -> Option<Status> {
    let message = status.message();
    match status.code() {
        Code::ResourceExhausted => {
            let limit =
                message.strip_prefix("Error decompressing: size limit, of ")?.split_once(' ')?.0;
            Some(Status::resource_exhausted(format!(
                "grpc: received message after decompression larger than max {limit}"
            )))
        }
        Code::Internal => {
            let why = message.strip_prefix("Error decompressing: ")?;
            let why = why.strip_suffix(", while sending request").unwrap_or(why);
            let text = format!("grpc: failed to decompress the received message: {why}");
            Some(Status::internal(text))
        }
        Code::OutOfRange if message.starts_with("Error, encoded message length too large") => {
            let (len, max) = numbers(message)?;
            let text = format!("grpc: trying to send message larger than max ({len} vs. {max})");
            Some(Status::resource_exhausted(text))
        }
        _ => None,
    }
}

/// The first two numbers of a text.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let mut found = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .filter_map(|digits| digits.parse().ok());
    Some((found.next()?, found.next()?))
}
