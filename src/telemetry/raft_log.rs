//! Forwards the lines of the raft crate, which logs through `slog`, to the node's log.

use slog::{Drain, KV as _, Level, Logger, OwnedKVList, Record};
use std::convert::Infallible;
use std::fmt::Write as _;

/// A logger for the raft crate.
pub fn logger() -> Logger {
    Logger::root(Forward, slog::o!())
}

struct Forward;

/// Whether somebody reads what would be made of the crate's lines at info.
fn enabled() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// Collects key-value pairs as text.
struct Pairs(String);

impl slog::Serializer for Pairs {
    fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
        let _ = write!(self.0, " {key}={value}");
        Ok(())
    }
}

impl Drain for Forward {
    type Ok = ();
    type Err = Infallible;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Infallible> {
        // The crate reports every election step at info: what an operator needs of them is logged
        // by the node itself, the rest is for whoever looks into one election.
        let level = record.level();
        if !level.is_at_least(Level::Info) || (level == Level::Info && !enabled()) {
            return Ok(());
        }
        let mut pairs = Pairs(String::new());
        let _ = record.kv().serialize(record, &mut pairs);
        let _ = values.serialize(record, &mut pairs);
        let text = format!("raft: {}{}", record.msg(), pairs.0);
        match level {
            Level::Critical | Level::Error => tracing::error!("{text}"),
            Level::Info => tracing::debug!("{text}"),
            _ => tracing::warn!("{text}"),
        }
        Ok(())
    }
}
