//! Members of the cluster: the replicated facts, one row of JSON each.

use super::command::MemberOp;
use crate::store::Table;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One member. Its JSON form is etcd's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Id.
    pub id: u64,
    /// Where its peers reach it.
    #[serde(default, rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// Whether it has no vote.
    #[serde(default, rename = "isLearner", skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
    /// Its name; empty until it has started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where clients reach it; empty until it has started.
    #[serde(default, rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
}

/// All members, and who must never come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    members: BTreeMap<u64, Member>,
    removed: BTreeSet<u64>,
}

/// A changed row of a small table.
pub(super) type Row = (Table, Bytes, Option<Bytes>);

/// Content of a row that marks a removed member.
const REMOVED: &[u8] = b"removed";

impl Members {
    /// All members in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none, as before the first entry of the log.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// One member.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Member> {
        self.members.get(&id)
    }

    /// Whether this id was a member once and is none any more.
    #[must_use]
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Ids that were members once and must never be again.
    pub fn removed(&self) -> impl Iterator<Item = u64> {
        self.removed.iter().copied()
    }

    /// Number of members with a vote.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.members.values().filter(|member| !member.is_learner).count()
    }

    /// Reads a stored row; false if it is damaged.
    pub(super) fn load(&mut self, table: Table, key: &[u8], value: &[u8]) -> bool {
        let id = std::str::from_utf8(key).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        match (id, table) {
            (Some(id), Table::MembersRemoved) => self.removed.insert(id),
            (Some(id), _) => match serde_json::from_slice::<Member>(value) {
                Ok(member) if member.id == id => self.members.insert(id, member).is_none(),
                _ => false,
            },
            (None, _) => false,
        }
    }

    /// Carries out what the configuration did already; returns the changed rows. `Err` if the
    /// member does not exist.
    pub(super) fn apply(&mut self, op: MemberOp) -> Result<Vec<Row>, ()> {
        match op {
            MemberOp::Nothing => Ok(Vec::new()),
            MemberOp::Add(mut member) => {
                // An add may repeat what is known; it must not forget what the member published.
                if let Some(known) = self.members.get(&member.id) {
                    if member.name.is_empty() {
                        member.name.clone_from(&known.name);
                    }
                    if member.client_urls.is_empty() {
                        member.client_urls.clone_from(&known.client_urls);
                    }
                    if member.peer_urls.is_empty() {
                        member.peer_urls.clone_from(&known.peer_urls);
                    }
                }
                let id = member.id;
                self.members.insert(id, member);
                Ok(vec![self.row(id)])
            }
            MemberOp::Promote(id) => self.change(id, |member| member.is_learner = false),
            MemberOp::Update { id, peer_urls } => {
                self.change(id, |member| member.peer_urls = peer_urls)
            }
            MemberOp::Remove(id) => {
                let known = self.members.remove(&id).is_some();
                self.removed.insert(id);
                let removed = (Table::MembersRemoved, key(id), Some(Bytes::from_static(REMOVED)));
                if known { Ok(vec![self.row(id), removed]) } else { Err(()) }
            }
        }
    }

    /// Changes one member in place: everything else about it stays.
    pub(super) fn change(
        &mut self,
        id: u64,
        change: impl FnOnce(&mut Member),
    ) -> Result<Vec<Row>, ()> {
        change(self.members.get_mut(&id).ok_or(())?);
        Ok(vec![self.row(id)])
    }

    fn row(&self, id: u64) -> Row {
        let json = self.members.get(&id).and_then(|member| serde_json::to_vec(member).ok());
        (Table::Members, key(id), json.map(Bytes::from))
    }
}

/// Key of a member's row: its id in hex without padding.
fn key(id: u64) -> Bytes {
    format!("{id:x}").into()
}
