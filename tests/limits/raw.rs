//! Requests that no client library sends.

use bytes::Bytes;
use http::{Method, Request};

use http_body_util::{BodyExt, Full};

use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

/// What came back, as far as gRPC is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) http: u16,
    pub(crate) content_type: String,
    pub(crate) status: String,
    pub(crate) message: String,
    /// Length of the answer's data in bytes.
    pub(crate) data: usize,
}

/// A request under construction: by default a well-formed empty `Range`.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    method: Method,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Bytes>,
}

impl Raw {
    /// A request to a path, with the headers of gRPC and one empty message.
    pub(crate) fn to(path: &'static str) -> Self {
        let headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
        Self { method: Method::POST, path, headers, body: Some(frame(b"")) }
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets a header.
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|header| header.0 != name);
        self.headers.push((name, value));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.headers.retain(|header| header.0 != name);
        self
    }

    /// Sets the bytes of the body, frame headers included.
    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends it; a failed exchange is an error text.
    pub(crate) async fn send(self, channel: &Channel) -> Result<Reply, String> {
        let body = Full::new(self.body.unwrap_or_default());
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::new(body)).expect("a request");
        let mut channel = channel.clone();
        let channel = channel.ready().await.map_err(|error| format!("not ready: {error:?}"))?;
        let response = channel.call(request).await.map_err(|error| format!("{error:?}"))?;
        let (head, body) = response.into_parts();
        let collected = body.collect().await.map_err(|error| format!("body: {error:?}"))?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let text = |name: &str| {
            let value = trailers.get(name).or_else(|| head.headers.get(name));
            value.map_or("absent".into(), |value| String::from_utf8_lossy(value.as_bytes()).into())
        };
        Ok(Reply {
            http: head.status.as_u16(),
            content_type: text("content-type"),
            status: text("grpc-status"),
            message: text("grpc-message"),
            data: collected.to_bytes().len(),
        })
    }
}

/// A gRPC message frame, not compressed.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    let length = (message.len() as u32).to_be_bytes();
    [&[0][..], &length, message].concat().into()
}
