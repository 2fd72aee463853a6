//! A state in a file aside: what is said of it is what the file holds.

use super::*;
use crate::store::{Content, Staging};

const VALUE: &str = "a row whose bytes are found on the disk";

/// Writes one row, with a bit of it flipped once it is on the disk if `rots`; what is read back.
fn sealed(rots: bool) -> Content {
    let disk = new_disk();
    let flipped = Arc::new(AtomicBool::new(!rots));
    let (place, done) = (disk.clone(), flipped.clone());
    disk.set_hook(move |op| {
        let contents = place.contents(&op.path).unwrap_or_default();
        let at = contents.windows(VALUE.len()).position(|bytes| bytes == VALUE.as_bytes());
        if let (true, Some(at)) = (op.op == IoOp::SyncData, at)
            && !done.swap(true, Ordering::SeqCst)
        {
            assert!(place.flip_bit(&op.path, at as u64, 3));
        }
        Action::Proceed
    });
    let options = Options { cache_bytes: 8 << 20, clean: true, ..Options::default() };
    let storage: Arc<dyn Disk> = Arc::new(disk);
    let mut staging = Staging::create(storage, Path::new(PATH), (10, 2), 2, &options).unwrap();
    staging.rows(vec![(rev(2, 0), false, Bytes::from_static(VALUE.as_bytes()))]).unwrap();
    let (staging, read) = staging.seal(Vec::new(), Bytes::new(), None).unwrap();
    assert!(flipped.load(Ordering::SeqCst), "the row was not on the disk when it was read back");
    staging.finish().unwrap();
    read
}

#[test]
fn what_is_read_back_comes_from_the_disk() {
    let mut sent = Content::default();
    sent.add_row(rev(2, 0), false, VALUE.as_bytes());
    assert_eq!(sealed(false), sent);
    let rotten = sealed(true);
    assert_eq!(rotten.count, sent.count);
    assert_ne!(rotten.sum, sent.sum, "the engine's memory was read, not the file");
}

/// Stages rows of 4,000 bytes in 32 batches; counts the syncs, and the bytes written for each byte
/// of the rows.
#[test]
fn batches_are_written_once_and_synced_at_the_end() {
    const ROWS: i64 = 128;
    const BATCHES: i64 = 32;
    const ROW_BYTES: usize = 4_000;
    let disk = new_disk();
    let (syncs, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = (syncs.clone(), written.clone());
    let options = Options { cache_bytes: 2 << 20, clean: true, ..Options::default() };
    let storage: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut staging =
        Staging::create(storage, Path::new(PATH), (10, 2), BATCHES * ROWS, &options).unwrap();
    disk.set_hook(move |op| {
        match op.op {
            IoOp::SyncData => _ = seen.0.fetch_add(1, Ordering::SeqCst),
            IoOp::Write => _ = seen.1.fetch_add(op.bytes, Ordering::SeqCst),
            _ => {}
        }
        Action::Proceed
    });
    for batch in 0..BATCHES {
        let row = |n| (rev(batch * ROWS + n, 0), false, Bytes::from(vec![n as u8; ROW_BYTES]));
        staging.rows((1..=ROWS).map(row).collect()).unwrap();
    }
    let (staging, read) = staging.seal(Vec::new(), Bytes::new(), None).unwrap();
    assert_eq!(read.count, (BATCHES * ROWS) as u64);
    staging.finish().unwrap();
    // The engine syncs when it makes the file longer; a transaction that is kept costs two more.
    let syncs = syncs.load(Ordering::SeqCst);
    assert!(syncs < BATCHES as u64, "{syncs} syncs");
    let rows = (BATCHES * ROWS) as u64 * ROW_BYTES as u64;
    let times = written.load(Ordering::SeqCst) as f64 / rows as f64;
    assert!(times < 1.25, "every byte was written {times:.2} times");
}
