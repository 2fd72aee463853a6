//! Places that are no place for a consensus log, for real: mounted here and looked at by the program.
#![allow(clippy::disallowed_methods, reason = "tests prepare files of their own")]

#[path = "support/memory_fs.rs"]
mod memory_fs;
mod support;

use nix::mount::MsFlags;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;
use support::{Place, json, mounts, run, skip, text};

/// Both commands refuse the directory, name the file system, and leave nothing behind.
fn assert_refused(place: &Place, directory: &Path, code: &str, name: &str) {
    let seen = run(place.on("inspect", directory, &[]));
    let page = text(&seen);
    assert_eq!(seen.status.code(), Some(4), "{page}");
    assert!(page.contains("REFUSED") && page.contains(&format!("[{code}]")), "{page}");
    // Lines break where the length of the path puts the end of the column.
    let words: Vec<&str> = page.split_whitespace().collect();
    assert!(words.join(" ").contains(name), "{name} is named: {page}");
    let before = fs::read_dir(directory).expect("listed").count();
    let output = run(place.on("run", directory, &["--json"]));
    let document = json(&output);
    assert_eq!(output.status.code(), Some(4), "{document:#}");
    assert_eq!(document["outcome"], "REFUSED");
    let codes: Vec<&str> = document["verdict"]["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter(|finding| finding["severity"] == "refuse")
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    assert!(codes.contains(&code), "{codes:?}");
    assert_eq!(fs::read_dir(directory).expect("listed").count(), before, "something was left");
    let output = run(place.on("verify", directory, &[]));
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
}

/// The text without its line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_file_system_in_memory() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    let point = place.path("memory");
    let Some(_mounted) = mounts::at(&point, "tmpfs", MsFlags::empty(), "size=1m") else { return };
    assert_refused(&place, &point, "volatile-file-system", "tmpfs");
    // A directory that does not exist yet is judged by its parent.
    let below = point.join("a/b");
    let output = run(place.on("inspect", &below, &[]));
    assert_eq!(output.status.code(), Some(4));
    assert!(flat(&text(&output)).contains("(nearest existing parent)"));
}

#[test]
fn the_kernels_own_file_systems() {
    let place = Place::new();
    for (directory, name) in [("/proc/self/fd", "proc"), ("/sys/kernel", "sysfs")] {
        if !Path::new(directory).exists() {
            skip("no such place here");
            continue;
        }
        let output = run(place.on("run", Path::new(directory), &[]));
        let page = text(&output);
        assert_eq!(output.status.code(), Some(4), "{page}");
        assert!(page.contains("[volatile-file-system]") && page.contains(name), "{page}");
    }
}

#[test]
fn a_layer_of_a_container() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    for name in ["lower", "upper", "work"] {
        fs::create_dir(place.path(name)).expect("made");
    }
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| place.path(name));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let point = place.path("merged");
    let Some(_mounted) = mounts::at(&point, "overlay", MsFlags::empty(), &options) else { return };
    assert_refused(&place, &point, "stacked-file-system", "overlay");
    // The report says which directory is really behind it.
    let page = flat(&text(&run(place.on("inspect", &point, &[]))));
    assert!(page.contains(&format!("upper directory {}", upper.display())), "{page}");
}

#[test]
fn a_read_only_mount() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    let Some(image) = mounts::Image::create(place.path("image"), 16) else { return };
    let point = place.path("read-only");
    let Some(_mounted) = image.mount(&point, ",ro") else { return };
    assert_refused(&place, &point, "read-only-file-system", "ext4");
}

#[test]
fn a_mount_without_barriers() {
    let place = Place::new();
    if !mounts::private() {
        return;
    }
    let Some(image) = mounts::Image::create(place.path("image"), 16) else { return };
    let point = place.path("no-barriers");
    let Some(_mounted) = image.mount(&point, ",barrier=0") else { return };
    assert_refused(&place, &point, "barriers-off", "barriers off");
}

#[test]
fn a_file_system_in_user_space_and_a_disk_on_top_of_one() {
    let place = Place::new();
    if !Path::new("/dev/fuse").exists() {
        skip("there is no /dev/fuse");
        return;
    }
    if !mounts::private() {
        return;
    }
    let point = place.path("fuse");
    let session = memory_fs::mount(&point, 32, Box::new(|_| Duration::ZERO)).expect("mounted");
    assert_refused(&place, &point, "user-space-file-system", "fuse");
    // A block device on such a file can be measured, with a warning.
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-qF", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(point.join(memory_fs::FILE))
        .output()
        .expect("mkfs ran");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let disk = place.path("disk");
    fs::create_dir(&disk).expect("made");
    let mounted = std::process::Command::new("mount")
        .args(["-o", "loop"])
        .args([&point.join(memory_fs::FILE), &disk])
        .output()
        .expect("mount ran");
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let output = run(place.on("inspect", &disk, &["--json"]));
    let document = json(&output);
    assert_eq!(output.status.code(), Some(0), "{document:#}");
    let findings = document["environment"]["findings"].to_string();
    assert!(findings.contains("user-space-backing"), "{findings}");
    assert_eq!(document["allowed"], true);
    nix::mount::umount2(&disk, nix::mount::MntFlags::empty()).expect("unmounted");
    drop(session);
}

#[test]
fn an_ordinary_user_may_look_and_is_told_what_stays_hidden() {
    let place = Place::new();
    let mut command = place.on("inspect", &place.path("data"), &["--json"]);
    if support::is_root() {
        // Root may read everything; "nobody" may not. The program must be reachable for it.
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).expect("opened");
        let program = place.path("bench-disk");
        fs::copy(env!("CARGO_BIN_EXE_bench-disk"), &program).expect("copied");
        command = std::process::Command::new(&program);
        command.args(["inspect", "--json", "--dir", "/tmp"]).uid(65_534).gid(65_534);
        let mut above = Some(program.as_path());
        while let Some(path) = above.and_then(Path::parent) {
            if !others_may_enter(path) {
                skip_quietly(path);
                return;
            }
            above = Some(path);
        }
    }
    let output = command.output().expect("started");
    let document = json(&output);
    assert_eq!(document["schema"], 1);
    assert!(document["environment"]["filesystem"].as_str().is_some_and(|name| !name.is_empty()));
    assert!(document["environment"]["unread"].is_array());
}

fn others_may_enter(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

/// Where the build directory is private there is no way to run the program as somebody else; that
/// is not a lack of the machine.
fn skip_quietly(path: &Path) {
    eprintln!("SKIPPED: {} is closed to other users", path.display());
}
