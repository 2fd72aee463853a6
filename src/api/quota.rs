//! The space quota as the API sees it: before anything else of a write is looked at.

use super::node::Node;
use super::status;
use crate::machine::AlarmKind;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::{AlarmRequest, AlarmType, InternalRaftRequest};
use tonic::Status;

/// Refuses a write that does not fit and raises the alarm for the whole cluster. `cost` comes from
/// `machine::check`; what costs nothing passes.
///
/// # Errors
/// `NoSpace`.
pub async fn check<N: Node>(node: &N, cost: u64) -> Result<(), Status> {
    if cost == 0 {
        return Ok(());
    }
    if node.is_short_of_space() {
        node.refused_for_space();
        // Passes by itself when there is room again: no alarm.
        return Err(status::NO_SPACE.into());
    }
    let total = node.sizes().total_bytes;
    if node.quota().is_none_or(|quota| total.saturating_add(cost) < quota) {
        return Ok(());
    }
    let member_id = node.identity().member_id;
    let ours = |kind| kind == AlarmKind::NoSpace;
    if !node.alarms().iter().any(|alarm| ours(alarm.kind) && alarm.member == member_id) {
        let action = AlarmAction::Activate as i32;
        let alarm = AlarmRequest { action, member_id, alarm: AlarmType::Nospace as i32 };
        // The write is refused whether or not the alarm gets through; the next one tries again.
        let _ = node
            .propose(InternalRaftRequest { alarm: Some(alarm), ..InternalRaftRequest::default() })
            .await;
    }
    Err(status::NO_SPACE.into())
}
