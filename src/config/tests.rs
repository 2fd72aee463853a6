//! Command lines and variables as users write them.

use super::flags::{FLAGS, nearest};
use super::*;

fn parse_with(args: &[&str], env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
    let mut env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    match parse(&args, &mut env)? {
        Parsed::Start { raw, .. } => Config::from_raw(&raw, "assay"),
        other => panic!("{other:?}"),
    }
}

fn error(args: &[&str]) -> String {
    parse_with(args, &[]).expect_err("must be refused").to_string()
}

#[test]
fn the_default_node_listens_on_loopback_only() {
    let config = parse_with(&[], &[]).expect("defaults are valid");
    assert_eq!(config.paths.data_dir, PathBuf::from("default.assay"));
    assert_eq!(config.paths.wal_dir, PathBuf::from("default.assay/member/wal"));
    for list in [&config.listen.client, &config.listen.peer, &config.listen.metrics] {
        assert!(list.0.iter().all(ListenUrl::is_loopback), "{list}");
    }
    assert_eq!(config.limits.request_bytes, 1_572_864);
    assert_eq!(config.limits.receive_bytes(), 2_097_152);
    assert_eq!(config.limits.quota_bytes, Some(2_147_483_648));
    assert_eq!(config.timing.request_timeout(), Duration::from_secs(7));
    assert_eq!(config.timing.lease_ttl_min_s(), 2);
    assert!(!config.quiet && !config.metrics_listener_explicit);
}

#[test]
fn a_hung_disk_costs_leadership_after_an_election_timeout_unless_told_otherwise() {
    let stall = |args: &[&str]| parse_with(args, &[]).expect("valid").timing.disk_stall_ms;
    assert_eq!(stall(&[]), Some(1_000));
    assert_eq!(stall(&["--election-timeout=3000"]), Some(3_000));
    assert_eq!(stall(&["--disk-stall-step-down=1m"]), Some(60_000));
    assert_eq!(stall(&["--disk-stall-step-down=0"]), None);
    for bad in ["499ms", "-1s", "soon"] {
        let text = error(&[&format!("--disk-stall-step-down={bad}")]);
        assert!(text.contains("disk-stall-step-down"), "{text}");
    }
}

#[test]
fn all_four_flag_forms_are_read() {
    for args in [
        &["--name", "a"][..],
        &["--name=a"],
        &["-name", "a"],
        &["-name=a"],
        &["--name=b", "--name=a"],
    ] {
        assert_eq!(parse_with(args, &[]).expect("valid").name, "a", "{args:?}");
    }
    assert!(parse_with(&["--socket-reuse-port"], &[]).expect("valid").listen.reuse_port);
    let left = parse_with(&["--socket-reuse-port", "true"], &[]).expect_err("a word is left over");
    let text = left.to_string();
    assert!(text.starts_with("\"true\" is not a valid flag; usage: assay ["), "{text}");
    assert_eq!(left.exit_code(), 2);
}

#[test]
fn a_bare_word_names_what_it_may_have_been_meant_for() {
    let told = |word: &str| parse_with(&[word], &[]).expect_err("a word").to_string();
    for word in ["upgrade", "upgarde", "upgrad"] {
        let said = parse_with(&["--name=a", word], &[]).expect_err("a word").to_string();
        assert!(said.contains("did you mean `assay upgrade`"), "{said}");
    }
    for word in ["data-dir=/x", "data-dri", "datadir"] {
        assert!(told(word).contains("did you mean --data-dir?"), "{}", told(word));
    }
    assert!(!told("zzzzzzzz").contains("did you mean"), "{}", told("zzzzzzzz"));
}

#[test]
fn an_unknown_flag_names_the_nearest_one() {
    assert_eq!(nearest("listen-client-url"), Some("listen-client-urls"));
    assert_eq!(nearest("zzzzzzzz"), None);
    let text = error(&["--disk-gates=off"]);
    assert!(text.contains("did you mean --disk-gate?"), "{text}");
    assert_eq!(parse_with(&["--nmae=a"], &[]).expect_err("unknown").exit_code(), 2);
}

#[test]
fn variables_are_read_and_conflicts_refused() {
    let config = parse_with(&[], &[("ETCD_NAME", "n1"), ("ETCD_WHATEVER", "x")]).expect("valid");
    assert_eq!(config.name, "n1");
    let config = parse_with(&[], &[("ASSAY_DISK_GATE", "warn")]).expect("valid");
    assert_eq!(config.gate.mode, "warn");
    let error = parse_with(&["--name=a"], &[("ETCD_NAME", "n1")]).expect_err("conflict");
    assert!(error.to_string().contains("ETCD_NAME is shadowed"), "{error}");
}

#[test]
fn a_name_never_leads_out_of_the_current_directory() {
    for name in ["../up", "/etc/x", "a/b", "a\0b"] {
        let name = format!("--name={name}");
        let cluster = "--initial-cluster=";
        let error = parse_with(&[&name, cluster], &[]).expect_err("a path");
        let text = error.to_string();
        assert!(text.contains("cannot name the data directory"), "{text}");
        assert!(text.contains("--data-dir"), "{text}");
        assert_eq!(error.exit_code(), 1);
        parse_with(&[&name, "--data-dir=elsewhere"], &[]).expect("a name is free text");
    }
    for name in ["..", ".", "", "a b"] {
        let config = parse_with(&[&format!("--name={name}")], &[]).expect("stays here");
        assert_eq!(config.paths.data_dir.components().count(), 1, "{name:?}");
    }
    for flag in ["--data-dir=a\0b", "--wal-dir=a\0b"] {
        let error = parse_with(&[flag], &[]).expect_err("a NUL byte");
        assert!(error.to_string().contains("NUL byte"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}

#[test]
fn etcds_checks_and_texts_hold() {
    for (args, text) in [
        (
            &["--election-timeout=400"][..],
            "--election-timeout[400ms] should be at least as 5 times as --heartbeat-interval[100ms]",
        ),
        (
            &["--election-timeout=60000"],
            "--election-timeout[60000ms] is too long, and should be set less than 50000ms",
        ),
        (&["--heartbeat-interval=0"], "--heartbeat-interval must be >0 (set to 0ms)"),
        (
            &["--listen-client-urls=http://127.0.0.1:1"],
            "--advertise-client-urls is required when --listen-client-urls is set explicitly",
        ),
        (
            &["--initial-cluster=b=http://localhost:2380"],
            "couldn't find local name \"default\" in the initial cluster configuration",
        ),
        (
            &["--listen-peer-urls=http://example.org:1"],
            "expected IP in URL for binding (http://example.org:1)",
        ),
        (&["--name"], "flag needs an argument: --name"),
    ] {
        assert_eq!(error(args), text);
    }
    assert!(
        error(&["--listen-peer-urls=http://127.0.0.1:1/x"]).contains("must not contain a path")
    );
    assert!(error(&["--listen-peer-urls=ftp://127.0.0.1:1"]).contains("URL scheme must be"));
    assert!(error(&["--config-file=x"]).contains("--config-file is not supported by this version"));
    assert!(error(&["--max-txn-ops=0"]).contains("a number from 1 to"));
}

/// A cluster begins with at most seven; `member add` takes more, and whoever it added must start.
#[test]
fn only_a_new_cluster_is_limited_to_seven_members() {
    let list = |members: u16| {
        let member = |at| format!("m{at}=http://127.0.0.1:{}", 10_000 + at);
        let all: Vec<String> = (1..=members).map(member).collect();
        format!("--initial-cluster={}", all.join(","))
    };
    let read = |members, state: &str| {
        let state = format!("--initial-cluster-state={state}");
        let peer = "http://127.0.0.1:10001";
        let (listen, announce) =
            (format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}"));
        parse_with(&["--name=m1", &listen, &announce, &state, &list(members)], &[])
    };
    assert_eq!(read(7, "new").expect("seven").bootstrap.members.len(), 7);
    let text = read(8, "new").expect_err("eight founders").to_string();
    assert!(text.contains("names 8 members") && text.contains("`member add`"), "{text}");
    for members in [8, 9, 20] {
        let config = read(members, "existing").expect("what `member add` printed");
        assert_eq!(config.bootstrap.members.len(), usize::from(members));
    }
}

#[test]
fn a_limit_that_no_disk_can_keep_is_a_mistake() {
    let text = error(&["--disk-gate-p99=0s"]);
    assert!(text.contains("disk-gate-p99") && text.contains("above zero"), "{text}");
    parse_with(&["--disk-gate-p99=1ns"], &[]).expect("a limit");
}

#[test]
fn values_have_gos_forms() {
    use value::{duration, number};
    assert_eq!(number("0x10"), Some(16));
    assert_eq!(number("010"), Some(8));
    assert_eq!(number("1_000"), Some(1000));
    assert_eq!(number("-1"), Some(-1));
    assert_eq!(number("--1"), None);
    assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
    assert_eq!(duration("1.5ms"), Some(Duration::from_micros(1500)));
    assert_eq!(duration("10"), None);
    assert_eq!(duration("-1s"), None);
    assert_eq!(duration("s"), None);
}

#[test]
fn every_flag_is_declared_once_and_its_default_is_valid() {
    let mut names: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
    assert!(machine_memory_is_sane());
}

fn machine_memory_is_sane() -> bool {
    let bytes = validate::machine_memory();
    (1 << 26..1 << 50).contains(&bytes)
}
