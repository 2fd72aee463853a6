//! The `hash` thread: makes the hashes of compactions, which read every row that a compaction
//! covers. On the apply thread a cold row would hold up every command behind it.

use super::answers::send;
use super::input::{ApplyInput, HashInput};
use super::lane::Lane;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the thread needs.
pub(super) struct HashThread {
    pub(super) queue: Arc<Lane<HashInput>>,
    pub(super) apply: Arc<Lane<ApplyInput>>,
    /// Ends a hash that is being made.
    pub(super) stop: Arc<AtomicBool>,
}

impl HashThread {
    /// Body of the thread.
    pub(super) fn run(self) {
        self.queue.own();
        let mut inputs = Vec::new();
        loop {
            self.queue.drain(&mut inputs, None);
            for input in inputs.drain(..) {
                match input {
                    HashInput::Make(job) => {
                        let at = job.at();
                        if let Some(hash) = job.run(&self.stop) {
                            self.apply.push(ApplyInput::Hashed { at, hash });
                        }
                    }
                    HashInput::Rows { reader, revision, reply } => {
                        send(reply, reader.hash_rows(revision));
                    }
                    HashInput::Stop => return,
                }
            }
        }
    }
}
