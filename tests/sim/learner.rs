//! A learner without disk: it remembers everything it was ever sent, and what it was told is
//! committed must be what the oracle knows. It catches messages that left before the disk held
//! what they say.

use assay::consensus::{Committed, Config, Core, Effect, Input, Restored, Wire};

use super::node::LEARNER;
use super::oracle::{Oracle, Verdict, Violation};

pub struct Learner {
    core: Core,
    /// Index up to which it was told that entries are committed.
    pub applied: u64,
}

impl Learner {
    pub fn new() -> Self {
        let core = Core::new(&Config::new(LEARNER), Restored::default()).unwrap();
        Self { core, applied: 0 }
    }

    /// Takes a message; returns its answers.
    pub fn receive(
        &mut self,
        wire: Wire,
        now_ms: u64,
        oracle: &mut Oracle,
    ) -> Result<Vec<Wire>, Violation> {
        let mut inputs = vec![Input::Wire(wire)];
        let mut answers = Vec::new();
        while !inputs.is_empty() {
            let mut effects = Vec::new();
            self.core.step(now_ms, &mut inputs, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Send(wires) => answers.extend(wires),
                    Effect::Persist(batch) => inputs.push(Input::Persisted { batch: batch.number }),
                    Effect::Apply(committed) => {
                        for committed in &committed {
                            self.learned(committed, oracle)?;
                        }
                        inputs.push(Input::Applied { index: self.applied, durable: self.applied });
                    }
                    _ => {}
                }
            }
        }
        Ok(answers)
    }

    fn learned(&mut self, committed: &Committed, oracle: &mut Oracle) -> Verdict {
        self.applied = committed.entry.index;
        oracle.learned(committed)
    }
}
