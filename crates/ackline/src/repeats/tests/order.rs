//! Connections that ended in order: stretches of their events are found again, single events are not.

use super::super::order::{Following, Ordered};
use super::super::trail::Standing;
use super::*;

/// An event of its own for each number.
fn event(number: u64) -> u128 {
    Digester::keyed([1; 32]).payload(&number.to_le_bytes())
}

fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<u128> {
    numbers.into_iter().map(event).collect()
}

fn ordered(trails: &[Vec<u64>]) -> Ordered {
    let mut ordered = Ordered::default();
    let trails = trails.iter().zip(0..);
    ordered.add(trails.map(|(trail, id)| (id, events(trail.iter().copied()))));
    ordered
}

/// The marked rows of one block that one connection sends.
fn marked(ordered: &mut Ordered, sent: &[u64]) -> Vec<usize> {
    let (mut following, mut rows) = (Following::default(), Vec::new());
    for (row, number) in sent.iter().enumerate() {
        following.next(ordered, (event(*number), row), |row| rows.push(row));
    }
    rows.sort_unstable();
    rows
}

#[test]
fn sixteen_different_events_in_their_order_are_a_stretch_wherever_they_begin() {
    let landed: Vec<u64> = (0..100).collect();
    for begin in 0..60_u64 {
        for len in [15, 16, 17, 40] {
            let sent: Vec<u64> = (begin..begin + len).collect();
            let found = marked(&mut ordered(std::slice::from_ref(&landed)), &sent);
            let expected = if len < 16 { 0 } else { sent.len() };
            assert_eq!(found, (0..expected).collect::<Vec<_>>(), "{begin} {len}");
        }
    }
}

#[test]
fn equal_events_are_none() {
    let ticks = vec![7; 1_000];
    assert_eq!(
        marked(&mut ordered(std::slice::from_ref(&ticks)), &ticks),
        [0; 0]
    );
    // Fifteen that differ, over and over.
    let few: Vec<u64> = (0..1_000).map(|at| at % 15).collect();
    assert_eq!(
        marked(&mut ordered(std::slice::from_ref(&few)), &few),
        [0; 0]
    );
    // Sixteen in another order.
    let up: Vec<u64> = (0..16).collect();
    let down: Vec<u64> = (0..16).rev().collect();
    assert_eq!(marked(&mut ordered(&[up]), &down), [0; 0]);
}

#[test]
fn each_copy_answers_once() {
    let landed: Vec<u64> = (0..20).collect();
    let mut known = ordered(&[landed.clone(), landed.clone()]);
    for round in 0..3 {
        let found = marked(&mut known, &landed);
        let expected = if round < 2 { 20 } else { 0 };
        assert_eq!(found.len(), expected, "{round}");
    }
}

#[test]
fn what_stands_around_a_stretch_belongs_to_it() {
    // Equal lines before and after those that differ.
    let mut landed = vec![1; 30];
    landed.extend(100..116);
    landed.extend([1; 30]);
    let mut sent = vec![5, 6];
    sent.extend(&landed[20..60]);
    sent.push(9);
    let found = marked(&mut ordered(&[landed]), &sent);
    assert_eq!(found, (2..42).collect::<Vec<_>>());
}

#[test]
fn a_stretch_that_begins_in_an_earlier_block_goes_on_in_the_next_one() {
    let landed: Vec<u64> = (0..40).collect();
    let mut known = ordered(std::slice::from_ref(&landed));
    let (mut following, mut rows) = (Following::default(), Vec::new());
    let mut mark = |row| rows.push(row);
    for (number, row) in (0..10).zip(0..) {
        following.next(&mut known, (event(number), row), &mut mark);
    }
    assert!(following.is_hopeful());
    following.end_rows();
    for (number, row) in (10..30).zip(0..) {
        following.next(&mut known, (event(number), row), &mut mark);
    }
    // Those of the earlier block are none of these.
    rows.sort_unstable();
    assert_eq!(rows, (0..20).collect::<Vec<_>>());
}

proptest! {
    /// Each marked event is part of a stretch that had landed in that order and has sixteen different events
    /// in a row; events of such a stretch that were sent again in one piece are marked.
    #[test]
    fn what_is_marked_had_landed_in_a_row(
        landed in prop::collection::vec(0_u64..40, 0..200),
        noise in prop::collection::vec(0_u64..40, 0..60),
        from in 0_usize..200, len in 0_usize..60, at in 0_usize..60,
    ) {
        let piece: Vec<u64> = landed.iter().skip(from).take(len).copied().collect();
        let at = at.min(noise.len());
        let sent = [&noise[..at], &piece[..], &noise[at..]].concat();
        let found = marked(&mut ordered(std::slice::from_ref(&landed)), &sent);
        let differ = |events: &[u64]| events.iter().collect::<HashSet<_>>().len() == events.len();
        for row in &found {
            let is_part = (0..sent.len().saturating_sub(15)).any(|from| {
                let run = &sent[from..from + 16];
                let between = &sent[from.min(*row)..(from + 16).max(row + 1)];
                differ(run) && landed.windows(between.len()).any(|landed| landed == between)
            });
            prop_assert!(is_part, "{row} of {sent:?}");
        }
        if piece.len() >= 16 && differ(&piece) {
            for row in at..at + piece.len() {
                prop_assert!(found.contains(&row), "{row} of {sent:?}");
            }
        }
    }
}

fn in_order(id: u64, events: u32) -> Arc<Trail> {
    let trail = ended(id, &[span(id * 100, events, 1)]);
    trail.end(true);
    trail.finish();
    trail
}

#[test]
fn what_ended_in_order_is_remembered_from_sixteen_events_on() {
    let (sender, mut base) = (Sender::default(), Base::default());
    for trail in [in_order(0, 15), in_order(1, 16)] {
        sender.join(&trail, Vec::new(), Instant::now());
        sender.leave(&trail);
    }
    assert_eq!(wanted(&sender, &mut base), [100]);
    assert!(base.is_empty(), "nothing is read by that");
}

#[test]
fn an_open_connection_is_compared_with_while_its_peer_takes_nothing() {
    let (sender, mut base) = (Sender::default(), Base::default());
    let open = ended(3, &[span(300, 20, 1)]);
    sender.join(&open, Vec::new(), Instant::now());
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    open.set_stalled(true);
    assert_eq!(wanted(&sender, &mut base), [300]);
    base.digests.add(events(0..20));
    // It was slow: the events that were read of it as cut off are forgotten.
    open.set_stalled(false);
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    assert_eq!(base.len(), 0);
    open.set_stalled(true);
    assert_eq!(wanted(&sender, &mut base), [300]);
    base.digests.add(events(0..20));
    open.end(true);
    sender.leave(&open);
    assert_eq!(open.standing(), Standing::InOrder);
    assert_eq!(wanted(&sender, &mut base), [300]);
    assert_eq!(base.len(), 0, "to be read again, in order");
}

#[test]
fn the_first_end_of_a_connection_counts() {
    let trail = ended(0, &[span(0, 20, 1)]);
    assert!(trail.end(true) && !trail.end(false));
    assert_eq!(trail.standing(), Standing::InOrder);
    let trail = ended(0, &[span(0, 20, 1)]);
    assert!(trail.end(false) && !trail.end(true));
    assert_eq!(trail.standing(), Standing::Cut);
}
