//! What the operating system says of this process, read at a scrape.

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use std::fs::{read_dir, read_to_string};
use std::sync::OnceLock;

static START: OnceLock<Option<f64>> = OnceLock::new();

/// One look at the process. Fields are `None` where `/proc` cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// CPU time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Their limit.
    pub max_fds: Option<u64>,
    /// Virtual memory in bytes.
    pub virtual_bytes: Option<u64>,
    /// Its limit; `u64::MAX` without one.
    pub virtual_max_bytes: Option<u64>,
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Start as seconds since 1970.
    pub start_time: Option<f64>,
    /// Bytes received and sent by the network namespace, loopback not counted.
    pub network_bytes: Option<(u64, u64)>,
}

impl Process {
    /// Takes a look.
    pub fn read() -> Self {
        let stat = read_to_string("/proc/self/stat").ok();
        // The name of the program is in parentheses and may hold anything; the rest are numbers.
        let fields: Vec<u64> = stat
            .as_deref()
            .and_then(|stat| stat.rsplit_once(')'))
            .map(|(_, rest)| rest.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect())
            .unwrap_or_default();
        // proc(5): numbered from 1, and the text above begins with field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        let ticks = conf(SysconfVar::CLK_TCK).filter(|ticks| *ticks > 0).map(|ticks| ticks as f64);
        let page = conf(SysconfVar::PAGE_SIZE);
        let seconds = |number| Some(field(number)? as f64 / ticks?);
        Process {
            cpu_seconds: seconds(14).zip(seconds(15)).map(|(user, kernel)| user + kernel),
            open_fds: read_dir("/proc/self/fd").ok().map(|entries| {
                // The directory itself is open while it is read.
                (entries.count() as u64).saturating_sub(1)
            }),
            max_fds: limit(Resource::RLIMIT_NOFILE),
            virtual_bytes: field(23),
            virtual_max_bytes: limit(Resource::RLIMIT_AS),
            resident_bytes: field(24).zip(page).map(|(pages, page)| pages * page),
            // Read once: the time of boot moves when the wall clock is set, and a start time that
            // changes would look like a restart.
            start_time: *START
                .get_or_init(|| boot_time().zip(seconds(22)).map(|(boot, up)| boot + up)),
            network_bytes: network(),
        }
    }
}

/// What one thread of this process did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
    /// How often it had nothing more to do and waited: processor time by this is how long it works
    /// at a stretch.
    pub turns: u64,
}

/// The threads of this process; none where `/proc` cannot be read.
pub fn threads() -> Vec<Thread> {
    let tasks = read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| thread(&task.path())).collect()
}

/// `None` for a thread that has ended meanwhile, or on a kernel without its accounts.
fn thread(task: &std::path::Path) -> Option<Thread> {
    let read = |file: &str| read_to_string(task.join(file)).ok();
    let status = read("status")?;
    let turns = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some(Thread {
        name: read("comm")?.trim_end().to_string(),
        // Time on a processor, time waiting for one, number of times on one.
        cpu_ns: read("schedstat")?.split_whitespace().next()?.parse().ok()?,
        turns: turns.trim().parse().ok()?,
    })
}

fn conf(variable: SysconfVar) -> Option<u64> {
    sysconf(variable).ok().flatten().and_then(|value| u64::try_from(value).ok())
}

fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft)
}

fn boot_time() -> Option<f64> {
    let stat = read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn network() -> Option<(u64, u64)> {
    let table = read_to_string("/proc/self/net/dev").ok()?;
    let mut sum = (0, 0);
    for line in table.lines().skip(2) {
        let Some((interface, numbers)) = line.split_once(':') else { continue };
        if interface.trim() == "lo" {
            continue;
        }
        let numbers: Vec<u64> =
            numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        sum.0 += numbers.first().copied().unwrap_or(0);
        sum.1 += numbers.get(8).copied().unwrap_or(0);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::clock;

    #[test]
    fn numbers_are_those_of_this_process() {
        let process = Process::read();
        let resident = process.resident_bytes.unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        assert!(process.virtual_bytes.unwrap() >= resident);
        let (open, max) = (process.open_fds.unwrap(), process.max_fds.unwrap());
        assert!(open >= 3 && open < max, "{open} {max}");
        let now = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - process.start_time.unwrap();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(process.cpu_seconds.unwrap() >= 0.0);
        assert!(process.network_bytes.is_some());
    }

    #[test]
    fn a_thread_that_works_and_waits_is_seen_with_both() {
        const TURNS: u64 = 5;
        let (worked, told) = std::sync::mpsc::channel();
        let (go, until) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("seen-at-work".into()).spawn(move || {
            for turn in 0..TURNS {
                // So much work, whoever else wants the processor; then it waits, which no channel
                // that is ready already can spare it.
                (0..1_000_000_u64).for_each(|number| _ = std::hint::black_box(number ^ turn));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            worked.send(()).unwrap();
            until.recv().unwrap_err();
        });
        told.recv().unwrap();
        let seen = threads().into_iter().find(|thread| thread.name == "seen-at-work").unwrap();
        drop(go);
        thread.unwrap().join().unwrap();
        assert!(seen.cpu_ns >= 100_000, "{seen:?}");
        assert!((TURNS..1_000).contains(&seen.turns), "{seen:?}");
    }
}
