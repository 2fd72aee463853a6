//! The Auth service while authentication does not exist: off, and honest about it.

use super::node::Node;
use super::status;
use crate::proto::etcdserverpb::auth_server;
use crate::proto::etcdserverpb::*;
use tonic::{Request, Response, Status};

/// Revision of an auth store that was never changed.
const FIRST_AUTH_REVISION: u64 = 1;

/// The Auth service.
#[derive(Clone)]
pub(super) struct Auth<N> {
    node: N,
}

impl<N: Node> Auth<N> {
    /// Of this node.
    pub(super) fn new(node: N) -> Self {
        Self { node }
    }
}

type Rpc<T> = Result<Response<T>, Status>;

fn refused<T>() -> Rpc<T> {
    Err(status::not_yet(
        "users and roles are not available in this version: authentication is off; AuthStatus works",
    ))
}

#[tonic::async_trait]
impl<N: Node> auth_server::Auth for Auth<N> {
    async fn auth_status(&self, _: Request<AuthStatusRequest>) -> Rpc<AuthStatusResponse> {
        Ok(Response::new(AuthStatusResponse {
            header: Some(self.node.header(self.node.revision())),
            enabled: false,
            auth_revision: FIRST_AUTH_REVISION,
        }))
    }

    async fn authenticate(&self, _: Request<AuthenticateRequest>) -> Rpc<AuthenticateResponse> {
        Err(status::AUTH_NOT_ENABLED.into())
    }

    async fn auth_enable(&self, _: Request<AuthEnableRequest>) -> Rpc<AuthEnableResponse> {
        refused()
    }

    async fn auth_disable(&self, _: Request<AuthDisableRequest>) -> Rpc<AuthDisableResponse> {
        refused()
    }

    async fn user_add(&self, _: Request<AuthUserAddRequest>) -> Rpc<AuthUserAddResponse> {
        refused()
    }

    async fn user_get(&self, _: Request<AuthUserGetRequest>) -> Rpc<AuthUserGetResponse> {
        refused()
    }

    async fn user_list(&self, _: Request<AuthUserListRequest>) -> Rpc<AuthUserListResponse> {
        refused()
    }

    async fn user_delete(&self, _: Request<AuthUserDeleteRequest>) -> Rpc<AuthUserDeleteResponse> {
        refused()
    }

    async fn user_change_password(
        &self,
        _: Request<AuthUserChangePasswordRequest>,
    ) -> Rpc<AuthUserChangePasswordResponse> {
        refused()
    }

    async fn user_grant_role(
        &self,
        _: Request<AuthUserGrantRoleRequest>,
    ) -> Rpc<AuthUserGrantRoleResponse> {
        refused()
    }

    async fn user_revoke_role(
        &self,
        _: Request<AuthUserRevokeRoleRequest>,
    ) -> Rpc<AuthUserRevokeRoleResponse> {
        refused()
    }

    async fn role_add(&self, _: Request<AuthRoleAddRequest>) -> Rpc<AuthRoleAddResponse> {
        refused()
    }

    async fn role_get(&self, _: Request<AuthRoleGetRequest>) -> Rpc<AuthRoleGetResponse> {
        refused()
    }

    async fn role_list(&self, _: Request<AuthRoleListRequest>) -> Rpc<AuthRoleListResponse> {
        refused()
    }

    async fn role_delete(&self, _: Request<AuthRoleDeleteRequest>) -> Rpc<AuthRoleDeleteResponse> {
        refused()
    }

    async fn role_grant_permission(
        &self,
        _: Request<AuthRoleGrantPermissionRequest>,
    ) -> Rpc<AuthRoleGrantPermissionResponse> {
        refused()
    }

    async fn role_revoke_permission(
        &self,
        _: Request<AuthRoleRevokePermissionRequest>,
    ) -> Rpc<AuthRoleRevokePermissionResponse> {
        refused()
    }
}
