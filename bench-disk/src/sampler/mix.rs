//! Sizes of synced appends, as group commit of a key-value node makes them.

use crate::sampler::recorded;
use crate::sampler::shape::Appends;
use std::time::Duration;

/// Largest append: a full batch of a loaded node.
pub const MAX_APPEND: usize = 256 << 10;

/// Records are framed in multiples of this.
const ALIGN: usize = 8;

/// A fixed sequence of sizes: one record in 70 % of the appends, a few in 29 %, a large batch in
/// 1 %; about 5 KB in the mean. Every run writes the same sequence, so runs can be compared.
#[derive(Clone, Debug)]
pub struct Mix {
    random: Random,
    appends: Appends,
}

impl Default for Mix {
    fn default() -> Self {
        Self::of(Appends::Typical)
    }
}

impl Mix {
    /// The sequence of these appends.
    pub fn of(appends: Appends) -> Self {
        Self { random: Random(0x005E_ED0F_A55A_4D15), appends }
    }

    /// Largest size that there can be, in bytes.
    pub fn largest(&self) -> usize {
        match &self.appends {
            Appends::Typical => MAX_APPEND,
            Appends::Fixed(bytes) => *bytes,
            Appends::Recorded(_) => recorded::MAX_APPEND,
        }
    }

    /// The next append: its bytes, and how long the one before has been synced when its own sync
    /// begins, if a node recorded that.
    pub fn append(&mut self) -> (usize, Option<Duration>) {
        match &self.appends {
            Appends::Typical => (self.typical(), None),
            Appends::Fixed(bytes) => (*bytes, None),
            Appends::Recorded(recorded) => {
                let draw = recorded.log.draw(&mut self.random);
                let bytes = usize::try_from(draw.bytes).unwrap_or(usize::MAX).max(ALIGN);
                let bytes = bytes.min(recorded::MAX_APPEND - ALIGN).next_multiple_of(ALIGN);
                // Requests come at random times: so do the syncs that they wait for.
                (bytes, draw.gap.map(|mean| self.random.around(mean)))
            }
        }
    }

    /// Bytes of the next append.
    pub fn size(&mut self) -> usize {
        self.append().0
    }

    fn typical(&mut self) -> usize {
        let bytes = match self.random.below(100) {
            0..70 => self.record(),
            70..99 => (0..2 + self.random.below(14)).map(|_| self.record()).sum(),
            _ => (64 << 10) + self.random.below((MAX_APPEND - (64 << 10)) as u64) as usize,
        };
        bytes.next_multiple_of(ALIGN).min(MAX_APPEND)
    }

    /// One replicated command: 64 to 2,300 bytes.
    fn record(&mut self) -> usize {
        64 + self.random.below(2_237) as usize
    }
}

/// xorshift64*: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A time of an exponential distribution with this mean: what lies between events that know
    /// nothing of each other.
    pub fn around(&mut self, mean: Duration) -> Duration {
        const STEPS: u64 = 1 << 53;
        let uniform = (self.below(STEPS) + 1) as f64 / STEPS as f64;
        mean.mul_f64(-uniform.ln())
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.word() >> 11) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_around_a_mean_have_it_and_its_spread() {
        let mut random = Random(3);
        let mean = Duration::from_micros(200);
        let times: Vec<f64> = (0..20_000).map(|_| random.around(mean).as_secs_f64()).collect();
        let average = times.iter().sum::<f64>() / times.len() as f64 * 1e6;
        assert!((190.0..210.0).contains(&average), "{average}");
        // The median of an exponential distribution is ln 2 of its mean.
        let below = times.iter().filter(|&&time| time < 200e-6 * std::f64::consts::LN_2).count();
        assert!((9_600..10_400).contains(&below), "{below}");
    }

    #[test]
    fn ten_thousand_appends_have_a_mean_near_five_kilobytes_and_fit_the_boot_budget() {
        let mut mix = Mix::default();
        let sizes: Vec<usize> = (0..10_000).map(|_| mix.size()).collect();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((4_500..6_000).contains(&mean), "mean {mean}");
        let large = sizes.iter().filter(|&&size| size >= 64 << 10).count();
        assert!((70..130).contains(&large), "{large} large batches");
        assert!(sizes.iter().all(|&size| size % ALIGN == 0 && (64..=MAX_APPEND).contains(&size)));
    }
}
