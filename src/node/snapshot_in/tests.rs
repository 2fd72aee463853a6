//! Snapshots that are not what the sender holds: refused, with nothing left behind.

use super::*;
use crate::consensus::ConfState;
use crate::disk::SimDisk;
use prost::Message as _;
use std::path::Path;

const DIR: &str = "/m";
const PATH: &str = "/m/store.redb";
const AT: (u64, u64) = (10, 2);
const REVISION: i64 = 9;
/// Type of the message that announces a snapshot.
const SNAPSHOT: i32 = 7;

/// Fields of a `raftpb.Message` that announces a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
struct RawMessage {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(uint64, tag = "3")]
    from: u64,
    #[prost(uint64, tag = "4")]
    term: u64,
    #[prost(message, optional, tag = "9")]
    snapshot: Option<RawSnapshot>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawSnapshot {
    #[prost(message, optional, tag = "2")]
    metadata: Option<RawMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawMetadata {
    #[prost(bytes = "vec", tag = "1")]
    conf_state: Vec<u8>,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(uint64, tag = "3")]
    term: u64,
}

fn announcement() -> Wire {
    let conf_state = ConfState { voters: vec![1, 2, 3], ..ConfState::default() }.encode();
    let metadata = Some(RawMetadata { conf_state, index: AT.0, term: AT.1 });
    let snapshot = Some(RawSnapshot { metadata });
    let message = RawMessage { kind: SNAPSHOT, to: 2, from: 1, term: AT.1, snapshot };
    Wire::decode(message.encode_to_vec().into()).expect("an announcement")
}

/// A transfer as its parts, each of which a test may change.
#[derive(Clone)]
struct Sent {
    revision: i64,
    rows: Vec<pb::SnapshotRow>,
    pairs: Vec<pb::SnapshotPair>,
    end: pb::SnapshotEnd,
}

fn honest() -> Sent {
    let row = |main, sub, tombstone, value: &'static str| pb::SnapshotRow {
        main,
        sub,
        tombstone,
        value: Bytes::from_static(value.as_bytes()),
    };
    let pair = |table: Table, key: &'static str, value: &'static str| pb::SnapshotPair {
        table: table.name().into(),
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
    };
    let rows = vec![row(2, 0, false, "one"), row(2, 1, true, "two"), row(9, 0, false, "three")];
    let pairs = vec![pair(Table::Leases, "12345678", "60"), pair(Table::Cluster, "fenced", "")];
    let end = pb::SnapshotEnd { rows: 3, running: Some(77), ..pb::SnapshotEnd::default() };
    let sent = Sent { revision: REVISION, rows, pairs, end };
    let content = content(&sent);
    sent.summed(content)
}

fn content(sent: &Sent) -> Content {
    let mut content = Content::default();
    for row in &sent.rows {
        let revision = Revision { main: row.main, sub: row.sub };
        content.add_row(revision, row.tombstone, &row.value);
    }
    for pair in &sent.pairs {
        let table = Table::ALL.into_iter().find(|table| table.name() == pair.table);
        content.add_pair(table.expect("a table"), &pair.key, &pair.value);
    }
    content
}

impl Sent {
    /// With the checksum of these parts: what is wrong in them was wrong before it was made.
    fn checked(mut self) -> Self {
        self.end.crc = 0;
        for row in &self.rows {
            let revision = Revision { main: row.main, sub: row.sub };
            self.end.crc = crc_of_row(self.end.crc, &(revision, row.tombstone, row.value.clone()));
        }
        self.end.crc = self.pairs.iter().fold(self.end.crc, crc_of_pair);
        self.end.rows = self.rows.len() as u64;
        self
    }

    fn summed(mut self, content: Content) -> Self {
        let Content { count, sum } = content;
        self.end.content = Some(pb::SnapshotContent { count, sum });
        self.checked()
    }

    fn changed(mut self, change: impl FnOnce(&mut Sent)) -> Self {
        change(&mut self);
        self
    }

    fn parts(self) -> Vec<Part> {
        vec![
            Part::Rows(pb::SnapshotRows { rows: self.rows }),
            Part::Small(pb::SnapshotSmall { pairs: self.pairs }),
            Part::End(self.end),
        ]
    }
}

/// What a member did with transfers that came one after the other.
struct Received {
    disk: SimDisk,
    outcomes: Vec<Result<(), String>>,
    told: Vec<NodeInput>,
}

fn receive(transfers: Vec<(i64, Vec<Part>)>, min_free: u64) -> Received {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    disk.set_capacity(Some(64 << 20));
    let node = Arc::new(Lane::default());
    let (queue, receiver) = mpsc::channel(transfers.len() + 1);
    let mut answers = Vec::new();
    for (revision, all) in transfers {
        let (sender, parts) = mpsc::channel(all.len().max(1));
        all.into_iter().for_each(|part| sender.try_send(part).unwrap());
        let (done, answer) = oneshot::channel();
        answers.push(answer);
        let head = pb::SnapshotHead { revision, ..pb::SnapshotHead::default() };
        let begin = Begin { from: 1, message: announcement(), head, parts, done };
        queue.try_send(SnapshotIn::Begin(Box::new(begin))).ok().unwrap();
    }
    queue.try_send(SnapshotIn::Stop).ok().unwrap();
    let thread = SnapshotInThread {
        queue: receiver,
        node: node.clone(),
        disk: Arc::new(disk.clone()),
        path: PATH.into(),
        min_free,
        room: None,
    };
    thread.run();
    let mut told = Vec::new();
    node.drain(&mut told, Some(std::time::Duration::ZERO));
    let outcomes = answers.iter_mut().map(|answer| answer.try_recv().expect("an answer"));
    Received { disk, outcomes: outcomes.collect(), told }
}

fn files(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Refuses this transfer and says this; afterwards the member takes a good one.
fn refused(parts: Vec<Part>, text: &str) {
    let good = honest();
    let received = receive(vec![(REVISION, parts.clone())], 0);
    let why = received.outcomes[0].as_ref().expect_err("refused");
    assert!(why.contains(text), "no {text:?}: {why}");
    assert!(received.told.is_empty(), "the core was told of it: {text}");
    assert_eq!(files(&received.disk), [""; 0], "left behind: {text}");
    let received = receive(vec![(REVISION, parts), (good.revision, good.parts())], 0);
    assert_eq!(received.outcomes[1], Ok(()), "a good one behind it");
    assert_eq!(received.told.len(), 2);
}

#[test]
fn a_whole_one_is_staged_and_told() {
    let sent = honest();
    let received = receive(vec![(sent.revision, sent.parts())], 0);
    assert_eq!(received.outcomes, [Ok(())]);
    assert_eq!(files(&received.disk), ["store.redb.incoming-10-2"]);
    let [NodeInput::SnapshotStaged(meta), NodeInput::Snapshot(wire)] = &received.told[..] else {
        panic!("in this order")
    };
    assert_eq!((meta.index, meta.term), AT);
    assert_eq!(wire.snapshot().as_ref(), Some(meta));
}

#[test]
fn a_wrong_checksum_number_or_hash_is_refused() {
    for bit in 0..32 {
        let sent = honest().changed(|sent| sent.end.crc ^= 1 << bit);
        refused(sent.parts(), "rows with checksum");
    }
    for rows in [0, 2, 4] {
        refused(honest().changed(|sent| sent.end.rows = rows).parts(), "rows with checksum");
    }
    let of = |change: fn(&mut Content)| {
        let mut content = content(&honest());
        change(&mut content);
        honest().summed(content).parts()
    };
    refused(of(|content| content.sum ^= 1), "it is not installed");
    refused(of(|content| content.sum ^= 1 << 63), "it is not installed");
    refused(of(|content| content.count += 1), "it is not installed");
}

/// Every byte of a transfer with one bit of it flipped.
fn flipped() -> Vec<Sent> {
    let flip = |bytes: &mut Bytes, at: usize| {
        let mut copy = bytes.to_vec();
        copy[at] ^= 1 << (at % 8);
        *bytes = copy.into();
    };
    let whole = honest();
    let mut all = Vec::new();
    for (n, row) in whole.rows.iter().enumerate() {
        for at in 0..row.value.len() {
            all.push(whole.clone().changed(|sent| flip(&mut sent.rows[n].value, at)));
        }
        all.push(whole.clone().changed(|sent| sent.rows[n].tombstone ^= true));
    }
    // Revisions that stay in order.
    all.push(whole.clone().changed(|sent| sent.rows[2].main ^= 1));
    all.push(whole.clone().changed(|sent| sent.rows[1].sub ^= 2));
    for (n, pair) in whole.pairs.iter().enumerate() {
        for at in 0..pair.key.len() {
            all.push(whole.clone().changed(|sent| flip(&mut sent.pairs[n].key, at)));
        }
        for at in 0..pair.value.len() {
            all.push(whole.clone().changed(|sent| flip(&mut sent.pairs[n].value, at)));
        }
    }
    // A row of one table that became one of another.
    all.push(whole.changed(|sent| sent.pairs[0].table = Table::Alarms.name().into()));
    all
}

#[test]
fn a_bit_that_flips_on_the_way_is_refused() {
    for sent in flipped() {
        refused(sent.parts(), "rows with checksum");
    }
}

/// The checksum fits, because the bit flipped before it was made: in the sender's memory, or between
/// the checksum and the file here. What the sender's store says of its content does not fit.
#[test]
fn a_bit_that_flips_before_the_checksum_is_refused() {
    for sent in flipped() {
        refused(sent.checked().parts(), "it is not installed");
    }
}

#[test]
fn a_sender_of_a_former_version_is_checked_by_what_it_says() {
    let silent = |sent: Sent| sent.changed(|sent| sent.end.content = None);
    let received = receive(vec![(REVISION, silent(honest()).parts())], 0);
    assert_eq!(received.outcomes, [Ok(())]);
    for sent in flipped() {
        refused(silent(sent).parts(), "rows with checksum");
    }
}

#[test]
fn rows_that_are_lost_doubled_or_out_of_order_are_refused() {
    let whole = honest();
    let without_a_row = whole.clone().changed(|sent| drop(sent.rows.remove(1)));
    refused(without_a_row.clone().parts(), "rows with checksum");
    refused(without_a_row.checked().parts(), "it is not installed");
    let without_a_pair = whole.clone().changed(|sent| drop(sent.pairs.remove(0)));
    refused(without_a_pair.clone().parts(), "rows with checksum");
    refused(without_a_pair.checked().parts(), "it is not installed");
    let twice = whole.clone().changed(|sent| sent.rows.insert(1, sent.rows[0].clone()));
    refused(twice.checked().parts(), "out of order");
    refused(whole.clone().changed(|sent| sent.rows.swap(0, 1)).checked().parts(), "out of order");
    let above = whole.changed(|sent| sent.rows[2].main = REVISION + 1);
    refused(above.checked().parts(), "out of order");
}

#[test]
fn parts_that_do_not_belong_there_are_refused() {
    let mut parts = honest().parts();
    parts.insert(1, Part::Head(pb::SnapshotHead::default()));
    refused(parts, "a second head");
    let unknown = honest().changed(|sent| sent.pairs[1].table = "later".into()).checked();
    refused(unknown.parts(), "\"later\" is not known here; upgrade this member");
    for kept in 0..3 {
        let parts: Vec<Part> = honest().parts().into_iter().take(kept).collect();
        refused(parts, "broke off");
    }
}

#[test]
fn one_that_does_not_fit_is_refused_before_it_is_written() {
    let sent = honest();
    let received = receive(vec![(sent.revision, sent.parts())], 1 << 40);
    let why = received.outcomes[0].as_ref().expect_err("refused");
    assert!(why.contains("does not fit") && why.contains("make room"), "{why}");
    assert!(received.told.is_empty() && files(&received.disk).is_empty());
}
