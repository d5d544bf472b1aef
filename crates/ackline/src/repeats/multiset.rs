//! Digests, and how often each is left: 20 bytes for each that differs.

/// A multiset of digests, in order.
#[derive(Debug, Default)]
pub(super) struct Multiset {
    digests: Vec<u128>,
    counts: Vec<u32>,
}

impl Multiset {
    /// Adds these, in any order.
    pub(super) fn add(&mut self, mut new: Vec<u128>) {
        new.sort_unstable();
        let room = self.digests.len() + new.len();
        let (mut digests, mut counts) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut push = |digest: u128, count: u32| match (digests.last(), counts.last_mut()) {
            (Some(last), Some(held)) if *last == digest => *held += count,
            _ => {
                digests.push(digest);
                counts.push(count);
            }
        };
        let mut new = new.into_iter().peekable();
        for (digest, count) in self.digests.iter().zip(&self.counts) {
            // What was taken as often as it was added needs no room any more.
            if *count == 0 {
                continue;
            }
            while let Some(one) = new.next_if(|one| one < digest) {
                push(one, 1);
            }
            push(*digest, *count);
        }
        new.for_each(|one| push(one, 1));
        digests.shrink_to_fit();
        counts.shrink_to_fit();
        (self.digests, self.counts) = (digests, counts);
    }

    /// Takes one of these out; whether there was one.
    pub(super) fn take(&mut self, digest: u128) -> bool {
        let found = self.digests.binary_search(&digest).ok();
        match found.and_then(|at| self.counts.get_mut(at)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Digests that are held.
    pub(super) fn len(&self) -> usize {
        self.digests.len()
    }
}
