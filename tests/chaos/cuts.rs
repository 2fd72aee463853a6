//! The network is cut: in two parts, or one way.

use crate::common::{Clients, number};
use crate::history::Load;
use crate::members::{Disks, Members, runtime, seed};
use assay::proto::etcdserverpb::{PutRequest, RangeRequest};
use rand::{Rng, SeedableRng};
use tonic::Code;

#[test]
fn three_of_five_go_on_and_two_tell_no_lies() {
    let (rounds, seed) = (number("ROUNDS", 1), seed());
    let Some(members) = Members::start(5, Disks::Shared, |_, launch| launch) else { return };
    runtime().block_on(async {
        let load = Load::start(members.urls(), seed);
        for round in 0..rounds as usize {
            load.next_round();
            load.wait_acked(100).await;
            // The leader is on the smaller side.
            let leader = members.leader().await;
            let two = [leader, (leader + 1 + round % 4) % 5];
            let three: Vec<usize> = (0..5).filter(|at| !two.contains(at)).collect();
            members.lan.part(&two, &three);
            let new = members.leader_of(&three).await;
            assert!(!two.contains(&new));
            load.wait_acked(100).await;
            for at in two {
                alone(&members.nodes[at].client_url()).await;
            }
            let failed: u64 = two.iter().map(|at| load.of_member(*at).1).sum();
            assert!(failed > 0, "the clients of the two saw no error");
            members.lan.heal();
            load.wait_acked(100).await;
        }
        members.agree().await;
        eprintln!(
            "{rounds} partitions three to two: {}, all members hash alike",
            load.judge().await
        );
    });
}

/// A member without a quorum refuses what needs one, and answers what does not.
async fn alone(url: &str) {
    let mut clients = Clients::connect(url).await;
    let put = PutRequest { key: "alone".into(), ..PutRequest::default() };
    let refused = clients.kv.put(put).await.expect_err("a write without a quorum");
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let range = RangeRequest { key: "alone".into(), ..RangeRequest::default() };
    let refused = clients.kv.range(range.clone()).await.expect_err("a read without a quorum");
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    let local = RangeRequest { serializable: true, ..range };
    let answer = clients.kv.range(local).await.expect("a serializable read").into_inner();
    assert!(answer.kvs.is_empty());
}

#[test]
fn one_way_cuts_heal() {
    let (rounds, seed) = (number("ROUNDS", 3), seed());
    let Some(members) = Members::start(3, Disks::Shared, |_, launch| launch) else { return };
    runtime().block_on(async {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let load = Load::start(members.urls(), seed);
        for round in 0..rounds {
            load.next_round();
            load.wait_acked(rng.random_range(20..100)).await;
            let leader = members.leader().await;
            let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
            match round % 3 {
                // The leader is heard and hears nobody: it must not lead on.
                0 => others.iter().for_each(|at| members.lan.cut(*at, leader)),
                // The leader is not heard, and hears.
                1 => others.iter().for_each(|at| members.lan.cut(leader, *at)),
                // One follower hears nobody.
                _ => (0..3).filter(|at| *at != others[0]).for_each(|at| {
                    members.lan.cut(at, others[0]);
                }),
            }
            load.wait_acked(50).await;
            members.lan.heal();
            load.wait_acked(50).await;
        }
        members.agree().await;
        eprintln!("{rounds} one-way cuts: {}, all members hash alike", load.judge().await);
    });
}
