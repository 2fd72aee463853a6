//! Comparison of members.

use crate::telemetry::divergence::{Divergence, VERDICTS};
use crate::telemetry::exposition::Exposition;
use crate::telemetry::families::assay;
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn collect(out: &mut Exposition, numbers: &Divergence) {
    for (family, counters) in [
        (&assay::DIVERGENCE_COMPARED, &numbers.compared),
        (&assay::DIVERGENCE_CONFIRMED, &numbers.confirmed),
    ] {
        let mut series = out.family(family);
        for (verdict, count) in VERDICTS.iter().zip(counters) {
            series.value(&[verdict], count.load(Relaxed) as f64);
        }
    }
    for (family, value) in [
        (&assay::DIVERGENCE_SUSPECTED, &numbers.suspected),
        (&assay::DIVERGENCE_ACTIONS, &numbers.actions),
        (&assay::DIVERGENCE_FENCED, &numbers.fenced),
        (&assay::DIVERGENCE_FENCED_MEMBERS, &numbers.fenced_members),
        (&assay::DIVERGENCE_STORE, &numbers.store_differs),
        (&assay::DIVERGENCE_ALL_EQUAL, &numbers.all_equal),
    ] {
        out.value(family, value.load(Relaxed) as f64);
    }
}
