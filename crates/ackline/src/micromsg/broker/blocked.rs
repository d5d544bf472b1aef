//! How much of the memory for input the publishers hold that wait for a queue: those of all senders together, and those of
//! each sender. It decides which of them are too many, and ends no connection itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ackline_core::locked;
use ackline_link::Fairness;

/// The publishers that wait for a queue.
#[derive(Debug)]
pub(super) struct Blocked {
    /// Bytes that all of them may hold.
    most: u64,
    /// Bytes that those of one sender may hold: two thirds of those that the sender may have, so its other connections go on.
    most_of_sender: u64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    all: Publishers,
    /// Senders without such publishers are not in it.
    senders: HashMap<Arc<str>, Publishers>,
}

/// The number of publishers, and the bytes that they hold.
#[derive(Debug, Default)]
struct Publishers {
    count: u64,
    bytes: u64,
}

/// A publisher must go: those that wait hold too much, and it holds no less than they do on average.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    /// Bytes that they hold.
    pub(super) bytes: u64,
    /// Bytes that they may hold.
    pub(super) most: u64,
    /// Their connections, in words.
    pub(super) of: &'static str,
}

impl Blocked {
    pub(super) fn new(memory: u64, fairness: &Fairness) -> Self {
        let most = memory / PART;
        Self {
            most,
            most_of_sender: fairness.share_of(most),
            waiting: Mutex::default(),
        }
    }

    /// A publisher of `sender` held `before` bytes while it waited for a queue, and holds `now` bytes; `None`: it does not
    /// wait.
    ///
    /// # Errors
    /// The publisher must go.
    pub(super) fn change(
        &self,
        sender: &Arc<str>,
        before: Option<u64>,
        now: Option<u64>,
    ) -> Result<(), TooMany> {
        let mut waiting = locked(&self.waiting);
        let Waiting { all, senders } = &mut *waiting;
        let of_sender = senders.entry(Arc::clone(sender)).or_default();
        for publishers in [&mut *all, &mut *of_sender] {
            publishers.change(before, now);
        }
        let checked = all
            .check(now, self.most, "the broker's connections")
            .and_then(|()| {
                of_sender.check(now, self.most_of_sender, "the connections of its sender")
            });
        if of_sender.count == 0 {
            senders.remove(sender);
        }
        checked
    }
}

impl Publishers {
    fn change(&mut self, before: Option<u64>, now: Option<u64>) {
        self.count = self.count + u64::from(now.is_some()) - u64::from(before.is_some());
        self.bytes = self.bytes + now.unwrap_or(0) - before.unwrap_or(0);
    }

    fn check(&self, own: Option<u64>, most: u64, of: &'static str) -> Result<(), TooMany> {
        let &Self { count, bytes } = self;
        let own = own.unwrap_or(0);
        if bytes <= most || own == 0 || own.saturating_mul(count) < bytes {
            return Ok(());
        }
        Err(TooMany { bytes, most, of })
    }
}

/// All publishers that wait may have half of the memory: a quarter is the reserve, so as much is left for the others.
const PART: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// All may hold 100 bytes.
    fn blocked(max_sender_share: f64) -> (Blocked, [Arc<str>; 2]) {
        let fairness = Fairness {
            max_sender_share,
            ..Fairness::NONE
        };
        (Blocked::new(200, &fairness), ["a".into(), "b".into()])
    }

    fn too_many(bytes: u64, most: u64, of: &'static str) -> Result<(), TooMany> {
        Err(TooMany { bytes, most, of })
    }

    #[test]
    fn the_largest_of_too_many_blocked_publishers_goes() {
        let (blocked, [sender, _]) = blocked(1.0);
        let change = |before, now| blocked.change(&sender, before, now);
        let all = "the broker's connections";
        assert_eq!(change(None, Some(101)), too_many(101, 100, all), "alone");
        assert_eq!(change(Some(101), None), Ok(()));
        assert_eq!(change(None, Some(40)), Ok(()));
        assert_eq!(change(None, Some(60)), Ok(()));
        assert_eq!(change(None, Some(10)), Ok(()), "it has few");
        assert_eq!(change(Some(60), Some(61)), too_many(111, 100, all));
        assert_eq!(change(Some(61), None), Ok(()));
        assert_eq!(change(Some(40), Some(91)), too_many(101, 100, all));
        assert_eq!(change(Some(91), None), Ok(()));
        assert_eq!(change(Some(10), None), Ok(()), "none is left");
        let waiting = locked(&blocked.waiting);
        assert_eq!((waiting.all.bytes, waiting.senders.len()), (0, 0));
    }

    #[test]
    fn the_publishers_of_one_sender_may_hold_its_share() {
        let (blocked, [one, other]) = blocked(0.5);
        let own = "the connections of its sender";
        assert_eq!(blocked.change(&one, None, Some(40)), Ok(()));
        assert_eq!(blocked.change(&other, None, Some(45)), Ok(()));
        assert_eq!(blocked.change(&one, None, Some(10)), Ok(()));
        let changed = blocked.change(&one, Some(40), Some(41));
        assert_eq!(changed, too_many(51, 50, own));
        assert_eq!(blocked.change(&one, Some(41), None), Ok(()));
        assert_eq!(blocked.change(&other, Some(45), Some(46)), Ok(()));
        assert_eq!(blocked.change(&one, Some(10), None), Ok(()));
        assert_eq!(locked(&blocked.waiting).senders.len(), 1);
    }
}
