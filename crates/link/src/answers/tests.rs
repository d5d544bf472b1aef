//! The answer budget under a few links.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const FREE: u64 = 64 << 10;

/// The usage of a link whose peer has taken answers before.
fn keeps(answers: u64) -> AnswerUsage {
    AnswerUsage {
        accepted: 0,
        answers,
        left: 8 << 20,
    }
}

fn share(budget: &Arc<AnswerBudget>, now: Instant) -> AnswerShare {
    let mut share = budget.share();
    share.settle(now, keeps(0));
    share
}

/// Hands a request out, whose answer of so many bytes then waits. Returns whether there was
/// space.
fn asked(share: &mut AnswerShare, now: Instant, answer: u64) -> bool {
    if !share.ask(now, 0, true) {
        return false;
    }
    share.handed_out();
    share.answered(answer);
    share.settle(now, keeps(answer));
    true
}

#[test]
fn senders_take_turns() {
    let (budget, now) = (Arc::new(AnswerBudget::new(1 << 20)), Instant::now());
    let (many, one): (Arc<str>, Arc<str>) = ("many".into(), "one".into());
    let share = |sender: &Arc<str>| {
        let mut share = share(&budget, now);
        share.attach(sender, Arc::default());
        share
    };
    let mut first: Vec<_> = (0..20).map(|_| share(&many)).collect();
    let held: Vec<_> = first.iter_mut().map(|it| asked(it, now, 1 << 20)).collect();
    assert_eq!(
        held.iter().filter(|held| **held).count(),
        2,
        "one fits, one exceeds"
    );
    let mut late = share(&one);
    assert!(!asked(&mut late, now, 10));
    // As each answer leaves the next one comes: the late one is not the last.
    let mut left = 0;
    while !late.settle(now, keeps(0)) {
        let holding = first.iter_mut().find(|it| it.kept.answers > 0).unwrap();
        holding.settle(now, keeps(0));
        left += 1;
        for share in &mut first {
            asked(share, now, 1 << 20);
        }
        assert!(left < 6, "it waits for the others");
    }
}

#[test]
fn a_link_that_ends_lets_others_continue_and_leaves_nothing() {
    let (budget, now) = (Arc::new(AnswerBudget::new(1 << 20)), Instant::now());
    let mut shares: Vec<_> = (0..5).map(|_| share(&budget, now)).collect();
    for share in &mut shares {
        asked(share, now, 1 << 20);
    }
    assert_eq!(budget.used(), 2 * ((1 << 20) - FREE));
    assert!(!shares[4].settle(now, keeps(0)));
    shares[0].end();
    shares.remove(1);
    shares.remove(1);
    assert!(shares[1].settle(now, keeps(0)));
    drop(shares);
    assert_eq!(budget.used(), 0);
    let rules = budget.rules();
    assert!(rules.links.is_empty() && rules.queue.is_empty() && rules.senders.is_empty());
}

#[test]
fn an_unused_grant_reserves_nothing_after_a_second() {
    let (budget, now) = (Arc::new(AnswerBudget::new(8 << 20)), Instant::now());
    let mut share = budget.share();
    assert!(share.ask(now, 0, true));
    assert_eq!(budget.used(), FIRST_BYTES - FREE);
    assert_eq!(share.due(), Some(now + SECOND));
    share.settle(now + SECOND, AnswerUsage::default());
    assert_eq!((budget.used(), share.due()), (0, None));
}

#[test]
fn a_peer_without_credit_does_not_wait() {
    let (budget, now) = (Arc::new(AnswerBudget::new(1 << 20)), Instant::now());
    let mut shares: Vec<_> = (0..3).map(|_| share(&budget, now)).collect();
    assert!(asked(&mut shares[0], now, 2 << 20));
    assert!(!shares[1].ask(now, 0, false));
    assert!(shares[2].ask(now, 0, true), "it may exceed the budget");
}

#[test]
fn strangers_exceed_nothing_while_others_hold_something() {
    let (budget, now) = (Arc::new(AnswerBudget::new(1 << 20)), Instant::now());
    let mut holder = share(&budget, now);
    assert!(asked(&mut holder, now, 1 << 20));
    let (mut stranger, mut known) = (budget.share(), share(&budget, now));
    assert!(!stranger.ask(now, 0, true));
    assert!(asked(&mut known, now, 1 << 20), "it passes the stranger");
    known.settle(now, keeps(0));
    assert!(!stranger.ask(now, 0, true));
    holder.settle(now, keeps(0));
    assert!(stranger.ask(now, 0, true), "nothing else is held");
}

#[test]
fn a_peer_that_has_taken_short_answers_is_no_stranger() {
    let (budget, now) = (Arc::new(AnswerBudget::new(1 << 20)), Instant::now());
    let takes = |count| {
        let mut share = budget.share();
        for _ in 0..count {
            assert!(share.ask(now, 0, true));
            share.handed_out();
            share.answered(10);
            share.settle(
                now,
                AnswerUsage {
                    answers: 10,
                    ..AnswerUsage::default()
                },
            );
            share.settle(
                now,
                AnswerUsage {
                    left: 10,
                    ..AnswerUsage::default()
                },
            );
        }
        share
    };
    let (mut few, mut enough) = (takes(KNOWN_ANSWERS - 1), takes(KNOWN_ANSWERS));
    let mut holder = share(&budget, now);
    assert!(asked(&mut holder, now, 2 << 20));
    assert!(!few.ask(now, 0, true));
    assert!(enough.ask(now, 0, true), "it may exceed the budget");
}
