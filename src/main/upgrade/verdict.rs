//! How far an upgrade is, from what the leader knows.

use super::view::{Member, View};
use std::fmt;

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nobody can tell.
    NoLeader { member: String },
    /// A member is not connected, so nobody knows its level.
    Away { member: String },
    /// A member knows less than another.
    Older { member: String, level: u32, other: String, higher: u32 },
    /// All members know more than the cluster uses.
    Ready { level: u32, cluster: u32 },
    /// The cluster uses all that its members know.
    Finalized { cluster: u32 },
}

impl Verdict {
    pub(super) fn of(view: &View) -> Verdict {
        if view.leader.is_none() {
            return Verdict::NoLeader { member: view.member.clone() };
        }
        let (mut lowest, mut highest) = (None, None);
        for member in &view.members {
            let Some(level) = member.level else {
                return Verdict::Away { member: shown(member) };
            };
            if lowest.is_none_or(|(least, _)| level < least) {
                lowest = Some((level, member));
            }
            if highest.is_none_or(|(most, _)| level > most) {
                highest = Some((level, member));
            }
        }
        let cluster = view.cluster;
        match (lowest, highest) {
            (Some((least, _)), _) if least > cluster => Verdict::Ready { level: least, cluster },
            (Some((level, older)), Some((higher, newer))) if level < higher => {
                Verdict::Older { member: shown(older), level, other: shown(newer), higher }
            }
            _ => Verdict::Finalized { cluster },
        }
    }
}

fn shown(member: &Member) -> String {
    match member.name.as_str() {
        "" => format!("{} (not started yet)", member.id),
        name => format!("{} ({name})", member.id),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeader { member } => write!(
                f,
                "member {member} knows no leader: the members are electing one, or too few of them \
                 are running (no quorum); try again, or start them"
            ),
            Self::Away { member } => write!(
                f,
                "not yet: member {member} is not connected to the leader, so nobody knows its \
                 version; start it, or remove it (etcdctl member remove)"
            ),
            Self::Older { member, level, other, higher } => write!(
                f,
                "not yet: member {member} knows feature level {level} only, member {other} level \
                 {higher}; upgrade the older one first"
            ),
            Self::Ready { level, cluster } => write!(
                f,
                "ready: every member knows feature level {level}. Until `assay upgrade finalize` the \
                 cluster uses level {cluster}, and going back is an exchange of the program"
            ),
            Self::Finalized { cluster } => write!(
                f,
                "nothing to finalize: the cluster uses feature level {cluster}, which is all that \
                 its members know"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(cluster: u32, levels: &[Option<u32>]) -> View {
        let member = |(at, level): (usize, &Option<u32>)| Member {
            id: format!("{}", at + 1),
            name: if at == 2 { String::new() } else { format!("m{at}") },
            level: *level,
            client_urls: Vec::new(),
        };
        let members = levels.iter().enumerate().map(member).collect();
        View { member: "1".into(), leader: Some("1".into()), cluster, members }
    }

    fn of(cluster: u32, levels: &[Option<u32>]) -> Verdict {
        Verdict::of(&view(cluster, levels))
    }

    #[test]
    fn it_is_ready_only_when_every_member_knows_more_than_the_cluster_uses() {
        assert_eq!(of(1, &[Some(2); 3]), Verdict::Ready { level: 2, cluster: 1 });
        // To the lowest, also when one is further already.
        assert_eq!(of(1, &[Some(2), Some(3)]), Verdict::Ready { level: 2, cluster: 1 });
        assert_eq!(of(2, &[Some(2); 3]), Verdict::Finalized { cluster: 2 });
        let older = |member: &str, other: &str| Verdict::Older {
            member: member.into(),
            level: 1,
            other: other.into(),
            higher: 2,
        };
        assert_eq!(of(1, &[Some(2), Some(1), Some(2)]), older("2 (m1)", "1 (m0)"));
        assert_eq!(of(1, &[Some(1), Some(1), Some(2)]), older("1 (m0)", "3 (not started yet)"));
    }

    #[test]
    fn what_is_not_known_is_never_taken_for_enough() {
        let away = Verdict::Away { member: "3 (not started yet)".into() };
        assert_eq!(of(1, &[Some(2), Some(2), None]), away);
        assert_eq!(of(2, &[Some(2), Some(2), None]), away);
        assert_eq!(of(1, &[Some(2), Some(1), None]), away);
        let alone = View { leader: None, ..view(1, &[Some(2)]) };
        assert_eq!(Verdict::of(&alone), Verdict::NoLeader { member: "1".into() });
    }
}
