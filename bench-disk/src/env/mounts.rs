//! `/proc/self/mountinfo`: which mount a path lies in, and with which options.

use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type as the kernel names it; tells ext2, ext3 and ext4 apart, which share one magic number.
    pub kind: String,
    /// Device or remote name.
    pub source: String,
    /// Options of the mount and of the file system together, without duplicates.
    pub options: Vec<String>,
}

impl Mount {
    /// The value of `key=value`, or an empty text for a bare `key`.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find_map(|option| match option.split_once('=') {
            Some((name, value)) => (name == key).then_some(value),
            None => (option == key).then_some(""),
        })
    }
}

/// Reads the mounts that this process sees.
pub fn read(root: &Path) -> io::Result<Vec<Mount>> {
    let bytes = std::fs::read(root.join("proc/self/mountinfo"))?;
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The mount that holds an absolute path without links: the longest prefix, and of two mounts on
/// one point the later one, which hides the earlier.
pub fn of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// One line: `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue`.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let mut options: Vec<String> = Vec::new();
    for list in [fields.get(5)?, fields.get(dash + 3)?] {
        for option in text(list).split(',').filter(|option| !option.is_empty()) {
            if !options.iter().any(|known| known == option) {
                options.push(option.into());
            }
        }
    }
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: text(fields.get(dash + 1)?),
        source: text(fields.get(dash + 2)?),
        options,
    })
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = |d: &u8| (b'0'..=b'7').contains(d);
        if byte == b'\\' && tail.len() >= 3 && tail[..3].iter().all(octal) {
            let value = tail[..3].iter().fold(0u32, |sum, d| sum * 8 + u32::from(d - b'0'));
            out.push(u8::try_from(value).unwrap_or(b'?'));
            rest = &tail[3..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}
