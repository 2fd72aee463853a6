//! Many rows in one call give what single look-ups give, whatever order and distance they have.

use super::*;

/// Rows at irregular distances: transactions of many rows, gaps and tombstones.
fn uneven() -> Batch {
    let mut rows = Vec::new();
    let mut main = 2;
    for n in 0..400_i64 {
        let subs = if n % 7 == 0 { 60 } else { 1 + n % 3 };
        rows.extend((0..subs).map(|sub| row(main, sub)));
        main += if n % 11 == 0 { 40 } else { 1 };
    }
    Batch { rows, applied: (9, 3), revision: main, ..Batch::default() }
}

/// A repeatable shuffle.
fn shuffled(mut revisions: Vec<Revision>, seed: u64) -> Vec<Revision> {
    let mut state = seed | 1;
    for at in (1..revisions.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        revisions.swap(at, (state >> 33) as usize % (at + 1));
    }
    revisions
}

#[test]
fn equal_single_look_ups_in_every_order() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    let batch = uneven();
    let all: Vec<Revision> = batch.rows.iter().map(|(revision, ..)| *revision).collect();
    let newest = batch.revision;
    writer.commit(batch).unwrap();
    // Some rows are not durable yet.
    let late: Vec<Row> = (1..=5).map(|n| row(newest + n, 0)).collect();
    shared.pending().append(&late);
    let all: Vec<Revision> = all.into_iter().chain(late.iter().map(|row| row.0)).collect();
    let every = |n: usize| all.iter().copied().step_by(n).collect::<Vec<_>>();
    let twice: Vec<Revision> = all.iter().flat_map(|revision| [*revision, *revision]).collect();
    let back: Vec<Revision> = all.iter().rev().copied().collect();
    let orders = [every(1), every(2), every(5), every(30), every(90), twice, back, Vec::new()];
    for (ix, wanted) in orders.into_iter().enumerate() {
        for wanted in [shuffled(wanted.clone(), ix as u64), wanted] {
            let expected: Vec<Bytes> =
                wanted.iter().map(|revision| shared.row(*revision).unwrap()).collect();
            let text = |revision: &Revision| row(revision.main, revision.sub).2;
            assert_eq!(expected, wanted.iter().map(text).collect::<Vec<_>>());
            assert_eq!(shared.rows(&wanted).unwrap(), expected, "order {ix}");
        }
    }
}

#[test]
fn a_missing_row_is_missing_between_its_neighbours() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    let mut batch = batch(2, 60);
    batch.rows.retain(|(revision, ..)| revision.main != 30);
    writer.commit(batch).unwrap();
    for wanted in [vec![rev(29, 0), rev(30, 0), rev(31, 0)], vec![rev(30, 0), rev(31, 0)]] {
        assert_eq!(shared.rows(&wanted), Err(RowsError::Missing));
    }
    assert_eq!(shared.rows(&[rev(29, 0), rev(31, 0)]).unwrap().len(), 2);
    assert_eq!(shared.rows(&[rev(60, 0), rev(61, 0)]), Err(RowsError::Missing));
}

#[test]
fn rows_keep_their_bytes_when_their_neighbours_are_gone() {
    let disk = new_disk();
    let (mut writer, shared, _) = open_store(&disk);
    let sizes = [0, 1, 100, 4_000, 16_383, 16_384, 70_000];
    let rows: Vec<Row> = (0..70)
        .map(|n| (rev(2 + n, 0), false, Bytes::from(vec![n as u8; sizes[n as usize % 7]])))
        .collect();
    let wanted: Vec<Revision> = rows.iter().map(|row| row.0).collect();
    let expected: Vec<Bytes> = rows.iter().map(|row| row.2.clone()).collect();
    writer.commit(Batch { rows, applied: (9, 3), revision: 71, ..Batch::default() }).unwrap();
    let mut found = shared.rows(&wanted).unwrap();
    assert_eq!(found, expected);
    let kept: Vec<Bytes> = found.drain(..).skip(30).step_by(7).collect();
    assert_eq!(kept, expected.into_iter().skip(30).step_by(7).collect::<Vec<_>>());
}
