//! The end of an upgrade: from then on the cluster may use the commands of the new version.
//!
//! Until somebody finalizes it, everything that is written can be read by the version before, and
//! going back is an exchange of the program (see [`crate::machine::level`]). A new cluster has no
//! version before: [`super::publish`] raises its level as soon as its founders are connected.

use super::handle::{Handle, Refused};
use crate::proto::etcdserverpb::{FeatureLevelSetRequest, InternalRaftRequest};

/// Levels of commands, as this member knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureLevels {
    /// What this program knows.
    pub own: u32,
    /// What the cluster may use.
    pub cluster: u32,
    /// What every member knows; `None` while one of them is not connected.
    pub lowest: Option<u32>,
}

/// Why an upgrade is not finalized. Nothing was changed, unless the request itself timed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// Only the leader sees all members.
    #[error(
        "this member does not lead; send the request to the leader, member {leader:x} at {urls}"
    )]
    NotLeader {
        /// The leader, 0 if none is known.
        leader: u64,
        /// Its client URLs.
        urls: String,
    },
    /// A member whose version is not known.
    #[error(
        "member {member:x} is not connected, so nobody knows its version; start it, or remove it \
         with `member remove`, and try again"
    )]
    Unknown {
        /// The member.
        member: u64,
    },
    /// There is nothing that all members know and the cluster does not use.
    #[error(
        "nothing to finalize: the cluster is at feature level {cluster}, and member {member:x} knows \
         no higher one"
    )]
    Nothing {
        /// Level of the cluster.
        cluster: u32,
        /// A member of the lowest level.
        member: u64,
    },
    /// The log did not take it.
    #[error("the request failed: {0}")]
    Refused(#[from] Refused),
}

impl Handle {
    /// Levels of commands.
    pub fn feature_levels(&self) -> FeatureLevels {
        FeatureLevels {
            own: self.peers().own().feature_level,
            cluster: self.reader().feature_level(),
            lowest: self.lowest_level().ok().map(|(level, _)| level),
        }
    }

    /// The lowest level of all members, and one who has it.
    fn lowest_level(&self) -> Result<(u32, u64), UpgradeError> {
        let own = self.peers().own();
        let mut lowest = (own.feature_level, own.member_id);
        for member in self.reader().members().iter().filter(|m| m.id != own.member_id) {
            let level = self.peers().feature_level(member.id);
            let level = level.ok_or(UpgradeError::Unknown { member: member.id })?;
            lowest = lowest.min((level, member.id));
        }
        Ok(lowest)
    }

    /// Raises the level of the cluster to the lowest one of its members; returns it.
    ///
    /// # Errors
    /// See [`UpgradeError`].
    pub async fn finalize_upgrade(&self) -> Result<u32, UpgradeError> {
        let raft = self.raft();
        if !raft.is_leader {
            let members = self.reader().members();
            let urls = members.get(raft.leader).map(|leader| leader.client_urls.join(","));
            let urls = urls.unwrap_or_else(|| "an unknown address".into());
            return Err(UpgradeError::NotLeader { leader: raft.leader, urls });
        }
        // The members may have changed since this one was elected.
        self.linearize().await?;
        let (level, member) = self.lowest_level()?;
        let cluster = self.reader().feature_level();
        if level <= cluster {
            return Err(UpgradeError::Nothing { cluster, member });
        }
        let set = FeatureLevelSetRequest { level };
        let request =
            InternalRaftRequest { feature_level_set: Some(set), ..InternalRaftRequest::default() };
        self.propose_at(request, level).await?;
        tracing::info!(
            feature_level = level,
            "the cluster's feature level is set: versions below it cannot go on"
        );
        Ok(level)
    }
}
