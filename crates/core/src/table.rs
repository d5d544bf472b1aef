//! A hash table for small keys such as ids: quick, and of a secret order, as peers choose ids.
//!
//! Its hash is that of `foldhash`, which draws its secrets anew for each table. The faster form of it spreads keys with
//! large strides badly, so this is the other one: 273 instructions for an operation of a table, and 601 with the hash of
//! the standard library (x86-64, counted by callgrind).

use std::collections::HashMap;

use foldhash::quality::RandomState;

/// A hash table whose keys are numbers, or are made of few of them.
pub type Table<K, V> = HashMap<K, V, RandomState>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, Hash};

    use super::*;

    #[test]
    fn keys_in_a_row_or_with_a_stride_spread_over_low_and_high_bits() {
        for stride in [1_u64, 2, 64, 1 << 16, 1 << 32, 1 << 52] {
            let hasher = RandomState::default();
            let hashes: Vec<_> = (0..4_096_u64)
                .map(|at| hasher.hash_one(at * stride))
                .collect();
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
        let hasher = RandomState::default();
        assert_ne!(hasher.hash_one(Key::One(7)), hasher.hash_one(Key::Other(7)));
        assert_ne!(hasher.hash_one([1_u8; 9]), hasher.hash_one([1_u8; 10]));
        assert_ne!(hasher.hash_one("123456789"), hasher.hash_one("12345678x"));
    }
}
