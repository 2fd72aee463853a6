//! What clients ask for.

use assay::disk::SimRng;
use assay::mvcc::{KeyRange, RangeQuery};
use assay::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use assay::proto::etcdserverpb::request_op::Request;
use assay::proto::etcdserverpb::{
    CompactionRequest, Compare, DeleteRangeRequest, InternalRaftRequest, LeaseCheckpoint,
    LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    RequestHeader, RequestOp, TxnRequest,
};
use bytes::Bytes;
use prost::Message as _;

use super::linear::{Action, Seen};
use super::model::Model;

/// Lease ids clients choose from: few, so that grants collide and revokes find something.
pub const LEASES: u64 = 5;
const KEYS: u64 = 7;

/// Encodes a command under a request id.
pub fn encode(mut request: InternalRaftRequest, id: u64) -> Bytes {
    request.header = Some(RequestHeader { id, ..RequestHeader::default() });
    Bytes::from(request.encode_to_vec())
}

pub fn revoke(id: i64) -> InternalRaftRequest {
    let lease_revoke = Some(LeaseRevokeRequest { id });
    InternalRaftRequest { lease_revoke, ..InternalRaftRequest::default() }
}

pub fn checkpoint(leases: &[(i64, i64)]) -> InternalRaftRequest {
    let checkpoints =
        leases.iter().map(|&(id, remaining_ttl)| LeaseCheckpoint { id, remaining_ttl }).collect();
    let lease_checkpoint = Some(LeaseCheckpointRequest { checkpoints });
    InternalRaftRequest { lease_checkpoint, ..InternalRaftRequest::default() }
}

fn key(rng: &mut SimRng) -> Bytes {
    Bytes::from(format!("k{}", rng.below(KEYS)))
}

fn lease_id(rng: &mut SimRng) -> i64 {
    1 + rng.below(LEASES) as i64
}

fn put(rng: &mut SimRng, n: u64) -> PutRequest {
    let size = if rng.below(25) == 0 { 3_000 } else { rng.below(40) as usize };
    let mut value = format!("v{n}").into_bytes();
    value.resize(value.len() + size, b'.');
    let lease = if rng.below(4) == 0 { lease_id(rng) } else { 0 };
    let prev_kv = rng.below(2) == 0;
    PutRequest { key: key(rng), value: value.into(), lease, prev_kv, ..PutRequest::default() }
}

fn delete(rng: &mut SimRng) -> DeleteRangeRequest {
    let from = key(rng);
    let range_end = match rng.below(4) {
        0 => key(rng),
        1 => Bytes::from_static(b"\0"),
        _ => Bytes::new(),
    };
    DeleteRangeRequest { key: from, range_end, prev_kv: rng.below(2) == 0 }
}

fn compare(rng: &mut SimRng, model: &Model) -> Compare {
    let (target, union) = match rng.below(3) {
        0 => (CompareTarget::Version, TargetUnion::Version(rng.below(3) as i64)),
        1 => {
            let revision = rng.below(model.revision as u64 + 1) as i64;
            (CompareTarget::Mod, TargetUnion::ModRevision(revision))
        }
        _ => (CompareTarget::Value, TargetUnion::Value(Bytes::from_static(b"v3"))),
    };
    let result = [
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ][rng.below(4) as usize];
    let (result, target) = (result as i32, target as i32);
    let target_union = Some(union);
    Compare { result, target, key: key(rng), target_union, ..Compare::default() }
}

fn ops(rng: &mut SimRng, n: u64) -> Vec<RequestOp> {
    let mut used = Vec::new();
    let mut ops = Vec::new();
    for at in 0..rng.below(4) {
        let request = match rng.below(4) {
            0 => {
                let delete =
                    DeleteRangeRequest { key: key(rng), prev_kv: true, ..Default::default() };
                if used.contains(&delete.key) {
                    continue;
                }
                used.push(delete.key.clone());
                Request::RequestDeleteRange(delete)
            }
            1 => Request::RequestRange(RangeRequest {
                key: Bytes::from_static(b"k"),
                range_end: Bytes::from_static(b"l"),
                ..RangeRequest::default()
            }),
            _ => {
                // One key is written once in a transaction; others are refused before proposing.
                let put = put(rng, n * 10 + at);
                if used.contains(&put.key) {
                    continue;
                }
                used.push(put.key.clone());
                Request::RequestPut(put)
            }
        };
        ops.push(RequestOp { request: Some(request) });
    }
    ops
}

/// A put with another value, for a member whose state rots; `None` for anything else. The key is one
/// that compares look at by its value, but never by this one.
pub fn rotten(data: &Bytes) -> Option<Bytes> {
    let mut request = InternalRaftRequest::decode(data.clone()).ok()?;
    let put = request.put.as_mut().filter(|put| put.key.starts_with(b"k"))?;
    let mut value = put.value.to_vec();
    *value.last_mut()? ^= 0x20;
    put.value = value.into();
    Some(request.encode_to_vec().into())
}

/// Draws a command. Whether it asks to revoke a lease is seen from its fields.
pub fn draw(rng: &mut SimRng, model: &Model, n: u64) -> InternalRaftRequest {
    let mut request = InternalRaftRequest::default();
    match rng.below(100) {
        0..50 => request.put = Some(put(rng, n)),
        50..62 => request.delete_range = Some(delete(rng)),
        62..78 => {
            let compare = (0..rng.below(3)).map(|_| compare(rng, model)).collect();
            let success = ops(rng, n * 10 + 1);
            let failure = ops(rng, n * 10 + 5);
            request.txn = Some(TxnRequest { compare, success, failure });
        }
        78..83 => {
            let span = (model.revision - model.compact.max(0)) as u64 + 2;
            let revision = model.compact.max(0) + 1 + rng.below(span) as i64;
            request.compaction = Some(CompactionRequest { revision, physical: false });
        }
        83..95 => {
            let (id, ttl) = (lease_id(rng), 1 + rng.below(3) as i64);
            request.lease_grant = Some(LeaseGrantRequest { id, ttl });
        }
        _ => request.lease_revoke = Some(LeaseRevokeRequest { id: lease_id(rng) }),
    }
    request
}

/// A lease that lives long enough to outlast leaders, or not.
pub fn grant(rng: &mut SimRng) -> InternalRaftRequest {
    let long = rng.below(4) == 0;
    let ttl = 1 + rng.below(3) as i64 + if long { 5 } else { 0 };
    let lease_grant = Some(LeaseGrantRequest { id: lease_id(rng), ttl });
    InternalRaftRequest { lease_grant, ..InternalRaftRequest::default() }
}

/// Keys that only single-key requests touch: their histories are judged one by one.
pub const REGISTERS: u64 = 3;

fn register(at: u64) -> Bytes {
    Bytes::from(format!("a{at}"))
}

fn number_text(value: u64) -> Bytes {
    Bytes::from(format!("n{value}"))
}

/// The number that a register's row holds.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.strip_prefix(b"n")?).ok()?.parse().ok()
}

fn get_register(at: u64) -> RequestOp {
    let request = Request::RequestRange(RangeRequest { key: register(at), ..Default::default() });
    RequestOp { request: Some(request) }
}

/// A register's request. A comparison always answers what it found.
pub fn write_register(at: u64, action: Action) -> InternalRaftRequest {
    let mut request = InternalRaftRequest::default();
    let put =
        |value| PutRequest { key: register(at), value: number_text(value), ..Default::default() };
    match action {
        Action::Put(value) => request.put = Some(put(value)),
        Action::Delete => {
            let key = register(at);
            request.delete_range =
                Some(DeleteRangeRequest { key, prev_kv: true, ..Default::default() });
        }
        Action::Cas(expected, value) => {
            let (target, union) = match expected {
                None => (CompareTarget::Version, TargetUnion::Version(0)),
                Some(expected) => (CompareTarget::Value, TargetUnion::Value(number_text(expected))),
            };
            let compare = Compare {
                result: CompareResult::Equal as i32,
                target: target as i32,
                key: register(at),
                target_union: Some(union),
                ..Compare::default()
            };
            let put = RequestOp { request: Some(Request::RequestPut(put(value))) };
            request.txn = Some(TxnRequest {
                compare: vec![compare],
                success: vec![get_register(at), put],
                failure: vec![get_register(at)],
            });
        }
        Action::Get => {}
    }
    request
}

/// What a write of a register found, from its answer as the model writes it.
pub fn found(action: Action, answer: &str) -> Seen {
    if matches!(action, Action::Put(_)) {
        return Seen::Done;
    }
    // Rows are written as `key=valuec..m..`; a number ends at the first letter behind it.
    let number = answer.split_once("=n").map(|(_, rest)| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    });
    Seen::Found(number)
}

/// A read of a register, as a range of the state.
pub fn read_register(at: u64) -> RangeQuery {
    RangeQuery::new(KeyRange::from_request(register(at), Bytes::new()))
}
