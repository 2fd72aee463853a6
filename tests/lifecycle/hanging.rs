//! Syncs that hang while a file exists, in a program under test. Under strace a delayed call would
//! keep the whole process, which could then not end; this one only waits.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for a program to come to its first sync.
const LIMIT: Duration = Duration::from_secs(60);

const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) {
    const char *file = getenv("HANG_WHILE"), *mark = getenv("HANG_MARK");
    while (file && access(file, F_OK) == 0) {
        if (mark) close(open(mark, O_CREAT | O_WRONLY, 0600));
        usleep(100000);
    }
    return fsync(fd);
}
"#;

/// The switch of the hanging syncs.
pub(crate) struct Hanging {
    dir: PathBuf,
}

impl Hanging {
    /// Prepares it in a directory of the test.
    pub(crate) fn new(dir: &Path) -> Self {
        let hanging = Self { dir: dir.to_path_buf() };
        std::fs::write(hanging.at("hang.c"), SOURCE).expect("written");
        // The compiler that also links every test.
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(hanging.at("hang.so"));
        let compiled = compiler.arg(hanging.at("hang.c")).status().expect("run cc");
        assert!(compiled.success(), "{compiled}");
        hanging
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What the program under test needs in its environment.
    pub(crate) fn env(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.at("hang.so")),
            ("HANG_WHILE", self.at("hang")),
            ("HANG_MARK", self.at("mark")),
        ]
    }

    /// From now on syncs hang.
    pub(crate) fn begin(&self) {
        std::fs::write(self.at("hang"), "").expect("written");
    }

    /// Lets the syncs go on.
    pub(crate) fn end(&self) {
        std::fs::remove_file(self.at("hang")).expect("removed");
    }

    /// Waits until a sync hangs.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while !self.at("mark").exists() {
            assert!(start.elapsed() < LIMIT, "no sync");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
