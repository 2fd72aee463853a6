//! Sizes of synced appends, as group commit of a key-value node makes them.

use crate::sampler::recorded;
use crate::sampler::shape::Appends;

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

    /// Bytes of the next append.
    pub fn size(&mut self) -> usize {
        match &self.appends {
            Appends::Typical => self.typical(),
            Appends::Fixed(bytes) => *bytes,
            Appends::Recorded(recorded) => {
                let bytes = recorded.log.draw(&mut self.random);
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(ALIGN);
                bytes.min(recorded::MAX_APPEND - ALIGN).next_multiple_of(ALIGN)
            }
        }
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

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.word() >> 11) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
