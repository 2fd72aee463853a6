//! One bound on the bytes of all answers in flight, and a bounded pool for large reads.

use super::status;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;
use tonic::Status;

/// Large reads that run at a time, over all runtimes.
pub const POOL_THREADS: usize = 2;
/// Large reads that may wait for their turn; more are refused.
pub const POOL_QUEUE: usize = 1_024;
/// Smallest share worth starting a large read with.
const LEAST_SHARE: u64 = 1 << 20;

/// Bytes that answers in flight may hold, all connections together.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The bound.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `bytes`.
    ///
    /// # Errors
    /// `ResourceExhausted` with the numbers if they are not free.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Permit, Status> {
        self.take(bytes, |free| (bytes <= free).then_some(bytes))
    }

    /// Takes half of what is free: an answer of unknown size leaves room for the next one.
    pub(super) fn reserve_half(self: &Arc<Self>) -> Result<Permit, Status> {
        self.take(LEAST_SHARE, |free| Some(free / 2).filter(|half| *half >= LEAST_SHARE))
    }

    /// Takes everything that is free.
    pub(super) fn reserve_rest(self: &Arc<Self>) -> Result<Permit, Status> {
        self.take(LEAST_SHARE, |free| Some(free).filter(|free| *free >= LEAST_SHARE))
    }

    fn take(
        self: &Arc<Self>,
        wanted: u64,
        share: impl Fn(u64) -> Option<u64>,
    ) -> Result<Permit, Status> {
        let mut taken = 0;
        let update = self.used.fetch_update(Relaxed, Relaxed, |used| {
            taken = share(self.limit.saturating_sub(used))?;
            Some(used + taken)
        });
        match update {
            Ok(_) => Ok(Permit { budget: Arc::clone(self), bytes: taken }),
            Err(used) => {
                let what = format!("{wanted} more bytes of answers in flight do not fit");
                Err(status::overloaded(&what, used, self.limit))
            }
        }
    }
}

/// A share of a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Permit {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is above `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.used.fetch_sub(surplus, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// Runs large reads beside the edge runtimes, a few at a time.
#[derive(Debug)]
pub struct Pool {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(POOL_THREADS)), waiting: AtomicUsize::new(0) }
    }
}

/// Place in the queue of a pool.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    /// Waits for a turn and runs `work` on a blocking thread. The work goes on if the caller is
    /// dropped, and keeps its turn until it is done.
    ///
    /// # Errors
    /// `ResourceExhausted` if the queue is full, `Unavailable` while the server stops.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= POOL_QUEUE {
            let (used, limit) = (before as u64, POOL_QUEUE as u64);
            return Err(status::overloaded("large reads waiting", used, limit));
        }
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        drop(waiting);
        let turn = turn.map_err(|_| Status::from(status::STOPPED))?;
        let work = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        work.await.map_err(|_| status::STOPPED.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_budget_and_come_back() {
        let budget = Budget::new(8 << 20);
        let half = budget.reserve_half().unwrap();
        assert_eq!(half.bytes(), 4 << 20);
        let mut rest = budget.reserve_rest().unwrap();
        assert_eq!(budget.used(), 8 << 20);
        let refused = budget.reserve(1).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("8388608 of 8388608"), "{refused}");
        rest.shrink(10);
        assert_eq!(budget.used(), (4 << 20) + 10);
        drop((half, rest));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn the_pool_runs_two_at_a_time() {
        let pool = Arc::new(Pool::default());
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let works: Vec<_> = (0..20)
            .map(|_| {
                let (pool, running, most) = (pool.clone(), running.clone(), most.clone());
                tokio::spawn(async move {
                    let work = move || {
                        most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                        std::thread::yield_now();
                        running.fetch_sub(1, Relaxed);
                    };
                    pool.run(work).await
                })
            })
            .collect();
        for work in works {
            work.await.unwrap().unwrap();
        }
        assert!(most.load(Relaxed) <= POOL_THREADS);
        assert_eq!(pool.waiting.load(Relaxed), 0);
    }
}
