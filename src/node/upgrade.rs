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

/// What a member knows of an upgrade. Only the leader's word counts: it is connected to everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// What the cluster may use.
    pub cluster: u32,
    /// The leader, 0 if none is known.
    pub leader: u64,
    /// All members, this one too, by id.
    pub members: Vec<MemberLevel>,
}

/// A member, and what its program knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLevel {
    /// Its id.
    pub id: u64,
    /// Its name, empty before it has started.
    pub name: String,
    /// Its client URLs.
    pub client_urls: Vec<String>,
    /// Level of its program; `None` while it is not connected.
    pub level: Option<u32>,
}

/// Why an upgrade is not finalized. Nothing was changed, unless the request itself timed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// No leader to ask.
    #[error(
        "this member knows no leader: the members are electing one, or too few of them are running; \
         nothing was changed"
    )]
    NoLeader,
    /// Only the leader sees all members.
    #[error(
        "this member does not lead; send the request to the leader, member {leader:x} at {urls}"
    )]
    NotLeader {
        /// The leader.
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
    /// It leads no more, or without the others.
    #[error(
        "this member could not confirm that it leads: {0}; are enough members running? nothing was \
         changed"
    )]
    Unconfirmed(Refused),
    /// Nobody knows whether it takes effect.
    #[error("{0}: the level may be set all the same; look before you try again")]
    Unknowable(Refused),
    /// The log did not take it.
    #[error("the request failed, nothing was changed: {0}")]
    Refused(Refused),
}

impl UpgradeError {
    /// Whether it is the cluster that cannot answer now, and not the members' versions.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NoLeader | Self::Unconfirmed(_) | Self::Unknowable(_) | Self::Refused(_) => true,
            Self::NotLeader { .. } | Self::Unknown { .. } | Self::Nothing { .. } => false,
        }
    }
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

    /// Who knows what, as far as this member is told.
    pub fn upgrade(&self) -> Upgrade {
        let own = self.peers().own();
        let level = |id| match id == own.member_id {
            true => Some(own.feature_level),
            false => self.peers().feature_level(id),
        };
        let members = self.reader().members();
        let members = members.iter().map(|member| MemberLevel {
            id: member.id,
            name: member.name.clone(),
            client_urls: member.client_urls.clone(),
            level: level(member.id),
        });
        Upgrade {
            cluster: self.reader().feature_level(),
            leader: self.raft().leader,
            members: members.collect(),
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

    /// Whom to ask in place of this member.
    fn who_leads(&self) -> UpgradeError {
        let leader = self.raft().leader;
        // One that was deposed a moment ago may know no other yet.
        if leader == 0 || leader == self.identity().member_id {
            return UpgradeError::NoLeader;
        }
        let members = self.reader().members();
        let urls = members.get(leader).map(|leader| leader.client_urls.join(","));
        UpgradeError::NotLeader {
            leader,
            urls: urls.unwrap_or_else(|| "an unknown address".into()),
        }
    }

    /// Raises the level of the cluster to the lowest one of its members; returns it.
    ///
    /// # Errors
    /// See [`UpgradeError`].
    pub async fn finalize_upgrade(&self) -> Result<u32, UpgradeError> {
        let raft = self.raft();
        if !raft.is_leader {
            return Err(self.who_leads());
        }
        // The members may have changed since this one was elected. That another leader answers proves
        // nothing: this one would not know who of them came back as what.
        match self.linearize_in(Some(raft.term)).await {
            Ok(()) => {}
            Err(why @ (Refused::NotLeader | Refused::LeaderChanged)) => {
                return Err(match self.who_leads() {
                    UpgradeError::NoLeader => UpgradeError::Unconfirmed(why),
                    other => other,
                });
            }
            Err(why) => return Err(UpgradeError::Unconfirmed(why)),
        }
        let (level, member) = self.lowest_level()?;
        let cluster = self.reader().feature_level();
        if level <= cluster {
            return Err(UpgradeError::Nothing { cluster, member });
        }
        let set = FeatureLevelSetRequest { level };
        let request =
            InternalRaftRequest { feature_level_set: Some(set), ..InternalRaftRequest::default() };
        self.propose_at(request, level).await.map_err(|refused| match refused.is_timeout() {
            true => UpgradeError::Unknowable(refused),
            false => UpgradeError::Refused(refused),
        })?;
        tracing::info!(
            feature_level = level,
            "the cluster's feature level is set: versions below it cannot go on"
        );
        Ok(level)
    }
}
