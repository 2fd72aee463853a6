//! The unmodified etcdctl, a new one and an old one, says the same of Assay as of a real etcd.
//!
//! Exit codes, standard output and errors are compared after masking what no two servers share
//! (`mask.rs`).
#![allow(clippy::disallowed_methods, reason = "tests own their clocks and threads")]

mod common;
#[path = "etcdctl/mask.rs"]
mod mask;

use assay::proto::etcdserverpb::RangeResponse;
use common::{Etcdctl, Launch, Node, Output, Tool};
use prost::Message;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest wait for a line of a running etcdctl.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command line and what is typed into it. `$LEASE` is the lease granted last, `$REV` the revision
/// of the last write of the history.
type Step = (&'static str, &'static str);

/// Before leases: state is identical on both sides, hashes included.
const HISTORY: &[Step] = &[
    ("put a/1 one", ""),
    ("put a/1 uno --prev-kv", ""),
    ("put a/2 two", ""),
    ("put a/3", "three from standard input"),
    ("put b/1 four --prev-kv -w json", ""),
    ("put b/1 --ignore-value", ""),
    ("put nothing --ignore-value", ""),
    ("put b/2 vier --ignore-lease", ""),
    ("put c x -w fields", ""),
    ("put c y --prev-kv -w fields", ""),
    ("get a/1", ""),
    ("get missing", ""),
    ("get a/1 --print-value-only", ""),
    ("get a/ --prefix", ""),
    ("get a/ --prefix --keys-only", ""),
    ("get a/2 --from-key", ""),
    ("get a/1 a/3", ""),
    ("get a/ --prefix --limit=2", ""),
    ("get a/ --prefix --limit=2 -w json", ""),
    ("get a/ --prefix --sort-by=VALUE --order=DESCEND", ""),
    ("get a/ --prefix --sort-by=MODIFY --order=DESCEND", ""),
    ("get a/ --prefix --sort-by=CREATE --order=ASCEND", ""),
    ("get a/ --prefix --sort-by=KEY --order=DESCEND", ""),
    ("get a/1 --sort-by=VERSION", ""),
    ("get a/1 --rev=2", ""),
    ("get a/ --prefix --rev=3 -w fields", ""),
    ("get a/1 --rev=1000", ""),
    ("get a/1 --consistency=s", ""),
    ("get a/1 --consistency=l", ""),
    ("get a/1 --consistency=x", ""),
    ("get a/ --prefix --count-only", ""),
    ("get a/ --prefix --count-only -w fields", ""),
    ("get a/1 -w json", ""),
    ("get a/1 -w fields", ""),
    ("get a/1 -w table", ""),
    ("get a/1 -w simple", ""),
    ("get a/1 --hex", ""),
    ("get", ""),
    ("del a/3 --prev-kv", ""),
    ("del missing", ""),
    ("del b/ --prefix --prev-kv -w fields", ""),
    ("del c -w json", ""),
    ("put e/1 1", ""),
    ("put e/2 2", ""),
    ("del e/1 e/3 --prev-kv", ""),
    ("txn", "value(\"a/1\") = \"uno\"\n\nput t/1 yes\nget a/1\ndel a/2\n\nput t/1 no\n\n"),
    ("txn", "value(\"a/1\") = \"eins\"\n\nput t/1 yes\n\nput t/1 no\nget t/1\n\n"),
    ("txn -w json", "mod(\"t/2\") = \"0\"\nversion(\"a/1\") > \"1\"\n\nput t/2 x\nget t/2\n\n\n"),
    ("txn -w fields", "create(\"t/2\") != \"0\"\n\nget t/ t0\n\nget t/9\n\n"),
    ("txn", "\nput t/3 a\nput t/3 b\n\n\n"),
    ("compact 3", ""),
    ("compact 3", ""),
    ("compact 1000", ""),
    ("compact 5 --physical", ""),
    ("get a/1 --rev=2", ""),
    ("endpoint hashkv", ""),
    ("endpoint hashkv -w table", ""),
    ("endpoint hashkv -w json", ""),
    ("endpoint hashkv --rev=8 -w table", ""),
    ("endpoint hashkv -w fields", ""),
];

/// Leases have identities that the server picks: values are masked from here on.
const REST: &[Step] = &[
    ("lease grant 300", ""),
    ("put l/1 x --lease=$LEASE", ""),
    ("put l/2 y --lease=$LEASE -w json", ""),
    ("get l/1 -w json", ""),
    ("get l/1 -w fields", ""),
    ("lease timetolive $LEASE", ""),
    ("lease timetolive $LEASE --keys", ""),
    ("lease keep-alive --once $LEASE", ""),
    ("lease list", ""),
    ("lease list -w json", ""),
    ("lease revoke $LEASE", ""),
    ("lease revoke $LEASE", ""),
    ("lease timetolive $LEASE", ""),
    ("lease keep-alive --once $LEASE", ""),
    ("lease list", ""),
    ("get l/ --prefix", ""),
    ("put l/3 z --lease=1234abcd", ""),
    ("lease grant 300 -w json", ""),
    ("lease grant 99999999999", ""),
    ("lease grant ten", ""),
    ("endpoint health", ""),
    ("endpoint health -w table", ""),
    ("endpoint health -w json", ""),
    ("endpoint status", ""),
    ("endpoint status -w table", ""),
    ("endpoint status -w json", ""),
    ("endpoint status -w fields", ""),
    ("alarm list", ""),
    ("alarm list -w json", ""),
    ("member list", ""),
    ("member list -w table", ""),
    ("member list -w json", ""),
    ("member list -w fields", ""),
];

/// A server and an etcdctl.
struct Side {
    node: Node,
    ctl: Etcdctl,
    lease: String,
}

impl Side {
    fn start(launch: Launch, etcdctl: &Path) -> Self {
        let node = launch.start();
        let ctl = Etcdctl::new(etcdctl, &node.client_url());
        Self { node, ctl, lease: String::new() }
    }

    fn step(&mut self, (line, input): Step) -> Output {
        let line = line.replace("$LEASE", &self.lease);
        let args: Vec<&str> = line.split(' ').collect();
        let output = self.ctl.run_with(&args, input);
        let granted = output.stdout.strip_prefix("lease ").filter(|_| line.starts_with("lease g"));
        if let Some(lease) = granted.and_then(|rest| rest.split(' ').next()) {
            self.lease = lease.to_string();
        }
        output
    }

    fn masked(&self, output: &Output) -> String {
        let ports = self.node.ports();
        let (out, err) = (mask::mask(&output.stdout, ports), mask::mask(&output.stderr, ports));
        format!("exit code {}\nstdout:\n{out}\nstderr:\n{err}", output.code)
    }

    /// The storage version is written a moment after the start.
    fn wait_storage_version(&self) {
        let start = Instant::now();
        while !self.ctl.ok(&["endpoint", "status", "-w", "json"]).contains("storageVersion") {
            assert!(start.elapsed() < PATIENCE, "no storage version in the status");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Both servers under the same etcdctl; `None` if something is missing.
fn sides(etcdctl: Tool) -> Option<[Side; 2]> {
    let (etcd, ctl) = (Tool::Etcd.require()?, etcdctl.require()?);
    let subject = Side::start(Launch::subject(), &ctl);
    Some([subject, Side::start(Launch::etcd(&etcd).arg("--unsafe-no-fsync"), &ctl)])
}

fn compare(sides: &mut [Side; 2], steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in steps {
        let [a, b] = sides.each_mut().map(|side| {
            let output = side.step(*step);
            side.masked(&output)
        });
        if a != b {
            wrong.push(format!(
                "etcdctl {} <<< {:?}\n--- subject\n{a}\n--- etcd\n{b}",
                step.0, step.1
            ));
        }
    }
    wrong
}

fn same_output(etcdctl: Tool) {
    let Some(mut sides) = sides(etcdctl) else { return };
    let mut wrong = compare(&mut sides, HISTORY);
    if etcdctl == Tool::Etcdctl {
        // Only a new etcdctl shows it.
        sides.iter().for_each(Side::wait_storage_version);
    }
    wrong.extend(compare(&mut sides, REST));
    let count = HISTORY.len() + REST.len();
    assert!(wrong.is_empty(), "{} of {count} differ:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn the_new_etcdctl_says_the_same() {
    same_output(Tool::Etcdctl);
}

#[test]
fn the_old_etcdctl_says_the_same() {
    same_output(Tool::EtcdctlOld);
}

#[test]
fn protobuf_output_is_the_same_message() {
    for tool in [Tool::Etcdctl, Tool::EtcdctlOld] {
        let Some(mut sides) = sides(tool) else { return };
        let answers = sides.each_mut().map(|side| {
            for number in 0..5 {
                side.ctl.ok(&["put", &format!("k{number}"), &number.to_string()]);
            }
            let output = side.step(("get k --prefix --limit=3 -w protobuf", ""));
            assert_eq!(output.code, 0, "{}", output.stderr);
            RangeResponse::decode(&output.bytes[..]).expect("a range answer")
        });
        let [mut a, mut b] = answers;
        let revisions =
            [&mut a, &mut b].map(|answer| answer.header.take().expect("header").revision);
        assert_eq!(revisions, [6, 6]);
        assert_eq!(a, b);
        assert_eq!((a.kvs.len(), a.count, a.more), (3, 5, true));
    }
}

#[test]
fn json_output_has_the_revision() {
    let Some(ctl) = Tool::Etcdctl.require() else { return };
    let side = Side::start(Launch::subject(), &ctl);
    side.ctl.ok(&["put", "k", "1"]);
    side.ctl.ok(&["put", "k", "2"]);
    let json = side.ctl.ok(&["get", "k", "-w", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["header"]["revision"], 3);
    assert_eq!(json["kvs"][0]["mod_revision"], 3);
    assert_eq!(json["kvs"][0]["create_revision"], 2);
}

/// Runs a watch over the history, then puts `end`, and returns what it printed until then.
fn watched(side: &Side, args: &[&str], end: &str) -> Vec<String> {
    let mut child = side.ctl.command(args).spawn().expect("start etcdctl");
    let stdout = child.stdout.take().expect("a pipe");
    let (send, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut seen: Vec<String> = Vec::new();
    // Whether the watch has begun cannot be seen from outside before it prints: the mark is written
    // again and again, and each of the writes is an event like any other.
    let start = Instant::now();
    while seen.last().is_none_or(|last| last != end) {
        assert!(start.elapsed() < PATIENCE, "the watch shows {seen:?}");
        if seen.len() >= 3 {
            side.ctl.ok(&["put", "w/~end", end]);
        }
        while let Ok(line) = lines.recv_timeout(Duration::from_millis(300)) {
            let done = line == end;
            seen.push(line);
            if done {
                break;
            }
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    drop(lines);
    reader.join().expect("the reader ends");
    seen
}

#[test]
fn a_watch_replays_history_from_a_revision() {
    for tool in [Tool::Etcdctl, Tool::EtcdctlOld] {
        let Some(sides) = sides(tool) else { return };
        let seen = sides.each_ref().map(|side| {
            for line in ["put w/1 a", "put w/2 b", "put x c", "put w/1 d", "del w/2", "put w/3 e"] {
                side.ctl.ok(&line.split(' ').collect::<Vec<_>>());
            }
            watched(side, &["watch", "--prefix", "w/", "--rev=3", "--prev-kv"], "over")
        });
        let words = "PUT|w/2|b|PUT|w/1|a|w/1|d|DELETE|w/2|b|w/2||PUT|w/3|e|PUT|w/~end|over";
        assert_eq!(seen[1].join("|"), words, "etcd itself, {tool:?}");
        assert_eq!(seen[0], seen[1], "{tool:?}");
    }
}

/// A minute of load at 150 puts a second. Runs in CI and with `ASSAY_SLOW=1`.
#[test]
fn check_perf_passes_with_a_small_load() {
    if std::env::var_os("CI").is_none() && std::env::var_os("ASSAY_SLOW").is_none() {
        eprintln!("SKIPPED: takes a minute; set ASSAY_SLOW=1");
        return;
    }
    let Some(ctl) = Tool::Etcdctl.require() else { return };
    let side = Side::start(Launch::subject(), &ctl);
    let output = side.ctl.run(&["check", "perf", "--load=s"]);
    let said = |words: &str| output.stdout.contains(words);
    assert!(said("PASS: Throughput is"), "{}\n{}", output.stdout, output.stderr);
    // Latency depends on what else the machine does: that it is reported is what is checked, in
    // the words for a good one ("took 0.02s", "Stddev is") and for a bad one ("too long", "too high").
    assert!(said("Slowest request took ") && said("Stddev "), "{}", output.stdout);
}
