//! A full database refuses the same requests with the same error, and lets the same ones pass.

use crate::answer::Answer;
use crate::coverage::LEAST;
use crate::generate::Generator;
use crate::ops::{Op, Side};
use crate::sides;
use assay::proto::etcdserverpb::{LeaseGrantRequest, PutRequest};
use bytes::Bytes;
use rand::Rng;
use tonic::Code;

/// Small enough to fill in a moment, above what an empty etcd needs for its file.
const QUOTA: &str = "--quota-backend-bytes=8388608";
/// Size of one filling value in bytes.
const FILL: usize = 1_000_000;
/// More values than fit many times over.
const MOST_FILLS: usize = 60;
const SEED: u64 = 7;
/// Operations on the full database.
const OPS: usize = 1_500;

const FULL: &str = "etcdserver: mvcc: database space exceeded";

/// Puts until the database is full.
async fn fill(side: &mut Side) {
    for number in 0..MOST_FILLS {
        let key = format!("fill{number}").into();
        let put = PutRequest { key, value: vec![b'x'; FILL].into(), ..Default::default() };
        if is_full(&side.apply(&Op::Put(put)).await) {
            return;
        }
    }
    panic!("{MOST_FILLS} puts of {FILL} bytes do not fill a database of {QUOTA}");
}

fn is_full(answer: &Answer) -> bool {
    answer
        .error
        .as_ref()
        .is_some_and(|(code, text)| *code == Code::ResourceExhausted && text == FULL)
}

#[tokio::test]
async fn a_full_database_refuses_the_same_requests() {
    let Some([mut a, mut b]) = sides(&[QUOTA]).await else { return };
    // Leases granted while there was room: keeping them alive and ending them must go on.
    let mut it = Generator::new(SEED);
    for id in 1..=12 {
        let grant = Op::Grant(LeaseGrantRequest { id, ttl: 100_000 });
        assert_eq!(a.apply(&grant).await, b.apply(&grant).await);
        it.leases.push(id);
    }
    // The two sides are full after different numbers of puts, so revisions differ from here on.
    fill(&mut a).await;
    fill(&mut b).await;
    let mut refused = [0; 3];
    for index in 0..OPS {
        let op = match it.rng.random_range(0..7) {
            0 | 1 => Op::Put(it.put()),
            2 | 3 => Op::Txn(it.txn()),
            4 => Op::Grant(LeaseGrantRequest { id: it.unknown_lease(), ttl: 100 }),
            5 => Op::Put(PutRequest { key: Bytes::new(), ..it.put() }),
            _ => Op::KeepAlive(it.rng.random_range(1..=12)),
        };
        let (one, other) = (a.apply(&op).await, b.apply(&op).await);
        let words = format!("operation {index}: {op:?}\n  subject: {one}\n  etcd:    {other}");
        assert_eq!(one.error, other.error, "{words}");
        if is_full(&one) {
            let kind = match op {
                Op::Put(_) => 0,
                Op::Txn(_) => 1,
                _ => 2,
            };
            refused[kind] += 1;
        }
    }
    assert!(refused.iter().all(|count| *count >= LEAST), "puts, transactions, grants: {refused:?}");
    for id in 1..=12 {
        let (one, other) = (a.apply(&Op::Revoke(id)).await, b.apply(&Op::Revoke(id)).await);
        assert_eq!(one.error, other.error, "revoke on a full database");
        assert_eq!(one.error, None, "revoke on a full database");
    }
}
