//! What is in the log of a node that was stopped.

use crate::common::{Launch, entries};
use crate::put;
use assay::proto::etcdserverpb::InternalRaftRequest;
use prost::Message;
use std::time::Duration;

/// Kind of an entry that changes the membership.
const CONF_CHANGE: u8 = 1;

#[tokio::test]
async fn a_put_is_a_raft_entry_behind_the_first_membership_change() {
    let mut node = Launch::assay().start();
    put(&mut node.clients().await, "proof", 9).await.expect("a put");
    assert!(node.terminate(Duration::from_secs(20)).success());
    let entries = entries(&node.data_dir().join("member/wal"));
    let change = entries.iter().find(|entry| entry.kind == CONF_CHANGE).expect("a change");
    assert_eq!(change.index, 1, "the log begins with the first member");
    let puts: Vec<_> = entries
        .iter()
        .filter(|entry| entry.kind != CONF_CHANGE && !entry.data.is_empty())
        .filter_map(|entry| {
            let command = InternalRaftRequest::decode(entry.data.clone()).expect("a command");
            command.put.map(|put| (entry.index, entry.term, put))
        })
        .collect();
    let [(index, term, put)] = &puts[..] else { panic!("{} puts in the log", puts.len()) };
    assert_eq!((&put.key[..], put.value.len()), (&b"proof"[..], 9));
    assert!(*index > change.index && *term > change.term, "entry {index} of term {term}");
    for pair in entries.windows(2) {
        assert_eq!(pair[1].index, pair[0].index + 1, "a gap in the log");
        assert!(pair[1].term >= pair[0].term, "terms go back");
    }
}
