//! Free ids: small ones first, as they take fewer bytes on the wire.

use ackline_core::UsageError;

use crate::refusal;

/// Ids of one kind. The caller knows the taken ones.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// The lowest id that was neither handed out nor passed over.
    next: u32,
    /// Ids below it that are free again; some may be taken, or be here twice, if callers choose ids of their
    /// own.
    free: Vec<u32>,
}

impl Ids {
    /// Returns a free id, the same one until it is taken.
    pub(super) fn free_one(&mut self, is_taken: impl Fn(u32) -> bool) -> Result<u32, UsageError> {
        while let Some(id) = self.free.last().copied() {
            if !is_taken(id) {
                return Ok(id);
            }
            self.free.pop();
        }
        let first = self.next;
        while is_taken(self.next) {
            self.next = self.next.wrapping_add(1);
            if self.next == first {
                return Err(refusal::LIMIT_REACHED);
            }
        }
        Ok(self.next)
    }

    /// An id that was taken is free again.
    pub(super) fn free(&mut self, id: u32) {
        if id >= self.next {
            return;
        }
        self.free.push(id);
        let most = usize::try_from(self.next).unwrap_or(usize::MAX);
        if self.free.len() > most.saturating_mul(2).saturating_add(64) {
            self.free.sort_unstable_by(|one, other| other.cmp(one));
            self.free.dedup();
        }
    }

    /// The number of free ids that are kept.
    pub(super) fn kept(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_that_were_handed_out_come_again_before_new_ones() {
        let (mut ids, mut taken) = (Ids::default(), HashSet::new());
        for expected in 0..4 {
            assert_eq!(ids.free_one(|id| taken.contains(&id)), Ok(expected));
            taken.insert(expected);
        }
        for id in [1, 2] {
            taken.remove(&id);
            ids.free(id);
        }
        for expected in [2, 1, 4] {
            assert_eq!(ids.free_one(|id| taken.contains(&id)), Ok(expected));
            taken.insert(expected);
        }
    }

    #[test]
    fn ids_of_the_callers_choice_are_not_kept() {
        let mut ids = Ids::default();
        for _ in 0..10_000 {
            ids.free(7);
        }
        assert_eq!(ids.kept(), 0, "the counter has not come there");
        assert_eq!(ids.free_one(|id| id < 100), Ok(100));
        for id in 0..10_000 {
            ids.free(id % 3);
        }
        assert!(ids.kept() <= 264, "{}", ids.kept());
        assert_eq!(ids.free_one(|_| false).map(|id| id < 3), Ok(true));
    }

    #[test]
    fn the_counter_passes_its_end_and_taken_ids() {
        let mut ids = Ids {
            next: u32::MAX,
            free: Vec::new(),
        };
        assert_eq!(ids.free_one(|id| id == u32::MAX || id == 0), Ok(1));
    }
}
