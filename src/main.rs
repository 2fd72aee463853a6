//! The `assay` program: flags, disk gate, start, signals, end.
//!
//! ```text
//! flags ─► log ─► signals ─► paths, ports, locks ─► disk gate ─► listeners ─► data directory ─► node ─► clients
//! ```

#[path = "main/drift.rs"]
mod drift;
#[path = "main/gate.rs"]
mod gate;
#[path = "main/glue.rs"]
mod glue;
#[path = "main/observe.rs"]
mod observe;
#[path = "main/places.rs"]
mod places;
#[path = "main/ports.rs"]
mod ports;
#[path = "main/recording.rs"]
mod recording;
#[path = "main/run.rs"]
mod run;
#[path = "main/service.rs"]
mod service;
#[path = "main/settle.rs"]
mod settle;
#[path = "main/signals.rs"]
mod signals;
#[path = "main/text.rs"]
mod text;
#[path = "main/tls.rs"]
mod tls;
#[path = "main/upgrade.rs"]
mod upgrade;

use assay::config::{Config, ConfigError, Parsed, parse};
use assay::telemetry::logging;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Faster and steadier than the system's allocator under many small requests; see the benchmark.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time for the last log lines to reach their sinks.
const FLUSH: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // Huge pages make every little used region of every thread's heap 2 MiB: a small node took 1.7
    // times the memory. A kernel that refuses costs memory, nothing else.
    let _ = nix::sys::prctl::set_thp_disable(true);
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or("assay");
    let words: Vec<OsString> = words.collect();
    // A node takes no words but flags, so no start can mean this.
    if words.first().is_some_and(|word| word == upgrade::NAME) {
        return ExitCode::from(upgrade::run(&words));
    }
    let words: Result<Vec<String>, ConfigError> = words.into_iter().map(as_text).collect();
    let parsed = words.and_then(|words| Ok((parse(&words, &mut variables()?.into_iter())?, words)));
    let (parsed, words) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    let (raw, notes) = match parsed {
        Parsed::Help => {
            text::say(&text::help());
            return ExitCode::SUCCESS;
        }
        Parsed::Version => {
            text::say(&text::version());
            return ExitCode::SUCCESS;
        }
        Parsed::Start { raw, notes } => (raw, notes),
    };
    let config = match Config::from_raw(&raw, program) {
        Ok(config) => config,
        Err(error) => return usage(&error),
    };
    let drain = match logging::init(&glue::log_options(&config.log)) {
        Ok(drain) => drain,
        Err(error) => {
            text::complain(&error);
            return ExitCode::from(1);
        }
    };
    let mut threads = assay::node::Threads::default();
    if let Err(error) = threads.start("log", move || drain.run()) {
        text::complain(&error);
        return ExitCode::from(1);
    }
    log_panics();
    let args: Vec<&str> = [program].into_iter().chain(words.iter().map(String::as_str)).collect();
    tracing::info!(?args, "Running: ");
    for (is_warning, message, variable) in notes {
        match is_warning {
            true => tracing::warn!("variable-name" = variable, "{message}"),
            false => tracing::info!("variable-name" = variable, "{message}"),
        }
    }
    let code = run::run(&config);
    logging::flush(FLUSH);
    ExitCode::from(code)
}

/// Paths in flags are texts here, as in unit files and manifests.
fn as_text(word: OsString) -> Result<String, ConfigError> {
    word.into_string().map_err(|word| ConfigError::NotText(word.to_string_lossy().into_owned()))
}

/// Variables whose names are texts; only those that could be ours must have text values.
fn variables() -> Result<Vec<(String, String)>, ConfigError> {
    let ours = |name: &str| name.starts_with("ETCD_") || name.starts_with("ASSAY_");
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| Ok((name, as_text(value)?)))
        .collect()
}

fn usage(error: &ConfigError) -> ExitCode {
    text::complain(error);
    service::refused(&error.to_string());
    ExitCode::from(error.exit_code())
}

/// A panic is a broken invariant: the process ends (`panic = "abort"`), and the log says where.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tracing::error!(panic = %info, "internal error: an invariant is broken, the node stops");
        logging::flush(FLUSH);
        before(info);
        // In a debug build a panic would only end its thread and leave half a node.
        std::process::abort();
    }));
}
