//! Turns option texts into a [`Config`], with etcd's checks and a reason in every error.

use super::bootstrap;
use super::flags::{self, Flag, Kind, State};
use super::{
    Config, DivergenceCheck, Gate, Level, Limits, Listen, ListenUrl, Log, LogOutput, Paths, Raw,
    Source, Timing, UrlList, value,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is wrong with the configuration. The exit code is 2 for a mistake on the command line and 1
/// for a value that does not fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// No option has this name.
    #[error("flag provided but not defined: --{name}{}", hint(*.nearest))]
    UnknownFlag {
        /// Name as typed.
        name: String,
        /// The nearest name, if one is near.
        nearest: Option<&'static str>,
    },
    /// The flag needs a value.
    #[error("flag needs an argument: --{flag}")]
    MissingValue {
        /// Name of the flag.
        flag: &'static str,
    },
    /// The value does not parse.
    #[error("invalid value \"{value}\" for flag --{flag}: {why}")]
    BadValue {
        /// Name of the flag.
        flag: &'static str,
        /// Value as typed.
        value: String,
        /// What would be accepted.
        why: String,
    },
    /// A bare word is left over.
    #[error("\"{word}\" is not a valid flag{}", meant(word))]
    LeftOver {
        /// The word.
        word: String,
    },
    /// A word or the value of a variable is not UTF-8.
    #[error("{0:?} is not valid UTF-8; flags and their values are texts (--help lists all)")]
    NotText(String),
    /// Flag and variable are both set.
    #[error(
        "conflicting environment variable {variable} is shadowed by corresponding command-line \
         flag --{flag} (either unset environment variable or disable flag)"
    )]
    Shadowed {
        /// The variable.
        variable: String,
        /// The flag.
        flag: &'static str,
    },
    /// The option is known but what it asks for is not built yet.
    #[error("--{flag} is not supported by this version ({help}); remove it")]
    NotYet {
        /// Name of the flag.
        flag: &'static str,
        /// Its help text.
        help: &'static str,
    },
    /// Values that do not fit together.
    #[error("{0}")]
    Invalid(String),
}

impl ConfigError {
    /// Exit code of the process: 2 for usage, 1 for configuration.
    pub fn exit_code(&self) -> u8 {
        match self {
            ConfigError::UnknownFlag { .. }
            | ConfigError::MissingValue { .. }
            | ConfigError::LeftOver { .. }
            | ConfigError::NotText(_)
            | ConfigError::BadValue { .. } => 2,
            _ => 1,
        }
    }
}

/// What a bare word may have been meant for. `assay upgrade` comes before all flags.
fn meant(word: &str) -> String {
    let name = word.split('=').next().unwrap_or_default();
    let meant = match flags::nearest_command(name) {
        Some(command) => format!("; did you mean `assay {command}`, as the first word?"),
        None => match flags::nearest(name) {
            Some(flag) => format!("; did you mean --{flag}?"),
            None => String::new(),
        },
    };
    format!("; usage: assay [--FLAG=VALUE ...] (--help lists all){meant}")
}

fn hint(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean --{name}? (--help lists all)"),
        None => "; --help lists all".to_string(),
    }
}

/// Default quota when none is given: etcd's 2 GiB.
const QUOTA_DEFAULT_BYTES: u64 = 2 << 30;
/// Longest election timeout that etcd accepts.
const ELECTION_MAX_MS: u64 = 50_000;
/// Shortest period of progress notifications that etcd accepts.
const PROGRESS_MIN: Duration = Duration::from_millis(100);
/// Share of memory that the node budgets for itself under `--memory-budget=auto`.
const MEMORY_SHARE: f64 = 0.6;
/// Smallest request limit with which the node can still replicate its own commands.
const REQUEST_MIN_BYTES: u64 = 4096;

pub(super) struct Reader<'a>(&'a Raw);

impl Reader<'_> {
    pub(super) fn text(&self, name: &'static str) -> &str {
        self.0.get(name).map_or("", |(text, _)| text.as_str())
    }

    pub(super) fn is_set(&self, name: &'static str) -> bool {
        self.0.get(name).is_some_and(|(_, source)| *source != Source::Default)
    }

    pub(super) fn bad(&self, flag: &'static str, why: impl Into<String>) -> ConfigError {
        ConfigError::BadValue { flag, value: self.text(flag).to_string(), why: why.into() }
    }

    pub(super) fn number(&self, name: &'static str) -> Result<i64, ConfigError> {
        value::number(self.text(name)).ok_or_else(|| self.bad(name, "a whole number is expected"))
    }

    pub(super) fn within(
        &self,
        name: &'static str,
        low: u64,
        high: u64,
    ) -> Result<u64, ConfigError> {
        let number = self.number(name)?;
        u64::try_from(number)
            .ok()
            .filter(|n| (low..=high).contains(n))
            .ok_or_else(|| self.bad(name, format!("a number from {low} to {high} is expected")))
    }

    pub(super) fn boolean(&self, name: &'static str) -> Result<bool, ConfigError> {
        value::boolean(self.text(name)).ok_or_else(|| self.bad(name, "true or false is expected"))
    }

    fn duration(&self, name: &'static str) -> Result<Duration, ConfigError> {
        value::duration(self.text(name))
            .ok_or_else(|| self.bad(name, "a duration such as 300ms or 1m30s is expected"))
    }

    fn duration_or(
        &self,
        name: &'static str,
        when_zero: Duration,
    ) -> Result<Duration, ConfigError> {
        let duration = self.duration(name)?;
        Ok(if duration.is_zero() { when_zero } else { duration })
    }

    pub(super) fn list(&self, name: &'static str) -> Vec<String> {
        let parts = self.text(name).split(',').map(str::trim).filter(|part| !part.is_empty());
        let list: Vec<String> = parts.map(str::to_string).collect();
        if list.is_empty() { vec!["*".to_string()] } else { list }
    }

    fn urls(&self, name: &'static str) -> Result<UrlList, ConfigError> {
        UrlList::parse(self.text(name)).map_err(|why| self.bad(name, why))
    }
}

impl Config {
    /// Validates the option texts. `program` is the name under which the program was started.
    ///
    /// # Errors
    /// The first option that does not fit, with the reason.
    pub fn from_raw(raw: &Raw, program: &str) -> Result<Config, ConfigError> {
        let read = Reader(raw);
        for flag in flags::FLAGS {
            check_state(&read, flag)?;
        }
        let name = read.text("name").to_string();
        let listen = listen(&read)?;
        let tls = super::tls::tls(&read, &listen)?;
        let bootstrap = bootstrap::read(&read, &name, &listen)?;
        let log = log(&read)?;
        Ok(Config {
            paths: paths(&read, &name)?,
            timing: timing(&read)?,
            limits: limits(&read)?,
            divergence: match one_of(&read, "divergence-check", &["fence", "alarm", "off"])?
                .as_str()
            {
                "alarm" => DivergenceCheck::Alarm,
                "off" => DivergenceCheck::Off,
                _ => DivergenceCheck::Fence,
            },
            gate: Gate {
                mode: one_of(&read, "disk-gate", &["enforce", "strict", "warn", "off"])?,
                p99: positive(&read, "disk-gate-p99")?,
                verdict_file: Some(read.text("disk-verdict-file"))
                    .filter(|text| !text.is_empty())
                    .map(PathBuf::from),
            },
            access: super::Access {
                hosts: read.list("host-whitelist"),
                origins: read.list("cors"),
            },
            feature_level: feature_level(&read)?,
            quiet: program == "etcd" || read.is_set("log-format") || read.is_set("log-outputs"),
            metrics_listener_explicit: read.is_set("listen-metrics-urls"),
            name,
            listen,
            tls,
            bootstrap,
            membership: bootstrap::membership(&read)?,
            log,
        })
    }
}

/// Only tests set it, and only to what an older version would know.
fn feature_level(read: &Reader<'_>) -> Result<Option<u32>, ConfigError> {
    const NAME: &str = super::parse::FEATURE_LEVEL;
    if !read.is_set(NAME) {
        return Ok(None);
    }
    let level = read.within(NAME, 1, u64::from(u32::MAX))?;
    Ok(u32::try_from(level).ok())
}

fn check_state(read: &Reader<'_>, flag: &'static Flag) -> Result<(), ConfigError> {
    match flag.kind {
        Kind::Text => {}
        Kind::Bool => drop(read.boolean(flag.name)?),
        Kind::Number => drop(read.number(flag.name)?),
        Kind::Duration => drop(read.duration(flag.name)?),
        Kind::Urls => drop(read.urls(flag.name)?),
    }
    if flag.state == State::NotYet && read.text(flag.name) != flag.default {
        return Err(ConfigError::NotYet { flag: flag.name, help: flag.help });
    }
    Ok(())
}

pub(super) fn one_of(
    read: &Reader<'_>,
    name: &'static str,
    choices: &[&str],
) -> Result<String, ConfigError> {
    let text = read.text(name);
    if choices.contains(&text) {
        Ok(text.to_string())
    } else {
        Err(read.bad(name, format!("one of {} is expected", choices.join(", "))))
    }
}

fn paths(read: &Reader<'_>, name: &str) -> Result<Paths, ConfigError> {
    for flag in ["data-dir", "wal-dir"] {
        if read.text(flag).contains('\0') {
            return Err(ConfigError::Invalid(format!(
                "--{flag}: {:?} has a NUL byte in it; give a path without",
                read.text(flag)
            )));
        }
    }
    let data_dir = match read.text("data-dir") {
        // A name is free text; as a path it must stay one directory below the current one.
        "" if name.contains(['/', '\0']) => {
            return Err(ConfigError::Invalid(format!(
                "--name {name:?} cannot name the data directory (NAME.assay by default), because \
                 it has a slash or a NUL byte in it; give a --data-dir, or another --name"
            )));
        }
        "" => PathBuf::from(format!("{name}.assay")),
        text => PathBuf::from(text),
    };
    let wal_dir_explicit = !read.text("wal-dir").is_empty();
    let wal_dir = if wal_dir_explicit {
        PathBuf::from(read.text("wal-dir"))
    } else {
        data_dir.join("member").join("wal")
    };
    Ok(Paths { data_dir, wal_dir, wal_dir_explicit })
}

fn listen(read: &Reader<'_>) -> Result<Listen, ConfigError> {
    if read.is_set("listen-client-urls") && !read.is_set("advertise-client-urls") {
        return Err(ConfigError::Invalid(
            "--advertise-client-urls is required when --listen-client-urls is set explicitly"
                .into(),
        ));
    }
    for name in ["listen-client-urls", "listen-peer-urls", "listen-metrics-urls"] {
        for url in &read.urls(name)?.0 {
            bindable(url)?;
        }
    }
    for name in ["listen-client-urls", "advertise-client-urls"] {
        if read.urls(name)?.0.is_empty() {
            return Err(ConfigError::Invalid(format!("--{name} must name at least one URL")));
        }
    }
    Ok(Listen {
        client: read.urls("listen-client-urls")?,
        peer: read.urls("listen-peer-urls")?,
        metrics: read.urls("listen-metrics-urls")?,
        advertise_client: read.urls("advertise-client-urls")?,
        advertise_peer: read.urls("initial-advertise-peer-urls")?,
        reuse_port: read.boolean("socket-reuse-port")?,
        reuse_address: read.boolean("socket-reuse-address")?,
    })
}

fn bindable(url: &ListenUrl) -> Result<(), ConfigError> {
    let ip = url.host().parse::<std::net::IpAddr>().is_ok() || url.host() == "localhost";
    if !url.is_unix() && !ip {
        return Err(ConfigError::Invalid(format!("expected IP in URL for binding ({url})")));
    }
    Ok(())
}

/// A time that nothing can keep to if it is zero.
fn positive(read: &Reader<'_>, name: &'static str) -> Result<Duration, ConfigError> {
    let duration = read.duration(name)?;
    if duration.is_zero() {
        return Err(read.bad(name, "a duration above zero such as 10ms is expected"));
    }
    Ok(duration)
}

fn timing(read: &Reader<'_>) -> Result<Timing, ConfigError> {
    let heartbeat = u64::try_from(read.number("heartbeat-interval")?).unwrap_or(0);
    let election = u64::try_from(read.number("election-timeout")?).unwrap_or(0);
    let invalid = |text: String| Err(ConfigError::Invalid(text));
    if heartbeat == 0 {
        return invalid("--heartbeat-interval must be >0 (set to 0ms)".into());
    }
    if election == 0 {
        return invalid("--election-timeout must be >0 (set to 0ms)".into());
    }
    if 5 * heartbeat > election {
        return invalid(format!(
            "--election-timeout[{election}ms] should be at least as 5 times as \
             --heartbeat-interval[{heartbeat}ms]"
        ));
    }
    if election > ELECTION_MAX_MS {
        return invalid(format!(
            "--election-timeout[{election}ms] is too long, and should be set less than \
             {ELECTION_MAX_MS}ms"
        ));
    }
    let disk_stall_ms = disk_stall(read, heartbeat, election)?;
    let progress = if read.is_set("watch-progress-notify-interval") {
        read.duration("watch-progress-notify-interval")?
    } else {
        read.duration("experimental-watch-progress-notify-interval")?
    };
    let progress =
        if progress.is_zero() { Duration::from_secs(600) } else { progress.max(PROGRESS_MIN) };
    Ok(Timing {
        heartbeat_ms: heartbeat,
        election_ms: election,
        store_interval: read.duration_or("backend-batch-interval", Duration::from_millis(100))?,
        disk_stall_ms,
        watch_progress: progress,
        warning_apply: read.duration("warning-apply-duration")?,
        warning_unary: read.duration("warning-unary-request-duration")?,
        compaction_pause: read
            .duration_or("compaction-sleep-interval", Duration::from_millis(10))?,
    })
}

/// How long the disk of a leader may hang. Members tell each other with every heartbeat how their
/// disks are: a time of fewer than five of them is too short to compare.
fn disk_stall(
    read: &Reader<'_>,
    heartbeat_ms: u64,
    election_ms: u64,
) -> Result<Option<u64>, ConfigError> {
    const FLAG: &str = "disk-stall-step-down";
    let text = read.text(FLAG);
    if text == "auto" {
        return Ok(Some(election_ms));
    }
    let given = value::duration(text)
        .ok_or_else(|| read.bad(FLAG, "auto, 0 or a duration such as 1s is expected"))?;
    let ms = u64::try_from(given.as_millis()).unwrap_or(u64::MAX);
    if !given.is_zero() && ms < 5 * heartbeat_ms {
        return Err(read.bad(
            FLAG,
            format!("0 or at least five heartbeats ({}ms) are expected", 5 * heartbeat_ms),
        ));
    }
    Ok((ms > 0).then_some(ms))
}

fn limits(read: &Reader<'_>) -> Result<Limits, ConfigError> {
    // The log's largest frame bounds a request; see `wal`.
    const REQUEST_MAX_BYTES: u64 = 32 << 20;
    let quota = read.number("quota-backend-bytes")?;
    let batch = usize::try_from(read.number("compaction-batch-limit")?)
        .map_err(|_| read.bad("compaction-batch-limit", "a positive number is expected"))?;
    Ok(Limits {
        request_bytes: read.within("max-request-bytes", REQUEST_MIN_BYTES, REQUEST_MAX_BYTES)?
            as usize,
        txn_ops: read.within("max-txn-ops", 1, 1 << 20)? as usize,
        concurrent_streams: read.within("max-concurrent-streams", 1, u64::from(u32::MAX))? as u32,
        quota_bytes: match quota {
            0 => Some(QUOTA_DEFAULT_BYTES),
            n => u64::try_from(n).ok(),
        },
        keepalive_min: read.duration("grpc-keepalive-min-time")?,
        keepalive_interval: read.duration("grpc-keepalive-interval")?,
        keepalive_timeout: read.duration("grpc-keepalive-timeout")?,
        min_free_bytes: read.within("min-free-bytes", 0, i64::MAX as u64)?,
        memory_budget: memory_budget(read)?,
        catchup_entries: read.within("snapshot-catchup-entries", 1, u64::from(u32::MAX))?,
        compaction_batch: if batch == 0 { 1000 } else { batch },
    })
}

/// Memory that the node may use: given in bytes, or a share of what the machine or the control
/// group allows (`operations.md` 5).
fn memory_budget(read: &Reader<'_>) -> Result<u64, ConfigError> {
    // A budget below this could not hold one request and its answer several times over.
    const LEAST_BYTES: u64 = 64 << 20;
    match read.text("memory-budget") {
        "auto" => Ok(((machine_memory() as f64 * MEMORY_SHARE) as u64).max(LEAST_BYTES)),
        text => value::number(text)
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| *n >= LEAST_BYTES)
            .ok_or_else(|| {
                read.bad("memory-budget", format!("auto or at least {LEAST_BYTES} is expected"))
            }),
    }
}

/// The smallest of installed memory and the control group's limits (v2, v1), in bytes.
pub(super) fn machine_memory() -> u64 {
    let number = |path: &Path| {
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let installed = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib * 1024);
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut least = installed;
    for line in group.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = path.trim_start_matches('/');
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut dir = Path::new(root).join(path);
        while dir.starts_with(root) {
            least = least.min(number(&dir.join(file)).unwrap_or(u64::MAX));
            if !dir.pop() {
                break;
            }
        }
    }
    least
}

fn log(read: &Reader<'_>) -> Result<Log, ConfigError> {
    let level = match read.text("log-level") {
        "debug" => Level::Debug,
        "info" | "" => Level::Info,
        "warn" | "warning" => Level::Warn,
        "error" | "panic" | "fatal" | "dpanic" => Level::Error,
        _ => return Err(read.bad("log-level", "one of debug, info, warn, error is expected")),
    };
    let outputs = read
        .text("log-outputs")
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            "default" | "stderr" | "systemd/journal" => LogOutput::Stderr,
            "stdout" => LogOutput::Stdout,
            file => LogOutput::File(PathBuf::from(file)),
        })
        .collect();
    Ok(Log { level, json: one_of(read, "log-format", &["json", "console"])? == "json", outputs })
}
