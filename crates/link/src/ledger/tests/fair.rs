//! The order of senders: the one that has held the least, for the least time, is first, and no
//! sender is overtaken for ever.

use super::*;

/// Sets the time to so many seconds after the start.
fn at(ledger: &mut Ledger, seconds: u64) -> &mut Ledger {
    ledger.at(Duration::from_secs(seconds))
}

/// A ledger whose shared part is full, and the link that has the reserve. A sender may hold two bytes
/// for ever; for one byte more a request is 4 s late.
fn full() -> (Ledger, u64) {
    let mut ledger = ledger();
    for number in [101, 102] {
        let full = ledger.open(sender(number));
        assert!(ledger.ask(full, 0, 150, false));
    }
    let reserve = ledger.open(sender(103));
    assert!(ledger.ask(reserve, 0, 1, false));
    (ledger, reserve)
}

/// Opens a link of a sender, which begins to wait for so many bytes.
fn waiting(ledger: &mut Ledger, number: u64, wants: u64) -> u64 {
    let id = ledger.open(sender(number));
    assert!(!ledger.ask(id, 0, wants, false));
    id
}

/// Passes the reserve on to a new link of a sender, which is the only one to wait.
fn pass_on(ledger: &mut Ledger, reserve: u64, number: u64, wants: u64) -> u64 {
    let next = waiting(ledger, number, wants);
    ledger.close(reserve);
    assert_eq!(ledger.take_woken(), [next]);
    next
}

/// Closes the link that has the reserve, until no link waits. Returns the links that had it after it.
fn served(ledger: &mut Ledger, mut reserve: u64) -> Vec<u64> {
    let mut order = Vec::new();
    while ledger.waiting() > 0 {
        ledger.close(reserve);
        reserve = ledger.take_woken()[0];
        order.push(reserve);
    }
    order
}

#[test]
fn the_sender_that_held_less_for_less_time_is_first() {
    // Bytes that the first sender held, and for how many seconds.
    let table = [
        (60, 10, true),
        (60, 0, false),
        (3, 10, true),
        (2, 10, false),
    ];
    for (held, seconds, is_late) in table {
        let (mut ledger, reserve) = full();
        let of_first = pass_on(&mut ledger, reserve, 1, held);
        let last = waiting(&mut ledger, 104, 1);
        at(&mut ledger, seconds).close(of_first);
        assert_eq!(ledger.take_woken(), [last]);
        let [one, two] = [1, 2].map(|number| waiting(&mut ledger, number, 1));
        let expected = if is_late { [two, one] } else { [one, two] };
        assert_eq!(served(&mut ledger, last), expected, "{held}, {seconds} s");
    }
}

/// So the last bytes of a small window do not wait once more.
#[test]
fn a_link_that_has_waited_is_granted_a_sixteenth_of_its_share_at_once() {
    // 1,600 bytes for one sender, 100 in one turn.
    let mut ledger = Ledger::new(4_268, &share(0.5));
    let [full, other, reserve] = [101, 102, 103].map(|number| ledger.open(sender(number)));
    for full in [full, other] {
        assert!(ledger.ask(full, 0, 1_600, false));
    }
    assert!(ledger.ask(reserve, 0, 10, false));
    let one = waiting(&mut ledger, 1, 10);
    ledger.settle(full, 1_000);
    assert_eq!((ledger.take_woken(), ledger.charge(one)), (vec![one], 100));
    assert!(ledger.ask(full, 1_000, 1_501, false), "the others' bytes");
    assert_eq!(ledger.charge(full), 1_501);
    let last = waiting(&mut ledger, 2, 10);
    assert!(ledger.ask(one, 10, 30, false), "within the granted bytes");
    assert_eq!(ledger.charge(one), 100);
    assert!(ledger.ask(one, 30, 100, false));
    ledger.settle(one, 1);
    assert_eq!(ledger.take_woken(), [], "one byte is missing");
    ledger.settle(one, 0);
    assert_eq!(ledger.take_woken(), [last]);
    assert_eq!(ledger.charge(last), 100, "all of them, and no fewer");
    let second = waiting(&mut ledger, 102, 5);
    ledger.settle(full, 0);
    assert_eq!(ledger.take_woken(), [], "its sender has its share");
    ledger.settle(other, 1_590);
    assert_eq!(
        ledger.charge(second),
        10,
        "as many as are left of its share"
    );
    assert!(ledger.ask(second, 0, 0, false));
    assert_eq!(ledger.charge(second), 0, "it needs none now");
}

#[test]
fn a_smaller_request_is_first_and_equal_ones_keep_their_order() {
    let (mut ledger, reserve) = full();
    let [most, one, two, more] = [(1, 20), (2, 5), (3, 5), (4, 10)]
        .map(|(number, wants)| waiting(&mut ledger, number, wants));
    assert_eq!(served(&mut ledger, reserve), [one, two, more, most]);
}

#[test]
fn bytes_that_other_links_of_a_sender_hold_count() {
    let (mut ledger, reserve) = full();
    let reserve = pass_on(&mut ledger, reserve, 1, 10);
    let [one, two] = [1, 2].map(|number| waiting(&mut ledger, number, 5));
    assert_eq!(served(&mut ledger, reserve), [two, one]);
}

#[test]
fn the_next_link_of_a_sender_waits_for_the_bytes_of_the_one_before() {
    let (mut ledger, reserve) = full();
    let [one, two] = [1, 1].map(|number| waiting(&mut ledger, number, 5));
    let other = waiting(&mut ledger, 2, 6);
    assert_eq!(served(&mut ledger, reserve), [one, other, two]);
}

#[test]
fn a_sender_that_comes_back_is_as_late_as_before_while_others_wait() {
    for (seconds, is_late) in [(1, true), (60, true), (200, false)] {
        let (mut ledger, reserve) = full();
        let of_first = pass_on(&mut ledger, reserve, 1, 60);
        let last = waiting(&mut ledger, 104, 1);
        at(&mut ledger, 10).close(of_first);
        assert_eq!(ledger.take_woken(), [last]);
        // No link waits: this time does not count.
        at(&mut ledger, 1_000);
        let other = waiting(&mut ledger, 105, 1);
        at(&mut ledger, 1_000 + seconds).close(other);
        let [one, two] = [1, 2].map(|number| waiting(&mut ledger, number, 1));
        let expected = if is_late { [two, one] } else { [one, two] };
        assert_eq!(served(&mut ledger, last), expected, "after {seconds} s");
    }
}

#[test]
fn a_link_that_asks_again_while_it_waits_keeps_its_turn() {
    let (mut ledger, reserve) = full();
    let one = waiting(&mut ledger, 1, 10);
    let two = waiting(at(&mut ledger, 50), 2, 10);
    assert!(!at(&mut ledger, 100).ask(one, 0, 10, false));
    assert_eq!(served(&mut ledger, reserve), [one, two]);
}

/// New addresses want little and have the reserve one after another. A sender that wants much is
/// overtaken by them at first, and then no more.
#[test]
fn no_sender_waits_for_ever_behind_new_ones() {
    let (mut ledger, mut reserve) = full();
    let large = waiting(&mut ledger, 1, 100);
    let mut overtaken = 0;
    loop {
        let small = waiting(at(&mut ledger, overtaken), 1_000 + overtaken, 1);
        ledger.close(reserve);
        if ledger.take_woken() == [large] {
            break;
        }
        (reserve, overtaken) = (small, overtaken + 1);
    }
    let latest = LATEST / 1_000_000_000;
    assert!((latest / 2..=latest).contains(&overtaken), "{overtaken} s");
}

/// Opens links of new senders, each of which has the reserve for a tenth of a second. Returns the
/// senders without links that are remembered.
fn remembered(ledger: &mut Ledger, reserve: u64, wants: u64) -> usize {
    let open = ledger.senders.len();
    let mut last = reserve;
    for number in 1..=1_000 {
        let next = waiting(ledger, number, wants);
        ledger.at(Duration::from_millis(100 * number)).close(last);
        assert_eq!(ledger.take_woken(), [next]);
        last = next;
    }
    let remembered = ledger.senders.len() - open;
    let other = waiting(ledger, 2_000, wants);
    at(ledger, 1_000).close(other);
    assert_eq!(ledger.senders.len(), open, "all are forgotten in the end");
    remembered
}

#[test]
fn few_senders_without_links_are_remembered() {
    let (mut ledger, reserve) = full();
    // Each is late for a little less than five seconds.
    assert_eq!(remembered(&mut ledger, reserve, 100), 49);
    // Here each is late for as long as can be: as if it had held its share of 300 bytes.
    let mut ledger = Ledger::new(400_000, &share(0.001));
    let reserve = ledger.open(sender(103));
    assert!(ledger.ask(reserve, 0, 100_000, false));
    assert_eq!(remembered(&mut ledger, reserve, 100_000), MOST_GONE);
}
