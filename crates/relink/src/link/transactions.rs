//! Commit and rollback: the messages that are decided, the decisions that are answered, and the two forms in which a
//! packet can say so (R-REL-13, R-REL-14, R-RELINK-V4).
//!
//! Its rules: REQ-RELINK-39, REQ-RELINK-41, REQ-RELINK-56, REQ-RELINK-57, R-REL-15, R-REL-16, R-REL-35.

mod decisions;
mod outcomes;
mod runs;

use ackline_core::Sequence;

pub(crate) use decisions::Decisions;
pub(crate) use outcomes::{Answered, Outcomes};

/// A decision or an outcome in the form that its packet takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said<K> {
    pub(crate) kind: K,
    /// The number; `None` in the channel form.
    pub(crate) through: Option<Sequence>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Operation;
    use proptest::prelude::*;

    proptest! {
        /// The peer understands a decision or an outcome in either form, whenever it is emitted.
        #[test]
        fn decisions_and_outcomes_in_both_forms_mean_the_same_to_both(
            base in prop_oneof![Just(u32::MAX), Just(u32::MAX - 5), any::<u32>()],
            steps in proptest::collection::vec((0_u8..5, any::<bool>(), 1_u32..4), 1..60),
        ) {
            let base = Sequence(base);
            let (mut own, mut peers) = (Decisions::new(base), Outcomes::new(base));
            let last = base.plus(1_000);
            let mut told = base;
            for (step, kind, count) in steps {
                match step {
                    0 | 1 => {
                        let operation = if kind { Operation::Commit } else { Operation::Rollback };
                        let through = own.runs().through().plus(count);
                        prop_assert_eq!(own.decide(operation, Some(through), last), Some(through));
                        own.publish(through);
                    }
                    2 => while let Some(said) = own.emit(last) {
                        let heard = peers.decide(said.kind, said.through, last).unwrap();
                        prop_assert_eq!(heard, Some(own.cursor()));
                    },
                    3 => if let Some(answered) = peers.answer(kind, None) {
                        peers.publish(answered);
                        peers.owe(answered);
                    },
                    _ => while let Some(said) = peers.emit(0) {
                        let heard = own.outcome(said.through).unwrap().unwrap();
                        prop_assert!(heard.is_after(told));
                        told = heard;
                    },
                }
            }
            while let Some(said) = peers.emit(0) {
                own.outcome(said.through).unwrap().unwrap();
            }
            prop_assert_eq!(own.runs().base(), peers.base());
        }
    }
}
