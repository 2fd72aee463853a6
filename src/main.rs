//! The `assay` program: flags, disk gate, start, signals, end.
//!
//! ```text
//! flags ─► log ─► disk gate ─► metrics listener ─► data directory ─► node ─► client listener
//! ```

#[path = "main/gate.rs"]
mod gate;
#[path = "main/glue.rs"]
mod glue;
#[path = "main/observe.rs"]
mod observe;
#[path = "main/run.rs"]
mod run;
#[path = "main/service.rs"]
mod service;
#[path = "main/text.rs"]
mod text;

use assay::config::{Config, Parsed, parse};
use assay::telemetry::logging;
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
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or("assay");
    let words: Vec<String> = words.collect();
    let (raw, notes) = match parse(&words, &mut std::env::vars()) {
        Ok(Parsed::Help) => {
            text::say(&text::help());
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Version) => {
            text::say(&text::version());
            return ExitCode::SUCCESS;
        }
        Ok(Parsed::Start { raw, notes }) => (raw, notes),
        Err(error) => return usage(&error),
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
    tracing::info!(args = ?std::env::args().collect::<Vec<_>>(), "Running: ");
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

fn usage(error: &assay::config::ConfigError) -> ExitCode {
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
