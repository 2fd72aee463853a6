//! Whose data directory it is: one process at a time, and nothing of others is touched.

use crate::common::{Launch, Process, Tool, bare, free_port, run};
use crate::{STOP, node_in, picture};
use std::path::Path;
use tempfile::tempdir;

const LOCKED: i32 = 75;
const NOT_OURS: i32 = 78;

/// The node refuses the directory with this code and these words, and leaves it as it is.
fn assert_refused(dir: &Path, extra: &[&str], code: i32, words: &[&str]) {
    let before = picture(dir);
    let ended = run(node_in(dir).args(extra));
    assert_eq!(ended.code, code, "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?} in:\n{}", ended.stderr);
    }
    assert_eq!(picture(dir), before, "a refused start changed something");
}

#[test]
fn one_process_per_directory() {
    let home = tempdir().expect("temp dir");
    let data = home.path().join("data");
    let mut first = Process::start(&mut node_in(&data));
    first.serves();
    let second = run(&mut node_in(&data));
    assert_eq!(second.code, LOCKED, "{}", second.stderr);
    let words = format!("{} is locked by another process", data.display());
    assert!(second.stderr.contains(&words), "{}", second.stderr);
    assert!(first.is_running());
}

#[test]
fn foreign_content_is_refused() {
    let home = tempdir().expect("temp dir");
    std::fs::write(home.path().join("notes.txt"), "mine").expect("written");
    assert_refused(home.path(), &[], NOT_OURS, &["notes.txt", "not ours"]);
    // What file systems and snapshot tools put there is nobody's.
    std::fs::remove_file(home.path().join("notes.txt")).expect("removed");
    std::fs::create_dir(home.path().join("lost+found")).expect("made");
    std::fs::create_dir(home.path().join(".snapshot")).expect("made");
    Process::start(&mut node_in(home.path())).serves();
}

#[test]
fn an_etcd_directory_is_refused() {
    let Some(etcd) = Tool::Etcd.require() else { return };
    let home = tempdir().expect("temp dir");
    let (data, log) = (home.path().join("data"), home.path().join("wal"));
    let mut node = Launch::etcd(&etcd).data_dir(&data).start();
    // It ends by the signal.
    node.terminate(STOP);
    assert_refused(&data, &[], NOT_OURS, &["belongs to etcd", "assay migrate"]);
    // An etcd's log alone, given as ours.
    let mut node = Launch::etcd(&etcd).arg(format!("--wal-dir={}", log.display())).start();
    node.terminate(STOP);
    let before = picture(&log);
    let ended = run(node_in(&home.path().join("new")).arg(format!("--wal-dir={}", log.display())));
    assert_eq!(ended.code, NOT_OURS, "{}", ended.stderr);
    assert_eq!(picture(&log), before);
}

#[test]
fn an_etcd_on_our_directory_exits_and_changes_nothing_of_ours() {
    let Some(etcd) = Tool::Etcd.require() else { return };
    let home = tempdir().expect("temp dir");
    let data = home.path().join("data");
    let mut node = Launch::assay().data_dir(&data).start();
    assert!(node.terminate(STOP).success());
    let files = |dir: &Path| -> Vec<_> {
        // It makes `member/snap` before it looks at the log; directories change by that.
        let ours = |path: &str| !path.contains("/member/snap") && Path::new(path).is_file();
        picture(dir).into_iter().filter(|(path, ..)| ours(path)).collect()
    };
    let before = files(&data);
    let [client, peer] = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let ended = run(bare(&etcd)
        .arg("--data-dir")
        .arg(&data)
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .arg(format!("--initial-cluster=default={peer}")));
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("failed to open WAL"), "{}", ended.stderr);
    assert_eq!(files(&data), before);
    node.restart();
}

#[test]
fn a_newer_format_is_refused_with_the_version_that_reads_it() {
    let home = tempdir().expect("temp dir");
    let data = home.path().join("data");
    let mut node = Launch::assay().data_dir(&data).start();
    assert!(node.terminate(STOP).success());
    let file = data.join("FORMAT");
    let text = std::fs::read_to_string(&file).expect("the file FORMAT");
    let mut format: serde_json::Value = serde_json::from_str(&text).expect("an object");
    format["format"] = 2.into();
    format["min_version"] = "9.8.7".into();
    std::fs::write(&file, format.to_string()).expect("written");
    assert_refused(&data, &[], NOT_OURS, &["format 2", "9.8.7"]);
    std::fs::write(&file, "{").expect("written");
    assert_refused(&data, &[], NOT_OURS, &["FORMAT", "backup"]);
}

#[test]
fn the_log_of_another_member_is_refused() {
    let home = tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    let started = |name: &str, token: &str| {
        let wal = format!("--wal-dir={}", at(name).with_extension("wal").display());
        let token = format!("--initial-cluster-token={token}");
        let mut node = Launch::assay().data_dir(&at(name)).arg(wal).arg(token).start();
        assert!(node.terminate(STOP).success());
    };
    started("a", "one");
    started("b", "two");
    let other = format!("--wal-dir={}", at("b.wal").display());
    let before = picture(&at("b.wal"));
    let ended = run(node_in(&at("a")).arg(&other));
    assert_eq!(ended.code, NOT_OURS, "{}", ended.stderr);
    assert!(ended.stderr.contains("belongs to member"), "{}", ended.stderr);
    assert_eq!(picture(&at("b.wal")), before, "a refused start changed the other log");
    // And a log that is not there: the store would be without what was acknowledged last.
    let nowhere = at("nowhere");
    let nowhere = nowhere.to_string_lossy();
    assert_refused(&at("a"), &["--wal-dir", &nowhere], NOT_OURS, &["--wal-dir"]);
}

#[test]
fn one_process_per_log_directory() {
    let home = tempdir().expect("temp dir");
    let at = |name: &str| home.path().join(name);
    let wal = format!("--wal-dir={}", at("wal").display());
    let mut first = Process::start(node_in(&at("a")).arg(&wal));
    first.serves();
    // The same ids, so that only the lock can tell.
    let second = run(node_in(&at("b")).arg(&wal));
    assert_eq!(second.code, LOCKED, "{}", second.stderr);
    assert!(second.stderr.contains("wal is locked by another process"), "{}", second.stderr);
    assert!(first.is_running());
}
