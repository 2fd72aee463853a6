//! Answers to the edge: one message per runtime and turn.

use super::handle::{Done, Refused};
use super::input::{BarrierReply, ProposeReply, Reply};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Shorter than any deadline of a request that matters, long enough to be no load.
const SOONER: Duration = Duration::from_secs(1);

thread_local! {
    static RUNTIME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Index of the edge runtime that the calling thread drives.
pub(super) fn runtime() -> Option<usize> {
    RUNTIME.get()
}

/// One answer on its way to the caller that waits for it.
pub(super) enum Answered {
    Proposal(tokio::sync::oneshot::Sender<Result<Done, Refused>>, Result<Done, Refused>),
    Barrier(tokio::sync::oneshot::Sender<Result<(), Refused>>, Result<(), Refused>),
}

impl Answered {
    fn deliver(self) {
        // A caller that has gone (deadline, closed connection) is no error.
        match self {
            Answered::Proposal(to, answer) => drop(to.send(answer)),
            Answered::Barrier(to, answer) => drop(to.send(answer)),
        }
    }
}

/// The sending half, one lane per edge runtime. The lanes are unbounded channels whose content is
/// bounded by the requests in flight.
#[derive(Clone)]
pub(super) struct Answers {
    lanes: Arc<[UnboundedSender<Vec<Answered>>]>,
}

/// The receiving half of one runtime.
pub struct AnswerLane {
    index: usize,
    lane: UnboundedReceiver<Vec<Answered>>,
}

impl AnswerLane {
    /// Binds the lane to the calling thread and delivers answers until the node is gone. Spawned
    /// once on each edge runtime.
    pub async fn run(mut self) {
        // A timer that ends before all others makes the runtime wake itself up with a system call,
        // to sleep shorter. With one that always ends sooner, a request's deadline never does.
        let mut sooner = tokio::time::interval(SOONER);
        loop {
            tokio::select! {
                answers = self.lane.recv() => {
                    let Some(answers) = answers else { return };
                    answers.into_iter().for_each(Answered::deliver);
                }
                _ = sooner.tick() => {}
            }
        }
    }

    /// Tells the calling thread that it drives this runtime.
    pub fn bind(&self) {
        RUNTIME.set(Some(self.index));
    }
}

/// Lanes for `count` edge runtimes.
pub(super) fn lanes(count: usize) -> (Answers, Vec<AnswerLane>) {
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for index in 0..count {
        let (sender, lane) = unbounded_channel();
        senders.push(sender);
        receivers.push(AnswerLane { index, lane });
    }
    (Answers { lanes: senders.into() }, receivers)
}

/// Answers of one turn, sorted by runtime.
pub(super) struct Turn<'a> {
    answers: &'a Answers,
    groups: Vec<Vec<Answered>>,
}

impl Answers {
    /// Begins a turn; dropping it sends what was collected.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { answers: self, groups: self.lanes.iter().map(|_| Vec::new()).collect() }
    }
}

impl Turn<'_> {
    /// Answers a proposal.
    pub(super) fn proposal(&mut self, reply: ProposeReply, answer: Result<Done, Refused>) {
        self.put(reply.runtime, Answered::Proposal(reply.to, answer));
    }

    /// Answers a barrier.
    pub(super) fn barrier(&mut self, reply: BarrierReply, answer: Result<(), Refused>) {
        self.put(reply.runtime, Answered::Barrier(reply.to, answer));
    }

    fn put(&mut self, runtime: Option<usize>, answered: Answered) {
        // In a turn that the caller's own runtime took there is nothing to wake.
        let elsewhere = runtime.filter(|_| runtime != self::runtime());
        match elsewhere.and_then(|index| self.groups.get_mut(index)) {
            Some(group) => group.push(answered),
            None => answered.deliver(),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for (lane, group) in self.answers.lanes.iter().zip(self.groups.drain(..)) {
            if !group.is_empty()
                && let Err(lost) = lane.send(group)
            {
                // The runtime is gone, so are its callers; wake what may wait elsewhere.
                lost.0.into_iter().for_each(Answered::deliver);
            }
        }
    }
}

/// Sends one value directly: for rare requests where a wake-up of its own does not matter.
pub(super) fn send<T>(reply: Reply<T>, value: T) {
    drop(reply.to.send(value));
}
