//! Who speaks to whom: checked before anything else is believed.

use crate::proto::peer as pb;

/// Version of the peer protocol that this program speaks. It accepts the one before, too.
pub const FORMAT: u32 = 1;
/// Oldest version it accepts.
const FORMAT_MIN: u32 = 1;

/// Who this member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: u64,
    /// Highest level of replicated commands that it knows.
    pub feature_level: u32,
}

impl Identity {
    /// What this member says of itself to `to`.
    pub(super) fn to(self, to: u64, peer_urls: Vec<String>) -> pb::Identity {
        pb::Identity {
            format: FORMAT,
            cluster_id: self.cluster_id,
            from: self.member_id,
            to,
            feature_level: self.feature_level,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            peer_urls,
        }
    }

    /// Whether what another member says fits; `level` is the one of the commands that the cluster
    /// uses.
    ///
    /// # Errors
    /// A text for the log of both sides that says what to do.
    pub(super) fn check(self, said: Option<&pb::Identity>, level: u32) -> Result<u64, String> {
        let Some(said) = said else {
            return Err(
                "the first message does not say who sends it; both members must run Assay".into()
            );
        };
        if said.format < FORMAT_MIN {
            return Err(format!(
                "member {:x} (version {}) speaks version {} of the peer protocol, member {:x} needs \
                 at least {FORMAT_MIN}; upgrade {:x} first",
                said.from, said.version, said.format, self.member_id, said.from
            ));
        }
        if said.cluster_id != self.cluster_id {
            return Err(format!(
                "member {:x} belongs to cluster {:x}, member {:x} to cluster {:x}; check \
                 --initial-cluster, --initial-cluster-token and the data directories of both",
                said.from, said.cluster_id, self.member_id, self.cluster_id
            ));
        }
        if said.to != self.member_id {
            return Err(format!(
                "this is member {:x}, but member {:x} expects member {:x} here; check the peer URLs \
                 with `member list`",
                self.member_id, said.from, said.to
            ));
        }
        if said.from == self.member_id || said.from == 0 {
            return Err(format!(
                "another process says that it is member {:x}; every member needs its own data \
                 directory and peer URL",
                said.from
            ));
        }
        // It would have to stop at the first command above its level.
        if said.feature_level < level {
            return Err(format!(
                "member {:x} (version {}) knows commands up to feature level {}, the cluster uses \
                 level {level} since its upgrade was finalized; start the newer version on {:x}",
                said.from, said.version, said.feature_level, said.from
            ));
        }
        Ok(said.from)
    }
}
