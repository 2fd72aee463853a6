//! Who must not come in, on every listener, and what the log says of it.

use crate::client::SOON;
use crate::common::{Authority, Cert, Etcdctl, Identity, Node, Tool};
use crate::files::Files;

const PORTS: [&str; 3] = ["client", "peer", "metrics"];

/// Somebody who must be refused: what is wrong, the certificate, the reason in log and metric.
struct Stranger(&'static str, Option<Identity>, &'static str);

async fn must_be_refused(node: &mut Node, files: &Files, strangers: &[Stranger], at: &[usize]) {
    for &at in at {
        let (port, endpoint) = (node.ports()[at], PORTS[at]);
        for Stranger(what, identity, reason) in strangers {
            let client = files.client();
            let client = match identity {
                Some(identity) => client.showing(identity),
                None => client,
            };
            for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
                let answer = client.clone().version(version).get(port, "/version").await;
                let refused = answer.as_ref().map_or(true, String::is_empty);
                assert!(refused, "{what} was served on the {endpoint} port: {answer:?}");
            }
            if !node_is_assay() {
                continue;
            }
            // One line for both attempts.
            node.wait_log(SOON, |log| log.lines().any(|line| is_refusal(line, endpoint, reason)));
        }
    }
}

fn node_is_assay() -> bool {
    crate::common::Launch::subject().is_assay()
}

fn is_refusal(line: &str, endpoint: &str, reason: &str) -> bool {
    line.contains(&format!("rejected connection on {endpoint} endpoint"))
        && line.contains(&format!("\"reason\":\"{reason}\""))
        && line.contains("\"remote\":\"127.0.0.1:")
        && line.contains("\"error\":\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused_on_every_listener_with_the_reason() {
    let files = Files::new();
    let known = files.ca.issue(&Cert::named("user"));
    let revoked = files.ca.issue(&Cert::named("revoked"));
    files.write("crl.pem", &files.ca.revoke(&[&revoked]));
    let other = Authority::new("test authority");
    let strangers = [
        Stranger("no certificate", None, "no_certificate"),
        Stranger("a wrong authority", Some(other.issue(&Cert::named("user"))), "unknown_authority"),
        Stranger("an old one", Some(files.ca.issue(&Cert::named("user").expired())), "expired"),
        Stranger("a revoked one", Some(revoked), "revoked"),
    ];
    let mut node = files
        .launch_mutual()
        .arg(files.flag("client-crl-file", "crl.pem"))
        .arg(files.flag("peer-crl-file", "crl.pem"))
        .start();
    must_be_refused(&mut node, &files, &strangers, &[0, 1, 2]).await;
    // Nobody else was hurt.
    let client = files.client().showing(&known);
    let here = files.ca.issue(&Cert::named("user").hosts(&["127.0.0.1"]));
    for port in node.ports() {
        for client in [&client, &files.client().showing(&here)] {
            let answer = client.get(port, "/health").await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        }
    }
    if node_is_assay() {
        let metrics = client.get(node.ports()[2], "/metrics").await.expect("metrics");
        for port in PORTS {
            for Stranger(_, _, reason) in &strangers {
                let series = format!(
                    "assay_tls_handshake_failures_total{{port=\"{port}\",reason=\"{reason}\"}} 2\n"
                );
                assert!(metrics.contains(&series), "{series}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_not_allowed_are_refused() {
    let files = Files::new();
    let wrong = [Stranger(
        "a wrong name",
        Some(files.ca.issue(&Cert::named("intruder").hosts(&["intruder.test", "127.0.0.1"]))),
        "name",
    )];
    let mut node = files
        .launch_mutual()
        .arg("--client-cert-allowed-hostname=other.test,user.test")
        .arg("--peer-cert-allowed-cn=member-1,member-2")
        .start();
    must_be_refused(&mut node, &files, &wrong, &[0, 1, 2]).await;
    let user = files.ca.issue(&Cert::named("x").hosts(&["user.test", "127.0.0.1"]));
    let member = files.ca.issue(&Cert::named("member-2"));
    let answer = files.client().showing(&user).get(node.ports()[0], "/health").await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));
    let answer = files.client().showing(&member).get(node.ports()[1], "/version").await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));

    let mut node = files.launch_mutual().arg("--peer-cert-allowed-hostname=member.test").start();
    must_be_refused(&mut node, &files, &wrong, &[1]).await;
    let member = files.ca.issue(&Cert::named("x").hosts(&["member.test", "127.0.0.1"]));
    let answer = files.client().showing(&member).get(node.ports()[1], "/version").await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_from_where_their_certificates_say_unless_that_is_switched_off() {
    let files = Files::new();
    let elsewhere = files.ca.issue(&Cert::named("member").hosts(&["192.0.2.1"]));
    let mut node = files.launch_mutual().start();
    let stranger = [Stranger("one of another host", Some(elsewhere.clone()), "address")];
    must_be_refused(&mut node, &files, &stranger, &[1]).await;
    for hosts in [&["localhost"][..], &["192.0.2.1", "127.0.0.1"]] {
        let here = files.ca.issue(&Cert::named("member").hosts(hosts));
        let answer = files.client().showing(&here).get(node.ports()[1], "/version").await;
        assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"), "{hosts:?}");
    }
    let node = files.launch_mutual().arg("--peer-skip-client-san-verification").start();
    let client = files.client().showing(&elsewhere);
    let answer = client.get(node.ports()[1], "/version").await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));
    // Clients of the client port may come from anywhere.
    let answer = client.get(node.ports()[0], "/version").await;
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_is_told_what_is_wrong() {
    let Some(path) = Tool::Etcdctl.require() else { return };
    let files = Files::new();
    files.write("other.crt", &Authority::new("other").pem());
    let old = files.ca.issue(&Cert::named("user").expired());
    old.write(files.path(), "old");
    let mut node = files.launch_mutual().start();
    let ctl = Etcdctl::new(&path, &node.client_url());
    let ca = format!("--cacert={}", files.file("ca.crt").display());
    let other = format!("--cacert={}", files.file("other.crt").display());
    let (cert, key) = (files.file("old.crt"), files.file("old.key"));
    let (cert, key) = (format!("--cert={}", cert.display()), format!("--key={}", key.display()));
    let get = ["--dial-timeout=2s", "--command-timeout=2s", "get", "a"];
    for flags in [vec![&ca], vec![&ca, &cert, &key], vec![&other, &cert, &key]] {
        let flags = flags.into_iter().map(String::as_str).chain(get).collect::<Vec<_>>();
        let output = ctl.run(&flags);
        assert_ne!(output.code, 0, "{output:?}");
    }
    if node_is_assay() {
        for reason in ["no_certificate", "expired", "refused_ours"] {
            node.wait_log(SOON, |log| log.lines().any(|line| is_refusal(line, "client", reason)));
        }
    }
}
