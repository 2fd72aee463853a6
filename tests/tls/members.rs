//! Members that talk to each other over TLS.

use crate::client::SOON;
use crate::common::{Authority, Cert, Clients, Launch, Node, key_value};
use crate::files::Files;
use assay::proto::etcdserverpb::{PutRequest, RangeRequest};

/// Members of one cluster with `https` peer URLs, not waited for. `more` adds each one's flags.
fn spawn(count: usize, more: impl Fn(usize, Launch) -> Launch) -> Vec<Node> {
    let port = || crate::common::free_port();
    let ports: Vec<[u16; 3]> = (0..count).map(|_| [port(), port(), port()]).collect();
    let named = |(at, ports): (usize, &[u16; 3])| format!("m{at}=https://127.0.0.1:{}", ports[1]);
    let all = ports.iter().enumerate().map(named).collect::<Vec<_>>().join(",");
    let launch = |at: usize| {
        let launch = Launch::assay()
            .tls([false, true, false])
            .ports(ports[at])
            .arg(format!("--name=m{at}"))
            .arg(format!("--initial-cluster={all}"));
        more(at, launch)
    };
    (0..count).map(|at| launch(at).spawn()).collect()
}

async fn put(clients: &mut Clients, value: &str) {
    let put =
        PutRequest { key: "k".into(), value: value.to_string().into(), ..PutRequest::default() };
    clients.kv.put(put).await.expect("put");
}

async fn get(clients: &mut Clients) -> String {
    let range = RangeRequest { key: "k".into(), ..RangeRequest::default() };
    let answer = clients.kv.range(range).await.expect("a linearizable read").into_inner();
    String::from_utf8_lossy(&key_value(&answer.kvs[0]).value).into_owned()
}

/// Every member takes a write that every other one then reads.
async fn replicate(nodes: &[Node]) {
    for (writer, node) in nodes.iter().enumerate() {
        let value = format!("from {writer}");
        put(&mut node.clients().await, &value).await;
        for reader in nodes {
            assert_eq!(get(&mut reader.clients().await).await, value);
        }
    }
}

fn mutual(files: &Files, at: usize, launch: Launch) -> Launch {
    let name = format!("m{at}");
    files.ca.issue(&Cert::named(&name).hosts(&["127.0.0.1"])).write(files.path(), &name);
    launch
        .arg(files.flag("peer-cert-file", &format!("{name}.crt")))
        .arg(files.flag("peer-key-file", &format!("{name}.key")))
        .arg(files.flag("peer-trusted-ca-file", "ca.crt"))
        .arg("--peer-client-cert-auth")
        .arg("--peer-cert-allowed-cn=m0,m1,m2")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_with_certificates_replicate() {
    let files = Files::new();
    let mut nodes = spawn(3, |at, launch| mutual(&files, at, launch));
    nodes.iter_mut().for_each(Node::wait_ready);
    replicate(&nodes).await;
    // A new authority and new certificates, one file after the other: nobody loses a connection, and
    // who starts anew is let in.
    let next = Authority::new("next authority");
    files.write("ca.crt", &format!("{}{}", files.ca.pem(), next.pem()));
    for (at, node) in nodes.iter_mut().enumerate() {
        let before = node.log().matches("certificate files changed and are in use").count();
        let name = format!("m{at}");
        next.issue(&Cert::named(&name).hosts(&["127.0.0.1"])).write(files.path(), &name);
        // The authorities at the latest with the certificate, in one reading or in two.
        node.wait_log(SOON, |log| {
            log.matches("certificate files changed and are in use").count() > before
        });
    }
    files.write("ca.crt", &next.pem());
    for node in &mut nodes {
        node.kill();
        node.restart();
    }
    replicate(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_authority_stays_outside() {
    let files = Files::new();
    let other = Authority::new("test authority");
    let mut nodes = spawn(3, |at, launch| {
        let launch = mutual(&files, at, launch);
        if at == 2 {
            other.issue(&Cert::named("m2").hosts(&["127.0.0.1"])).write(files.path(), "m2");
        }
        launch
    });
    for node in &mut nodes[..2] {
        node.wait_ready();
    }
    replicate(&nodes[..2]).await;
    let [one, two, stranger] = &mut nodes[..] else { panic!("three members") };
    for member in [one, two] {
        // Refused when it dials, and its own certificate is refused when it is dialled.
        member.wait_log(SOON, |log| {
            log.lines().any(|line| {
                line.contains("rejected connection on peer endpoint")
                    && line.contains("\"reason\":\"unknown_authority\"")
            })
        });
        member.wait_log(SOON, |log| {
            log.lines().any(|line| {
                line.contains("no connection to a peer")
                    && line.contains("signed by an authority that is not in the trusted CA file")
            })
        });
    }
    stranger.wait_log(SOON, |log| {
        log.lines().any(|line| {
            line.contains("rejected connection on peer endpoint")
                && line.contains("\"reason\":\"refused_ours\"")
        })
    });
    // Who runs it sees why, without looking at the others.
    stranger.wait_log(SOON, |log| {
        log.lines().any(|line| {
            line.contains("no connection to a peer") && line.contains("received fatal alert")
        })
    });
    assert!(!stranger.log().contains("ready to serve client requests"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_signed_their_own_certificates_replicate() {
    let mut nodes = spawn(3, |_, launch| launch.arg("--peer-auto-tls"));
    nodes.iter_mut().for_each(Node::wait_ready);
    replicate(&nodes).await;
    for node in &nodes {
        assert!(node.data_dir().join("fixtures/peer/cert.pem").exists());
    }
}
