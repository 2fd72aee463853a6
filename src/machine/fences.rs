//! Members whose data was found to differ from the majority's: they are fenced, the others go on.
//!
//! Beside the alarms and not among them: a CORRUPT alarm refuses writes everywhere, in etcd and in
//! former versions of this program. The list shows a fence as CORRUPT of its member all the same. A
//! former version does not know the command and stops before it applies it; one that finds the row
//! in its store leaves it alone, so that its keys stay equal to the others'.

use super::{Alarm, AlarmKind, Machine};
use crate::store::Table;
use bytes::Bytes;
use std::collections::BTreeSet;

/// Row of [`Table::Cluster`]: ids of the fenced members, 8 bytes big-endian each, in order.
const FENCED: &[u8] = b"fenced";
/// Bytes of an id.
const ID_BYTES: usize = 8;

/// The fenced members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fences(BTreeSet<u64>);

impl Fences {
    /// Whether a row of [`Table::Cluster`] is this one's.
    pub(super) fn owns(key: &[u8]) -> bool {
        key == FENCED
    }

    /// Reads the row; `None` if it is damaged.
    pub(super) fn decode(value: &[u8]) -> Option<Fences> {
        let ids = value.chunks(ID_BYTES).map(|id| Some(u64::from_be_bytes(id.try_into().ok()?)));
        ids.collect::<Option<_>>().map(Fences)
    }

    fn encode(&self) -> Bytes {
        self.0.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<u8>>().into()
    }

    /// In order.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.0.iter().copied().collect()
    }
}

impl Machine {
    /// Fences a member; nothing happens if it is no member or fenced already.
    pub(super) fn fence(&mut self, member: u64) -> Vec<Alarm> {
        if self.members.get(member).is_none() {
            return Vec::new();
        }
        if self.fences.0.insert(member) {
            self.fences_changed();
        }
        vec![Alarm { member, kind: AlarmKind::Corrupt }]
    }

    /// Ends a fence, because somebody disarmed it or the member is gone; false if there is none.
    pub(super) fn unfence(&mut self, member: u64) -> bool {
        let there = self.fences.0.remove(&member);
        if there {
            self.fences_changed();
        }
        there
    }

    fn fences_changed(&mut self) {
        self.store_table(Table::Cluster, FENCED, self.fences.encode());
    }

    /// Alarms and fences as clients see them, each once.
    pub(super) fn listed(&self, kind: Option<AlarmKind>) -> Vec<Alarm> {
        let fences =
            self.fences.0.iter().map(|member| Alarm { member: *member, kind: AlarmKind::Corrupt });
        let fences = fences.filter(|alarm| kind.is_none_or(|kind| alarm.kind == kind));
        let all: BTreeSet<Alarm> = self.alarms.list(kind).into_iter().chain(fences).collect();
        all.into_iter().collect()
    }
}
