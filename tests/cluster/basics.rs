//! Three members elect a leader; every member takes writes and answers linearizable reads.

use crate::common::{Clients, Cluster, key_value};
use assay::proto::etcdserverpb::{MemberListRequest, PutRequest, RangeRequest};
use bytes::Bytes;

/// A put through one member.
pub(crate) async fn put(
    clients: &mut Clients,
    key: &str,
    value: &str,
) -> Result<i64, tonic::Status> {
    let put = PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..PutRequest::default()
    };
    let answer = clients.kv.put(put).await?.into_inner();
    Ok(answer.header.expect("header").revision)
}

/// The value of a key through one member.
pub(crate) async fn get(
    clients: &mut Clients,
    key: &str,
    serializable: bool,
) -> Result<Option<String>, tonic::Status> {
    let range = RangeRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        serializable,
        ..RangeRequest::default()
    };
    let answer = clients.kv.range(range).await?.into_inner();
    let text = |row: &Bytes| String::from_utf8_lossy(&key_value(row).value).into_owned();
    Ok(answer.kvs.first().map(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_writes_and_reads_what_the_others_wrote() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    let mut clients = Vec::new();
    for at in 0..3 {
        clients.push(cluster.clients(at).await);
    }
    for round in 0..20 {
        for writer in 0..3 {
            let key = format!("k{writer}");
            put(&mut clients[writer], &key, &format!("{round}")).await.expect("put");
            for reader in &mut clients {
                let value = get(reader, &key, false).await.expect("linearizable read");
                assert_eq!(value.as_deref(), Some(format!("{round}").as_str()));
            }
        }
    }
    let mut listed = Vec::new();
    for client in &mut clients {
        let request = MemberListRequest { linearizable: true };
        let list = client.cluster.member_list(request).await.expect("list").into_inner();
        assert_eq!(list.members.len(), 3);
        assert!(list.members.iter().all(|m| !m.name.is_empty() && !m.client_ur_ls.is_empty()));
        listed.push((list.header.expect("header").cluster_id, list.members));
    }
    assert!(listed.windows(2).all(|pair| pair[0] == pair[1]), "{listed:?}");
}
