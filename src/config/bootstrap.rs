//! The first members of a cluster, and the rules for changing them.

use super::validate::{ConfigError, Reader, one_of};
use super::{Bootstrap, Listen, ListenUrl, Membership, UrlList};

/// Most members that a cluster begins with: a larger quorum costs more than it protects. One that
/// exists may have grown beyond it: there the list is what `member add` printed.
const FOUNDERS_MAX: usize = 7;
/// Most learners that can be asked for.
const LEARNERS_MAX: u64 = 64;

/// Reads `--initial-cluster` and its companions, with etcd's checks.
///
/// # Errors
/// The first thing that does not fit.
pub(super) fn read(
    read: &Reader<'_>,
    name: &str,
    listen: &Listen,
) -> Result<Bootstrap, ConfigError> {
    let state = one_of(read, "initial-cluster-state", &["new", "existing"])?;
    let invalid = |text: String| Err(ConfigError::Invalid(text));
    let text = read.text("initial-cluster");
    let mut members: Vec<(String, UrlList)> = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (member, url) = part
            .split_once('=')
            .ok_or_else(|| read.bad("initial-cluster", "NAME=PEER-URL is expected"))?;
        let url = ListenUrl::parse(url).map_err(|why| read.bad("initial-cluster", why))?;
        match members.iter_mut().find(|(known, _)| known == member.trim()) {
            Some((_, urls)) => urls.0.push(url),
            None => members.push((member.trim().to_string(), UrlList(vec![url]))),
        }
    }
    for (_, urls) in &mut members {
        urls.0.sort();
        urls.0.dedup();
    }
    if members.is_empty() {
        members.push((name.to_string(), listen.advertise_peer.clone()));
    }
    let Some(own) = members.iter().find(|(member, _)| member == name) else {
        return invalid(format!(
            "couldn't find local name \"{name}\" in the initial cluster configuration"
        ));
    };
    same_urls(name, &own.1, &listen.advertise_peer)?;
    let mut all: Vec<&ListenUrl> = members.iter().flat_map(|(_, urls)| &urls.0).collect();
    all.sort();
    if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        return invalid(format!(
            "--initial-cluster names {} twice; every member needs its own peer URL",
            twice[0]
        ));
    }
    let existing = state == "existing";
    if !existing && members.len() > FOUNDERS_MAX {
        return invalid(format!(
            "--initial-cluster names {} members; a cluster begins with at most {FOUNDERS_MAX}, add \
             the others later with `member add`",
            members.len()
        ));
    }
    Ok(Bootstrap { token: read.text("initial-cluster-token").to_string(), members, existing })
}

/// The own entry of `--initial-cluster` must say what this member announces.
fn same_urls(name: &str, listed: &UrlList, announced: &UrlList) -> Result<(), ConfigError> {
    let entries = |urls: &UrlList| -> Vec<String> {
        urls.0.iter().map(|url| format!("{name}={url}")).collect()
    };
    let missing = |from: &UrlList, all: &UrlList| from.0.iter().any(|url| !all.0.contains(url));
    if missing(listed, announced) {
        return Err(ConfigError::Invalid(format!(
            "--initial-cluster has {} but missing from --initial-advertise-peer-urls={announced}",
            entries(listed).join(","),
        )));
    }
    if missing(announced, listed) {
        return Err(ConfigError::Invalid(format!(
            "--initial-advertise-peer-urls has {announced} but missing from --initial-cluster={}",
            entries(listed).join(","),
        )));
    }
    Ok(())
}

/// Reads the rules for membership changes.
///
/// # Errors
/// A value out of range.
pub(super) fn membership(read: &Reader<'_>) -> Result<Membership, ConfigError> {
    Ok(Membership {
        strict: read.boolean("strict-reconfig-check")?,
        learners_max: read.within("max-learners", 0, LEARNERS_MAX)? as usize,
    })
}
