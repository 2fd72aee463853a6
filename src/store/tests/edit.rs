//! Changes a file behind the back of its owner, as rot or another program would.

use crate::store::tables::{REVS, STATE};
use redb::{Database, ReadableTable, Table};
use std::collections::BTreeMap;

type State<'t> = Table<'t, &'static [u8], &'static [u8]>;
/// Rows by their key in the file.
pub(crate) type Revs = BTreeMap<[u8; 18], Vec<u8>>;

/// Hands out table `state` and all rows, takes the rows back, commits and closes.
pub(crate) fn edit(db: Database, change: impl FnOnce(&mut State<'_>, &mut Revs)) {
    let transaction = db.begin_write().unwrap();
    {
        let mut state = transaction.open_table(STATE).unwrap();
        let mut revs = transaction.open_table(REVS).unwrap();
        let mut rows = Revs::new();
        for row in revs.iter().unwrap() {
            let (key, value) = row.unwrap();
            rows.insert(*key.value(), value.value().to_vec());
        }
        for key in rows.keys() {
            revs.remove(key).unwrap();
        }
        change(&mut state, &mut rows);
        for (key, value) in &rows {
            revs.insert(key, &value[..]).unwrap();
        }
    }
    transaction.commit().unwrap();
    db.close().unwrap();
}
