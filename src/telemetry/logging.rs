//! Log lines: one JSON object (or one console line) per event, written by a thread of their own.
//!
//! A sink never blocks the node: events go into a bounded queue, a full queue drops and counts
//! (`operations.md` 7). Fields and time format are those of etcd's log (`reference/flags.md` 9.2),
//! so that tools which read one read the other.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::clock;

/// Lines that may wait for a slow sink: a few seconds of a log storm at ten lines a second, or the
/// few hundred lines of a start, and at most a few hundred KiB.
const QUEUE_LINES: usize = 4096;

/// Where lines go.
#[derive(Debug, Clone)]
pub enum Output {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file, created with mode 0600 and appended to.
    File(PathBuf),
}

/// Options of the log.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lowest level written.
    pub level: Level,
    /// JSON objects, or tab-separated console lines.
    pub json: bool,
    /// Sinks; every line goes to each.
    pub outputs: Vec<Output>,
}

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Writes queued lines; its [`Drain::run`] is the body of the `log` thread.
pub struct Drain {
    queue: Receiver<Message>,
    sinks: Vec<Box<dyn Write + Send>>,
}

static QUEUE: OnceLock<SyncSender<Message>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Opens the sinks and installs the log for the process.
///
/// # Errors
/// A log file that cannot be opened, with its path.
pub fn init(options: &Options) -> Result<Drain, String> {
    let mut sinks: Vec<Box<dyn Write + Send>> = Vec::new();
    for output in &options.outputs {
        sinks.push(match output {
            Output::Stderr => Box::new(std::io::stderr()),
            Output::Stdout => Box::new(std::io::stdout()),
            Output::File(path) => Box::new(open(path)?),
        });
    }
    let (sender, queue) = sync_channel(QUEUE_LINES);
    if QUEUE.set(sender.clone()).is_err() {
        return Err("the log is already set up".into());
    }
    let layer = Lines { queue: sender, json: options.json, level: options.level };
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .map_err(|error| error.to_string())?;
    Ok(Drain { queue, sinks })
}

fn open(path: &PathBuf) -> Result<std::fs::File, String> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| format!("cannot open log file {}: {error}", path.display()))
}

/// Lines dropped because a sink was too slow, since the start.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Waits until what was logged before has reached the sinks, at most `deadline`.
pub fn flush(deadline: Duration) {
    let Some(queue) = QUEUE.get() else { return };
    let (done, wait) = sync_channel(1);
    if queue.try_send(Message::Flush(done)).is_ok() {
        // A sink that hangs must not hold up the exit: the result does not matter.
        let _ = wait.recv_timeout(deadline);
    }
}

impl Drain {
    /// Writes until the process ends.
    pub fn run(mut self) {
        while let Ok(message) = self.queue.recv() {
            match message {
                Message::Line(line) => {
                    for sink in &mut self.sinks {
                        // A closed pipe must not stop the node; there is nowhere left to say so.
                        let _ = sink.write_all(&line).and_then(|()| sink.flush());
                    }
                }
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }
}

struct Lines {
    queue: SyncSender<Message>,
    json: bool,
    level: Level,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Libraries below log what only they understand; their warnings are kept.
        let own = metadata.target().starts_with("assay");
        *metadata.level() <= if own { self.level } else { self.level.min(Level::WARN) }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = format(event, self.json);
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Members of every line; a field of such a name must not take its place.
const RESERVED: [&str; 4] = ["level", "ts", "caller", "msg"];

/// Fields of one event: the message apart, the others as JSON members.
#[derive(Default)]
struct Fields {
    message: String,
    json: String,
}

impl Fields {
    fn put(&mut self, field: &Field, value: &str) {
        let name = match RESERVED.contains(&field.name()) {
            true => format!("field.{}", field.name()),
            false => field.name().to_string(),
        };
        let _ = write!(self.json, ",{}:{value}", quote(&name));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.record_str(field, &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_string();
        } else {
            self.put(field, &quote(value));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, &value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = if value.is_finite() { value.to_string() } else { quote(&value.to_string()) };
        self.put(field, &text);
    }
}

/// A JSON string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn format(event: &Event<'_>, json: bool) -> Vec<u8> {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    let ts = humantime::format_rfc3339_micros(clock::wall());
    let level = metadata.level().as_str();
    let caller = caller(metadata);
    let text = if json {
        format!(
            "{{\"level\":\"{}\",\"ts\":\"{ts}\",\"caller\":{},\"msg\":{}{}}}\n",
            level.to_lowercase(),
            quote(&caller),
            quote(&fields.message),
            fields.json
        )
    } else {
        let rest = fields.json.strip_prefix(',').unwrap_or_default();
        format!("{ts}\t{level}\t{caller}\t{}\t{{{rest}}}\n", fields.message)
    };
    text.into_bytes()
}

/// The last directory, file and line of the place that logs.
fn caller(metadata: &Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or("unknown");
    let mut cut = file.rmatch_indices('/').map(|(at, _)| at + 1);
    let from = cut.nth(1).or_else(|| file.find('/').map(|at| at + 1)).unwrap_or(0);
    format!("{}:{}", &file[from..], metadata.line().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Formats what it sees, as [`Lines`] does, into a list.
    struct Probe(Arc<Mutex<Vec<String>>>, bool);

    impl<S: Subscriber> Layer<S> for Probe {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let line = String::from_utf8(format(event, self.1)).expect("utf-8");
            self.0.lock().expect("not poisoned").push(line);
        }
    }

    #[test]
    fn a_line_is_one_json_object_whatever_is_logged() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Probe(lines.clone(), true));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(
                text = "a\"b\n\u{1}",
                n = -3,
                big = u64::MAX,
                yes = true,
                level = 7,
                msg = "mine",
                "quoted \"x\""
            );
            tracing::warn!(nan = f64::NAN, error = ?std::io::Error::other("no"), "second");
        });
        let lines = lines.lock().expect("not poisoned");
        let first: serde_json::Value = serde_json::from_str(&lines[0]).expect("json");
        assert_eq!(first["level"], "info");
        assert_eq!(first["msg"], "quoted \"x\"");
        assert_eq!(first["text"], "a\"b\n\u{1}");
        assert_eq!(first["n"], -3);
        assert_eq!((&first["field.level"], &first["field.msg"]), (&7.into(), &"mine".into()));
        assert_eq!(first["big"], u64::MAX);
        let ts = first["ts"].as_str().expect("text");
        assert_eq!(ts.len(), "2026-11-30T15:04:05.000000Z".len(), "{ts}");
        assert!(first["caller"].as_str().expect("text").starts_with("telemetry/logging.rs:"));
        let second: serde_json::Value = serde_json::from_str(&lines[1]).expect("json");
        assert_eq!(second["level"], "warn");
        assert!(lines.iter().all(|line| line.ends_with("}\n") && line.matches('\n').count() == 1));
    }
}
