//! Messages that wait for their acknowledgement, in the order in which they came. An acknowledgement covers all messages
//! up to a number, and runs are settled in any order: it covers the longest beginning that is settled.

use std::collections::{HashMap, VecDeque};

/// The unacknowledged messages of a connection.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    stretches: VecDeque<Stretch>,
    /// Stretches of each run that is settled and waits for an earlier one.
    settled: HashMap<u64, usize>,
}

/// Messages that came one behind the other and are of one run.
#[derive(Debug)]
struct Stretch {
    run: u64,
    /// The sequence number of the last message.
    last: u16,
}

impl Unacknowledged {
    /// A message of a run has come. Returns whether a stretch begins with it.
    pub(super) fn push(&mut self, run: u64, sequence_number: u16) -> bool {
        if let Some(stretch) = self.stretches.back_mut()
            && stretch.run == run
        {
            stretch.last = sequence_number;
            return false;
        }
        self.stretches.push_back(Stretch {
            run,
            last: sequence_number,
        });
        true
    }

    /// A run is settled, which has so many stretches. Returns the sequence number up to which all messages are settled now,
    /// if that went up.
    pub(super) fn settle(&mut self, run: u64, stretches: usize) -> Option<u16> {
        if stretches > 0 {
            self.settled.insert(run, stretches);
        }
        let mut through = None;
        while let Some(stretch) = self.stretches.front()
            && let Some(left) = self.settled.get_mut(&stretch.run)
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.settled.remove(&stretch.run);
            }
            through = Some(stretch.last);
            self.stretches.pop_front();
        }
        if self.stretches.is_empty() {
            // An idle connection holds no queue.
            self.stretches = VecDeque::new();
        }
        through
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Bytes of memory, about.
    pub(super) fn held_bytes(&self) -> usize {
        let stretches = self.stretches.len().saturating_mul(STRETCH_BYTES);
        let settled = self.settled.len().saturating_mul(SETTLED_BYTES);
        stretches.saturating_add(settled)
    }
}

const STRETCH_BYTES: usize = size_of::<Stretch>();
/// The cost of a run in the table, about.
const SETTLED_BYTES: usize = 32;

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_that_is_settled_early_waits_for_those_before_it() {
        let mut waiting = Unacknowledged::default();
        // Runs:    7  7  8  7  9
        let began = [(7, 1), (7, 2), (8, 3), (7, 4), (9, 5)];
        let began = began.map(|(run, number)| waiting.push(run, number));
        assert_eq!(began, [true, false, true, true, true]);
        assert_eq!(waiting.settle(9, 1), None);
        assert_eq!(waiting.settle(7, 2), Some(2));
        assert_eq!(waiting.settle(8, 1), Some(5));
        assert!(waiting.is_empty());
        assert_eq!(waiting.held_bytes(), 0);
    }

    #[test]
    fn a_run_without_messages_acknowledges_nothing() {
        let mut waiting = Unacknowledged::default();
        waiting.push(1, 65_535);
        waiting.push(1, 1);
        assert_eq!(waiting.settle(0, 0), None);
        assert_eq!(waiting.settle(1, 1), Some(1));
        assert_eq!(waiting.held_bytes(), 0);
    }

    proptest! {
        /// The model looks at each message alone.
        #[test]
        fn the_longest_settled_beginning_is_acknowledged(
            runs in proptest::collection::vec(0_u64..6, 0..60),
            order in Just((0_u64..6).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut waiting = Unacknowledged::default();
            let mut stretches = [0_usize; 6];
            for (number, run) in (1_u16..).zip(&runs) {
                let place = usize::try_from(*run).unwrap();
                stretches[place] += usize::from(waiting.push(*run, number));
            }
            let (mut settled, mut acknowledged) = (Vec::new(), 0);
            for run in order {
                settled.push(run);
                let through = runs.iter().take_while(|run| settled.contains(run)).count();
                let wanted = (through > acknowledged).then(|| u16::try_from(through).unwrap());
                acknowledged = through;
                let place = usize::try_from(run).unwrap();
                prop_assert_eq!(waiting.settle(run, stretches[place]), wanted);
            }
            prop_assert!(waiting.is_empty());
            prop_assert_eq!(waiting.held_bytes(), 0);
        }
    }
}
