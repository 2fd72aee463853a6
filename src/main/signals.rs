//! SIGTERM and SIGINT, from before the disk gate until the end.
//!
//! Handlers are installed whatever the process inherited: a shell starts background jobs with SIGINT
//! ignored. What a signal does depends on how far the process has come:
//!
//! | phase | effect |
//! |---|---|
//! | gate | the probe is told to end; it takes its files with it |
//! | start | the process ends at once: log and store are safe to kill, and a replay can be long |
//! | taking part | the node stops in order |

use assay::node::End;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Time for the last log lines of a start that is given up.
const FLUSH: Duration = Duration::from_secs(1);

/// Listens for the signals that end a process in order.
pub(crate) struct Signals {
    /// Set by the first signal; the disk gate ends early by it.
    pub(crate) interrupt: Arc<AtomicBool>,
    starting: Arc<AtomicBool>,
    arrived: watch::Receiver<bool>,
}

impl Signals {
    /// Installs the handlers; `runtime` waits for the signals.
    pub(crate) fn listen(runtime: &Handle) -> Self {
        let (sender, arrived) = watch::channel(false);
        let signals = Self { interrupt: Arc::default(), starting: Arc::default(), arrived };
        let _inside = runtime.enter();
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(term), Ok(int)) => {
                let (interrupt, starting) = (signals.interrupt.clone(), signals.starting.clone());
                runtime.spawn(async move {
                    first(term, int).await;
                    // In this order, and read in the other one: no signal falls between phases.
                    interrupt.store(true, SeqCst);
                    if starting.load(SeqCst) {
                        give_up();
                    }
                    let _ = sender.send(true);
                    // Kept, so that the channel stays open until the process ends.
                    std::future::pending::<()>().await;
                });
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "cannot listen for signals: one ends the node at once");
                runtime.spawn(async move { sender.closed().await });
            }
        }
        signals
    }

    /// The gate is behind us: from now on a signal ends the process. `false` if one has arrived.
    pub(crate) fn start(&self) -> bool {
        self.starting.store(true, SeqCst);
        !self.interrupt.load(SeqCst)
    }

    /// The node takes part: from now on [`Signals::wait`] ends it.
    pub(crate) fn serve(&self) {
        self.starting.store(false, SeqCst);
    }

    /// Waits for a signal, or for a reason of the node's own to end.
    pub(crate) async fn wait(&self, ended: &mut watch::Receiver<Option<End>>) {
        let mut arrived = self.arrived.clone();
        tokio::select! {
            // An error means that the task is gone, which is an end as well.
            _ = arrived.wait_for(|arrived| *arrived) => {}
            _ = ended.wait_for(Option::is_some) => tracing::warn!(
                "this member was removed from the cluster and stops; to bring it back, run `member \
                 add` and start it with an empty data directory and \
                 --initial-cluster-state=existing"
            ),
        }
    }
}

async fn first(mut term: Signal, mut int: Signal) {
    let received = tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    };
    tracing::info!(signal = received, "received signal; shutting down");
}

fn give_up() -> ! {
    tracing::info!("stopped before the node served; the next start goes on from here");
    assay::telemetry::logging::flush(FLUSH);
    std::process::exit(0)
}
