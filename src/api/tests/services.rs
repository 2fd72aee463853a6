//! Maintenance, Cluster, Auth and Health.

use super::*;
use crate::proto::etcdserverpb::auth_client::AuthClient;
use crate::proto::etcdserverpb::cluster_client::ClusterClient;
use crate::proto::etcdserverpb::kv_client::KvClient;
use crate::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::proto::etcdserverpb::*;
use std::sync::atomic::Ordering::SeqCst;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn said(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

#[tokio::test]
async fn status_reports_the_api_level_and_alarms() {
    let api = Api::start();
    let mut client = MaintenanceClient::new(api.channel().await);
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.version.as_str(), status.storage_version.as_str()), ("3.7.1", "3.7.0"));
    assert_eq!((status.leader, status.raft_term), (local::MEMBER, 7));
    assert_eq!((status.db_size_quota, status.errors.len()), (2 << 30, 0));
    assert_eq!(status.header.unwrap().revision, 1);
    api.node.state.leader.store(0, SeqCst);
    let raise = AlarmRequest { action: 1, member_id: 5, alarm: 1 };
    let raised = client.alarm(raise).await.unwrap().into_inner();
    assert_eq!(raised.alarms, [AlarmMember { member_id: 5, alarm: 1 }]);
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.errors, ["etcdserver: no leader", "memberID:5 alarm:NOSPACE"]);
    let get = |alarm| AlarmRequest { action: 0, member_id: 0, alarm };
    assert_eq!(client.alarm(get(0)).await.unwrap().into_inner().alarms.len(), 1);
    assert_eq!(client.alarm(get(2)).await.unwrap().into_inner().alarms.len(), 0);
    let lower = AlarmRequest { action: 2, member_id: 5, alarm: 1 };
    client.alarm(lower).await.unwrap();
    assert_eq!(client.alarm(get(0)).await.unwrap().into_inner().alarms.len(), 0);
}

/// A command that applying does not know would stop every member, again at each start.
#[tokio::test]
async fn alarms_with_unknown_numbers_do_not_reach_the_log() {
    let api = Api::start();
    let mut client = MaintenanceClient::new(api.channel().await);
    let proposed = api.node.state.proposed.load(SeqCst);
    for (action, alarm) in [(3, 2), (9, 2), (-1, 1), (1, 3), (1, -1)] {
        let refused = client.alarm(AlarmRequest { action, member_id: 5, alarm }).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{action} {alarm}");
    }
    assert_eq!(api.node.state.proposed.load(SeqCst), proposed);
}

#[tokio::test]
async fn hashes_change_with_the_data() {
    let api = Api::start();
    let (mut client, mut kv) =
        (MaintenanceClient::new(api.channel().await), KvClient::new(api.channel().await));
    let put =
        |v: &str| PutRequest { key: "a".into(), value: v.to_owned().into(), ..Default::default() };
    kv.put(put("1")).await.unwrap();
    let first = client.hash_kv(HashKvRequest { revision: 0 }).await.unwrap().into_inner();
    assert_eq!((first.hash_revision, first.compact_revision), (2, -1));
    let hash = client.hash(HashRequest {}).await.unwrap().into_inner().hash;
    kv.put(put("2")).await.unwrap();
    let second = client.hash_kv(HashKvRequest { revision: 0 }).await.unwrap().into_inner();
    assert_eq!(second.header.unwrap().revision, 3);
    assert_ne!(first.hash, second.hash);
    let again = client.hash_kv(HashKvRequest { revision: 2 }).await.unwrap().into_inner();
    assert_eq!(again.hash_revision, 2);
    assert_ne!(client.hash(HashRequest {}).await.unwrap().into_inner().hash, hash);
    let future = client.hash_kv(HashKvRequest { revision: 9 }).await.unwrap_err();
    assert_eq!(future.code(), Code::OutOfRange);
}

#[tokio::test]
async fn what_is_missing_says_so() {
    let api = Api::start();
    let mut client = MaintenanceClient::new(api.channel().await);
    let defragment = client.defragment(DefragmentRequest {}).await.unwrap_err();
    assert_eq!(defragment.code(), Code::Unimplemented);
    assert!(defragment.message().starts_with("assay: Defragment is not available"));
    let snapshot = client.snapshot(SnapshotRequest {}).await.unwrap_err();
    assert_eq!(snapshot.code(), Code::Unimplemented);
    assert!(snapshot.message().contains("Never start such a copy as a member of a cluster"));
    let unknown = DowngradeRequest { action: 9, ..Default::default() };
    let unknown = client.downgrade(unknown).await.unwrap_err();
    assert_eq!(said(&unknown), (Code::Unknown, "etcdserver: unknown method"));
    let bad = client.move_leader(MoveLeaderRequest { target_id: 1 }).await.unwrap_err();
    assert_eq!(said(&bad), (Code::FailedPrecondition, "etcdserver: bad leader transferee"));

    let mut cluster = ClusterClient::new(api.channel().await);
    for peer_ur_ls in [vec![], vec!["localhost:1".into()], vec!["http://localhost:1/path".into()]] {
        let add = MemberAddRequest { peer_ur_ls, is_learner: false };
        let add = cluster.member_add(add).await.unwrap_err();
        let text = "etcdserver: given member URLs are invalid";
        assert_eq!(said(&add), (Code::InvalidArgument, text));
    }
    let add = MemberAddRequest { peer_ur_ls: vec!["http://localhost:1".into()], is_learner: true };
    let add = cluster.member_add(add).await.unwrap_err();
    let text = "etcdserver: re-configuration failed due to not enough started members";
    assert_eq!(said(&add), (Code::Unknown, text));
    let mut auth = AuthClient::new(api.channel().await);
    let enable = auth.auth_enable(AuthEnableRequest {}).await.unwrap_err();
    assert_eq!(enable.code(), Code::Unimplemented);
    assert!(enable.message().contains("authentication is off"));
}

#[tokio::test]
async fn members_have_revision_zero_and_linearize_on_request() {
    let api = Api::start();
    let mut cluster = ClusterClient::new(api.channel().await);
    let list = |linearizable| MemberListRequest { linearizable };
    let answer = cluster.member_list(list(false)).await.unwrap().into_inner();
    assert_eq!(answer.header.unwrap().revision, 0);
    assert_eq!(api.node.state.linearized.load(SeqCst), 0);
    cluster.member_list(list(true)).await.unwrap();
    assert_eq!(api.node.state.linearized.load(SeqCst), 1);
}

#[tokio::test]
async fn authentication_is_off() {
    let api = Api::start();
    let mut auth = AuthClient::new(api.channel().await);
    let status = auth.auth_status(AuthStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.enabled, status.auth_revision), (false, 1));
    let refused = auth.authenticate(AuthenticateRequest::default()).await.unwrap_err();
    let text = "etcdserver: authentication is not enabled";
    assert_eq!(said(&refused), (Code::FailedPrecondition, text));
}

#[tokio::test]
async fn health_knows_one_service() {
    let api = Api::start();
    let mut client = HealthClient::new(api.channel().await);
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    assert_eq!(client.check(of("")).await.unwrap().into_inner().status, 1);
    let unknown = client.check(of("etcdserverpb.KV")).await.unwrap_err();
    assert_eq!(said(&unknown), (Code::NotFound, "unknown service"));
    let mut watch = client.watch(of("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    for (fenced, status) in [(true, 2), (false, 1)] {
        api.node.state.fenced.send_replace(fenced);
        let told = tokio::time::timeout(SOON, watch.message()).await.expect("a change is told");
        assert_eq!(told.unwrap().unwrap().status, status, "{fenced}");
        assert_eq!(client.check(of("")).await.unwrap().into_inner().status, status);
    }
    let mut unknown = client.watch(of("etcdserverpb.KV")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status, 3, "SERVICE_UNKNOWN");
    api.node.state.stopping.send_replace(true);
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2, "NOT_SERVING");
    assert!(watch.message().await.unwrap().is_none());
}
