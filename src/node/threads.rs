//! Every thread of the node: named, owned, joined. No other module starts one.

use super::start::StartError;
use crate::sched;
use std::thread::JoinHandle;

/// Name of the thread that writes and syncs the log.
pub const LOG_THREAD: &str = "wal";
/// Name of the thread that writes and syncs the store.
pub const STORE_THREAD: &str = "store";

/// Who must run as soon as it is woken, and who can wait for others.
fn class(name: &str) -> sched::Class {
    match name {
        "node" | LOG_THREAD | "apply" => sched::Class::Prompt,
        "hash" | "snapshot-out" | "snapshot-in" => sched::Class::Background,
        _ => sched::Class::Ordinary,
    }
}

/// The threads started so far.
#[derive(Default)]
pub struct Threads(Vec<(&'static str, JoinHandle<()>)>);

impl Threads {
    /// Starts a thread with a name that shows in `top -H` and in stack dumps.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub fn start(
        &mut self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                sched::apply(class(name));
                body();
            })
            .map_err(StartError::Thread)?;
        self.0.push((name, thread));
        Ok(())
    }

    /// Wakes a thread that may only wait for time, and waits until it has ended.
    pub(super) fn join(&mut self, name: &str) {
        while let Some(at) = self.0.iter().position(|(known, _)| *known == name) {
            let (_, thread) = self.0.swap_remove(at);
            thread.thread().unpark();
            // A panic has ended the process already (`panic = "abort"`, or the hook of `main`).
            let _ = thread.join();
        }
    }
}
