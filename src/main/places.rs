//! Directories that flags name: mistakes are told before a disk is measured or anything is made.
//!
//! What is wrong here is a wrong or unusable path, a mistake of the configuration; what a disk
//! answers later is an I/O error.

use nix::errno::Errno;
use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, access};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path that the kernel takes (`PATH_MAX` without its NUL), in bytes.
const PATH_MAX_BYTES: usize = 4_095;
/// Longest name of a file below a data directory (`member/wal/` and a segment), with room to spare.
const BELOW_BYTES: usize = 95;
/// Longest name of one directory (`NAME_MAX` of every file system in use), in bytes.
const NAME_MAX_BYTES: usize = 255;
/// Characters of a path that a message shows.
const SHOWN: usize = 200;

/// File systems that show the kernel's state, by `f_type` of `statfs`: no file of ours can be there.
const OF_THE_KERNEL: [(u32, &str); 13] = [
    (0x0000_9FA0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_E0EB, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0000_1CD1, "devpts"),
    (0xCAFE_4A11, "bpf"),
    (0x6265_6570, "configfs"),
    (0x6165_676C, "pstore"),
    (0xDE5E_81E4, "efivarfs"),
    (0x1980_0202, "mqueue"),
];

/// Whether a node could keep its data in `dir`, which may not exist yet. Changes nothing.
///
/// # Errors
/// A text that names flag and path, says what is wrong and what to do.
pub(crate) fn check(flag: &str, dir: &Path) -> Result<(), String> {
    problem(dir).map_err(|what| format!("--{flag}: {} {what}", shown(dir)))
}

fn shown(dir: &Path) -> String {
    let text = dir.display().to_string();
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}... ({} bytes)", &text[..cut], dir.as_os_str().len()),
        None => format!("{text:?}"),
    }
}

fn problem(dir: &Path) -> Result<(), String> {
    let absolute = std::path::absolute(dir)
        .map_err(|error| format!("is not a path ({error}); give the path of a directory"))?;
    let length = absolute.as_os_str().len();
    if length + BELOW_BYTES > PATH_MAX_BYTES {
        return Err(format!(
            "is too long with {length} bytes: paths end at {PATH_MAX_BYTES}, and files go below; \
             give a shorter one"
        ));
    }
    if let Some(part) = absolute.components().find(|part| part.as_os_str().len() > NAME_MAX_BYTES) {
        return Err(format!(
            "has a name of {} bytes in it, the limit is {NAME_MAX_BYTES}; give a shorter one",
            part.as_os_str().len()
        ));
    }
    if absolute.as_os_str().as_bytes().contains(&0) {
        return Err("has a NUL byte in it; give a path without".into());
    }
    usable(&nearest(&absolute)?, &absolute)
}

/// The directory itself if it exists, else its nearest parent that does.
fn nearest(dir: &Path) -> Result<PathBuf, String> {
    for place in dir.ancestors() {
        let own = place == dir;
        let named = |what: &str| match own {
            true => what.to_string(),
            false => format!("cannot be made: its parent {} {what}", shown(place)),
        };
        match std::fs::metadata(place) {
            Ok(metadata) if metadata.is_dir() => return Ok(place.to_path_buf()),
            Ok(_) => return Err(named("is not a directory; name a directory, existing or new")),
            Err(error) => match errno(&error) {
                Errno::ENOENT => {
                    if let Ok(target) = std::fs::read_link(place) {
                        let what = "is a link to a directory that does not exist";
                        let target = shown(&target);
                        let what = format!("{what} ({target}); make that one, or remove the link");
                        return Err(named(&what));
                    }
                }
                // The parent that is no directory comes next.
                Errno::ENOTDIR => {}
                Errno::ELOOP => {
                    return Err(named("is in a loop of symbolic links; name the directory itself"));
                }
                Errno::EACCES => {
                    return Err(named(
                        "is out of reach: this user may not look into a directory above it; allow \
                         it (chmod, chown), or choose another place",
                    ));
                }
                _ => return Err(named(&format!("cannot be looked at: {error}"))),
            },
        }
    }
    Err("has no parent that exists; give the path of a directory".into())
}

/// Whether files can be made in `place`, which stands for `dir`.
fn usable(place: &Path, dir: &Path) -> Result<(), String> {
    let here = match place == dir {
        true => "is".to_string(),
        false => format!("cannot be made: {} is", shown(place)),
    };
    // The constants are 32 bits wide; the field's width and sign depend on the target.
    let magic = statfs(place).map_or(0, |stat| stat.filesystem_type().0 as u32);
    if let Some((_, name)) = OF_THE_KERNEL.iter().find(|(known, _)| *known == magic) {
        return Err(format!(
            "{here} on {name}, which shows the kernel's state and keeps no files; choose a \
             directory on a disk"
        ));
    }
    match access(place, AccessFlags::W_OK | AccessFlags::X_OK | AccessFlags::R_OK) {
        Ok(()) => Ok(()),
        Err(Errno::EROFS) => Err(format!(
            "{here} on a file system that is mounted read-only; mount it writable, or choose \
             another place"
        )),
        Err(Errno::EACCES | Errno::EPERM) => Err(format!(
            "{here} closed to this user; allow it to read and write there (chmod, chown), or \
             choose another place"
        )),
        Err(error) => Err(format!("{here} not usable: {}", error.desc())),
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}
