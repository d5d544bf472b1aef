//! Credit: permission of one end to send, granted by the other end, in the unit that the protocol
//! counts.
//!
//! The sender holds a [`Credit`], which grows by the grants that arrive and shrinks by each use. The receiver holds a
//! [`Grant`], which mirrors the sender's credit and remembers the part that was not announced yet. Neither ever
//! becomes negative or wraps around.

/// Credit that is granted and not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit(u64);

/// A sum of unused credit above 2^64-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sum of unused credit is above 2^64-1")]
pub struct CreditOverflow;

impl Credit {
    /// Returns the credit that is not used.
    pub const fn unused(self) -> u64 {
        self.0
    }

    /// Whether nothing is left.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a grant.
    ///
    /// # Errors
    /// The sum is above 2^64-1; nothing changed.
    pub fn add(&mut self, amount: u64) -> Result<(), CreditOverflow> {
        self.0 = self.0.checked_add(amount).ok_or(CreditOverflow)?;
        Ok(())
    }

    /// Uses exactly `amount`, or nothing if less is left. Returns whether it was used.
    #[must_use]
    pub fn spend(&mut self, amount: u64) -> bool {
        let rest = self.0.checked_sub(amount);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Uses `wanted`, or all that is left if that is less. Returns the amount used.
    #[must_use]
    pub fn spend_up_to(&mut self, wanted: u64) -> u64 {
        let spent = wanted.min(self.0);
        self.0 = self.0.saturating_sub(spent);
        spent
    }
}

/// Credit that the receiver has granted and the sender has not used.
#[derive(Debug, Default)]
pub struct Grant {
    credit: Credit,
    /// The part of it that the sender was not told of; never above `credit`.
    unannounced: u64,
}

impl Grant {
    /// Returns the credit that is not used, announced or not.
    pub const fn unused(&self) -> u64 {
        self.credit.unused()
    }

    /// Returns the credit that the sender knows of and has not used.
    pub const fn announced(&self) -> u64 {
        self.credit.unused().saturating_sub(self.unannounced)
    }

    /// Grants more. Returns whether an announcement has become necessary that was not necessary before.
    ///
    /// # Errors
    /// The sum is above 2^64-1; nothing changed.
    pub fn add(&mut self, amount: u64) -> Result<bool, CreditOverflow> {
        self.credit.add(amount)?;
        let was_announced = self.unannounced == 0;
        self.unannounced = self.unannounced.saturating_add(amount);
        Ok(was_announced && amount > 0)
    }

    /// Grants the difference to `wanted` if an announcement is worth it: at least `step` is missing, or the sender
    /// has nothing left. Returns the same as [`add`](Self::add).
    pub fn raise_to(&mut self, wanted: u64, step: u64) -> bool {
        let missing = wanted.saturating_sub(self.unused());
        if missing < step && !self.credit.is_empty() {
            return false;
        }
        // The sum is `wanted`, or the present credit: it does not overflow.
        self.add(missing).unwrap_or(false)
    }

    /// Returns the credit to announce now, which counts as announced from here on.
    #[must_use]
    pub fn announce(&mut self) -> u64 {
        std::mem::take(&mut self.unannounced)
    }

    /// Takes the credit back that the sender was not told of.
    pub fn withdraw_unannounced(&mut self) {
        let _ = self.credit.spend(self.unannounced);
        self.unannounced = 0;
    }

    /// The sender has used `amount`. Returns whether its announced credit covers that; if not, nothing changed.
    #[must_use]
    pub fn charge(&mut self, amount: u64) -> bool {
        amount <= self.announced() && self.credit.spend(amount)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credit(amount: u64) -> Credit {
        let mut credit = Credit::default();
        credit.add(amount).unwrap();
        credit
    }

    #[test]
    fn an_overflow_is_an_error_and_changes_nothing() {
        let mut credit = credit(u64::MAX - 1);
        assert_eq!(credit.add(2), Err(CreditOverflow));
        assert_eq!(credit.unused(), u64::MAX - 1);
        assert_eq!(credit.add(1), Ok(()));
        assert_eq!(credit.unused(), u64::MAX);
    }

    #[test]
    fn all_of_the_credit_can_be_spent_and_no_more() {
        let mut credit = credit(10);
        assert!(!credit.spend(11));
        assert_eq!(credit.unused(), 10);
        assert!(credit.spend(10) && credit.is_empty());
        assert!(credit.spend(0) && !credit.spend(1));
    }

    #[test]
    fn a_part_is_spent_if_there_is_not_enough() {
        let mut credit = credit(10);
        assert_eq!(
            [4, 7, 1].map(|wanted| credit.spend_up_to(wanted)),
            [4, 6, 0]
        );
    }

    #[test]
    fn the_sender_may_use_only_announced_credit() {
        let mut grant = Grant::default();
        assert_eq!(grant.add(10), Ok(true));
        assert!(!grant.charge(1));
        assert_eq!((grant.announce(), grant.announced()), (10, 10));
        assert_eq!(grant.add(5), Ok(true));
        assert!(!grant.charge(11));
        assert!(grant.charge(10));
        assert_eq!((grant.unused(), grant.announced()), (5, 0));
    }

    #[test]
    fn one_announcement_covers_all_grants_before_it() {
        let mut grant = Grant::default();
        assert_eq!(grant.add(0), Ok(false));
        assert_eq!([grant.add(1), grant.add(2)], [Ok(true), Ok(false)]);
        assert_eq!([grant.announce(), grant.announce()], [3, 0]);
        assert_eq!(grant.add(u64::MAX), Err(CreditOverflow));
        assert_eq!((grant.unused(), grant.announced()), (3, 3));
    }

    #[test]
    fn unannounced_credit_can_be_withdrawn() {
        let mut grant = Grant::default();
        grant.add(10).unwrap();
        assert_eq!(grant.announce(), 10);
        grant.add(5).unwrap();
        grant.withdraw_unannounced();
        assert_eq!((grant.unused(), grant.announce()), (10, 0));
    }

    #[test]
    fn credit_is_raised_in_steps_or_when_nothing_is_left() {
        let mut grant = Grant::default();
        assert!(grant.raise_to(3, 25), "nothing is left");
        assert_eq!(grant.announce(), 3);
        assert!(!grant.raise_to(27, 25), "24 are missing");
        assert!(grant.raise_to(28, 25), "25 are missing");
        assert_eq!((grant.unused(), grant.announced()), (28, 3));
        assert!(!grant.raise_to(20, 0), "there is more");
        assert!(!Grant::default().raise_to(0, 0));
        assert_eq!(grant.unused(), 28);
    }

    proptest! {
        #[test]
        fn both_ends_agree_once_everything_is_announced(
            steps in proptest::collection::vec((0_u8..4, 0_u64..100), 0..50),
        ) {
            let (mut grant, mut credit) = (Grant::default(), Credit::default());
            for (step, amount) in steps {
                match step {
                    0 => drop(grant.add(amount)),
                    1 => drop(grant.raise_to(amount, 10)),
                    2 => credit.add(grant.announce()).unwrap(),
                    _ => prop_assert!(grant.charge(credit.spend_up_to(amount))),
                }
                prop_assert_eq!(grant.announced(), credit.unused());
            }
            grant.withdraw_unannounced();
            prop_assert_eq!(grant.unused(), credit.unused());
        }
    }
}
