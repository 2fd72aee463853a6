//! Revisions: the position of a change in the history of the store.

/// Position of one change. Orders by `main`, then `sub`, as its bytes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Number of the transaction; clients see only this one. The first write has 2.
    pub main: i64,
    /// Number of the change inside its transaction, from 0.
    pub sub: i64,
}

/// Bytes of an encoded revision: main, `_`, sub.
const REVISION_BYTES: usize = 17;

/// What a tombstone's encoded revision ends with.
const TOMBSTONE_MARK: u8 = b't';

impl Revision {
    /// The revision `main`, change `sub`.
    #[must_use]
    pub const fn new(main: i64, sub: i64) -> Self {
        Self { main, sub }
    }

    /// etcd's form of a revision: 8 bytes big-endian, `_`, 8 bytes big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; REVISION_BYTES] {
        let mut bytes = [b'_'; REVISION_BYTES];
        bytes[..8].copy_from_slice(&self.main.to_be_bytes());
        bytes[9..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    /// The form of a tombstone's revision: one more byte, `t`.
    #[must_use]
    pub fn to_tombstone_bytes(self) -> [u8; REVISION_BYTES + 1] {
        let mut bytes = [TOMBSTONE_MARK; REVISION_BYTES + 1];
        bytes[..REVISION_BYTES].copy_from_slice(&self.to_bytes());
        bytes
    }

    /// Reads either form; `None` if it is neither. The flag says whether it is a tombstone's.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, bool)> {
        let (plain, tombstone) = match bytes {
            [plain @ .., TOMBSTONE_MARK] if plain.len() == REVISION_BYTES => (plain, true),
            plain if plain.len() == REVISION_BYTES => (plain, false),
            _ => return None,
        };
        let main = i64::from_be_bytes(plain[..8].try_into().ok()?);
        let sub = i64::from_be_bytes(plain[9..].try_into().ok()?);
        (plain[8] == b'_').then_some((Self { main, sub }, tombstone))
    }
}
