//! Outcomes that are kept for a resume are charged to the quota of all links, and forgotten when the peer knows them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::sync::Arc;

use crate::one_end::{OneEnd, about, bare, general, id, message, operation, text};
use ackline_core::{ErrorKind as _, Quota, Sequence};
use ackline_relink::frame::{Body, Operation, Packet};
use ackline_relink::{FREE_OUTCOMES, Kind, OUTCOME_BYTES};

/// The peer commits one more message; the commits succeed and fail in turns.
fn alternate(end: &mut OneEnd, number: u32) -> Result<(), Kind> {
    let commit = operation(1, Operation::Commit, Some(number));
    end.take(&[message(&[id(1)], &text("m")), commit].concat())?;
    let (now, through) = (end.now, Some(Sequence(number)));
    end.link.consume(now, &id(1), Sequence(number)).unwrap();
    let answered = if number.is_multiple_of(2) {
        end.link.committed(now, &id(1), through)
    } else {
        end.link.uncommitted(now, &id(1), through)
    };
    answered.unwrap();
    Ok(())
}

fn shared(quota: &Arc<Quota>) -> OneEnd {
    let mut end = OneEnd::new(bare(1, true));
    end.link.share(Arc::clone(quota));
    end
}

fn free() -> u32 {
    u32::try_from(FREE_OUTCOMES).unwrap()
}

#[test]
fn a_peer_that_never_answers_a_ping_is_charged_for_each_outcome_and_refused_above_its_part() {
    let quota = Arc::new(Quota::new(20 * OUTCOME_BYTES));
    let mut end = shared(&quota);
    for number in 0..free() + 10 {
        alternate(&mut end, number).unwrap();
        end.sent();
    }
    assert_eq!(quota.used(), 10 * OUTCOME_BYTES);
    let refused = alternate(&mut end, free() + 10).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "outcomes of transactions, which the peer has not been seen to know, take 352 bytes; a link may \
         have 320 for them now, of a quarter of --memory"
    );
    assert_eq!(refused.option(), Some("--memory"));
    // A resume keeps the outcomes, because the peer may not know them.
    end.resume();
    assert_eq!(quota.used(), 10 * OUTCOME_BYTES);
    drop(end);
    assert_eq!(quota.used(), 0);
}

#[test]
fn a_peer_that_answers_pings_is_never_charged() {
    let quota = Arc::new(Quota::new(0));
    let mut end = shared(&quota);
    let mut pings = 0_usize;
    for number in 0..free() * 4 {
        alternate(&mut end, number).unwrap();
        let sent = end.sent();
        if sent.chunks(8).any(|packet| packet == general(Packet::Ping)) {
            pings += 1;
            end.take(&general(Packet::Pong)).unwrap();
        }
    }
    assert!((4..64).contains(&pings), "{pings}");
    assert_eq!(quota.used(), 0);
}

#[test]
fn outcomes_go_with_their_channel() {
    let quota = Arc::new(Quota::new(100 * OUTCOME_BYTES));
    let mut end = shared(&quota);
    for number in 0..free() + 10 {
        alternate(&mut end, number).unwrap();
    }
    assert_eq!(quota.used(), 10 * OUTCOME_BYTES);
    end.take(&about(&[1], Body::Operation(Operation::Close)))
        .unwrap();
    end.sent();
    assert_eq!(quota.used(), 0);
}

#[test]
fn a_decision_on_an_implicit_channel_that_was_not_used_is_judged() {
    let decisions = |through: Option<u32>| {
        let mut end = OneEnd::new(bare(0, true));
        let body = match through {
            Some(through) => Body::SequenceOperation(Operation::Commit, Sequence(through)),
            None => Body::Operation(Operation::Rollback),
        };
        end.take(&about(&[], body))
    };
    assert_eq!(decisions(Some(u32::MAX)).unwrap(), []);
    for (through, sequence) in [(Some(0), 0), (Some(7), 7), (None, 0)] {
        let Err(Kind::OutOfRange { sequence: told, .. }) = decisions(through) else {
            panic!("{through:?} is out of range");
        };
        assert_eq!(told, Sequence(sequence));
    }
}
