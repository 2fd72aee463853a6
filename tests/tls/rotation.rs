//! New files are used without a restart; files that do not fit are not.

use crate::client::{Client, SOON};
use crate::common::{Authority, Cert, Node};
use crate::files::Files;
use std::time::{Duration, Instant};

/// Waits until a request has this outcome: the files are read every second.
async fn until(client: &Client, node: &Node, works: bool) {
    let start = Instant::now();
    loop {
        let answer = client.get(node.ports()[0], "/health").await;
        if answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) == works {
            return;
        }
        assert!(start.elapsed() < SOON, "never {works}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn metrics(node: &Node, client: &Client) -> String {
    client.get(node.ports()[2], "/metrics").await.expect("metrics")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_authorities_and_revocations_are_read_again() {
    let files = Files::new();
    let user = files.ca.issue(&Cert::named("user"));
    files.write("crl.pem", &files.ca.revoke(&[]));
    let mut node = files.launch_mutual().arg(files.flag("client-crl-file", "crl.pem")).start();
    let pid = node.pid();
    let old = files.client().showing(&user);
    until(&old, &node, true).await;

    // Another certificate of another authority for the server.
    let second = Authority::new("second authority");
    files.server(&second);
    let new = Client::trusting(Some(&second.pem())).showing(&user);
    until(&new, &node, true).await;
    until(&old, &node, false).await;

    // The user's certificate is revoked.
    files.write("crl.pem", &files.ca.revoke(&[&user]));
    until(&new, &node, false).await;
    node.wait_log(SOON, |log| log.contains("\"reason\":\"revoked\""));

    // Users come from the second authority from now on.
    files.write("crl.pem", &second.revoke(&[]));
    files.write("ca.crt", &second.pem());
    let newer = Client::trusting(Some(&second.pem())).showing(&second.issue(&Cert::named("user")));
    until(&newer, &node, true).await;
    until(&new, &node, false).await;
    assert_eq!((node.pid(), node.is_running()), (pid, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_files_leave_the_old_ones_in_force() {
    let files = Files::new();
    let mut node = files.launch().start();
    let client = files.client();
    let good = std::fs::read_to_string(files.file("server.crt")).expect("the certificate");
    let alone = files.ca.issue(&Cert::named("server").hosts(&["127.0.0.1"]));
    let rejected = "assay_tls_files_rejected{listener=\"client\"} 1\n";
    for (broken, why) in [("garbage", "holds no certificate"), (&*alone.cert, "do not fit")] {
        let before = node.log().matches("certificate files changed and do not fit").count();
        files.write("server.crt", broken);
        node.wait_log(SOON, |log| {
            // One line for each of the two sides.
            log.matches("certificate files changed and do not fit").count() >= before + 2
                && log.contains(why)
        });
        until(&client, &node, true).await;
        assert!(metrics(&node, &client).await.contains(rejected));
    }
    let before = node.log().matches("certificate files changed and are in use").count();
    files.write("server.crt", &good);
    node.wait_log(SOON, |log| {
        log.matches("certificate files changed and are in use").count() >= before + 2
    });
    until(&client, &node, true).await;
    assert!(!metrics(&node, &client).await.contains(rejected));
}
