//! The keys of waits that a session has found to look again, until its link takes them
//! ([`Connection::poll_wake`](crate::Connection::poll_wake)).

use std::collections::VecDeque;

/// Keys whose waits may have come true.
#[derive(Debug, Default)]
pub struct Wakes(VecDeque<u64>);

impl Wakes {
    /// Notes that the waits of this key may have come true.
    #[inline]
    pub fn wake(&mut self, key: u64) {
        // Many messages for one reader come at once.
        if self.0.back() != Some(&key) {
            self.0.push_back(key);
        }
    }

    /// Takes the next key.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_woken_and_once_if_it_is_named_again_at_once() {
        let mut wakes = Wakes::default();
        for key in [3, 3, 1, 3] {
            wakes.wake(key);
        }
        let keys: Vec<u64> = std::iter::from_fn(|| wakes.pop()).collect();
        assert_eq!(keys, [3, 1, 3]);
    }
}
