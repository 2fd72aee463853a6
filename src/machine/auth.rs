//! Authentication: so far only its switch and revision, which every command already carries.

use crate::store::Table;
use bytes::Bytes;

/// Row of [`Table::Auth`]: one byte, 1 when authentication is on.
const ENABLED: &[u8] = b"authEnabled";
/// Row of [`Table::Auth`]: the revision, 8 bytes big-endian.
const REVISION: &[u8] = b"authRevision";

/// What AuthStatus shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthStatus {
    /// Whether requests need a user.
    pub enabled: bool,
    /// Goes up with every change of users, roles and permissions; starts at 1.
    pub revision: u64,
}

impl Default for AuthStatus {
    fn default() -> Self {
        Self { enabled: false, revision: 1 }
    }
}

/// The replicated state of authentication. Users and roles have their tables in the store
/// ([`Table::AuthUsers`], [`Table::AuthRoles`]), but no command writes them yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Auth {
    status: AuthStatus,
}

impl Auth {
    pub(super) fn status(&self) -> AuthStatus {
        self.status
    }

    /// Reads a stored row; false if it is damaged.
    pub(super) fn load(&mut self, table: Table, key: &[u8], value: &Bytes) -> bool {
        match (table, key) {
            (Table::Auth, ENABLED) => self.status.enabled = value[..] == [1],
            (Table::Auth, REVISION) => match value[..].try_into() {
                Ok(bytes) => self.status.revision = u64::from_be_bytes(bytes),
                Err(_) => return false,
            },
            _ => {}
        }
        true
    }
}
