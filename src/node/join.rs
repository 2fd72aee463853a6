//! What a member with an empty data directory asks the others before it begins a log.
//!
//! A member that voted once must never come back without its log under the same id: it could vote
//! twice in one term. The others know whether an id was in use, so they are asked.

use super::handle::Identity;
use super::start::Joined;
use crate::config::Config;
use crate::machine::{ids, level};
use crate::peer::{self, Address, Found};
use crate::proto::peer as pb;

/// Why a member with an empty data directory does not start.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody could be asked.
    #[error(
        "cannot join: none of the members in --initial-cluster answers ({0}); check that they run \
         and that their peer URLs are reachable from here"
    )]
    Nobody(String),
    /// There is nobody to ask.
    #[error(
        "cannot join: --initial-cluster names only this member ({name}); give it the list that \
         `member add` printed"
    )]
    Alone {
        /// Name of this member.
        name: String,
    },
    /// The cluster does not know this member.
    #[error(
        "cannot join cluster {cluster:x}: no member has the peer URLs {urls}; run `member add` first \
         and give the same URLs to --initial-advertise-peer-urls"
    )]
    Unknown {
        /// The cluster.
        cluster: u64,
        /// What this member announces.
        urls: String,
    },
    /// `--initial-cluster` is not the list of members.
    #[error(
        "cannot join cluster {cluster:x}: {why}; give --initial-cluster exactly the members that \
         `member add` printed"
    )]
    OtherMembers {
        /// The cluster.
        cluster: u64,
        /// What differs.
        why: String,
    },
    /// This member ran before, and its log is gone.
    #[error(
        "member {member:x} has already been bootstrapped and its data directory is empty: with its \
         log it lost its votes, so it must not come back under this id. Remove it with `member \
         remove {member:x}`, add it with `member add`, and start it with \
         --initial-cluster-state=existing"
    )]
    Wiped {
        /// The member.
        member: u64,
    },
    /// This member was removed.
    #[error(
        "member {member:x} was removed from the cluster for good; add it again with `member add` and \
         start it with --initial-cluster-state=existing"
    )]
    Removed {
        /// The member.
        member: u64,
    },
    /// The cluster uses commands that this program does not know.
    #[error(
        "cannot join cluster {cluster:x}: it uses commands of feature level {needs}, this program knows \
         up to {own}; start the version that the other members run"
    )]
    AboveLevel {
        /// The cluster.
        cluster: u64,
        /// Its level.
        needs: u32,
        /// Level of this program.
        own: u32,
    },
    /// A peer belongs to another cluster.
    #[error(
        "the member at {url} belongs to cluster {found:x}, these flags describe cluster {own:x}; to \
         join it, run `member add` and start with --initial-cluster-state=existing, else check \
         --initial-cluster and --initial-cluster-token"
    )]
    OtherCluster {
        /// Who was asked.
        url: String,
        /// Its cluster.
        found: u64,
        /// The cluster of the flags.
        own: u64,
    },
}

impl JoinError {
    /// Exit code of the process (`operations.md` 2).
    pub fn exit_code(&self) -> u8 {
        match self {
            JoinError::Wiped { .. } | JoinError::Removed { .. } | JoinError::AboveLevel { .. } => {
                78
            }
            _ => 1,
        }
    }
}

/// Asks the other members, if there are any, and decides whether a member with an empty data
/// directory may begin. `Some` if it joins a cluster that exists.
///
/// # Errors
/// [`JoinError`] says what to do.
pub async fn join(config: &Config, dialer: &peer::Dialer) -> Result<Option<Joined>, JoinError> {
    let mut urls = Vec::new();
    for (name, listed) in &config.bootstrap.members {
        if *name != config.name {
            urls.extend(listed.texts());
        }
    }
    if config.bootstrap.existing && urls.is_empty() {
        return Err(JoinError::Alone { name: config.name.clone() });
    }
    let found = ask_all(urls, dialer).await;
    let own = config.feature_level.unwrap_or(level::OWN);
    if let Ok(found) = &found
        && found.feature_level > own
    {
        let (cluster, needs) = (found.cluster_id, found.feature_level);
        return Err(JoinError::AboveLevel { cluster, needs, own });
    }
    if config.bootstrap.existing {
        let found = found.map_err(|errors| JoinError::Nobody(errors.join("; ")))?;
        return existing(config, found).map(Some);
    }
    if let Ok(found) = found {
        founding(config, &found)?;
    }
    Ok(None)
}

/// Asks everybody at once; the first answer counts.
async fn ask_all(urls: Vec<String>, dialer: &peer::Dialer) -> Result<Found, Vec<String>> {
    let mut asked = tokio::task::JoinSet::new();
    for url in urls {
        let dialer = dialer.clone();
        asked.spawn(async move { peer::ask(&dialer, &[url]).await });
    }
    let mut errors = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(mut why)) => errors.append(&mut why),
            Err(error) => errors.push(error.to_string()),
        }
    }
    errors.sort();
    Err(errors)
}

fn existing(config: &Config, found: Found) -> Result<Joined, JoinError> {
    let cluster = found.cluster_id;
    let own_urls = config.listen.advertise_peer.texts();
    let own = found.members.iter().find(|member| same(&member.peer_urls, &own_urls));
    let Some(own) = own else {
        return Err(JoinError::Unknown { cluster, urls: own_urls.join(",") });
    };
    refuse_started(own)?;
    let other = |why: String| Err(JoinError::OtherMembers { cluster, why });
    let named = &config.bootstrap.members;
    if named.len() != found.members.len() {
        return other(format!(
            "member count is unequal: --initial-cluster names {}, the cluster has {}",
            named.len(),
            found.members.len()
        ));
    }
    for member in &found.members {
        if !named.iter().any(|(_, urls)| same(&urls.texts(), &member.peer_urls)) {
            return other(format!(
                "member {:x} has the peer URLs {}, which --initial-cluster does not name",
                member.id,
                member.peer_urls.join(",")
            ));
        }
    }
    let address = |m: &pb::Member| Address { id: m.id, urls: m.peer_urls.clone() };
    Ok(Joined {
        identity: Identity { cluster_id: cluster, member_id: own.id },
        members: found.members.iter().map(address).collect(),
    })
}

/// A new cluster is about to begin, but somebody answers already.
fn founding(config: &Config, found: &Found) -> Result<(), JoinError> {
    let id = |urls: &[String]| ids::member_id(urls, &config.bootstrap.token);
    let all: Vec<u64> = config.bootstrap.members.iter().map(|(_, u)| id(&u.texts())).collect();
    let own = id(&config.listen.advertise_peer.texts());
    let cluster = ids::cluster_id(&all);
    if found.cluster_id != cluster {
        return Err(JoinError::OtherCluster {
            url: found.url.clone(),
            found: found.cluster_id,
            own: cluster,
        });
    }
    if found.removed.contains(&own) {
        return Err(JoinError::Removed { member: own });
    }
    found.members.iter().find(|member| member.id == own).map_or(Ok(()), refuse_started)
}

/// A member publishes its client addresses when it starts for the first time.
fn refuse_started(member: &pb::Member) -> Result<(), JoinError> {
    match member.client_urls.is_empty() {
        true => Ok(()),
        false => Err(JoinError::Wiped { member: member.id }),
    }
}

fn same(left: &[String], right: &[String]) -> bool {
    let sorted = |urls: &[String]| {
        let mut urls = urls.to_vec();
        urls.sort();
        urls
    };
    sorted(left) == sorted(right)
}
