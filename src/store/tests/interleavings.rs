//! Both publishers against readers: no revision falls, no row is missing, none appears twice.
//!
//! Twice: in one thread, where a reader or a publication is interrupted at each of its inner
//! points by what the other side may do there, and with real threads.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc;

use super::super::view::Point;
use super::*;
use crate::disk::SimRng;

type Hook = Rc<dyn Fn(Point)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Called by the store at its inner points; without a hook in this thread nothing happens.
pub(crate) fn interleave(point: Point) {
    // Taken out while it runs: what the hook does is not interrupted itself.
    if let Some(hook) = HOOK.with(|slot| slot.borrow_mut().take()) {
        hook(point);
        HOOK.with(|slot| *slot.borrow_mut() = Some(hook));
    }
}

/// The apply side and the store side of a node, driven by hand.
struct World {
    rng: SimRng,
    writer: Option<Writer>,
    shared: Shared,
    open: Batch,
    published: i64,
    /// Newest durable revision any reader has seen.
    seen_durable: i64,
    tombstones: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let (writer, shared, _) = open_store(&new_disk());
        World {
            rng: SimRng::new(seed),
            writer: Some(writer),
            shared,
            open: Batch::default(),
            published: 0,
            seen_durable: 0,
            tombstones: 0,
        }
    }

    fn apply(&mut self) {
        let main = self.published + 1;
        let rows: Vec<Row> =
            (0..=self.rng.below(3) as i64).map(|sub| super::row(main, sub)).collect();
        self.tombstones += rows.iter().filter(|row| row.1).count();
        self.shared.pending().append(&rows);
        self.open.rows.extend(rows);
        self.open.revision = main;
        self.open.applied = (main as u64, 1);
        self.published = main;
    }

    /// Takes what a commit needs; the commit itself runs without the world borrowed, because it
    /// is interrupted.
    fn freeze(&mut self) -> Option<(Writer, Batch)> {
        let empty = self.open.rows.is_empty();
        if empty { None } else { Some((self.writer.take()?, std::mem::take(&mut self.open))) }
    }
}

fn commit(world: &RefCell<World>) {
    let frozen = world.borrow_mut().freeze();
    if let Some((mut writer, batch)) = frozen {
        let revision = batch.revision;
        writer.commit(batch).unwrap();
        assert_eq!(writer.shared().durable().1, revision);
        world.borrow_mut().writer = Some(writer);
    }
}

fn read(world: &RefCell<World>) {
    let (shared, published, at, from) = {
        let mut world = world.borrow_mut();
        if world.published == 0 {
            return;
        }
        let published = world.published;
        let at = 1 + world.rng.below(published as u64) as i64;
        let from = 1 + world.rng.below(published as u64) as i64;
        (world.shared.clone(), published, at, from)
    };
    let durable = shared.durable().1;
    {
        let mut world = world.borrow_mut();
        assert!(durable >= world.seen_durable, "the durable revision fell");
        world.seen_durable = durable;
    }
    for main in [at, published] {
        assert_eq!(shared.row(rev(main, 0)).unwrap(), super::row(main, 0).2, "row {main}");
    }
    let found = scan(&shared, from, published);
    let mains: Vec<i64> = found.iter().filter(|row| row.0.sub == 0).map(|row| row.0.main).collect();
    assert_eq!(mains, (from..=published).collect::<Vec<_>>());
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "not in order or twice");
    assert!(found.iter().all(|found| *found == super::row(found.0.main, found.0.sub)));
}

fn step(world: &RefCell<World>) {
    let choice = world.borrow_mut().rng.below(8);
    match choice {
        0..=3 => world.borrow_mut().apply(),
        4 => commit(world),
        _ => read(world),
    }
}

fn run(seed: u64) -> Vec<Point> {
    let world = Rc::new(RefCell::new(World::new(seed)));
    let points = Rc::new(RefCell::new(Vec::new()));
    let hook: Hook = {
        let (world, points) = (Rc::clone(&world), Rc::clone(&points));
        Rc::new(move |point| {
            points.borrow_mut().push(point);
            let steps = world.borrow_mut().rng.below(4);
            (0..steps).for_each(|_| step(&world));
        })
    };
    HOOK.with(|slot| *slot.borrow_mut() = Some(hook));
    (0..60).for_each(|_| step(&world));
    HOOK.with(|slot| *slot.borrow_mut() = None);
    read(&world);
    assert!(world.borrow().tombstones > 0);
    points.take()
}

#[test]
fn no_interleaving_of_the_publishers_hides_a_row() {
    let mut points = Vec::new();
    (0..60).for_each(|seed| points.extend(run(seed)));
    for point in [
        Point::BeforePending,
        Point::AfterPendingMiss,
        Point::AfterCapture,
        Point::AfterDurableScan,
        Point::BeforeRelease,
    ] {
        assert!(points.iter().filter(|seen| **seen == point).count() > 20, "{point:?} not reached");
    }
}

#[test]
fn threads_see_every_row_and_no_revision_falls() {
    const REVISIONS: i64 = 6_000;
    const ROWS_PER_BATCH: usize = 150;
    let (mut writer, shared, _) = open_store(&new_disk());
    let published = AtomicI64::new(0);
    let done = AtomicBool::new(false);
    let (to_store, batches) = mpsc::sync_channel::<Batch>(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let to_store = to_store;
            let mut open = Batch::default();
            for main in 1..=REVISIONS {
                let row = super::row(main, 0);
                shared.pending().append(std::slice::from_ref(&row));
                open.rows.push(row);
                (open.revision, open.applied) = (main, (main as u64, 1));
                published.store(main, Ordering::Release);
                if open.rows.len() == ROWS_PER_BATCH {
                    to_store.send(std::mem::take(&mut open)).unwrap();
                }
            }
        });
        scope.spawn(|| {
            for batch in batches {
                writer.commit(batch).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        for reader in 0..2 {
            let (shared, published, done) = (&shared, &published, &done);
            scope.spawn(move || {
                let mut rng = SimRng::new(reader);
                let mut durable = 0;
                while !done.load(Ordering::Acquire) {
                    let now = published.load(Ordering::Acquire);
                    if now == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let view = shared.durable().1;
                    assert!(view >= durable, "the durable revision fell");
                    durable = view;
                    // Close to where rows move from pending to the file, where a gap would be.
                    let at = (view - 20 + rng.below(200) as i64).clamp(1, now);
                    assert_eq!(shared.row(rev(at, 0)).unwrap(), super::row(at, 0).2);
                    let found = scan(shared, at, now);
                    assert_eq!(found.len() as i64, now - at + 1, "scan from {at} to {now}");
                }
            });
        }
    });
    assert_eq!(shared.durable().1, REVISIONS);
    assert_eq!(scan(&shared, 1, REVISIONS).len() as i64, REVISIONS);
}
