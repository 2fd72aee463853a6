//! Which requests go to the gRPC service and which to the HTTP router.

use super::conn::ConnInfo;
use super::guard::ConnState;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use tower::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// A gRPC service as [`Routes`] takes it. Implemented by every fitting tower service.
pub trait Rpc:
    Service<
        Request<Incoming>,
        Response = Response<<Self as Rpc>::Body>,
        Error = Infallible,
        Future: Unpin + Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
    /// Body of its answers.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static;
}

impl<G, B> Rpc for G
where
    G: Service<
            Request<Incoming>,
            Response = Response<B>,
            Error = Infallible,
            Future: Unpin + Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    type Body = B;
}

/// What one port serves on one runtime. `rpc` gets HTTP/2 requests that are gRPC, `http` the rest.
#[derive(Clone, Debug)]
pub struct Routes<G> {
    /// The gRPC service; answers every HTTP status and every gRPC status itself.
    pub rpc: Option<G>,
    /// Everything else.
    pub http: axum::Router,
    /// gRPC calls that neither serves.
    pub elsewhere: Elsewhere,
}

/// What is said to gRPC calls that came to the wrong port. Without a text they go to the service if
/// there is one, else to the router, whose "not found" clients show as UNIMPLEMENTED without a word.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// Which port serves them, for people; sent with UNIMPLEMENTED.
    pub text: Option<Arc<str>>,
    /// The service that is here, like `/package.Service/`, if there is one.
    pub served: Option<&'static str>,
}

impl Elsewhere {
    /// The answer to this request, if it is for another port.
    fn refuse<B>(&self, request: &Request<B>) -> Option<Response<axum::body::Body>> {
        let text = self.text.as_deref()?;
        let served = self.served.is_some_and(|service| request.uri().path().starts_with(service));
        let answer = || tonic::Status::unimplemented(text).into_http();
        (!served && is_rpc(request)).then(answer)
    }
}

/// A gRPC service for ports that have none.
#[derive(Clone, Copy, Debug)]
pub enum NoRpc {}

impl Service<Request<Incoming>> for NoRpc {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        match *self {}
    }
}

impl NoRpc {
    /// Routes without gRPC; `text` says where it is.
    pub fn routes(http: axum::Router, text: Arc<str>) -> Routes<Self> {
        let elsewhere = Elsewhere { text: Some(text), served: None };
        Routes { rpc: None, http, elsewhere }
    }
}

/// gRPC by content type; a POST to `/package.Service/Method` with another content type also goes
/// to the gRPC service, which refuses it with the status gRPC clients understand.
fn is_rpc<B>(request: &Request<B>) -> bool {
    if request.version() != Version::HTTP_2 {
        return false;
    }
    if content_type(request.headers()).starts_with(b"application/grpc") {
        return true;
    }
    let service = request.uri().path().split('/').nth(1).unwrap_or_default();
    request.method() == Method::POST && service.contains('.')
}

fn content_type(headers: &HeaderMap) -> &[u8] {
    headers.get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes())
}

/// The service of one connection, as hyper wants it.
pub(super) struct Dispatch<G> {
    routes: Routes<G>,
    info: Arc<ConnInfo>,
    state: Arc<ConnState>,
}

impl<G> Dispatch<G> {
    pub(super) fn new(routes: Routes<G>, info: Arc<ConnInfo>, state: Arc<ConnState>) -> Self {
        Self { routes, info, state }
    }
}

impl<G: Rpc> hyper::service::Service<Request<Incoming>> for Dispatch<G> {
    type Response = Response<ReplyBody<G::Body>>;
    type Error = Infallible;
    type Future = Dispatched<G::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.state.streams.fetch_add(1, Relaxed);
        let call = Some(OpenCall(Arc::clone(&self.state)));
        request.extensions_mut().insert(Arc::clone(&self.info));
        if let Some(refused) = self.routes.elsewhere.refuse(&request) {
            return Dispatched { inner: Answer::Ready(Some(refused)), call };
        }
        let inner = match &self.routes.rpc {
            Some(rpc) if is_rpc(&request) => Answer::Rpc(rpc.clone().call(request)),
            _ => Answer::Http(self.routes.http.clone().call(request)),
        };
        Dispatched { inner, call }
    }
}

/// One open call of a connection, until its answer was sent or dropped.
struct OpenCall(Arc<ConnState>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

enum Either<R, H> {
    Rpc(R),
    Http(H),
}

/// Who answers.
enum Answer<F> {
    Rpc(F),
    Http(axum::routing::future::RouteFuture<Infallible>),
    /// Taken when it is polled.
    Ready(Option<Response<axum::body::Body>>),
}

/// Future of one request.
pub(super) struct Dispatched<F> {
    inner: Answer<F>,
    call: Option<OpenCall>,
}

impl<F, GB> Future for Dispatched<F>
where
    F: Future<Output = Result<Response<GB>, Infallible>> + Unpin,
{
    type Output = Result<Response<ReplyBody<GB>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.inner {
            Answer::Rpc(rpc) => Pin::new(rpc).poll(cx).map_ok(|r| r.map(Either::Rpc)),
            Answer::Http(http) => Pin::new(http).poll(cx).map_ok(|r| r.map(Either::Http)),
            Answer::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(Ok(answer.map(Either::Http))),
                None => Poll::Pending,
            },
        };
        polled.map_ok(|response| {
            let call = self.call.take();
            response.map(|inner| ReplyBody { inner, _call: call })
        })
    }
}

/// Body of an answer; counts as an open call until it is dropped.
pub(super) struct ReplyBody<GB> {
    inner: Either<GB, axum::body::Body>,
    _call: Option<OpenCall>,
}

impl<GB> Body for ReplyBody<GB>
where
    GB: Body<Data = Bytes> + Unpin,
    GB::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.inner {
            Either::Rpc(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Either::Http(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Either::Rpc(body) => body.is_end_stream(),
            Either::Http(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Either::Rpc(body) => body.size_hint(),
            Either::Http(body) => body.size_hint(),
        }
    }
}

impl<GB> std::fmt::Debug for ReplyBody<GB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplyBody")
    }
}
