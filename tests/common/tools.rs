//! Where the programs are that tests compare with: environment, cache of `.ci/install-tools`, PATH.

use std::path::{Path, PathBuf};

/// A program that is not part of Assay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The oracle: etcd 3.7.
    Etcd,
    /// etcdctl of the oracle's version.
    Etcdctl,
    /// etcdctl 3.4, as Debian ships it.
    EtcdctlOld,
    /// Prometheus.
    Prometheus,
    /// Checks metrics, rules and rule tests.
    Promtool,
    /// Counts, delays and fails system calls.
    Strace,
    /// Independent disk measurement.
    Fio,
    /// Makes the file systems that lose power.
    Mkfs,
}

impl Tool {
    /// Name of the program, and the environment variable that overrides its place.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "ASSAY_ETCD"),
            Self::Etcdctl => ("etcdctl", "ASSAY_ETCDCTL"),
            Self::EtcdctlOld => ("etcdctl-3.4", "ASSAY_ETCDCTL_OLD"),
            Self::Prometheus => ("prometheus", "ASSAY_PROMETHEUS"),
            Self::Promtool => ("promtool", "ASSAY_PROMTOOL"),
            Self::Strace => ("strace", "ASSAY_STRACE"),
            Self::Fio => ("fio", "ASSAY_FIO"),
            Self::Mkfs => ("mkfs.ext4", "ASSAY_MKFS"),
        }
    }

    /// The program's path, if it is on this machine.
    pub fn find(self) -> Option<PathBuf> {
        let (name, variable) = self.names();
        if let Some(path) = std::env::var_os(variable) {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "{variable}={} is not a file", path.display());
            return Some(path);
        }
        let mut places = vec![cache().join("bin")];
        if let Some(path) = std::env::var_os("PATH") {
            places.extend(std::env::split_paths(&path));
        }
        places.extend(["/usr/sbin".into(), "/sbin".into()]);
        places.iter().map(|place| place.join(name)).find(|path| path.is_file())
    }

    /// The program's path, or `None` with a visible word after which the test returns.
    ///
    /// # Panics
    /// When it is missing and `CI` is set: there a skipped test would hide a missing install step.
    pub fn require(self) -> Option<PathBuf> {
        let found = self.find();
        if found.is_none() {
            let words = format!("needs {}, run .ci/install-tools", self.names().0);
            assert!(std::env::var_os("CI").is_none(), "{words}");
            eprintln!("SKIPPED: {words}");
        }
        found
    }
}

fn cache() -> PathBuf {
    if let Some(tools) = std::env::var_os("ASSAY_TOOLS") {
        return PathBuf::from(tools);
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    Path::new(&home).join(".cache/assay-tools")
}
