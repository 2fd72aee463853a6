//! What a member knows of an election before it begins.

use super::group::Group;

#[test]
fn a_leader_that_is_not_heard_for_more_than_a_heartbeat_is_silent() {
    let mut group = Group::new(3, 1, None);
    assert!(group.core(2).leader_is_silent(), "there is none yet");
    group.elect(1);
    for _ in 0..30 {
        group.tick();
        assert!((1..=4).all(|id| !group.core(id).leader_is_silent()));
    }
    group.lose = |w| w.from() == 1;
    group.tick();
    group.tick();
    assert!((2..=4).all(|id| group.core(id).leader_is_silent()), "followers and learners");
    assert!(!group.core(1).leader_is_silent(), "it leads");
    group.lose = |_| false;
    group.tick();
    assert!((1..=4).all(|id| !group.core(id).leader_is_silent()));
}
