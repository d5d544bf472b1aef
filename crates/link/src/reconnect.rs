//! When to connect again: random waits whose ceiling doubles, so that the senders of a returning
//! receiver do not all come back at once. Decides waits only; the caller sleeps and connects.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Full-jitter backoff: the n-th wait is anything from 0 to `min * 2^n`, at most `max`.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
    jitter: Jitter,
}

impl Backoff {
    /// A backoff whose first wait is at most `min`, and every later one at most `max` (not below `min`).
    pub fn new(min: Duration, max: Duration, jitter: Jitter) -> Self {
        Self {
            min,
            max: max.max(min),
            failures: 0,
            jitter,
        }
    }

    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        self.jitter.up_to(ceiling)
    }

    /// Resets the backoff after a success: the next wait is at most `min` again.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.min
            .checked_mul(factor)
            .unwrap_or(self.max)
            .min(self.max)
    }
}

/// Random lengths of time, the same for the same seed (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// Lengths that follow from `seed`; `None` takes a random one.
    pub fn new(seed: Option<u64>) -> Self {
        // A hasher's random keys are good enough here.
        Self(seed.unwrap_or_else(|| RandomState::new().hash_one(0)))
    }

    /// A length from 0 to `most`, to the millisecond.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let steps = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.draw() % steps.saturating_add(1).max(1))
    }

    /// `length`, longer or shorter by up to a fifth, to the millisecond.
    pub fn around(&mut self, length: Duration) -> Duration {
        let fifth = length / 5;
        length
            .saturating_sub(fifth)
            .saturating_add(self.up_to(fifth.saturating_mul(2)))
    }

    const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn backoff(seed: u64) -> Backoff {
        Backoff::new(SECOND, MINUTE, Jitter::new(Some(seed)))
    }

    #[test]
    fn waits_double_up_to_the_most_and_are_spread_over_their_whole_range() {
        let mut longest = [Duration::ZERO; 10];
        let mut shortest = [MINUTE; 10];
        for seed in 0..2_000 {
            let mut one = backoff(seed);
            for n in 0..10 {
                let wait = one.next_wait();
                longest[n] = longest[n].max(wait);
                shortest[n] = shortest[n].min(wait);
            }
        }
        for (n, ceiling) in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].into_iter().enumerate() {
            let ceiling = Duration::from_secs(ceiling);
            assert!(longest[n] <= ceiling && longest[n] > ceiling.mul_f64(0.99));
            assert!(shortest[n] < ceiling.mul_f64(0.01));
        }
    }

    #[test]
    fn a_reset_starts_again_and_many_failures_do_not_overflow() {
        let mut one = backoff(7);
        for _ in 0..1_000 {
            assert!(one.next_wait() <= MINUTE);
        }
        one.reset();
        assert!(one.next_wait() <= SECOND);
    }

    #[test]
    fn the_same_seed_gives_the_same_waits_and_no_seed_gives_others() {
        let waits = |mut one: Backoff| -> Vec<Duration> {
            std::iter::repeat_with(|| one.next_wait())
                .take(20)
                .collect()
        };
        assert_eq!(waits(backoff(1)), waits(backoff(1)));
        assert_ne!(waits(backoff(1)), waits(backoff(2)));
        let free = || Backoff::new(SECOND, MINUTE, Jitter::new(None));
        assert_ne!(waits(free()), waits(free()));
    }

    #[test]
    fn around_stays_within_a_fifth() {
        let mut jitter = Jitter::new(Some(3));
        let all: Vec<Duration> = std::iter::repeat_with(|| jitter.around(SECOND * 10))
            .take(2_000)
            .collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*least >= SECOND * 8 && *least < SECOND * 8 + SECOND / 10);
        assert!(*most <= SECOND * 12 && *most > SECOND * 119 / 10);
        assert_eq!(jitter.around(Duration::ZERO), Duration::ZERO);
    }
}
