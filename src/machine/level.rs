//! Levels of commands: what members of different versions in one cluster may say to each other
//! through the log.
//!
//! Every version applies the commands of its own level and of all below. The cluster has a level too,
//! which is replicated and only rises: no command above it is proposed, so members of the version
//! before apply everything. A new cluster begins at the level of its founders; later it is raised by
//! finalizing an upgrade, to the lowest level of all members
//! ([`FeatureLevelSetRequest`](crate::proto::etcdserverpb::FeatureLevelSetRequest)); until then going
//! back to the version before is an exchange of the program.
//!
//! Should a member meet a command that it does not know all the same, it stops before it applies
//! anything of it: to skip it, or the part that it does not know, would make it differ from the others.
//!
//! | level | commands |
//! |---|---|
//! | 1 | everything of etcd's that is applied here, `member_update` |
//! | 2 | `feature_level_set`; the alarm action that fences a member; commands that name the level they need |

use super::AnswerError;
use super::command::ACTION_FENCE;
use crate::proto::etcdserverpb::InternalRaftRequest;
use prost::Message;

/// The level that every version knows, and at which every cluster begins.
pub const FIRST: u32 = 1;
/// Level that this program knows.
pub const OWN: u32 = 2;
/// Level with which members can be fenced.
pub const FENCES: u32 = 2;

/// Lowest level of a member that knows everything in this command. A field that is added to the
/// message of a command belongs here, with the level that it came with.
#[must_use]
pub fn needs(request: &InternalRaftRequest) -> u32 {
    // Whoever knows the level to come knows the command that sets it as well.
    let set = request.feature_level_set.as_ref().map_or(FIRST, |set| set.level.max(2));
    let fences = request.alarm.as_ref().is_some_and(|alarm| alarm.action == ACTION_FENCE);
    set.max(if fences { FENCES } else { FIRST })
}

/// Writes the level that a command needs into it, if it is not the first: the versions of level 1
/// would not look for it.
pub fn stamp(request: &mut InternalRaftRequest) {
    let needs = needs(request);
    request.feature_level = if needs > FIRST { needs } else { 0 };
}

/// Whether a program of level `own` knows all of an entry that was decoded from `bytes` bytes.
///
/// Decoding drops fields that it does not know, at any depth. Members encode in one way only, so what
/// was dropped shows in the length.
pub(super) fn check(
    request: &InternalRaftRequest,
    bytes: usize,
    own: u32,
) -> Result<(), AnswerError> {
    if request.feature_level > own {
        return Err(AnswerError::AboveLevel { needs: request.feature_level, own });
    }
    // A program that claims a lower level than its code has (in tests) must behave like one.
    if needs(request) > own || request.encoded_len() != bytes {
        return Err(AnswerError::UnknownCommand);
    }
    Ok(())
}
