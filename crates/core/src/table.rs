//! A hash table for small keys such as ids: quick, and of a secret order, as peers choose ids.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash table whose keys are numbers, or are made of few of them.
pub type Table<K, V> = HashMap<K, V, Mix>;

/// Hashes by multiplication with secret numbers, which each table draws anew: a peer that chooses the keys cannot know
/// which ones collide.
#[derive(Debug, Clone)]
pub struct Mix {
    start: u64,
    factor: u64,
}

impl Default for Mix {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            start: random.hash_one(0_u8),
            // Odd, so that no bit of a key is lost.
            factor: random.hash_one(1_u8) | 1,
        }
    }
}

impl BuildHasher for Mix {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer {
            state: self.start,
            factor: self.factor,
        }
    }
}

/// The hasher of one key.
#[derive(Debug)]
pub struct Mixer {
    state: u64,
    factor: u64,
}

/// The product's halves folded, as its low bits do not depend on a factor's high ones.
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one).wrapping_mul(u128::from(other));
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    half(product) ^ half(product >> 64)
}

impl Mixer {
    fn mix(&mut self, value: u64) {
        self.state = folded(self.state ^ value, self.factor);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        // Once more: keys in a row would else stand in a row.
        folded(self.state, self.factor.rotate_left(32) | 1)
    }

    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(piece)
                .for_each(|(to, from)| *to = *from);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_isize(&mut self, value: isize) {
        // An enum is hashed by its discriminant.
        self.mix(u64::from_le_bytes(
            i64::try_from(value).unwrap_or_default().to_le_bytes(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_in_a_row_or_with_a_stride_spread_over_low_and_high_bits() {
        for stride in [1_u64, 2, 64, 1 << 16, 1 << 32, 1 << 52] {
            let mix = Mix::default();
            let hashes: Vec<_> = (0..4_096_u64).map(|at| mix.hash_one(at * stride)).collect();
            for bits in [
                hashes.clone(),
                hashes.iter().map(|hash| hash >> 52).collect(),
            ] {
                let places: HashSet<_> = bits.iter().map(|hash| hash % 4_096).collect();
                // A random spread fills 2,589 of them on the average.
                assert!(places.len() > 1_300, "{stride}: {}", places.len());
            }
        }
    }

    #[test]
    fn each_table_has_an_order_of_its_own() {
        let keys = |table: &Table<u32, u32>| table.keys().copied().collect::<Vec<_>>();
        let tables: HashSet<_> = (0..8)
            .map(|_| keys(&(0..64).map(|key| (key, key)).collect()))
            .collect();
        assert!(tables.len() > 1);
    }

    #[test]
    fn keys_that_differ_in_kind_or_bytes_alone_hash_differently() {
        #[derive(Hash)]
        enum Key {
            One(u32),
            Other(u32),
        }
        let mix = Mix::default();
        assert_ne!(mix.hash_one(Key::One(7)), mix.hash_one(Key::Other(7)));
        assert_ne!(mix.hash_one([1_u8; 9]), mix.hash_one([1_u8; 10]));
        assert_ne!(mix.hash_one("123456789"), mix.hash_one("12345678x"));
    }
}
