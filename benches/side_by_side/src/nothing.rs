//! The do-nothing server: HTTP/2 and gRPC framing as in the node, and a constant answer.
//!
//! It runs in a process of its own, started by this program from itself. What it takes to call it is
//! the floor under every figure: client, loopback, hyper, the scheduler.

use crate::closed_loop::runtime;
use crate::error::{During, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;

/// How the server runs, for the report.
pub(crate) const FLAVOUR: &str = "hyper HTTP/2 on a tokio current-thread runtime, own process";

/// `PutResponse` with a header of cluster 1, member 1, revision 1, term 1.
const ANSWER: &[u8] = b"\0\0\0\0\x0a\x0a\x08\x08\x01\x10\x01\x18\x01\x20\x01";

/// Serves until the process is killed.
pub(crate) fn serve(address: SocketAddr) -> Result<()> {
    runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.during(|| format!("listen on {address}"))?;
        loop {
            let (socket, _) = listener.accept().await.during(|| "accept".into())?;
            socket.set_nodelay(true).during(|| "TCP_NODELAY".into())?;
            let service = hyper::service::service_fn(answer);
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service);
            // A client that leaves is no fault of the server.
            tokio::spawn(async move { drop(serving.await) });
        }
    })
}

async fn answer(
    request: http::Request<hyper::body::Incoming>,
) -> std::result::Result<
    Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>,
    Infallible,
> {
    // The node reads a request's bytes too.
    let _ = request.into_body().collect().await;
    let trailers = async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Some(Ok(trailers))
    };
    let body = Full::new(Bytes::from_static(ANSWER)).with_trailers(trailers);
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}
