//! The edge threads, one current-thread runtime each, and what is served on them.

use super::accept::{Acceptor, Lane};
use super::conn::{Shared, Transport};
use super::limits::{ConnObserver, Counters, Limits};
use super::listen::{Bound, Port};
use super::route::{Routes, Rpc};
use super::share::Shares;
use crate::sched;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Threads of each runtime for work that may block it (large ranges); see `api`'s pool.
const BLOCKING_THREADS: usize = 2;
/// Idle blocking threads end after this.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How to start an edge.
#[derive(Clone)]
pub struct Options {
    /// Number of runtimes, at least one; one per core.
    pub runtimes: usize,
    /// Caps and deadlines.
    pub limits: Limits,
    /// Told of every connection.
    pub observer: Arc<dyn ConnObserver>,
}

/// Running edge threads. Dropping it stops them without a drain.
pub struct Edge {
    pub(super) runtimes: Vec<Handle>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) counters: Arc<Counters>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) end: watch::Sender<bool>,
    shared: Shared,
    shares: Shares,
}

impl Edge {
    /// Starts the threads (`edge-0`, `edge-1`, ...); nothing is served yet.
    ///
    /// # Errors
    /// What the operating system says about threads or epoll.
    pub fn start(options: Options) -> io::Result<Self> {
        let (stop, stop_seen) = watch::channel(false);
        let (end, end_seen) = watch::channel(false);
        let (ready, runtimes) = mpsc::channel();
        let count = options.runtimes.max(1);
        let threads = (0..count)
            .map(|ix| {
                let (ready, end_seen) = (ready.clone(), end_seen.clone());
                Builder::new()
                    .name(format!("edge-{ix}"))
                    .spawn(move || run_thread(ix, &ready, end_seen))
            })
            .collect::<io::Result<Vec<_>>>()?;
        drop(ready);
        let mut handles = Vec::new();
        for _ in 0..count {
            let lost = || io::Error::other("an edge thread ended at its start");
            handles.push(runtimes.recv().map_err(|_| lost())??);
        }
        handles.sort_by_key(|(ix, _)| *ix);
        Ok(Self {
            runtimes: handles.into_iter().map(|(_, handle)| handle).collect(),
            threads,
            counters: Arc::default(),
            stop,
            end,
            shared: Shared {
                limits: Arc::new(options.limits),
                observer: options.observer,
                stop: stop_seen,
                logs: Arc::default(),
            },
            shares: Shares::new(count),
        })
    }

    /// The runtimes, by index. The first one serves the connections between members, so those that
    /// this member makes belong there too.
    pub fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }

    /// Connections, live.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Serves bound sockets until [`Edge::drain`]. `make` is called once per socket and runtime,
    /// with the runtime's index. May be called again for ports that open later.
    pub fn serve<G: Rpc>(&self, bound: Vec<Bound>, make: impl Fn(usize, Port) -> Routes<G>) {
        for bound in bound {
            if bound.lacks_certificate() {
                // Better nobody than plain text.
                tracing::error!(
                    url = bound.url(),
                    "a TLS listener without certificates is not served"
                );
                continue;
            }
            let Bound { socket, port, plain, secured, .. } = bound;
            let lane = |(ix, runtime): (usize, &Handle)| Lane {
                runtime: runtime.clone(),
                routes: make(ix, port),
            };
            let acceptor = Acceptor {
                port,
                transport: Transport { plain, tls: secured },
                lanes: self.runtimes.iter().enumerate().map(lane).collect(),
                shares: self.shares.clone(),
                shared: self.shared.clone(),
                counters: Arc::clone(&self.counters),
            };
            self.runtimes[0].spawn(acceptor.run(socket));
        }
    }
}

type Ready = io::Result<(usize, Handle)>;

fn run_thread(ix: usize, ready: &mpsc::Sender<Ready>, mut end: watch::Receiver<bool>) {
    sched::apply(sched::Class::Prompt);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .thread_name(format!("edge-{ix}-pool"))
        .on_thread_start(|| sched::apply(sched::Class::Background))
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    // The receiver is gone only if the start failed elsewhere; then there is nothing to run.
    if ready.send(Ok((ix, runtime.handle().clone()))).is_err() {
        return;
    }
    runtime.block_on(async {
        // An error means that the sender is gone, which is an end as well.
        let _ = end.wait_for(|end| *end).await;
    });
    runtime.shutdown_background();
}
