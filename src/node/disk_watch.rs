//! The node's side of leading with a bad disk: facts for the core, words and counts for people.

use crate::consensus::{Core, DiskEvent, OwnDisk};
use crate::telemetry::disk_health::DiskHealth;
use crate::telemetry::node_metrics::NodeMetrics;
use crate::telemetry::stage::StepDown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const NS_PER_MS: u64 = 1_000_000;

/// Lives on the node thread.
pub(super) struct DiskWatch {
    pub(super) health: Arc<DiskHealth>,
    pub(super) metrics: Arc<NodeMetrics>,
    /// Standing still for this long could be taken for a disk that hangs.
    pub(super) pause_ns: u64,
    /// The disk may be needed for a vote any moment: what can wait leaves it alone.
    pub(super) election_near: Arc<AtomicBool>,
}

impl DiskWatch {
    /// At every tick: what is known of the own disk. `late_ns` is how late the tick is.
    pub(super) fn tick(&self, now_ns: u64, late_ns: u64) -> OwnDisk {
        if late_ns >= self.pause_ns {
            self.health.woke(now_ns);
        }
        self.health.count(now_ns);
        let sample = self.health.sample();
        // A group is one sync.
        let syncs = self.metrics.wal_groups.load(Relaxed);
        OwnDisk { in_flight_ms: sample.in_flight_ms, p99_us: sample.p99_us, syncs }
    }

    /// After every turn.
    pub(super) fn turned(&self, core: &Core) {
        self.election_near.store(core.leader_is_silent(), Relaxed);
        let recovering = core.disk_is_recovering();
        self.health.set_recovering(recovering);
        let before = self.metrics.disk_recovering.swap(u64::from(recovering), Relaxed) != 0;
        match (before, recovering) {
            (false, true) => tracing::warn!(
                hung_ms = self.health.sample().in_flight_ms,
                "this member's disk hung: it leaves elections to others until enough syncs ended \
                 in time"
            ),
            (true, false) => tracing::info!("this member's disk works again"),
            _ => {}
        }
    }

    /// Says what was decided. Called before the messages that follow from it leave.
    pub(super) fn decided(&self, event: DiskEvent) {
        let ms = |us: Option<u64>| us.map(|us| us as f64 / 1e3);
        match event {
            DiskEvent::HandsOver { to, term, hung_ms, p99_us } => {
                self.health.set_handed_over(term);
                let to = format!("{to:x}");
                let p99_ms = ms(p99_us);
                match hung_ms {
                    0 => tracing::warn!(
                        to,
                        term,
                        p99_ms,
                        "this leader's disk is slower than --disk-gate-p99: handing leadership to a \
                         member with a faster one"
                    ),
                    _ => tracing::warn!(
                        to,
                        term,
                        hung_ms,
                        p99_ms,
                        "this leader's disk hangs: handing leadership to a member whose disk works"
                    ),
                }
            }
            DiskEvent::HandedOver { back_off_ms } => {
                self.count(StepDown::HandedOver);
                tracing::info!(
                    back_off_ms,
                    "leadership was given up because of this member's disk"
                );
            }
            DiskEvent::Failed { to } => {
                self.health.set_handed_over(0);
                self.count(StepDown::Failed);
                tracing::warn!(
                    to = format!("{to:x}"),
                    "a member that was to take leadership from a hung disk did not"
                );
            }
            DiskEvent::KeepsLeading { hung_ms, fit, slow, unknown, back_off_ms } => {
                self.count(StepDown::Kept);
                match back_off_ms {
                    0 => tracing::warn!(
                        hung_ms,
                        fit,
                        slow,
                        unknown,
                        "all disks slow: this leader's disk hangs and no quorum with a fit disk could \
                         go on without it, so it keeps leading"
                    ),
                    _ => tracing::warn!(
                        hung_ms,
                        fit,
                        slow,
                        unknown,
                        back_off_ms,
                        "this leader's disk hangs again soon after it gave leadership up for it: it \
                         keeps leading for the rest of the pause"
                    ),
                }
            }
        }
    }

    fn count(&self, what: StepDown) {
        self.metrics.disk_step_downs[what as usize].fetch_add(1, Relaxed);
    }
}

/// Half the age at which a leader steps down, or what it would be by default.
pub(super) fn pause_ns(stall_ms: Option<u64>, election_ms: u64) -> u64 {
    stall_ms.unwrap_or(election_ms) * NS_PER_MS / 2
}
