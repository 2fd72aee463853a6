//! Active alarms: a replicated set of (member, kind).

use super::{Alarm, AlarmKind};
use std::collections::BTreeSet;

/// The set, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms(BTreeSet<Alarm>);

impl Alarms {
    /// All alarms, or those of one kind.
    pub(super) fn list(&self, kind: Option<AlarmKind>) -> Vec<Alarm> {
        self.0.iter().filter(|alarm| kind.is_none_or(|kind| alarm.kind == kind)).copied().collect()
    }

    /// Whether an alarm of this kind is active for any member.
    pub(super) fn any(&self, kind: AlarmKind) -> bool {
        self.0.iter().any(|alarm| alarm.kind == kind)
    }

    /// Adds an alarm; false if it was active.
    pub(super) fn raise(&mut self, alarm: Alarm) -> bool {
        self.0.insert(alarm)
    }

    /// Removes exactly this alarm; false if it was not active.
    pub(super) fn clear(&mut self, alarm: Alarm) -> bool {
        self.0.remove(&alarm)
    }
}
