//! `assay upgrade` towards members with TLS.

use crate::common::{Authority, Cert, Ended, Launch, assay, run};
use crate::files::Files;
use std::path::Path;

const DONE: i32 = 0;
const CONFIGURATION: i32 = 1;
const USAGE: i32 = 2;
const UNAVAILABLE: i32 = 69;
const NOT_ALLOWED: i32 = 77;

fn finalize(url: &str, files: &[(&str, &Path)]) -> Ended {
    let mut command = assay();
    command.args(["upgrade", "finalize", "--endpoint", url]);
    for (flag, path) in files {
        command.arg(format!("--{flag}={}", path.display()));
    }
    run(&mut command)
}

#[test]
fn a_member_is_checked_and_checks_who_finalizes() {
    let files = Files::new();
    let (cert, key) = files.ca.issue(&Cert::named("user")).write(files.path(), "user");
    let ca = files.file("ca.crt");
    let other = files.path().join("other.crt");
    let stranger = Authority::new("other");
    std::fs::write(&other, stranger.pem()).expect("write a certificate");
    let (bad_cert, bad_key) = stranger.issue(&Cert::named("user")).write(files.path(), "stranger");
    let missing = files.path().join("missing");
    let node = files.launch_mutual().start();
    let url = node.client_url();
    let own = [("cert", &*cert), ("key", &*key)];
    type Flags<'a> = &'a [(&'a str, &'a Path)];
    let cases: [(Flags<'_>, i32, &str); 6] = [
        (&[("cacert", &ca), own[0], own[1]], DONE, "nothing to finalize"),
        (&[own[0], own[1]], USAGE, "needs --cacert"),
        (&[("cacert", &ca)], NOT_ALLOWED, "--cert, --key"),
        (&[("cacert", &ca), ("cert", &bad_cert), ("key", &bad_key)], NOT_ALLOWED, "--cert, --key"),
        (&[("cacert", &other), own[0], own[1]], UNAVAILABLE, "signed by an authority"),
        (&[("cacert", &missing)], CONFIGURATION, "missing"),
    ];
    for (flags, code, text) in cases {
        let ended = finalize(&url, flags);
        assert_eq!(ended.code, code, "{flags:?}: {ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains(text), "no {text:?}: {said}");
    }
    // Plain towards TLS.
    let plain = url.replace("https://", "http://");
    assert_ne!(finalize(&plain, &[]).code, DONE);
}

#[test]
fn a_self_signed_certificate_vouches_for_itself() {
    let node = Launch::assay().tls([true; 3]).arg("--auto-tls").arg("--peer-auto-tls").start();
    let own = node.data_dir().join("fixtures/client/cert.pem");
    let ended = finalize(&node.client_url(), &[("cacert", &own)]);
    assert_eq!(ended.code, DONE, "{ended:?}");
}
