//! Every panel of the boards against a real Prometheus that scrapes a real node under load: once as
//! most run it, once with native histograms.

use super::boards::{Panel, panels};
use super::common::{Clients, Launch};
use super::load;
use super::prometheus::{Prometheus, Vector};
use std::collections::BTreeMap;

/// What Grafana would put in place of `$__rate_interval`: long enough for four scrapes.
const RATE_INTERVAL: &str = "30s";

/// Panels that have no data here.
const EMPTY: [(&str, &str); 1] = [(
    "assay-disk/Sync p99 measured by the gate",
    "the gate is off in tests, so nothing was measured",
)];

/// Panels that show the same before and after the load.
const UNCHANGED: [(&str, &str); 20] = [
    ("assay-overview/Leader known", "one leader all the time"),
    ("assay-overview/Serving", "it serves all the time"),
    ("assay-overview/Disk gate", "decided at the start"),
    ("assay-overview/Version", "one version"),
    ("assay-overview/Proposals waiting", "zero unless a scrape falls on a waiting proposal"),
    ("assay-overview/Oldest waiting proposal", "zero unless a scrape falls on a waiting proposal"),
    ("assay-overview/Leader changes by cause", "one node does not lose leadership"),
    ("assay-overview/Leader changes seen", "one node does not lose leadership"),
    ("assay-overview/Time without a leader", "one leader all the time"),
    ("assay-overview/Log positions behind the commit index", "zero unless a scrape falls on work"),
    ("assay-overview/Alarms", "none is raised"),
    ("assay-disk/Disk gate", "decided at the start"),
    ("assay-disk/Limit of the gate", "a flag"),
    ("assay-disk/Writes refused for lack of space", "there is room"),
    ("assay-disk/Oldest running operation", "zero unless a scrape falls on an operation"),
    ("assay-disk/Failed operations", "the disk is sound"),
    ("assay-disk/Rows waiting for the store", "zero unless a scrape falls on a batch"),
    ("assay-disk/Length of the start by phase", "the start is over"),
    ("assay-disk/Leaders that found their disk hung or slow", "the disk works"),
    ("assay-disk/Members whose disk hung lately", "the disk works"),
];
/// Panels whose value another process may or may not change.
const MAY_CHANGE: [(&str, &str); 1] =
    [("assay-disk/Free inodes", "no file is made by the load, others may make some")];

/// Values of every target of a panel; NaN counts as nothing.
fn ask(prometheus: &Prometheus, panel: &Panel) -> Vec<Vector> {
    let targets = panel.expressions().into_iter().map(|expression| {
        let expression = expression
            .replace("$__rate_interval", RATE_INTERVAL)
            .replace("$job", ".+")
            .replace("$instance", ".+");
        let mut vector = prometheus.query(&expression);
        vector.retain(|_, value| !value.is_nan());
        vector
    });
    targets.collect()
}

fn ask_all(prometheus: &Prometheus) -> BTreeMap<String, Vec<Vector>> {
    let answers = panels().into_iter().map(|panel| {
        let answer = ask(prometheus, &panel);
        (panel.name, answer)
    });
    answers.collect()
}

fn is_listed(list: &[(&str, &str)], panel: &str) -> bool {
    list.iter().any(|(name, _)| *name == panel)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_shows_data_that_moves_with_the_load() {
    let node = Launch::assay().start();
    let port = node.ports()[2];
    let Some(plain) = Prometheus::scraping(port, false) else { return };
    let Some(native) = Prometheus::scraping(port, true) else { return };
    assert!(native.stores_native() && !plain.stores_native());
    let mut servers = [("plain", plain), ("native", native)];
    let mut before = Vec::new();
    for (_, server) in &mut servers {
        server.wait_for_scrapes(3);
        before.push(ask_all(server));
    }
    let _held = load::everything(&node.client_url()).await;
    // Times of calls have no series before the first call: rates need a scrape in between.
    for (_, server) in &mut servers {
        server.wait_for_scrapes(1);
    }
    let clients = Clients::connect(&node.client_url()).await;
    load::parallel_puts(&clients, 16, 100).await;
    for (at, (kind, server)) in servers.iter_mut().enumerate() {
        server.wait_for_scrapes(2);
        let after = ask_all(server);
        let mut wrong = Vec::new();
        for (panel, targets) in &after {
            let all_have_data = targets.iter().all(|vector| !vector.is_empty());
            if all_have_data == is_listed(&EMPTY, panel) {
                wrong.push(format!("{panel}: data in all targets: {all_have_data}, {targets:?}"));
            }
            let moved = *targets != before[at][panel];
            let expected = !is_listed(&UNCHANGED, panel) && !is_listed(&EMPTY, panel);
            // Listed ones may move, by the reasons given; the others have to.
            if expected && !moved && !is_listed(&MAY_CHANGE, panel) {
                wrong.push(format!("{panel}: {targets:?} as before the load"));
            }
        }
        assert!(wrong.is_empty(), "{kind} Prometheus:\n{}", wrong.join("\n"));
    }
    let all = panels();
    for (name, _) in EMPTY.iter().chain(&UNCHANGED).chain(&MAY_CHANGE) {
        assert!(all.iter().any(|panel| panel.name == *name), "there is no panel {name}");
    }
}

/// Upper end of the first classic bucket of a time, in seconds.
const FIRST_EDGE: f64 = 1e-5;

/// A Prometheus with native histograms must not lack what the text format says, and the reverse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_formats_say_the_same() {
    let node = Launch::assay().start();
    let port = node.ports()[2];
    let Some(mut plain) = Prometheus::scraping(port, false) else { return };
    let Some(mut native) = Prometheus::scraping(port, true) else { return };
    let clients = Clients::connect(&node.client_url()).await;
    load::puts(&clients, 200).await;
    plain.wait_for_scrapes(2);
    native.wait_for_scrapes(2);
    let name = "assay_proposal_stage_duration_seconds";
    for stage in ["queue", "wal_write", "fsync", "commit", "apply", "answer", "total"] {
        let labels = format!("{{stage=\"{stage}\"}}");
        let classic = plain.value(&format!("{name}_count{labels}"));
        assert_eq!(native.value(&format!("histogram_count({name}{labels})")), classic, "{stage}");
        let sums = [
            plain.value(&format!("{name}_sum{labels}")),
            native.value(&format!("histogram_sum({name}{labels})")),
        ];
        assert_eq!(sums[0], sums[1], "{stage}");
        let quantiles = [
            plain.value(&format!("histogram_quantile(0.9, {name}_bucket{labels})")),
            native.value(&format!("histogram_quantile(0.9, {name}{labels})")),
        ];
        // A classic bucket is up to 2.5 times as wide as it begins, a native one 1.09 times. The
        // first classic one begins at zero: all it says is that it is not the second.
        let ratio = quantiles[0] / quantiles[1];
        let agree = match quantiles[0] <= FIRST_EDGE {
            true => quantiles[1] <= FIRST_EDGE * 1.09,
            false => (0.35..=2.7).contains(&ratio),
        };
        assert!(agree, "{stage}: {quantiles:?}");
    }
    // Counters and gauges are the same series under the same labels.
    let series = "{__name__=~\"etcd_mvcc_put_total|assay_raft_index|grpc_server_started_total\"}";
    assert_eq!(plain.query(series), native.query(series));
}
