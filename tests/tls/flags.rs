//! Flags that do not go together, and files that are none, stop the start with a text that names
//! them.

use crate::common::{assay, free_port, run};
use crate::files::Files;
use std::process::Command;

/// A command whose ports are free ones.
fn start(files: &Files, client: &str, peer: &str, metrics: &str) -> Command {
    let mut command = assay();
    let url = |scheme: &str| format!("{scheme}://127.0.0.1:{}", free_port());
    let (client, peer, metrics) = (url(client), url(peer), url(metrics));
    command.arg("--data-dir").arg(files.file("data")).arg("--disk-gate=off");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--listen-metrics-urls", &metrics]);
    command
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let files = Files::new();
    let other = crate::common::Authority::new("other");
    other.issue(&crate::common::Cert::named("x")).write(files.path(), "other");
    files.write("empty.crt", "");
    let cert = files.flag("cert-file", "server.crt");
    let key = files.flag("key-file", "server.key");
    let (peer_cert, peer_key) =
        (files.flag("peer-cert-file", "server.crt"), files.flag("peer-key-file", "server.key"));
    let cases: &[([&str; 3], &[&str], i32, &str)] = &[
        (
            ["https", "http", "http"],
            &[],
            1,
            "TLS key/cert (--cert-file, --key-file) must be provided for client url https://",
        ),
        (
            ["http", "http", "https"],
            &[],
            1,
            "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url",
        ),
        (["http", "https", "http"], &[], 1, "KeyFile and CertFile are not presented"),
        (["https", "http", "http"], &[&cert], 1, "KeyFile and CertFile must both be present"),
        (
            ["https", "http", "http"],
            &[&cert, &key, "--client-cert-auth"],
            1,
            "--client-cert-auth needs --trusted-ca-file",
        ),
        (
            ["https", "http", "http"],
            &[&cert, &key, &files.flag("trusted-ca-file", "empty.crt")],
            1,
            "empty.crt: holds no certificate",
        ),
        (
            ["https", "http", "http"],
            &[&cert, &files.flag("key-file", "other.key")],
            1,
            "server.crt: ",
        ),
        (
            ["https", "http", "http"],
            &[&cert, &files.flag("key-file", "absent.key")],
            1,
            "absent.key: No such file",
        ),
        (
            ["https", "http", "http"],
            &[&cert, &key, "--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
            1,
            "min version (TLS1.3) is greater than max version (TLS1.2)",
        ),
        (
            ["https", "http", "http"],
            &[
                &cert,
                &key,
                "--tls-min-version=TLS1.3",
                "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            ],
            1,
            "cipher suites cannot be configured when only TLS1.3 is enabled",
        ),
        (
            ["https", "http", "http"],
            &[&cert, &key, "--cipher-suites=ROT13"],
            1,
            "unexpected TLS cipher suite \"ROT13\"",
        ),
        (["http", "http", "http"], &["--tls-min-version=SSL3"], 2, "TLS1.2 or TLS1.3 is expected"),
        (
            ["http", "https", "http"],
            &[
                &peer_cert,
                &peer_key,
                &files.flag("peer-trusted-ca-file", "ca.crt"),
                "--peer-cert-allowed-cn=a",
                "--peer-cert-allowed-hostname=b",
            ],
            1,
            "AllowedCN and AllowedHostname are mutually exclusive",
        ),
    ];
    for ([client, peer, metrics], flags, code, text) in cases {
        let ended = run(start(&files, client, peer, metrics).args(*flags));
        assert_eq!(ended.code, *code, "{flags:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{flags:?}: {}", ended.stderr);
        assert!(!files.file("data").exists(), "{flags:?}: nothing was made");
    }
}

#[test]
fn flags_without_effect_are_warned_of() {
    let files = Files::new();
    let node = files.launch_mutual().tls([false; 3]).arg("--auto-tls").start();
    let log = node.log();
    for text in [
        "scheme is http or unix while key and cert files are present; ignoring key and cert files",
        "scheme is http or unix while --client-cert-auth is enabled; ignoring client cert auth",
        "ignoring client auto TLS since certs given",
    ] {
        assert!(log.contains(text), "{text}");
    }
}
