//! What is proposed: nothing above the level of the cluster, whoever asks for it. Clients cannot ask for
//! such commands, so a node inside of the test does.

use assay::config::{Config, Parsed, parse};
use assay::disk::{Disk, OsDisk};
use assay::machine::{ACTION_FENCE, level};
use assay::node::data_dir::{DataDir, Held};
use assay::node::{self, Node, Parts, Progress, Refused};
use assay::proto::etcdserverpb::{
    AlarmRequest, FeatureLevelSetRequest, InternalRaftRequest, PutRequest,
};
use assay::telemetry::io::IoStats;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A node without listeners, whose program knows commands up to `level`.
fn start(runtime: &Runtime, dir: &Path, level: u32) -> Node {
    let args = [format!("--data-dir={}", dir.display())];
    let env = [("ASSAY_TEST_FEATURE_LEVEL".to_string(), level.to_string())];
    let parsed = parse(&args, &mut env.into_iter()).expect("flags");
    let Parsed::Start { raw, .. } = parsed else { panic!("a start") };
    let config = Config::from_raw(&raw, "assay").expect("a configuration");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(Arc::new(IoStats::new())));
    let parts = Parts {
        dir: DataDir::open(disk.clone(), dir, Held::default()).expect("a directory"),
        disk,
        metrics: Arc::default(),
        progress: Progress::default(),
        runtimes: 0,
        network: None,
        peer_stats: Arc::default(),
        dialer: assay::peer::Dialer::new(None),
        joined: None,
    };
    let node = node::start(&config, parts).expect("a start");
    runtime.block_on(node::publish(&node.handle, &config)).expect("published");
    node
}

fn fence(member_id: u64) -> InternalRaftRequest {
    let alarm = AlarmRequest { action: ACTION_FENCE, member_id, alarm: 2 };
    InternalRaftRequest { alarm: Some(alarm), ..InternalRaftRequest::default() }
}

fn set(level: u32) -> InternalRaftRequest {
    let set = FeatureLevelSetRequest { level };
    InternalRaftRequest { feature_level_set: Some(set), ..InternalRaftRequest::default() }
}

#[test]
fn a_command_above_the_level_of_the_cluster_does_not_reach_the_log() {
    let mut home = tempfile::Builder::new().prefix("assay-upgrade-").tempdir().expect("temp dir");
    // A failed test leaves a running node behind, which would end the process if its files went.
    home.disable_cleanup(true);
    let runtime = Runtime::new().expect("a runtime");
    start(&runtime, home.path(), level::FIRST).stop();
    let node = start(&runtime, home.path(), level::OWN);
    let handle = node.handle.clone();
    let levels = handle.feature_levels();
    assert_eq!((levels.own, levels.cluster), (level::OWN, level::FIRST), "nobody finalized it");
    let own = handle.identity().member_id;
    let refused = |request: InternalRaftRequest, why: &str| {
        assert!(level::needs(&request) > handle.feature_levels().cluster, "{why}");
        let before = handle.raft().committed;
        let answer = runtime.block_on(handle.propose(request));
        assert!(matches!(answer, Err(Refused::NotCapable)), "{why}: {answer:?}");
        assert_eq!(handle.raft().committed, before, "{why}: it is in the log");
    };
    refused(fence(own), "a fence");
    refused(fence(own + 1), "a fence of nobody");
    refused(set(level::OWN), "the level of this program");
    refused(set(level::OWN + 1), "a level that nobody knows");
    assert!(!handle.is_fenced());
    assert_eq!(handle.feature_levels().cluster, level::FIRST);
    let put = PutRequest { key: "k".into(), ..PutRequest::default() };
    let put = InternalRaftRequest { put: Some(put), ..InternalRaftRequest::default() };
    runtime.block_on(handle.propose(put)).expect("commands of the first level pass");

    // And once the cluster uses it.
    assert_eq!(runtime.block_on(handle.finalize_upgrade()), Ok(level::OWN));
    runtime.block_on(handle.propose(fence(own + 1))).expect("a fence of nobody");
    refused(set(level::OWN + 1), "a level that nobody knows");
    node.stop();
    home.disable_cleanup(false);
}
