//! The gRPC service: finds the method, keeps etcd's rules for calls, counts, and speaks grpc-go's
//! words where tonic has its own.

use super::body::{Content, Ends, LeaderLoss, ReplyBody, RequestBody, code_of};
use super::budget::Permit;
use super::context::RequestContext;
use super::kv::Kv;
use super::method::{Method, Service as Services, Shape};
use super::node::Node;
use super::observer::{GrpcObserver, Track};
use super::rows_body::RowsBody;
use super::status::{self, Fixed};
use super::wire;
use crate::proto::etcdserverpb::kv_server::KvServer;
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tower::Service;
use tower::util::BoxCloneSyncService;

/// Request body as the generated services get it.
pub type CallBody = RequestBody<Incoming>;
/// A registered service other than KV.
type Registered = BoxCloneSyncService<Request<CallBody>, Response<tonic::body::Body>, Infallible>;

/// Gives an answer to a handler's response extensions instead of its message; see [`Large::set`].
#[derive(Clone, Default)]
pub(super) struct Large(Arc<Mutex<Option<RowsBody>>>);

impl Large {
    /// Makes `response` send `rows` instead of its message.
    pub(super) fn set<T>(response: &mut tonic::Response<T>, rows: RowsBody) {
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(rows)))));
    }
}

/// A permit that is held until the answer is sent.
#[derive(Clone)]
pub(super) struct Held(Arc<Mutex<Option<Permit>>>);

impl Held {
    pub(super) fn set<T>(response: &mut tonic::Response<T>, permit: Permit) {
        response.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(permit)))));
    }
}

/// All gRPC services of the client port, on one runtime. Cheap to clone.
pub struct Server<N: Node> {
    kv: KvServer<Kv<N>>,
    others: Arc<Vec<(Services, Registered)>>,
    shared: Arc<Shared<N>>,
}

struct Shared<N> {
    node: N,
    observer: Arc<dyn GrpcObserver>,
    max_message: u32,
}

impl<N: Node> Clone for Server<N> {
    fn clone(&self) -> Self {
        Self {
            kv: self.kv.clone(),
            others: Arc::clone(&self.others),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<N: Node> Server<N> {
    /// A server with KV only; see [`Server::register`].
    pub fn new(node: N, kv: Kv<N>, observer: Arc<dyn GrpcObserver>) -> Self {
        let max_message = node.limits().receive_bytes();
        // The size of messages as sent is checked in RequestBody, in grpc-go's words; tonic checks
        // what a compressed message grows to.
        let kv = KvServer::new(kv)
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .max_decoding_message_size(max_message)
            .max_encoding_message_size(i32::MAX as usize);
        let max_message = u32::try_from(max_message).unwrap_or(u32::MAX);
        Self {
            kv,
            others: Arc::default(),
            shared: Arc::new(Shared { node, observer, max_message }),
        }
    }

    /// Adds a generated service (`WatchServer::new(..)`). Methods of services that were not added
    /// answer `Unimplemented`. Accept gzip and set [`Server::max_message`] on it first.
    #[must_use]
    pub fn register<S>(mut self, service: Services, inner: S) -> Self
    where
        S: Service<Request<CallBody>, Response = Response<tonic::body::Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Arc::make_mut(&mut self.others).push((service, BoxCloneSyncService::new(inner)));
        self
    }

    /// Largest message of a request, bytes.
    pub fn max_message(&self) -> usize {
        self.shared.max_message as usize
    }

    /// Everything that is decided before a handler runs.
    fn begin<B>(&self, request: &Request<B>) -> Result<Begun, wire::Refusal> {
        let (headers, uri) = (request.headers(), request.uri());
        wire::check_content_type(headers)?;
        let timeout = wire::timeout(headers)?;
        wire::check_http_method(request.method())?;
        let path = uri.path();
        let Some(method) = Method::from_path(path) else {
            return Err(Box::new(wire::unknown(path)));
        };
        let compressed = wire::check_encoding(headers)?;
        let mut track = Track::start(Arc::clone(&self.shared.observer), method);
        let refuse = |fixed: Fixed, mut track: Track| {
            track.finish(fixed.0);
            Box::new(wire::trailers_only(&fixed.into()))
        };
        let raft = self.shared.node.raft();
        if self.shared.node.is_fenced() && !method.on_fenced() {
            return Err(refuse(status::FENCED, track));
        }
        if raft.is_learner && !method.on_learner() {
            return Err(refuse(status::NOT_SUPPORTED_FOR_LEARNER, track));
        }
        let context = match RequestContext::new(method, request) {
            Ok(context) => context,
            Err(fixed) => return Err(refuse(fixed, track)),
        };
        self.shared.observer.client_version(method, context.client_api_version());
        if context.has_leader && raft.leader == 0 {
            return Err(refuse(status::NO_LEADER, track));
        }
        if !self.serves(method.service()) {
            let what = format!("{method} is not served by this version");
            track.finish(Code::Unimplemented);
            return Err(Box::new(wire::trailers_only(&status::not_yet(&what))));
        }
        let leader = (context.has_leader && method.shape() != Shape::Unary).then(|| {
            let node = self.shared.node.clone();
            let has_leader = Box::new(move || node.raft().leader != 0);
            let timeout = self.shared.node.election_timeout();
            Box::new(LeaderLoss::new(timeout, has_leader))
        });
        let deadline = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
        Ok(Begun { context, compressed, track, ends: Ends { deadline, leader } })
    }

    fn serves(&self, service: Services) -> bool {
        service == Services::Kv || self.others.iter().any(|(known, _)| *known == service)
    }

    fn dispatch(
        &mut self,
        service: Services,
        request: Request<CallBody>,
    ) -> BoxFuture<Response<tonic::body::Body>, Infallible> {
        if service == Services::Kv {
            return self.kv.call(request);
        }
        match self.others.iter().find(|(known, _)| *known == service) {
            Some((_, inner)) => inner.clone().call(request),
            // `begin` refused it already.
            None => Box::pin(std::future::ready(Ok(status::not_yet("not served").into_http()))),
        }
    }
}

struct Begun {
    context: RequestContext,
    compressed: bool,
    track: Track,
    ends: Ends,
}

impl<N: Node> Service<Request<Incoming>> for Server<N> {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Call {
        let Begun { context, compressed, track, ends } = match self.begin(&request) {
            Ok(begun) => begun,
            Err(refused) => return Call(State::Refused(Some(refused))),
        };
        let method = context.method;
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(context);
        let observer = Arc::clone(&self.shared.observer);
        let body = RequestBody::new(body, method, observer, self.shared.max_message, compressed);
        let inner = self.dispatch(method.service(), Request::from_parts(parts, body));
        Call(State::Running { inner, track: Some(track), ends })
    }
}

/// A call until its answer begins.
pub struct Call(State);

enum State {
    Refused(Option<Box<Response<ReplyBody>>>),
    Running {
        inner: BoxFuture<Response<tonic::body::Body>, Infallible>,
        track: Option<Track>,
        ends: Ends,
    },
}

impl Future for Call {
    type Output = Result<Response<ReplyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Refused(response) => match response.take() {
                Some(response) => Poll::Ready(Ok(*response)),
                None => Poll::Pending,
            },
            State::Running { inner, track, ends } => {
                if let Poll::Ready(Ok(response)) = inner.as_mut().poll(cx) {
                    return Poll::Ready(Ok(reply(response, track.take(), std::mem::take(ends))));
                }
                if let Poll::Ready(fixed) = ends.poll(cx) {
                    if let Some(mut track) = track.take() {
                        track.finish(fixed.0);
                    }
                    return Poll::Ready(Ok(wire::trailers_only(&fixed.into())));
                }
                Poll::Pending
            }
        }
    }
}

fn reply(
    response: Response<tonic::body::Body>,
    track: Option<Track>,
    ends: Ends,
) -> Response<ReplyBody> {
    let (mut parts, body) = response.into_parts();
    let Some(mut track) = track else {
        return Response::from_parts(parts, ReplyBody::empty());
    };
    if let Some(code) = code_of(&parts.headers) {
        let status = Status::from_header_map(&parts.headers);
        let status = status.unwrap_or_else(|| Status::new(code, ""));
        if let Some(translated) = wire::translate(&status) {
            track.finish(translated.code());
            return wire::trailers_only(&translated);
        }
        track.finish(code);
        return Response::from_parts(parts, ReplyBody::empty());
    }
    let content = match parts.extensions.remove::<Large>().and_then(|large| large.0.lock().take()) {
        Some(rows) => Content::Rows(Box::new(rows)),
        None => Content::Tonic(body),
    };
    let held = parts.extensions.remove::<Held>().and_then(|held| held.0.lock().take());
    Response::from_parts(parts, ReplyBody::new(content, track, ends, held))
}
