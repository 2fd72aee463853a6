//! Stores whose content changes behind a member's back.

use redb::{Database, ReadableTable, TableDefinition};
use std::path::Path;

const REVS: TableDefinition<'static, &'static [u8; 18], &'static [u8]> =
    TableDefinition::new("revs");

/// Changes one byte of the value in the row that ends with `value`, in the store of a member that is
/// down. The file stays a sound one: only who knows what was written can tell.
pub fn rot(data_dir: &Path, value: &str) {
    let db = Database::open(data_dir.join("member/store.redb")).expect("open the store");
    let transaction = db.begin_write().expect("begin");
    {
        let mut revs = transaction.open_table(REVS).expect("table");
        let mut found = None;
        for row in revs.iter().expect("rows") {
            let (key, row) = row.expect("a row");
            if let Some(at) =
                row.value().windows(value.len()).position(|window| window == value.as_bytes())
            {
                found = Some((*key.value(), row.value().to_vec(), at));
            }
        }
        let (key, mut row, at) = found.expect("the row");
        row[at] ^= 1;
        revs.insert(&key, &row[..]).expect("insert");
    }
    transaction.commit().expect("commit");
}
