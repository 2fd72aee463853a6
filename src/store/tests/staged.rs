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
    let options = Options { cache_bytes: 8 << 20, clean: true, room: None };
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
