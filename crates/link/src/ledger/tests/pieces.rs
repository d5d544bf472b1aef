//! Memory that comes free in small pieces: a turn is whole, so that the next sender in the order does not read a first
//! piece while those behind it take the others.

use super::*;

/// Bytes that come free one after another. With the first byte they are more than one turn.
const PIECES: [u64; 5] = [5, 20, 30, 40, 60];

/// Bytes for which the good sender asks at a time, and of its window.
const STEP: u64 = 10;
const WINDOW: u64 = 95;

/// 1,600 bytes for one sender, 100 in one turn; one shared byte is free, and the reserve is held.
struct Short {
    ledger: Ledger,
    /// Links of one sender, with the pieces.
    pieces: Vec<u64>,
    reserve: u64,
}

impl Short {
    fn new() -> Self {
        let mut ledger = Ledger::new(4_268, &share(0.5));
        let [full, rest, reserve] = [101, 102, 103].map(|number| ledger.open(sender(number)));
        assert!(ledger.ask(full, 0, 1_600, false));
        let pieces = PIECES.map(|bytes| {
            let id = ledger.open(sender(102));
            assert!(ledger.ask(id, 0, bytes, false));
            id
        });
        assert!(ledger.ask(rest, 0, 1_600 - PIECES.iter().sum::<u64>(), false));
        assert!(ledger.ask(reserve, 0, 500, false));
        assert_eq!(ledger.holder, Some(reserve));
        Self {
            ledger,
            pieces: pieces.to_vec(),
            reserve,
        }
    }

    /// A link of a new sender waits for so many bytes.
    fn waiting(&mut self, number: u64, wants: u64) -> u64 {
        let id = self.ledger.open(sender(number));
        assert!(!self.ledger.ask(id, 0, wants, false));
        id
    }
}

/// Calls `f` with every order of the numbers below `len`.
fn each_order(len: usize, order: &mut Vec<usize>, f: &mut impl FnMut(&[usize])) {
    if order.len() == len {
        return f(order);
    }
    for next in 0..len {
        if !order.contains(&next) {
            order.push(next);
            each_order(len, order, f);
            order.pop();
        }
    }
}

/// Frees the pieces and the reserve in this order, and lets the good sender ask again after each `pace` of them. It has
/// held `held` bytes when it begins to wait.
fn waits_once(order: &[usize], pace: usize, held: u64) {
    let mut short = Short::new();
    let good = short.ledger.open(sender(1));
    if held > 0 {
        assert!(short.ledger.ask(good, 0, held, false));
    }
    let hostile = [2, 3].map(|number| short.waiting(number, 50));
    let (mut held, mut waits) = (held, true);
    let planned = WINDOW.min(held + STEP);
    assert!(!short.ledger.ask(good, held, planned, false), "{order:?}");
    for (turn, freed) in order.iter().enumerate() {
        let freed = short.pieces.get(*freed).copied().unwrap_or(short.reserve);
        short.ledger.close(freed);
        for woken in short.ledger.take_woken() {
            let is_before = waits && hostile.contains(&woken);
            assert!(!is_before, "{order:?}, {pace}: overtaken");
            waits &= woken != good;
        }
        if !waits && turn % pace == 0 && held < WINDOW {
            held = WINDOW.min(held + STEP);
            let planned = WINDOW.min(held + STEP);
            let is_granted = short.ledger.ask(good, held, planned, false);
            assert!(is_granted, "{order:?}, {pace}: it waits once more");
        }
    }
    assert!(!waits, "{order:?}: it waits for ever");
}

#[test]
fn a_sender_that_was_first_does_not_wait_again_for_the_rest_of_its_turn() {
    let len = PIECES.len() + 1;
    for pace in 1..=3 {
        each_order(len, &mut Vec::new(), &mut |order| {
            waits_once(order, pace, 0);
            waits_once(order, pace, 1);
        });
    }
}

/// As many bytes as one turn may be idle, and no more.
#[test]
fn bytes_wait_for_the_whole_turn_of_the_first_link() {
    let mut short = Short::new();
    let first = short.waiting(1, 10);
    let last = short.waiting(2, 20);
    // 1, 6, 26, 56 and 96 bytes.
    for piece in &short.pieces[..4] {
        short.ledger.close(*piece);
        assert_eq!(short.ledger.take_woken(), []);
    }
    assert!(!short.ledger.ask(first, 0, 10, false), "not a part of it");
    assert!(!short.ledger.try_ask(first, 0, 10), "not a part of it");
    let new = short.waiting(3, 10);
    assert_eq!(short.ledger.take_woken(), []);
    short.ledger.close(new);
    short.ledger.close(short.pieces[4]);
    assert_eq!(short.ledger.take_woken(), [first]);
    assert_eq!(short.ledger.charge(first), 100);
    short.ledger.close(first);
    assert_eq!(short.ledger.take_woken(), [last]);
    assert!(short.ledger.try_ask(last, 0, 156), "nobody waits");
}

/// A link that asks while others wait is granted a whole turn too, or waits.
#[test]
fn a_link_that_asks_before_the_others_is_granted_a_whole_turn() {
    for (pieces, is_granted) in [(4, false), (5, true)] {
        let mut short = Short::new();
        // Its turn is every byte for which it waits.
        let large = short.waiting(1, 200);
        for piece in &short.pieces[..pieces] {
            short.ledger.close(*piece);
        }
        assert_eq!(short.ledger.take_woken(), []);
        let small = short.ledger.open(sender(2));
        assert_eq!(short.ledger.ask(small, 0, 10, false), is_granted);
        let charge = if is_granted { 100 } else { 0 };
        assert_eq!(short.ledger.charge(small), charge);
        assert_eq!(short.ledger.take_woken(), []);
        short.ledger.close(short.reserve);
        let next = if is_granted { large } else { small };
        assert_eq!(short.ledger.take_woken(), [next]);
    }
}

/// The turn ends at the share of its sender.
#[test]
fn a_turn_is_no_larger_than_the_rest_of_the_share() {
    let mut short = Short::new();
    let near = short.waiting(102, 10);
    // 1,540 bytes of this sender's 1,600 are held.
    short.ledger.close(short.pieces[4]);
    assert_eq!(short.ledger.take_woken(), [near]);
    assert_eq!(short.ledger.charge(near), 60);
}

/// Without links that wait, a link is granted just what it asks for, to the last byte.
#[test]
fn a_link_that_asks_alone_may_have_the_last_bytes() {
    let mut short = Short::new();
    let one = short.ledger.open(sender(1));
    assert!(short.ledger.ask(one, 0, 1, false));
    assert!(!short.ledger.ask(one, 1, 2, false));
    short.ledger.close(short.pieces[0]);
    assert!(!short.ledger.try_ask(one, 1, 2));
    assert!(!short.ledger.ask(one, 1, 2, false));
    assert_eq!(short.ledger.take_woken(), [], "its turn is not whole");
}

/// A driver asks for more than it needs at first, if nobody waits then: this ends no turn.
#[test]
fn a_turn_lasts_while_no_other_link_waits() {
    let mut short = Short::new();
    let one = short.waiting(1, 10);
    for piece in &short.pieces {
        short.ledger.close(*piece);
    }
    assert_eq!(short.ledger.take_woken(), [one]);
    let charge = |short: &Short| short.ledger.charge(one);
    assert!(short.ledger.try_ask(one, 0, 20));
    assert_eq!(charge(&short), 100, "nothing is held yet");
    assert!(short.ledger.try_ask(one, 20, 40));
    assert_eq!(charge(&short), 100);
    assert!(short.ledger.try_ask(one, 0, 20));
    assert_eq!(charge(&short), 20, "its window is settled");
}

/// A link whose turn is smaller, since its sender has nearly its share, does not delay the first.
#[test]
fn no_link_behind_the_first_is_granted_a_smaller_turn() {
    let mut short = Short::new();
    let [first, near] = [1, 102].map(|number| short.waiting(number, 10));
    short.ledger.close(short.pieces[4]);
    assert_eq!(short.ledger.take_woken(), [], "60 bytes would fit");
    short.ledger.close(short.pieces[3]);
    assert_eq!(short.ledger.take_woken(), [first]);
    short.ledger.close(first);
    assert_eq!(short.ledger.take_woken(), [near]);
}
