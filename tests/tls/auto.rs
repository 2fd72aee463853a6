//! `--auto-tls` and `--peer-auto-tls`.

use crate::client::Client;
use crate::common::{Etcdctl, Launch, Tool};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_signed_certificates_are_made_once_and_kept() {
    let Some(path) = Tool::Etcdctl.require() else { return };
    let mut node = Launch::subject()
        .tls([true; 3])
        .arg("--auto-tls")
        .arg("--peer-auto-tls")
        .arg("--self-signed-cert-validity=2")
        .start();
    let ctl = Etcdctl::new(&path, &node.client_url());
    assert_eq!(ctl.ok(&["--insecure-skip-tls-verify", "put", "a", "b"]), "OK\n");
    // Nobody vouches for it: who checks must refuse.
    let checked = ctl.run(&["--dial-timeout=2s", "--command-timeout=2s", "get", "a"]);
    assert_ne!(checked.code, 0);
    for port in node.ports() {
        let answer = Client::trusting(None).get(port, "/version").await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    }
    let fixtures = node.data_dir().join("fixtures");
    let read = |side: &str, file: &str| std::fs::read(fixtures.join(side).join(file)).expect(file);
    let before: Vec<_> = ["client", "peer"].map(|side| read(side, "cert.pem")).to_vec();
    assert_ne!(before[0], before[1]);
    let key = std::fs::metadata(fixtures.join("client/key.pem")).expect("the key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    if Launch::subject().is_assay() {
        let metrics = Client::trusting(None).get(node.ports()[2], "/metrics").await.expect("it");
        let value = |name: &str| -> f64 {
            let series = format!("{name}{{cert=\"server\",listener=\"client\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
            line.expect("the series").parse().expect("a number")
        };
        let lifetime = value("assay_tls_cert_expiry_timestamp_seconds")
            - value("assay_tls_cert_issued_timestamp_seconds");
        assert_eq!(lifetime, 2.0 * 365.0 * 86_400.0 + 3_600.0);
    }
    node.signal(Signal::SIGTERM);
    node.wait_exit(Duration::from_secs(60));
    node.restart();
    assert_eq!(ctl.ok(&["--insecure-skip-tls-verify", "get", "a"]), "a\nb\n");
    let after: Vec<_> = ["client", "peer"].map(|side| read(side, "cert.pem")).to_vec();
    assert_eq!(before, after);
}
