//! What a member says of an upgrade: the JSON of `/debug/upgrade`, and the same as a table.

use assay::node::Handle;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Levels of commands as a member knows them. Ids are hexadecimal, as in the log and in `etcdctl`'s
/// tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Who says so.
    pub(crate) member: String,
    /// The leader, if one is known.
    pub(crate) leader: Option<String>,
    /// Level that the cluster uses.
    pub(crate) cluster: u32,
    /// All members, by id.
    pub(crate) members: Vec<Member>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its id.
    pub(crate) id: String,
    /// Its name, empty before its first start.
    pub(crate) name: String,
    /// Level of its program; none while it is not connected.
    pub(crate) level: Option<u32>,
    /// Where it serves clients.
    pub(crate) client_urls: Vec<String>,
}

impl View {
    /// What this node knows.
    pub(crate) fn of(node: &Handle) -> View {
        let upgrade = node.upgrade();
        let hex = |id: u64| format!("{id:x}");
        let members = upgrade.members.into_iter().map(|member| Member {
            id: hex(member.id),
            name: member.name,
            level: member.level,
            client_urls: member.client_urls,
        });
        View {
            member: hex(node.identity().member_id),
            leader: (upgrade.leader != 0).then(|| hex(upgrade.leader)),
            cluster: upgrade.cluster,
            members: members.collect(),
        }
    }

    /// Whether the one who says so leads.
    pub(super) fn is_leader(&self) -> bool {
        self.leader.as_ref() == Some(&self.member)
    }

    /// Id and name of the leader, for people.
    pub(super) fn leader_shown(&self) -> String {
        let id = self.leader.clone().unwrap_or_default();
        match self.members.iter().find(|member| member.id == id && !member.name.is_empty()) {
            Some(leader) => format!("{id} ({})", leader.name),
            None => id,
        }
    }

    /// Client URLs of the leader, as far as they are known.
    pub(super) fn leader_urls(&self) -> impl Iterator<Item = &String> {
        let leader = self.members.iter().filter(|member| Some(&member.id) == self.leader.as_ref());
        leader.flat_map(|member| &member.client_urls)
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!("feature level of the cluster: {}\n", self.cluster);
        if !self.is_leader() {
            let _ = writeln!(text, "as member {} sees it, which does not lead:", self.member);
        }
        let _ =
            writeln!(text, "\n{:16}  {:16}  {:13}  CLIENT URLS", "MEMBER", "NAME", "KNOWS LEVEL");
        for member in &self.members {
            let level = member.level.map_or("not connected".into(), |level| level.to_string());
            let leads = Some(&member.id) == self.leader.as_ref();
            let level = if leads { format!("{level}, leads") } else { level };
            let urls = member.client_urls.join(",");
            let _ = writeln!(text, "{:16}  {:16}  {level:13}  {urls}", member.id, member.name);
        }
        text
    }
}
