//! Tables of the store file and how their keys look.
//!
//! | table | key | value |
//! |---|---|---|
//! | `revs` | [`RowKey`], 18 bytes | the exact encoded `mvccpb.KeyValue` |
//! | `state` | name, see below | fixed-width big-endian numbers or opaque bytes |
//! | one per [`Table`] | chosen by the machine | chosen by the machine |
//!
//! A row key is etcd's 17-byte revision (`main`, `_`, `sub`, big-endian) and one byte that is `t`
//! for a tombstone and zero otherwise. The width is fixed because the engine stores fixed-width
//! keys without an offset table; byte order is revision order because both numbers are
//! non-negative.
//!
//! `state` belongs to the store alone: `format`, `applied` (index, term), `conf_state`, `revision`,
//! `content` (see [`super::content`]) and `running` (index, hash). They are written in the
//! transaction that holds the effects they describe. A former version of the program reads the
//! file without the last two and leaves them as they are, so both name the index they belong to.

use redb::TableDefinition;

use crate::mvcc::Revision;

/// Version of everything in this file; a store with a higher one is refused.
pub const FORMAT: u32 = 1;

/// Bytes of a row key: etcd's 17-byte revision and the tombstone flag.
pub(crate) const ROW_KEY_BYTES: usize = 18;

/// Key of a row in `revs`.
pub(crate) type RowKey = [u8; ROW_KEY_BYTES];

/// The rows, by revision.
pub(crate) const REVS: TableDefinition<'static, &'static RowKey, &'static [u8]> =
    TableDefinition::new("revs");

/// The store's own facts.
pub(crate) const STATE: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("state");

/// Definition of one of the machine's small tables.
pub(crate) type SmallTable = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Key in `state`: [`FORMAT`], 4 bytes big-endian.
pub(crate) const STATE_FORMAT: &[u8] = b"format";
/// Key in `state`: applied index and its term, 8 bytes big-endian each.
pub(crate) const STATE_APPLIED: &[u8] = b"applied";
/// Key in `state`: the raft configuration at the applied index, opaque here.
pub(crate) const STATE_CONF: &[u8] = b"conf_state";
/// Key in `state`: the newest revision whose rows are all in `revs`, 8 bytes big-endian.
pub(crate) const STATE_REVISION: &[u8] = b"revision";

/// Key in `state`: checksum over all rows, see [`super::content`].
pub(crate) const STATE_CONTENT: &[u8] = b"content";
/// Key in `state`: applied index and the machine's running hash there, 8 bytes big-endian each.
pub(crate) const STATE_RUNNING: &[u8] = b"running";

/// Key in [`Table::Meta`]: revision of the newest accepted compaction, as [`revision_value`].
pub const META_SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
/// Key in [`Table::Meta`]: revision of the newest compaction whose rows are gone from the file,
/// as [`revision_value`].
pub const META_FINISHED_COMPACT: &[u8] = b"finishedCompactRev";

/// Small tables: kept wholly in memory by the machine, copied here row by row when they change.
/// Names follow etcd's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Compaction marks and single values of the machine.
    Meta,
    /// Leases by id.
    Leases,
    /// Auth switch and revision.
    Auth,
    /// Users by name.
    AuthUsers,
    /// Roles by name.
    AuthRoles,
    /// Members by id.
    Members,
    /// Ids of members that were removed: they never come back.
    MembersRemoved,
    /// Raised alarms.
    Alarms,
    /// Cluster version and other facts of the whole cluster.
    Cluster,
}

impl Table {
    /// Every table, in the order in which they are hashed and copied.
    pub const ALL: [Table; 9] = [
        Table::Meta,
        Table::Leases,
        Table::Auth,
        Table::AuthUsers,
        Table::AuthRoles,
        Table::Members,
        Table::MembersRemoved,
        Table::Alarms,
        Table::Cluster,
    ];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Leases => "lease",
            Table::Auth => "auth",
            Table::AuthUsers => "authUsers",
            Table::AuthRoles => "authRoles",
            Table::Members => "members",
            Table::MembersRemoved => "members_removed",
            Table::Alarms => "alarm",
            Table::Cluster => "cluster",
        }
    }

    pub(crate) const fn definition(self) -> SmallTable {
        TableDefinition::new(self.name())
    }
}

/// Encodes the key of a row.
pub(crate) fn row_key(revision: Revision, tombstone: bool) -> RowKey {
    let mut key = [0; ROW_KEY_BYTES];
    key[..8].copy_from_slice(&revision.main.to_be_bytes());
    key[8] = b'_';
    key[9..17].copy_from_slice(&revision.sub.to_be_bytes());
    key[17] = if tombstone { b't' } else { 0 };
    key
}

/// Decodes the key of a row into its revision and whether it is a tombstone.
pub(crate) fn parse_row_key(key: &RowKey) -> (Revision, bool) {
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&key[at..at + 8]);
        i64::from_be_bytes(bytes)
    };
    (Revision { main: number(0), sub: number(9) }, key[17] == b't')
}

/// Value of the compaction marks: the main revision, 8 bytes big-endian.
pub fn revision_value(main: i64) -> [u8; 8] {
    main.to_be_bytes()
}

/// Reads what [`revision_value`] wrote; `None` when the bytes are something else.
pub fn parse_revision_value(value: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(value.try_into().ok()?))
}

/// Bytes that a row occupies in the file, rounded the way the engine rounds: small rows share
/// 4 KiB leaves, a larger one gets a run of pages whose number is a power of two. The quota counts
/// this instead of the file's length, which grows in jumps.
pub fn row_footprint(value_bytes: usize) -> u64 {
    /// Page of the engine, bytes.
    const PAGE: u64 = 4096;
    /// Leaf header, one offset and the alignment of a leaf with a single pair, bytes.
    const PAIR_OVERHEAD: u64 = 16;
    let bytes = value_bytes as u64 + ROW_KEY_BYTES as u64 + PAIR_OVERHEAD;
    if bytes <= PAGE / 2 { bytes } else { bytes.div_ceil(PAGE).next_power_of_two() * PAGE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_keep_revision_order_and_round_trip() {
        let mut keys = Vec::new();
        for main in [0, 1, 255, 256, i64::MAX] {
            for sub in [0, 1, 300] {
                for tombstone in [false, true] {
                    let key = row_key(Revision { main, sub }, tombstone);
                    assert_eq!(parse_row_key(&key), (Revision { main, sub }, tombstone));
                    keys.push(key);
                }
            }
        }
        let mut sorted = keys.clone();
        sorted.sort();
        assert_eq!(keys, sorted);
    }

    #[test]
    fn row_keys_have_the_bytes_of_etcd() {
        let key = row_key(Revision { main: 0x0102, sub: 3 }, true);
        assert_eq!(&key[..], b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03t");
    }

    #[test]
    fn footprints_are_rounded_like_pages() {
        assert_eq!(row_footprint(100), 134);
        assert_eq!(row_footprint(4000), 4096);
        assert_eq!(row_footprint(1 << 20), 2 << 20);
        assert_eq!(row_footprint(1_500_000), 2 << 20);
    }
}
