//! Failed writes and syncs: the node stops and says why, and loses nothing, not even when power
//! fails after the restart.

use crate::common::{Launch, Load, LoopFs, Shape, Strace};
use std::path::Path;
use std::time::Duration;

/// Exit code after a failed disk operation.
const EXIT_IO: i32 = 74;
/// Time until the fault is met under load.
const MET: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);
/// Room for the log's segments with its spares, the ballast, and the store.
const IMAGE_MIB: u64 = 1024;

/// A fault: what is injected, into the store only or into whatever comes first, and what the log
/// must name.
struct Fault {
    inject: &'static str,
    store_only: bool,
    named: [&'static str; 2],
}

/// Counters are per thread. The log's thread syncs once per group of writes, the store's ten times a
/// second at most: without a path the log meets a fault of a sync first.
const FAULTS: [Fault; 4] = [
    Fault { inject: "fdatasync:error=EIO:when=150", store_only: false, named: ["sync", ".wal"] },
    Fault { inject: "pwrite64:error=EIO:when=400", store_only: false, named: ["write", "member"] },
    Fault { inject: "fdatasync:error=EIO:when=9", store_only: true, named: ["sync", "store.redb"] },
    Fault {
        inject: "pwrite64:error=EIO:when=60",
        store_only: true,
        named: ["write", "store.redb"],
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_or_sync_stops_the_node_and_loses_nothing() {
    let Some(strace) = Strace::require() else { return };
    let Some(mut fs) = LoopFs::create(IMAGE_MIB) else { return };
    let data = fs.path().join("data");
    let mut node = Launch::assay().data_dir(&data).start();
    let mut load = Load::start(&node.client_url(), Shape::default());
    for fault in &FAULTS {
        let what = format!("{}, store only: {}", fault.inject, fault.store_only);
        load.wait_acked(50).await;
        assert!(node.terminate(STOP).success(), "an orderly stop:\n{}", node.log());
        let seen = node.log().len();
        node.relaunch_with(|launch| launch.wrapper(tampered(&strace, fault, &data).words()));
        node.restart();
        let status = node.wait_exit(MET);
        assert_eq!(status.code(), Some(EXIT_IO), "{what}:\n{}", node.log());
        let log = node.log();
        let last = log[seen..].lines().rfind(|line| line.contains("the node stops"));
        let last = last.unwrap_or_else(|| panic!("{what}: no reason in the log:\n{log}"));
        assert!(last.contains("Input/output error"), "{what}: {last}");
        assert!(fault.named.iter().all(|word| last.contains(word)), "{what}: {last}");

        // What was read back after the fault may have been in the page cache only.
        node.relaunch_with(|launch| launch.wrapper(Vec::<String>::new()));
        node.restart();
        let wrong = load.audit().await;
        fs.cut();
        node.kill();
        fs.power_on();
        node.restart();
        let again = load.audit().await;
        assert!(wrong.is_empty(), "{what}, restarted:\n{}", wrong.join("\n"));
        assert!(again.is_empty(), "{what}, after the power cut:\n{}", again.join("\n"));
    }
    load.finish().await;
    drop(node);
}

fn tampered(strace: &Strace, fault: &Fault, data: &Path) -> Strace {
    let strace = strace.clone().inject(fault.inject);
    if fault.store_only { strace.only(&data.join("member/store.redb")) } else { strace }
}
