//! Digests, and how often each is left: 20 bytes for each that differs.
//!
//! They stand in sorted runs, each at least twice as long as the next one: so an added digest is moved as
//! often as the whole can be doubled, however many are held, and is looked for in as many runs.

/// A multiset of digests.
#[derive(Debug, Default)]
pub(super) struct Multiset {
    /// The longest first.
    runs: Vec<Run>,
}

/// Digests in order, each once, and how often it is left.
#[derive(Debug, Default)]
struct Run {
    digests: Vec<u128>,
    counts: Vec<u32>,
}

impl Multiset {
    /// Adds these, in any order.
    pub(super) fn add(&mut self, mut new: Vec<u128>) {
        if new.is_empty() {
            return;
        }
        new.sort_unstable();
        let mut run = Run::default();
        for one in new {
            run.push(one, 1);
        }
        while let Some(before) = self.runs.pop_if(|before| before.len() < run.len() * 2) {
            run = before.merged(&run);
        }
        run.digests.shrink_to_fit();
        run.counts.shrink_to_fit();
        self.runs.push(run);
    }

    /// Takes one of these out; whether there was one.
    pub(super) fn take(&mut self, digest: u128) -> bool {
        self.runs.iter_mut().any(|run| run.take(digest))
    }

    /// Digests that are held.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }
}

impl Run {
    fn push(&mut self, digest: u128, count: u32) {
        match (self.digests.last(), self.counts.last_mut()) {
            (Some(last), Some(held)) if *last == digest => *held += count,
            _ => {
                self.digests.push(digest);
                self.counts.push(count);
            }
        }
    }

    /// Both in one. A digest that was taken as often as it was added needs no room any more.
    fn merged(&self, other: &Self) -> Self {
        let room = self.len() + other.len();
        let mut run = Self {
            digests: Vec::with_capacity(room),
            counts: Vec::with_capacity(room),
        };
        let mut others = other.left().peekable();
        for (digest, count) in self.left() {
            while let Some((one, count)) = others.next_if(|(one, _)| *one < digest) {
                run.push(one, count);
            }
            run.push(digest, count);
        }
        for (one, count) in others {
            run.push(one, count);
        }
        run
    }

    /// Those of which there are any.
    fn left(&self) -> impl Iterator<Item = (u128, u32)> {
        let all = self
            .digests
            .iter()
            .copied()
            .zip(self.counts.iter().copied());
        all.filter(|(_, count)| *count > 0)
    }

    fn take(&mut self, digest: u128) -> bool {
        let found = self.digests.binary_search(&digest).ok();
        match found.and_then(|at| self.counts.get_mut(at)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    fn len(&self) -> usize {
        self.digests.len()
    }
}
