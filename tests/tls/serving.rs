//! What is encrypted works as what is plain.

use crate::common::{Cert, Etcdctl, Launch, Tool};
use crate::files::Files;

/// Flags of etcdctl for a client of the authority.
fn flags_of(files: &Files, identity: Option<&str>) -> Vec<String> {
    let mut flags = vec![format!("--cacert={}", files.file("ca.crt").display())];
    if let Some(name) = identity {
        flags.push(format!("--cert={}", files.file(&format!("{name}.crt")).display()));
        flags.push(format!("--key={}", files.file(&format!("{name}.key")).display()));
    }
    flags
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_http_and_grpc_work_with_client_certificates() {
    let Some(path) = Tool::Etcdctl.require() else { return };
    let files = Files::new();
    let user = files.ca.issue(&Cert::named("user"));
    user.write(files.path(), "user");
    let node = files.launch_mutual().start();
    let ctl = Etcdctl::new(&path, &node.client_url());
    let flags = flags_of(&files, Some("user"));
    let run = |words: &[&str]| {
        let all: Vec<&str> =
            flags.iter().map(String::as_str).chain(words.iter().copied()).collect();
        ctl.ok(&all)
    };
    assert_eq!(run(&["put", "greeting", "hello"]), "OK\n");
    assert_eq!(run(&["get", "greeting"]), "greeting\nhello\n");
    assert!(run(&["endpoint", "status"]).contains(&node.client_url()));

    let client = files.client().showing(&user);
    let [port, peer, metrics] = node.ports();
    for offered in ["", "http/1.1"] {
        let client = if offered.is_empty() { client.clone() } else { client.clone().alpn(offered) };
        let answer = client.get(port, "/health").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("\"health\":\"true\""), "{answer}");
    }
    assert_eq!(client.health(port).await, (vec![0, 0, 0, 0, 2, 8, 1], "0".to_string()));
    let answer = client.get(metrics, "/metrics").await.expect("metrics");
    assert!(answer.contains("etcd_server_has_leader 1"));
    let answer = client.get(peer, "/version").await.expect("the peer port");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(node.log().contains("serving client traffic securely"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_pages_are_open_to_verified_clients_and_dates_are_metrics() {
    if !Launch::subject().is_assay() {
        return;
    }
    let files = Files::new();
    let user = files.ca.issue(&Cert::named("user"));
    let node = files.launch_mutual().start();
    let client = files.client().showing(&user);
    let answer = client.get(node.ports()[0], "/debug/vars").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let metrics = client.get(node.ports()[2], "/metrics").await.expect("metrics");
    for listener in ["client", "peer"] {
        let value = |name: &str, cert: &str| {
            let series = format!("{name}{{cert=\"{cert}\",listener=\"{listener}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
            line.unwrap_or_else(|| panic!("no {series}")).parse::<f64>().expect("a number")
        };
        let issued = value("assay_tls_cert_issued_timestamp_seconds", "server");
        let expires = value("assay_tls_cert_expiry_timestamp_seconds", "server");
        assert_eq!(expires - issued, 31.0 * 86_400.0);
        assert!(value("assay_tls_cert_expiry_timestamp_seconds", "ca") > expires);
        assert!(
            metrics.contains(&format!("assay_tls_files_rejected{{listener=\"{listener}\"}} 0"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_and_https_share_an_address() {
    let files = Files::new();
    let port = crate::common::free_port();
    let both = format!("http://127.0.0.1:{port},https://127.0.0.1:{port}");
    let node = files
        .launch()
        .arg(format!("--listen-client-urls={both}"))
        .arg(format!("--advertise-client-urls={both}"))
        .start();
    let answer = files.client().get(port, "/health").await.expect("TLS");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let plain = crate::common::http_get(&format!("http://127.0.0.1:{port}"), "/health");
    assert_eq!(plain.map(|(code, _)| code), Some(200));
    let Some(path) = Tool::Etcdctl.require() else { return };
    let ctl = Etcdctl::new(&path, &format!("http://127.0.0.1:{port}"));
    assert_eq!(ctl.ok(&["put", "a", "b"]), "OK\n");
    let flag = format!("--cacert={}", files.file("ca.crt").display());
    let ctl = Etcdctl::new(&path, &format!("https://127.0.0.1:{port}"));
    assert_eq!(ctl.ok(&[&flag, "get", "a"]), "a\nb\n");
    drop(node);
}
