//! The gate's table, on hosts whose disks answer as told.

use super::*;
use crate::env::filesystem::Facts;
use crate::stats::{Percentiles, Summary};
use crate::verdict::Measured;

const NOW: u64 = 2_000_000_000;
const DAY: u64 = 86_400;
const MS: u64 = 1_000_000;

/// A host with one disk per top-level directory name, and a fixed answer for each probe.
struct Fake {
    magic: u32,
    answer: fn() -> Result<Outcome, ProbeError>,
    probes: usize,
    root: tempfile::TempDir,
}

impl Fake {
    fn new(answer: fn() -> Result<Outcome, ProbeError>) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        Self { magic: 0xEF53, answer, probes: 0, root }
    }

    fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn options(&self, mode: Mode) -> Options {
        Options {
            data_dir: self.data_dir(),
            wal_dir: None,
            mode,
            p99_limit: Duration::from_millis(10),
            verdict_file: None,
            progress: None,
            interrupt: Arc::default(),
        }
    }

    fn environment(&self, directory: &Path) -> Environment {
        // The file name stands for the file system.
        let uuid = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        let facts = Facts {
            magic: self.magic,
            read_only: false,
            device: (8, 1),
            free_bytes: 1 << 40,
            uuid,
        };
        Environment::assemble(directory, self.root.path(), &facts, self.root.path())
    }

    fn verdict(&self, directory: &Path, outcome: Outcome, created: u64) -> Verdict {
        let latencies: Vec<u64> = match outcome {
            Outcome::Fail => vec![15 * MS; 1_000],
            _ => vec![310_000; 4_590],
        };
        let summary = Summary::of(&latencies, 10 * MS);
        let environment = self.environment(directory);
        let mut verdict = probe::blank(&environment, "boot", Duration::from_millis(10), outcome);
        verdict.created = created;
        verdict.expires = crate::verdict::expiry(created, &verdict.identity);
        verdict.measured = Some(Measured {
            summary,
            percentiles: Percentiles::of(&latencies, &summary).expect("samples"),
            histogram: Vec::new(),
            elapsed_ns: 1_500 * MS,
            end: None,
            bytes: 1,
            syncs: 1,
            flushes: None,
            durability: "unverified".into(),
            busy_before: None,
            flush_cost: None,
            open_loop: None,
            timeline: Vec::new(),
            phases: Vec::new(),
            sync: None,
            write: None,
            course: Vec::new(),
        });
        verdict
    }

    fn store(&self, path: &Path, outcome: Outcome, created: u64) {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        self.verdict(&self.data_dir(), outcome, created).store(path).expect("stored");
    }

    fn check(&mut self, mode: Mode) -> Decision {
        check_on(self.options(mode), self)
    }
}

impl Host for Fake {
    fn inspect(&mut self, directory: &Path) -> Result<Environment, ProbeError> {
        Ok(self.environment(directory))
    }

    fn now(&mut self) -> u64 {
        NOW
    }

    fn fresh_or_measure(
        &mut self,
        environment: &Environment,
        _: &Profile,
        limit: Duration,
        _: &Question<'_>,
        _: &[PathBuf],
        _: &mut dyn FnMut(&Progress),
    ) -> Result<(Verdict, bool), ProbeError> {
        self.probes += 1;
        let mut verdict = self.verdict(&environment.directory.clone(), (self.answer)()?, NOW);
        verdict.limit_ns = nanos(limit);
        Ok((verdict, false))
    }
}

/// Without the line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn io_error() -> Result<Outcome, ProbeError> {
    Err(ProbeError::io("sync a file in", "/data")(io::Error::from_raw_os_error(libc::EIO)))
}

#[test]
fn answers_and_modes_give_the_table() {
    use Outcome::{Fail, Inconclusive, Pass, Refused};
    type Answer = fn() -> Result<Outcome, ProbeError>;
    let rows: [(Answer, Mode, bool, u8, State); 15] = [
        (|| Ok(Pass), Mode::Enforce, true, 0, State::Pass),
        (|| Ok(Pass), Mode::Strict, true, 0, State::Pass),
        (|| Ok(Pass), Mode::Warn, true, 0, State::Pass),
        (|| Ok(Fail), Mode::Enforce, false, 20, State::Fail),
        (|| Ok(Fail), Mode::Strict, false, 20, State::Fail),
        (|| Ok(Fail), Mode::Warn, true, 0, State::Overridden),
        (|| Ok(Inconclusive), Mode::Enforce, true, 0, State::Inconclusive),
        (|| Ok(Inconclusive), Mode::Strict, false, 21, State::Inconclusive),
        (|| Ok(Inconclusive), Mode::Warn, true, 0, State::Overridden),
        (|| Ok(Refused), Mode::Enforce, false, 22, State::Refused),
        (|| Ok(Refused), Mode::Strict, false, 22, State::Refused),
        (|| Ok(Refused), Mode::Warn, true, 0, State::Overridden),
        (io_error, Mode::Enforce, false, 74, State::Fail),
        (io_error, Mode::Strict, false, 74, State::Fail),
        (io_error, Mode::Warn, true, 0, State::Overridden),
    ];
    for (answer, mode, start, code, state) in rows {
        let mut host = Fake::new(answer);
        let decision = host.check(mode);
        assert_eq!((decision.start, decision.exit_code, decision.state), (start, code, state));
        assert_eq!(host.probes, 1);
        assert!(!decision.text.is_empty() && !decision.summary.is_empty());
        let entries = std::fs::read_dir(host.root.path()).expect("listed").count();
        assert_eq!(entries, 0, "something was left behind");
    }
}

#[test]
fn a_path_that_holds_no_data_is_a_mistake_of_the_configuration_in_every_mode() {
    let errors: [fn() -> Result<Outcome, ProbeError>; 4] = [
        || Err(ProbeError::NotADirectory("/etc/passwd".into())),
        || Err(ProbeError::io("look at", "/x")(io::Error::from_raw_os_error(libc::ELOOP))),
        || Err(ProbeError::io("look at", "/x")(io::Error::from_raw_os_error(libc::EACCES))),
        || Err(ProbeError::io("write", "/x")(io::Error::from_raw_os_error(libc::EROFS))),
    ];
    for error in errors {
        for mode in [Mode::Enforce, Mode::Strict, Mode::Warn] {
            let decision = Fake::new(error).check(mode);
            assert_eq!((decision.start, decision.exit_code), (false, 1), "{}", decision.text);
            let text = flat(&decision.text);
            assert!(!text.contains("--disk-gate"), "a way out that is none:\n{text}");
            assert!(text.contains("way out") && text.contains("reason"), "{text}");
        }
    }
}

#[test]
fn off_asks_nothing_and_says_so() {
    let mut host = Fake::new(io_error);
    let decision = host.check(Mode::Off);
    assert_eq!((decision.start, decision.state, host.probes), (true, State::Off, 0));
    assert!(flat(&decision.text).contains("was not measured"));
}

#[test]
fn a_refused_file_system_is_not_written_to_and_names_two_ways_out() {
    let mut host = Fake::new(|| Ok(Outcome::Pass));
    host.magic = 0x0102_1994;
    let decision = host.check(Mode::Enforce);
    assert_eq!((decision.exit_code, host.probes), (22, 0));
    for part in ["tmpfs", "REFUSED", "mount a fit volume", "--disk-gate=warn"] {
        assert!(flat(&decision.text).contains(part), "{part} in:\n{}", decision.text);
    }
    let decision = host.check(Mode::Warn);
    assert!(decision.start && decision.state == State::Overridden && host.probes == 0);
    assert!(decision.summary.contains("REFUSED OVERRIDDEN"), "{}", decision.summary);
}

#[test]
fn a_start_without_a_pass_shows_the_limit_beside_the_figure() {
    let fail = (Fake::new(|| Ok(Outcome::Fail)), Mode::Warn);
    let doubt = (Fake::new(|| Ok(Outcome::Inconclusive)), Mode::Enforce);
    for (mut host, mode) in [fail, doubt] {
        let decision = host.check(mode);
        assert!(decision.start);
        let summary = &decision.summary;
        assert!(summary.contains(", p99 ") && summary.contains(", limit 10 ms"), "{summary}");
    }
}

#[test]
fn a_stored_pass_of_any_age_in_the_data_directory_starts_without_a_probe() {
    let mut host = Fake::new(io_error);
    host.store(&place::inside(&host.data_dir()), Outcome::Pass, NOW - 900 * DAY);
    let decision = host.check(Mode::Enforce);
    assert_eq!((decision.start, decision.from_stored, host.probes), (true, true, 0));
    assert_eq!(decision.p99, Some(Duration::from_micros(310)));
    assert!(decision.summary.starts_with("PASS, p99 0.31 ms (stored "), "{}", decision.summary);
}

#[test]
fn an_unused_verdict_beside_the_directory_lives_seven_days_on_a_weak_device() {
    for (age, probes) in [(6, 0), (8, 1)] {
        let mut host = Fake::new(|| Ok(Outcome::Pass));
        let file = place::beside(&host.data_dir()).expect("a parent");
        host.store(&file, Outcome::Pass, NOW - age * DAY);
        assert!(host.check(Mode::Enforce).start);
        assert_eq!(host.probes, probes, "{age} days");
    }
}

#[test]
fn a_named_verdict_file_counts_too() {
    let mut host = Fake::new(io_error);
    let file = host.root.path().join("elsewhere.json");
    host.store(&file, Outcome::Pass, NOW - DAY);
    let mut options = host.options(Mode::Enforce);
    options.verdict_file = Some(file);
    assert!(check_on(options, &mut host).from_stored);
}

#[test]
fn strict_measures_although_a_verdict_is_stored() {
    let mut host = Fake::new(|| Ok(Outcome::Inconclusive));
    host.store(&place::inside(&host.data_dir()), Outcome::Pass, NOW - DAY);
    assert_eq!((host.check(Mode::Strict).exit_code, host.probes), (21, 1));
}

#[test]
fn verdicts_about_other_devices_or_limits_and_old_failures_are_measured_anew() {
    let mut host = Fake::new(|| Ok(Outcome::Pass));
    let file = place::inside(&host.data_dir());
    host.store(&file, Outcome::Fail, NOW - DAY);
    assert!(host.check(Mode::Enforce).start);
    let mut other = host.verdict(&host.root.path().join("other"), Outcome::Pass, NOW - DAY);
    other.store(&file).expect("stored");
    let decision = host.check(Mode::Enforce);
    assert!(flat(&decision.text).contains("another device"), "{}", decision.text);
    other = host.verdict(&host.data_dir(), Outcome::Pass, NOW - DAY);
    other.limit_ns = 20 * MS;
    other.store(&file).expect("stored");
    assert!(flat(&host.check(Mode::Enforce).text).contains("a limit of 20 ms"));
    std::fs::write(&file, "{").expect("written");
    assert!(flat(&host.check(Mode::Enforce).text).contains("not valid"));
    assert_eq!(host.probes, 4);
}

#[test]
fn changed_mount_options_force_a_probe_only_if_they_decide() {
    let mut host = Fake::new(|| Ok(Outcome::Pass));
    let mounts = host.root.path().join("proc/self/mountinfo");
    std::fs::create_dir_all(mounts.parent().expect("a parent")).expect("made");
    std::fs::write(&mounts, "1 1 8:1 / / rw - ext4 /dev/sda rw,noatime\n").expect("written");
    host.store(&place::inside(&host.data_dir()), Outcome::Pass, NOW - DAY);
    std::fs::write(&mounts, "1 1 8:1 / / rw - ext4 /dev/sda rw,relatime\n").expect("written");
    let decision = host.check(Mode::Enforce);
    assert_eq!(host.probes, 0);
    assert!(flat(&decision.text).contains("mount options was"), "{}", decision.text);
    std::fs::write(&mounts, "1 1 8:1 / / rw - ext4 /dev/sda rw,data=journal\n").expect("written");
    host.check(Mode::Enforce);
    assert_eq!(host.probes, 1);
}

#[test]
fn a_failure_explains_itself() {
    let mut host = Fake::new(|| Ok(Outcome::Fail));
    let decision = host.check(Mode::Enforce);
    let data = host.data_dir().display().to_string();
    for part in [
        data.as_str(),
        "FAIL, not starting",
        "p99 sync",
        "15 ms",
        "interval",
        "limit",
        "10 ms",
        "meaning",
        "--disk-gate=warn",
    ] {
        assert!(flat(&decision.text).contains(part), "{part} in:\n{}", decision.text);
    }
}

#[test]
fn the_logs_file_system_decides_and_the_stores_is_judged_for_commits() {
    let mut host = Fake::new(|| Ok(Outcome::Pass));
    let mut options = host.options(Mode::Enforce);
    options.wal_dir = Some(host.root.path().join("log"));
    let decision = check_on(options, &mut host);
    assert_eq!((host.probes, decision.start), (2, true));
    let verdict = decision.verdict.clone().expect("a verdict");
    let store = verdict.store.as_ref().expect("the store's");
    assert_eq!((verdict.limit_ns, store.limit_ns), (10 * MS, 25 * MS));
    adopt_into(&host, &decision);
    let mut options = host.options(Mode::Enforce);
    options.wal_dir = Some(host.root.path().join("log"));
    assert!(check_on(options, &mut host).from_stored, "both come from one file");
    assert_eq!(host.probes, 2);
    let mut options = host.options(Mode::Enforce);
    options.wal_dir = Some(host.data_dir());
    check_on(options, &mut host);
}

fn adopt_into(host: &Fake, decision: &Decision) {
    std::fs::create_dir_all(host.data_dir()).expect("made");
    adopt(decision, &host.data_dir()).expect("adopted");
}

#[test]
fn an_adopted_verdict_serves_the_next_start() {
    let mut host = Fake::new(|| Ok(Outcome::Pass));
    let decision = host.check(Mode::Enforce);
    adopt_into(&host, &decision);
    adopt(&decision, &host.data_dir()).expect("twice is fine");
    assert!(host.check(Mode::Enforce).from_stored);
    assert_eq!(host.probes, 1);
    let error = adopt(&decision, &host.root.path().join("gone")).expect_err("no directory");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn doubt_about_the_probe_itself_starts_unqualified() {
    let full = || Err(ProbeError::NoSpace { path: "/data".into(), needed: 96, free: 3 });
    let mut host = Fake::new(full);
    let decision = host.check(Mode::Enforce);
    assert_eq!((decision.start, decision.state), (true, State::Inconclusive));
    assert!(flat(&decision.text).contains("96 MiB"), "{}", decision.text);
    assert_eq!(Fake::new(full).check(Mode::Strict).exit_code, 21);
}

#[test]
fn modes_are_parsed_and_a_wrong_one_is_explained() {
    assert_eq!("strict".parse(), Ok(Mode::Strict));
    let error = "hard".parse::<Mode>().expect_err("no such mode").to_string();
    assert!(error.contains("\"hard\"") && error.contains("enforce, strict, warn or off"));
}
