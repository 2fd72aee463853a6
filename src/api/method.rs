//! Every RPC the program knows: one row each. Nothing is served that has no row.

use std::fmt;

/// The `grpc_type` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One request, one answer.
    Unary,
    /// One request, many answers.
    ServerStream,
    /// Many of both.
    BidiStream,
}

impl Shape {
    /// Label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ServerStream => "server_stream",
            Self::BidiStream => "bidi_stream",
        }
    }
}

/// What a caller needs while authentication is on. The column has no default: a row without it
/// does not compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Anybody, with or without a token.
    Open,
    /// A valid user.
    User,
    /// The role `root`.
    Root,
    /// `root` for changes, a valid user for reads (alarms).
    RootToChange,
    /// `root`, or the user asked about.
    RootOrSelf,
    /// `root`, or a role the caller holds.
    RootOrOwnRole,
    /// Permissions on the keys named in the request.
    Keys,
    /// Permissions on the keys attached to the leases named in the request.
    LeaseKeys,
    /// Not decided by us (`Lock` and `Election` check the operations they are made of).
    Inner,
}

/// A service that can be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// `etcdserverpb.KV`.
    Kv,
    /// `etcdserverpb.Watch`.
    Watch,
    /// `etcdserverpb.Lease`.
    Lease,
    /// `etcdserverpb.Cluster`.
    Cluster,
    /// `etcdserverpb.Maintenance`.
    Maintenance,
    /// `etcdserverpb.Auth`.
    Auth,
    /// `v3electionpb.Election`.
    Election,
    /// `v3lockpb.Lock`.
    Lock,
    /// `grpc.health.v1.Health`.
    Health,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 9] = [
        Self::Kv,
        Self::Watch,
        Self::Lease,
        Self::Cluster,
        Self::Maintenance,
        Self::Auth,
        Self::Election,
        Self::Lock,
        Self::Health,
    ];

    /// Full name; the `grpc_service` label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kv => "etcdserverpb.KV",
            Self::Watch => "etcdserverpb.Watch",
            Self::Lease => "etcdserverpb.Lease",
            Self::Cluster => "etcdserverpb.Cluster",
            Self::Maintenance => "etcdserverpb.Maintenance",
            Self::Auth => "etcdserverpb.Auth",
            Self::Election => "v3electionpb.Election",
            Self::Lock => "v3lockpb.Lock",
            Self::Health => "grpc.health.v1.Health",
        }
    }

    /// The service with this full name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.name() == name)
    }
}

macro_rules! methods {
    ($($id:ident $service:ident $path:literal $name:literal $shape:ident $rights:ident;)*) => {
        /// An RPC.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = $path] $id,)*
        }

        impl Method {
            /// All RPCs in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$id,)*];
            /// Number of RPCs, for arrays indexed by [`Method::index`].
            pub const COUNT: usize = Self::ALL.len();

            /// The RPC with this HTTP/2 path.
            pub fn from_path(path: &str) -> Option<Self> {
                match path {
                    $($path => Some(Self::$id),)*
                    _ => None,
                }
            }

            /// HTTP/2 path.
            pub fn path(self) -> &'static str {
                match self { $(Self::$id => $path,)* }
            }

            /// The `grpc_method` label.
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name,)* }
            }

            /// The service it belongs to.
            pub fn service(self) -> Service {
                match self { $(Self::$id => Service::$service,)* }
            }

            /// Unary or streaming.
            pub fn shape(self) -> Shape {
                match self { $(Self::$id => Shape::$shape,)* }
            }

            /// What a caller needs while authentication is on.
            pub fn rights(self) -> Rights {
                match self { $(Self::$id => Rights::$rights,)* }
            }
        }
    };
}

methods! {
    Put Kv "/etcdserverpb.KV/Put" "Put" Unary Keys;
    Range Kv "/etcdserverpb.KV/Range" "Range" Unary Keys;
    Txn Kv "/etcdserverpb.KV/Txn" "Txn" Unary Keys;
    DeleteRange Kv "/etcdserverpb.KV/DeleteRange" "DeleteRange" Unary Keys;
    Compact Kv "/etcdserverpb.KV/Compact" "Compact" Unary Root;
    RangeStream Kv "/etcdserverpb.KV/RangeStream" "RangeStream" ServerStream Keys;
    Watch Watch "/etcdserverpb.Watch/Watch" "Watch" BidiStream Keys;
    LeaseGrant Lease "/etcdserverpb.Lease/LeaseGrant" "LeaseGrant" Unary User;
    LeaseRevoke Lease "/etcdserverpb.Lease/LeaseRevoke" "LeaseRevoke" Unary LeaseKeys;
    LeaseKeepAlive Lease "/etcdserverpb.Lease/LeaseKeepAlive" "LeaseKeepAlive" BidiStream LeaseKeys;
    LeaseTimeToLive Lease "/etcdserverpb.Lease/LeaseTimeToLive" "LeaseTimeToLive" Unary LeaseKeys;
    LeaseLeases Lease "/etcdserverpb.Lease/LeaseLeases" "LeaseLeases" Unary LeaseKeys;
    MemberAdd Cluster "/etcdserverpb.Cluster/MemberAdd" "MemberAdd" Unary Root;
    MemberRemove Cluster "/etcdserverpb.Cluster/MemberRemove" "MemberRemove" Unary Root;
    MemberUpdate Cluster "/etcdserverpb.Cluster/MemberUpdate" "MemberUpdate" Unary Root;
    MemberList Cluster "/etcdserverpb.Cluster/MemberList" "MemberList" Unary User;
    MemberPromote Cluster "/etcdserverpb.Cluster/MemberPromote" "MemberPromote" Unary Root;
    Alarm Maintenance "/etcdserverpb.Maintenance/Alarm" "Alarm" Unary RootToChange;
    Status Maintenance "/etcdserverpb.Maintenance/Status" "Status" Unary User;
    Defragment Maintenance "/etcdserverpb.Maintenance/Defragment" "Defragment" Unary Root;
    Hash Maintenance "/etcdserverpb.Maintenance/Hash" "Hash" Unary Root;
    HashKv Maintenance "/etcdserverpb.Maintenance/HashKV" "HashKV" Unary Root;
    Snapshot Maintenance "/etcdserverpb.Maintenance/Snapshot" "Snapshot" ServerStream Root;
    MoveLeader Maintenance "/etcdserverpb.Maintenance/MoveLeader" "MoveLeader" Unary Root;
    Downgrade Maintenance "/etcdserverpb.Maintenance/Downgrade" "Downgrade" Unary Root;
    AuthEnable Auth "/etcdserverpb.Auth/AuthEnable" "AuthEnable" Unary Root;
    AuthDisable Auth "/etcdserverpb.Auth/AuthDisable" "AuthDisable" Unary Root;
    AuthStatus Auth "/etcdserverpb.Auth/AuthStatus" "AuthStatus" Unary Open;
    Authenticate Auth "/etcdserverpb.Auth/Authenticate" "Authenticate" Unary Open;
    UserAdd Auth "/etcdserverpb.Auth/UserAdd" "UserAdd" Unary Root;
    UserGet Auth "/etcdserverpb.Auth/UserGet" "UserGet" Unary RootOrSelf;
    UserList Auth "/etcdserverpb.Auth/UserList" "UserList" Unary Root;
    UserDelete Auth "/etcdserverpb.Auth/UserDelete" "UserDelete" Unary Root;
    UserChangePassword Auth "/etcdserverpb.Auth/UserChangePassword" "UserChangePassword" Unary Root;
    UserGrantRole Auth "/etcdserverpb.Auth/UserGrantRole" "UserGrantRole" Unary Root;
    UserRevokeRole Auth "/etcdserverpb.Auth/UserRevokeRole" "UserRevokeRole" Unary Root;
    RoleAdd Auth "/etcdserverpb.Auth/RoleAdd" "RoleAdd" Unary Root;
    RoleGet Auth "/etcdserverpb.Auth/RoleGet" "RoleGet" Unary RootOrOwnRole;
    RoleList Auth "/etcdserverpb.Auth/RoleList" "RoleList" Unary Root;
    RoleDelete Auth "/etcdserverpb.Auth/RoleDelete" "RoleDelete" Unary Root;
    RoleGrantPermission Auth "/etcdserverpb.Auth/RoleGrantPermission" "RoleGrantPermission" Unary Root;
    RoleRevokePermission Auth "/etcdserverpb.Auth/RoleRevokePermission" "RoleRevokePermission" Unary Root;
    Campaign Election "/v3electionpb.Election/Campaign" "Campaign" Unary Inner;
    Proclaim Election "/v3electionpb.Election/Proclaim" "Proclaim" Unary Inner;
    Leader Election "/v3electionpb.Election/Leader" "Leader" Unary Inner;
    Observe Election "/v3electionpb.Election/Observe" "Observe" ServerStream Inner;
    Resign Election "/v3electionpb.Election/Resign" "Resign" Unary Inner;
    Lock Lock "/v3lockpb.Lock/Lock" "Lock" Unary Inner;
    Unlock Lock "/v3lockpb.Lock/Unlock" "Unlock" Unary Inner;
    HealthCheck Health "/grpc.health.v1.Health/Check" "Check" Unary Open;
    HealthWatch Health "/grpc.health.v1.Health/Watch" "Watch" ServerStream Open;
}

impl Method {
    /// Position in arrays of [`Method::COUNT`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether a fenced member serves it: what says how it is and who the members are, and nothing
    /// that shows or changes its data.
    pub fn on_fenced(self) -> bool {
        matches!(self.service(), Service::Cluster | Service::Health)
            || matches!(
                self,
                Self::Alarm
                    | Self::Status
                    | Self::Hash
                    | Self::HashKv
                    | Self::MoveLeader
                    | Self::AuthStatus
            )
    }

    /// Whether a member without a vote serves it. `Range` only if it is serializable, which the
    /// handler checks: the message is not decoded yet here.
    pub fn on_learner(self) -> bool {
        matches!(self, Self::Status | Self::Range | Self::Snapshot)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service().name(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of every generated service, found in the generated code.
    fn generated() -> Vec<&'static str> {
        let code = [
            include_str!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs")),
            include_str!(concat!(env!("OUT_DIR"), "/v3electionpb.rs")),
            include_str!(concat!(env!("OUT_DIR"), "/v3lockpb.rs")),
        ];
        code.into_iter()
            .flat_map(str::lines)
            .filter_map(|line| line.trim().strip_suffix(" => {"))
            .filter_map(|arm| arm.strip_prefix('"')?.strip_suffix('"'))
            .filter(|path| path.starts_with('/'))
            .collect()
    }

    #[test]
    fn every_generated_rpc_has_a_row() {
        let paths = generated();
        assert!(paths.len() >= 49, "the generated code was not understood: {paths:?}");
        for path in paths {
            assert!(Method::from_path(path).is_some(), "no row for {path}");
        }
    }

    #[test]
    fn rows_agree_with_their_paths() {
        for &method in Method::ALL {
            assert_eq!(method.path(), format!("/{method}"));
            assert_eq!(Method::from_path(method.path()), Some(method));
            assert_eq!(Method::ALL[method.index()], method);
        }
        let served: Vec<_> = Method::ALL.iter().map(|m| m.path()).collect();
        for path in generated() {
            assert!(served.contains(&path));
        }
        // The two health RPCs come from a crate, all others from our own files.
        assert_eq!(Method::COUNT, generated().len() + 2);
    }

    #[test]
    fn only_these_need_no_user() {
        let open: Vec<_> =
            Method::ALL.iter().filter(|m| m.rights() == Rights::Open).map(|m| m.name()).collect();
        assert_eq!(open, ["AuthStatus", "Authenticate", "Check", "Watch"]);
    }
}
