//! Linearizable reads: which commit index was valid after they arrived.
//!
//! All reads of a turn share one request. The library loses requests without a word (no leader, no
//! commit in this term yet, a change of leaders, a lost message), so each batch is kept until it is
//! answered and asked again after [`READ_RETRY_MS`], always under a fresh context: equal contexts of
//! two members are merged by the leader, and one of the members never hears back.

use super::config::{READ_BATCHES_MAX, READ_EXPIRY_MS, READ_RETRY_MS};
use super::types::{Millis, NodeId, Token};

/// Node, boot and counter.
const CONTEXT_BYTES: usize = 24;

type Context = [u8; CONTEXT_BYTES];

#[derive(Clone, Copy)]
struct Read {
    token: Token,
    since: Millis,
    /// Only an answer of this member as the leader of this term counts.
    term: Option<u64>,
}

struct Asked {
    context: Context,
    at: Millis,
    reads: Vec<Read>,
}

/// Reads that are not answered yet.
pub(super) struct Reads {
    node: NodeId,
    boot: u64,
    counter: u64,
    waiting: Vec<Read>,
    asked: Vec<Asked>,
}

impl Reads {
    pub(super) fn new(node: NodeId, boot: u64) -> Reads {
        Reads { node, boot, counter: 0, waiting: Vec::new(), asked: Vec::new() }
    }

    pub(super) fn add(&mut self, token: Token, term: Option<u64>, now: Millis) {
        self.waiting.push(Read { token, since: now, term });
    }

    /// Takes out the waiting reads that count on another term than the one led in, if any is. What
    /// is under way needs no look: a change of the term puts it back first.
    pub(super) fn misled(&mut self, led: Option<u64>) -> Vec<Token> {
        let misled = |read: &mut Read| read.term.is_some() && read.term != led;
        self.waiting.extract_if(.., misled).map(|read| read.token).collect()
    }

    /// The context to ask with, if something waits and not too much is under way. The caller says
    /// with [`Reads::dropped`] if the request vanished at once.
    pub(super) fn ask(&mut self, now: Millis) -> Option<Context> {
        if self.waiting.is_empty() || self.asked.len() >= READ_BATCHES_MAX {
            return None;
        }
        self.counter += 1;
        let mut context = [0; CONTEXT_BYTES];
        context[..8].copy_from_slice(&self.node.to_le_bytes());
        context[8..16].copy_from_slice(&self.boot.to_le_bytes());
        context[16..].copy_from_slice(&self.counter.to_le_bytes());
        let reads = std::mem::take(&mut self.waiting);
        self.asked.push(Asked { context, at: now, reads });
        Some(context)
    }

    /// The newest request vanished.
    pub(super) fn dropped(&mut self) {
        if let Some(last) = self.asked.pop() {
            self.waiting.extend(last.reads);
        }
    }

    /// The leader answered. Empty for a context that was given up.
    pub(super) fn answered(&mut self, context: &[u8]) -> Vec<Token> {
        let Some(at) = self.asked.iter().position(|a| a.context == context) else {
            return Vec::new();
        };
        self.asked.remove(at).reads.iter().map(|r| r.token).collect()
    }

    /// Puts back what was not answered in time. Returns the reads that are too old to go on.
    pub(super) fn tick(&mut self, now: Millis) -> Vec<Token> {
        self.give_up(|asked| now.saturating_sub(asked.at) >= READ_RETRY_MS);
        let old = |read: &Read| now.saturating_sub(read.since) >= READ_EXPIRY_MS;
        let expired = self.waiting.iter().filter(|r| old(r)).map(|r| r.token).collect();
        self.waiting.retain(|r| !old(r));
        expired
    }

    /// The leader changed: nobody will answer what is under way.
    pub(super) fn restart(&mut self) {
        self.give_up(|_| true);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.asked.iter().map(|a| a.reads.len()).sum::<usize>()
    }

    fn give_up(&mut self, which: impl Fn(&Asked) -> bool) {
        let waiting = &mut self.waiting;
        self.asked.retain_mut(|asked| {
            let lost = which(asked);
            if lost {
                waiting.append(&mut asked.reads);
            }
            !lost
        });
    }
}
