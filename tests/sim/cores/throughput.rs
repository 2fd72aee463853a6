//! What one core costs without disk and network; `--ignored --nocapture` prints it.

use assay::consensus::{BootstrapMember, Config, Core, Effect, Input, Restored, Token, bootstrap};
use bytes::Bytes;
use std::time::Instant;

const PROPOSALS: u64 = 1_000_000;
const VALUE_BYTES: usize = 512;

/// Proposals per second of a sole voter whose disk and state machine are infinitely fast.
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn proposals_per_second(in_flight: u64) -> f64 {
    let member = BootstrapMember { id: 1, context_json: Bytes::new() };
    let (entries, hard_state) = bootstrap(&[member]);
    let restored = Restored { entries, hard_state, ..Restored::default() };
    let mut core = Core::new(&Config::new(1), restored).expect("starts");
    core.campaign();
    let data = Bytes::from(vec![1; VALUE_BYTES]);
    let (mut inputs, mut out) = (Vec::new(), Vec::new());
    let (mut proposed, mut done) = (0, 0);
    let start = Instant::now();
    while done < PROPOSALS {
        while core.status().leader == 1 && proposed < done + in_flight {
            let burst = in_flight - (proposed - done);
            let propose = |n| Input::Propose { token: Token(n), data: data.clone() };
            inputs.extend((proposed..proposed + burst).map(propose));
            proposed += burst;
        }
        core.step(0, &mut inputs, &mut out);
        for effect in out.drain(..) {
            match effect {
                Effect::Persist(batch) => inputs.push(Input::Persisted { batch: batch.number }),
                Effect::Apply(entries) => {
                    let index = entries.last().map_or(0, |c| c.entry.index);
                    done +=
                        entries.iter().filter(|c| c.entry.data.len() == VALUE_BYTES).count() as u64;
                    inputs.push(Input::Applied { index, durable: index });
                }
                Effect::Refuse { why, .. } => panic!("refused: {why}"),
                _ => {}
            }
        }
    }
    done as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn proposals_of_a_sole_voter() {
    for in_flight in [1, 64, 1_024] {
        println!("{in_flight:5} in flight: {:9.0} proposals/s", proposals_per_second(in_flight));
    }
}
