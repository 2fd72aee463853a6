//! What members tell each other about their disks, beside the messages of consensus.

use crate::consensus::DiskFacts;
use crate::proto::peer as pb;
use crate::telemetry::disk_health::DiskSample;

/// Version of the meaning of these numbers. Facts of another version, or none, are "unknown".
const VERSION: u32 = 1;

/// For the wire.
pub(super) fn said(sample: DiskSample) -> pb::DiskFacts {
    pb::DiskFacts {
        version: VERSION,
        in_flight_ms: sample.in_flight_ms,
        p99_us: sample.p99_us,
        recovering: sample.recovering,
        handed_over_term: sample.handed_over,
    }
}

/// From the wire; `None` if the sender said nothing that this version understands.
pub(super) fn heard(facts: Option<pb::DiskFacts>) -> Option<DiskFacts> {
    let facts = facts.filter(|facts| facts.version == VERSION)?;
    Some(DiskFacts {
        in_flight_ms: facts.in_flight_ms,
        p99_us: facts.p99_us,
        recovering: facts.recovering,
        handed_over: facts.handed_over_term,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    /// The batch as it was before members spoke of their disks.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Older {
        #[prost(message, optional, tag = "1")]
        identity: Option<pb::Identity>,
        #[prost(bytes = "vec", repeated, tag = "2")]
        messages: Vec<Vec<u8>>,
        #[prost(fixed64, tag = "3")]
        ping: u64,
    }

    #[test]
    fn facts_arrive_and_older_members_neither_need_nor_miss_them() {
        let sample =
            DiskSample { in_flight_ms: 17, p99_us: Some(900), recovering: true, handed_over: 5 };
        let batch = pb::Batch {
            messages: vec![vec![1, 2].into()],
            ping: 3,
            disk: Some(said(sample)),
            ..Default::default()
        };
        let bytes = batch.encode_to_vec();
        let known = heard(pb::Batch::decode(&bytes[..]).expect("a batch").disk).expect("facts");
        let facts =
            DiskFacts { in_flight_ms: 17, p99_us: Some(900), recovering: true, handed_over: 5 };
        assert_eq!(known, facts);
        let older = Older::decode(&bytes[..]).expect("an older member reads it");
        assert_eq!((older.messages, older.ping), (vec![vec![1, 2]], 3));
        let newer = pb::Batch::decode(&Older { ping: 3, ..Default::default() }.encode_to_vec()[..]);
        assert_eq!(heard(newer.expect("a batch").disk), None, "unknown, not healthy");
    }

    #[test]
    fn another_version_is_unknown() {
        for version in [0, VERSION + 1] {
            assert_eq!(heard(Some(pb::DiskFacts { version, ..said(DiskSample::default()) })), None);
        }
    }
}
