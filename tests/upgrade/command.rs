//! `assay upgrade status` and `assay upgrade finalize`, as people and scripts run them.

use crate::common::{Cluster, Ended, Launch, assay, free_port, http_post, own_network, run};
use crate::members::SOON;
use crate::rolling::{level, lowered, present};
use std::process::Command;
use std::time::{Duration, Instant};

const DONE: i32 = 0;
const USAGE: i32 = 2;
const NOT_YET: i32 = 10;
const UNAVAILABLE: i32 = 69;
const NOT_ALLOWED: i32 = 77;
/// Pause before members are asked again.
const POLL: Duration = Duration::from_millis(100);

fn upgrade(words: &[&str], url: &str) -> Ended {
    run(assay().arg("upgrade").args(words).args(["--endpoint", url]))
}

/// Runs it until it ends with this code and says this: members take a moment to see each other.
fn until(words: &[&str], url: &str, code: i32, text: &str) -> Ended {
    let start = Instant::now();
    loop {
        let ended = upgrade(words, url);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        if ended.code == code && said.contains(text) {
            return ended;
        }
        assert!(start.elapsed() < SOON, "not {code} and {text:?}: {ended:?}");
        std::thread::sleep(POLL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_is_followed_and_finalized_through_any_member() {
    let mut cluster = Cluster::start_with(3, lowered);
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.client_url()).collect();
    let nothing = "nothing to finalize: the cluster uses feature level 1";
    until(&["status"], &urls[0], DONE, nothing);
    until(&["finalize"], &urls[0], DONE, nothing);

    // One member stays behind.
    for at in 0..2 {
        cluster.nodes[at].terminate(SOON);
        cluster.nodes[at].relaunch_with(present);
        cluster.nodes[at].restart();
    }
    let older = "(m2) knows feature level 1 only";
    for url in &urls {
        let ended = until(&["status"], url, DONE, older);
        assert!(ended.stdout.starts_with("feature level of the cluster: 1\n"), "{}", ended.stdout);
        let line = |name: &str| ended.stdout.lines().find(|line| line.contains(name)).expect(name);
        assert!(line(" m0 ").contains(&urls[0]) && line(" m0 ").contains(" 2"), "{}", ended.stdout);
        assert!(line(" m2 ").contains(&urls[2]) && line(" m2 ").contains(" 1"), "{}", ended.stdout);
        assert_eq!(ended.stdout.matches(", leads").count(), 1, "{}", ended.stdout);
    }
    until(&["finalize"], &urls[1], NOT_YET, older);

    // It is away.
    cluster.nodes[2].terminate(SOON);
    until(&["status"], &urls[0], DONE, "(m2) is not connected");
    let ended = until(&["finalize"], &urls[0], NOT_YET, "(m2) is not connected");
    assert!(ended.stdout.is_empty() && ended.stderr.contains("etcdctl member remove"), "{ended:?}");
    let json = upgrade(&["status", "--json"], &urls[0]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(value["cluster"], 1);
    let of = |name: &str| {
        let members = value["members"].as_array().expect("members");
        members.iter().find(|member| member["name"] == name).expect(name)["level"].clone()
    };
    assert_eq!((of("m0"), of("m2")), (2.into(), serde_json::Value::Null));

    // No quorum: nobody may say anything for the cluster.
    cluster.nodes[1].kill();
    until(&["status"], &urls[0], UNAVAILABLE, "knows no leader");
    until(&["finalize"], &urls[0], UNAVAILABLE, "no quorum");
    assert_eq!(level(&cluster.nodes[0], "cluster"), 1);

    // All are there.
    cluster.nodes[1].restart();
    cluster.nodes[2].relaunch_with(present);
    cluster.nodes[2].restart();
    until(&["status"], &urls[2], DONE, "ready: every member knows feature level 2");
    let follower = (cluster.leader().await + 1) % 3;
    let ended = until(&["finalize"], &urls[follower], DONE, "feature level 2");
    assert!(ended.stdout.contains("there is no way back"), "{ended:?}");
    for url in &urls {
        until(&["finalize"], url, DONE, "nothing to finalize: the cluster uses feature level 2");
        until(&["status"], url, DONE, "feature level of the cluster: 2\n");
    }
}

#[test]
fn who_cannot_be_asked_is_named() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for word in ["status", "finalize"] {
        let ended = upgrade(&[word], &nobody);
        assert_eq!((ended.code, ended.stdout.as_str()), (UNAVAILABLE, ""));
        let text = format!("assay: cannot connect to {nobody}: ");
        assert!(ended.stderr.starts_with(&text), "{}", ended.stderr);
        assert!(ended.stderr.contains("is the member running"), "{}", ended.stderr);
    }
    let node = Launch::assay().start();
    for url in [node.metrics_url(), node.peer_url()] {
        let ended = upgrade(&["status"], &url);
        assert_eq!(ended.code, UNAVAILABLE);
        assert!(ended.stderr.contains("not the client URL"), "{}", ended.stderr);
    }
    // One that takes connections and is silent.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("its address"));
    let ended = upgrade(&["finalize", "--timeout=100ms"], &url);
    assert_eq!(ended.code, UNAVAILABLE);
    assert!(ended.stderr.contains("nothing came within 100ms"), "{}", ended.stderr);
}

#[test]
fn a_member_takes_it_from_its_own_machine_only() {
    const ADDRESS: &str = "10.77.1.1";
    if !own_network() {
        return;
    }
    let given = ["addr", "add", "10.77.1.1/32", "dev", "lo"];
    assert!(Command::new("ip").args(given).status().expect("run ip").success());
    let mut node = Launch::assay().host(ADDRESS).start();
    let refused = |node: &crate::common::Node, words: &[&str]| {
        for word in ["status", "finalize"] {
            let ended = upgrade(&[word], &node.client_url());
            assert_eq!((ended.code, ended.stdout.as_str()), (NOT_ALLOWED, ""), "{}", ended.stderr);
            for text in words {
                assert!(ended.stderr.contains(text), "no {text:?} in {}", ended.stderr);
            }
        }
    };
    // What to do is said, and works.
    let own = format!("http://127.0.0.1:{}", node.ports()[0]);
    let add = format!("add {own} to its --listen-client-urls");
    refused(&node, &["this request comes from 10.77.1.1", "listens on none", &add]);
    assert!(node.terminate(SOON).success());
    let both = format!("--listen-client-urls={},{own}", node.client_url());
    node.relaunch_with(|launch| launch.arg(both));
    node.restart();
    refused(
        &node,
        &["this request comes from 10.77.1.1", &format!("use {own} (--endpoint={own})")],
    );
    for word in ["status", "finalize"] {
        let ended = upgrade(&[word], &own);
        assert_eq!(ended.code, DONE, "{}", ended.stderr);
    }
    // All addresses at once: the port is the same.
    assert!(node.terminate(SOON).success());
    let any = format!("--listen-client-urls=http://0.0.0.0:{}", node.ports()[0]);
    node.relaunch_with(|launch| launch.arg(any));
    node.restart();
    refused(&node, &[&format!("use {own} (--endpoint={own})")]);
    assert_eq!(upgrade(&["status"], &own).code, DONE);
}

/// A page that a browser of this machine shows could make it send one.
#[test]
fn no_page_in_a_browser_finalizes_an_upgrade() {
    const PATH: &str = "/debug/upgrade/finalize";
    let node = Launch::assay().start();
    let host = node.client_url().replace("http://", "");
    for (headers, code) in [
        ("", 409),
        ("origin: http://elsewhere\r\n", 403),
        ("sec-fetch-site: same-origin\r\n", 403),
        ("referer: http://elsewhere/\r\n", 403),
        ("host: elsewhere.example\r\n", 403),
    ] {
        let (got, text) = http_post(&node.client_url(), PATH, headers).expect("an answer");
        assert_eq!(got, code, "{headers:?} at {host}: {text}");
    }
}

#[test]
fn its_words_are_checked_and_explained() {
    let ended = run(assay().args(["upgrade", "finalize", "--help"]));
    assert_eq!(ended.code, DONE, "{}", ended.stderr);
    for word in ["--endpoint", "http://127.0.0.1:2379", "--cacert", "Exit codes: 0 done", " 77 "] {
        assert!(ended.stdout.contains(word), "no {word:?} in:\n{}", ended.stdout);
    }
    for words in [
        &["upgrade"][..],
        &["upgrade", "begin"],
        &["upgrade", "status", "--endpoint=ftp://127.0.0.1:1"],
        &["upgrade", "status", "--cert=a"],
        &["upgrade", "status", "--endpoint=https://127.0.0.1:1/"],
        &["upgrade", "finalize", "--timeout=soon"],
    ] {
        let ended = run(assay().args(words));
        // An address without authorities is wrong usage as well, whoever listens there.
        assert_eq!((ended.code, ended.stdout.as_str()), (USAGE, ""), "{words:?} {}", ended.stderr);
        assert!(!ended.stderr.is_empty());
    }
    // The nearest word is named.
    for (words, meant) in [
        (&["upgrade", "stat"][..], "'status'"),
        (&["upgrade", "finalise"], "'finalize'"),
        (&["upgrade", "status", "--endpont=http://127.0.0.1:1"], "'--endpoint'"),
        (&["upgarde", "status"], "`assay upgrade`"),
        (&["--data-dri=x"], "--data-dir"),
        (&["data-dir=x"], "--data-dir"),
    ] {
        let ended = run(assay().args(words));
        assert_eq!(ended.code, USAGE, "{words:?} {}", ended.stderr);
        assert!(ended.stderr.contains(meant), "no {meant:?} in {}", ended.stderr);
    }
    // It is no flag, and flags do not begin it.
    let ended = run(assay().args(["--disk-gate=off", "upgrade", "status"]));
    assert_eq!(ended.code, USAGE);
    assert!(ended.stderr.contains("\"upgrade\" is not a valid flag"), "{}", ended.stderr);
}
