//! Keyed randomness.
//!
//! With a single stream of random numbers every later draw depends on every earlier one: without one fault all else
//! changes, so a failing run cannot be made smaller. Here each number is a function of (seed, component, purpose,
//! counter) and of nothing else.

/// The root of all chance in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    seed: u64,
}

impl Chance {
    /// The chance of a run.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The `counter`-th number that `component` draws for `purpose`.
    #[must_use]
    pub fn draw(self, component: &str, purpose: &str, counter: u64) -> u64 {
        let mut state = mix(self.seed ^ 0x9E37_79B9_7F4A_7C15);
        // The lengths separate the strings, so that ("ab", "c") is not ("a", "bc").
        for word in [component, purpose] {
            for byte in word.bytes() {
                state = mix(state ^ u64::from(byte));
            }
            state = mix(state ^ (word.len() as u64) << 32);
        }
        mix(state ^ counter)
    }

    /// A number below `bound`, which is not zero.
    #[must_use]
    pub fn below(self, bound: u64, component: &str, purpose: &str, counter: u64) -> u64 {
        self.draw(component, purpose, counter) % bound.max(1)
    }

    /// Chance of a part of the run, independent of all other parts.
    #[must_use]
    pub fn part(self, name: &str, number: u64) -> Self {
        Self { seed: self.draw("part", name, number) }
    }
}

/// A bijection of 64 bits that scatters (the finaliser of `SplitMix64`).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A draw after a draw, for generators that need no names.
#[derive(Clone, Debug)]
pub struct Draws {
    chance: Chance,
    next: u64,
}

impl Draws {
    /// Draws of `chance`, from the first.
    #[must_use]
    pub const fn new(chance: Chance) -> Self {
        Self { chance, next: 0 }
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        self.chance.below(bound, "draws", "", self.next)
    }

    /// One of `count` things, by its number.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap_or(0)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`; `None` if there are none.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.index(choices.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_its_key_alone() {
        let chance = Chance::new(7);
        let first = chance.draw("node-1", "latency", 3);
        assert_ne!(chance.draw("node-1", "latency", 4), first);
        assert_eq!(chance.draw("node-1", "latency", 3), first);
        let others = [
            Chance::new(8).draw("node-1", "latency", 3),
            chance.draw("node-1", "latency", 4),
            chance.draw("node-1l", "atency", 3),
            chance.draw("node-2", "latency", 3),
        ];
        assert!(!others.contains(&first));
    }

    #[test]
    fn small_ranges_are_filled_evenly() {
        let mut counts = [0_u32; 10];
        for counter in 0..10_000 {
            counts[usize::try_from(Chance::new(1).below(10, "a", "b", counter)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
