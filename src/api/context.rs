//! What is known of a call before its message is decoded.

use super::method::Method;
use crate::edge::ConnInfo;
use crate::proto::etcdserverpb::RequestHeader;
use http::HeaderValue;
use std::sync::Arc;
use tonic::{Request, Status};

/// Metadata key with the client's API version.
const CLIENT_API_VERSION: &str = "client-api-version";
/// Metadata key that asks for a known leader.
const HAS_LEADER: &str = "hasleader";

/// On whose behalf a call runs. Authentication is off as long as there is only one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nobody in particular.
    #[default]
    Anonymous,
    /// A user, as proven by a token or a certificate.
    User {
        /// The user's name.
        name: Arc<str>,
        /// Revision of the auth store at which this was decided.
        auth_revision: u64,
    },
}

/// Facts about one call; every handler finds it in the request's extensions.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The RPC.
    pub method: Method,
    /// The caller.
    pub identity: Identity,
    /// The client asked to be refused while no leader is known.
    pub has_leader: bool,
    /// The user named by the client's verified certificate, where certificates name users. What it
    /// may do is decided by whoever checks tokens: a token wins over it.
    pub certificate_user: Option<Arc<str>>,
    client_api_version: Option<HeaderValue>,
}

impl RequestContext {
    /// Reads the metadata of a call.
    ///
    /// # Errors
    /// `InvalidClientAPIVersion` if that header is not UTF-8.
    pub(super) fn new<B>(
        method: Method,
        request: &http::Request<B>,
    ) -> Result<Self, super::status::Fixed> {
        let headers = request.headers();
        let connection = request.extensions().get::<Arc<ConnInfo>>();
        let client_api_version = headers.get(CLIENT_API_VERSION);
        if client_api_version.is_some_and(|v| std::str::from_utf8(v.as_bytes()).is_err()) {
            return Err(super::status::INVALID_CLIENT_API_VERSION);
        }
        Ok(Self {
            method,
            identity: Identity::Anonymous,
            certificate_user: connection.and_then(|connection| connection.user.clone()),
            has_leader: headers.get(HAS_LEADER).is_some_and(|v| v.as_bytes() == b"true"),
            client_api_version: client_api_version.cloned(),
        })
    }

    /// The client's API version, `unknown` if it did not say. Client input: never a metric label
    /// without a bound on its values.
    pub fn client_api_version(&self) -> &str {
        let said = self.client_api_version.as_ref().map(HeaderValue::as_bytes);
        said.and_then(|v| std::str::from_utf8(v).ok()).unwrap_or("unknown")
    }

    /// Header of a replicated command; the id is given by the node.
    pub fn command_header(&self) -> RequestHeader {
        match &self.identity {
            Identity::Anonymous => RequestHeader::default(),
            Identity::User { name, auth_revision } => {
                RequestHeader { id: 0, username: name.to_string(), auth_revision: *auth_revision }
            }
        }
    }

    /// The context of a request that came through [`super::Server`].
    ///
    /// # Errors
    /// `Internal` if it did not: nothing is served without a row in the table.
    pub fn of<T>(request: &Request<T>) -> Result<&Self, Status> {
        let context = request.extensions().get::<Self>();
        context.ok_or_else(|| Status::internal("call without context: it passed no method table"))
    }
}
