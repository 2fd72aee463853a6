//! What a member asks the others before it has a log of its own.

use super::dial::Dialer;
use crate::proto::peer as pb;
use crate::proto::peer::peer_client::PeerClient;
use std::time::Duration;
use tokio::time::timeout;

/// Time for one peer to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// What a peer says of its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Where it was asked.
    pub url: String,
    /// Its cluster.
    pub cluster_id: u64,
    /// Itself.
    pub from: u64,
    /// All members, by id.
    pub members: Vec<pb::Member>,
    /// Ids that must never come back.
    pub removed: Vec<u64>,
    /// Level of the commands that the cluster uses; 0 if the peer does not say.
    pub feature_level: u32,
}

/// Asks one peer after another for its members; the first answer counts.
///
/// # Errors
/// What went wrong with each of them.
pub async fn ask(dialer: &Dialer, urls: &[String]) -> Result<Found, Vec<String>> {
    let mut errors = Vec::new();
    for url in urls {
        match timeout(ANSWER, one(dialer, url)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => errors.push(error),
            Err(_) => errors.push(format!("{url}: no answer for {} s", ANSWER.as_secs())),
        }
    }
    Err(errors)
}

async fn one(dialer: &Dialer, url: &str) -> Result<Found, String> {
    let channel = dialer.channel(url).await.map_err(|error| error.to_string())?;
    let answer = PeerClient::new(channel).members(pb::MembersRequest {}).await;
    let answer = answer.map_err(|status| format!("{url}: {}", status.message()))?.into_inner();
    Ok(Found {
        url: url.to_owned(),
        cluster_id: answer.cluster_id,
        from: answer.from,
        members: answer.members,
        removed: answer.removed,
        feature_level: answer.feature_level,
    })
}
