//! Tests of the remembered windows, their time and their number; the judge against a model.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use ackline_spool::{Writer, WriterOptions};
use proptest::prelude::*;

use super::judge::Course;
use super::sender::{EXPIRY, MOST_EVENTS};
use super::trail::{Block, Events};
use super::*;
use tokio::time::Instant;

mod order;

fn span(first: u64, events: u32, windows: u32) -> Span {
    Span {
        first,
        events,
        windows,
    }
}

fn stored(number: u64, span: Span) -> Block {
    let events = Events::Stored(span);
    Block { number, events }
}

/// A connection that landed these blocks and ended.
fn ended(id: u64, spans: &[Span]) -> Arc<Trail> {
    let trail = Trail::new(id, 0);
    for span in spans {
        trail.appended();
        trail.placed(*span);
    }
    Arc::new(trail)
}

fn join_and_leave(sender: &Sender, trail: &Arc<Trail>) {
    sender.join(trail, Vec::new(), Instant::now());
    trail.end(false);
    trail.finish();
    sender.leave(trail);
}

/// The blocks that a newcomer is compared with.
fn wanted(sender: &Sender, base: &mut Base) -> Vec<u64> {
    let newcomer = Trail::new(u64::MAX, 0);
    sender.has_others(&newcomer);
    let wanted = sender.wanted(base, &newcomer);
    wanted.iter().map(|block| block.first).collect()
}

#[test]
fn the_last_64_windows_are_remembered_in_whole_blocks() {
    let spans: Vec<_> = (0..100).map(|at| span(at * 2, 2, 1)).collect();
    assert_eq!(ended(0, &spans).spans(), spans[36..]);
    let last: Vec<_> = (95..)
        .zip(&spans[95..])
        .map(|(at, span)| stored(at, *span))
        .collect();
    assert_eq!(ended(0, &spans).blocks_from(95), last);
    // The first one has one of the last 64 windows in it.
    let large = [span(0, 9, 10), span(9, 9, 60), span(18, 9, 3)];
    assert_eq!(ended(0, &large).spans(), large);
    let more = [span(0, 9, 10), span(9, 9, 60), span(18, 9, 4)];
    assert_eq!(ended(0, &more).spans(), more[1..]);
    // A block of nothing is settled and stands nowhere.
    assert_eq!(ended(0, &[span(7, 0, 1)]).spans(), Vec::<Span>::new());
}

#[test]
fn what_may_be_unacknowledged_is_remembered_too() {
    let trail = Trail::new(0, 200);
    for at in 0..300 {
        trail.appended();
        trail.placed(span(at, 1, 1));
    }
    assert_eq!(trail.spans().len(), 200);
}

#[test]
fn what_failed_is_waited_for_no_longer() {
    let trail = Trail::new(0, 0);
    trail.appended();
    trail.appended();
    trail.placed(span(0, 1, 1));
    assert!(trail.has_placed(1) && !trail.has_placed(2));
    trail.failed();
    assert!(trail.has_placed(2));
}

#[tokio::test(start_paused = true)]
async fn it_is_forgotten_after_an_hour() {
    let (sender, mut base) = (Sender::default(), Base::default());
    join_and_leave(&sender, &ended(0, &[span(0, 5, 1)]));
    tokio::time::advance(EXPIRY / 2).await;
    join_and_leave(&sender, &ended(1, &[span(5, 5, 1)]));
    tokio::time::advance(Duration::from_secs(1_799)).await;
    assert_eq!(wanted(&sender, &mut Base::default()), [0, 5]);
    assert_eq!(wanted(&sender, &mut base), [0, 5]);
    base.digests.add((0..10).collect());
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    tokio::time::advance(Duration::from_secs(2)).await;
    // Half of the events that were read are too old: the rest is read again.
    assert_eq!(wanted(&sender, &mut base), [5]);
    assert_eq!(base.digests.len(), 0);
    assert!(!sender.is_forgotten());
    tokio::time::advance(EXPIRY).await;
    assert!(sender.is_forgotten());
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    assert!(!sender.join(&ended(2, &[]), Vec::new(), Instant::now()));
}

#[test]
fn a_million_events_of_a_sender_are_remembered() {
    let (sender, mut base) = (Sender::default(), Base::default());
    let half = u32::try_from(MOST_EVENTS / 2).unwrap();
    for at in 0..4 {
        join_and_leave(&sender, &ended(at, &[span(at * 1_000_000, half, 1)]));
    }
    assert_eq!(wanted(&sender, &mut base), [2_000_000, 3_000_000]);
    // One connection alone may have landed more than that: its last ones count.
    let (sender, mut base) = (Sender::default(), Base::default());
    let large: Vec<_> = (0..4).map(|at| span(at, half, 1)).collect();
    join_and_leave(&sender, &ended(0, &large));
    assert_eq!(wanted(&sender, &mut base), [2, 3]);
}

/// A sender may leave thousands of connections behind: each new one looks at those that changed.
#[test]
fn a_new_connection_looks_at_what_ended_since_the_one_before() {
    let (sender, mut base) = (Sender::default(), Base::default());
    for id in 0..7_000 {
        let trail = ended(id, &[span(id, 1, 1)]);
        assert!(sender.join(&trail, Vec::new(), Instant::now()) || id == 0);
        assert!(sender.unsettled_below(u64::MAX, &trail, |_| true).is_none());
        assert!(sender.looks_at() <= 1, "{id}");
        let expected: Vec<u64> = id.checked_sub(1).into_iter().collect();
        assert_eq!(wanted(&sender, &mut base), expected);
        trail.end(false);
        trail.finish();
        sender.leave(&trail);
    }
}

/// In runs, so that added digests are not moved each time.
#[test]
fn digests_are_found_in_few_runs() {
    let mut set = Multiset::default();
    for first in 0..10_000_u128 {
        set.add((first * 8..first * 8 + 8).collect());
        assert!(set.runs() <= 16);
    }
    assert_eq!(set.len(), 80_000);
    assert!((0..80_000).all(|digest| set.take(digest) && !set.take(digest)));
}

#[test]
fn of_all_senders_together_so_many_connections_are_remembered() {
    let departed = Arc::default();
    let senders: Vec<_> = (0..12).map(|_| Sender::new(&departed)).collect();
    for sender in &senders {
        for id in 0..10_000 {
            join_and_leave(sender, &ended(id, &[span(id, 1, 1)]));
        }
    }
    let held = departed.load(Ordering::Relaxed);
    assert!(held <= sender::MOST_DEPARTED + 12 * 16, "{held}");
    // The last ones of each sender are remembered, no matter how many the others left.
    for sender in &senders {
        assert!(wanted(sender, &mut Base::default()).ends_with(&[9_998, 9_999]));
    }
    drop(senders);
    assert_eq!(departed.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_expected_once_all_are_back_and_quiet() {
    let (sender, mut base) = (Sender::default(), Base::default());
    for id in 0..2 {
        join_and_leave(&sender, &ended(id, &[span(id, 1, 1)]));
    }
    // Both were open one after the other: one is missing.
    let back = ended(2, &[]);
    assert!(sender.join(&back, Vec::new(), Instant::now()));
    assert_eq!(wanted(&sender, &mut base), [0, 1]);
    sender.is_quiet(&back, &mut base);
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    assert_eq!(wanted(&sender, &mut Base::default()), [0_u64; 0]);
    assert!(!sender.is_forgotten());
    // One more is there than had ended: one of those that came was new.
    let more = ended(20, &[]);
    assert!(sender.join(&more, Vec::new(), Instant::now()));
    assert_eq!(wanted(&sender, &mut base), [0, 1]);
    sender.is_quiet(&more, &mut base);
    sender.is_quiet(&back, &mut base);
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    // A connection that comes back after that is expected, and compared with its own alone.
    more.end(false);
    more.finish();
    sender.leave(&more);
    sender.join(&ended(21, &[]), Vec::new(), Instant::now());
    assert_eq!(wanted(&sender, &mut base), [0_u64; 0]);
    sender.is_quiet(&ended(21, &[]), &mut base);
    sender.is_quiet(&back, &mut base);
    // Two at once: the second one is still missing when the first one is quiet.
    let (one, two) = (ended(3, &[span(3, 1, 1)]), ended(4, &[span(4, 1, 1)]));
    sender.join(&one, Vec::new(), Instant::now());
    sender.join(&two, Vec::new(), Instant::now());
    for trail in [&one, &two, &back] {
        trail.end(false);
        trail.finish();
        sender.leave(trail);
    }
    let mut base = Base::default();
    for id in 5..7 {
        sender.join(&ended(id, &[]), Vec::new(), Instant::now());
    }
    sender.is_quiet(&ended(5, &[]), &mut base);
    sender.is_quiet(&ended(6, &[]), &mut base);
    assert_eq!(wanted(&sender, &mut base), [0, 1, 3, 4]);
}

fn repeats(dir: &Path) -> (Writer, Arc<Repeats>) {
    let (writer, _) = Writer::open(dir, WriterOptions::default()).unwrap();
    let spool = Spool::open(dir).unwrap();
    (writer, Arc::new(Repeats::new(spool, None).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_senders_are_remembered_and_those_away_for_longest_go_first() {
    let temp = tempfile::tempdir().unwrap();
    let (_writer, repeats) = repeats(&temp.path().join("spool"));
    let join = async |number: u64| {
        let name = Arc::from(number.to_string());
        let trail = Arc::new(Trail::new(number, 0));
        repeats
            .join(&name, &trail)
            .await
            .map(|(sender, _)| (sender, trail))
    };
    let mut all = VecDeque::new();
    for number in 0..MOST_SENDERS as u64 {
        all.push_back(join(number).await.unwrap());
    }
    // All of them are there: the next one is not followed.
    assert!(join(20_000).await.is_none());
    for _ in 0..2 {
        let (sender, trail) = all.pop_front().unwrap();
        trail.end(false);
        trail.finish();
        sender.leave(&trail);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert!(join(20_000).await.is_some());
    let known = |number: u64| {
        locked(&repeats.senders)
            .known
            .contains_key(&*number.to_string())
    };
    assert!(!known(0) && known(1) && known(2) && known(20_000));
    tokio::time::advance(EXPIRY).await;
    assert!(join(20_001).await.is_some());
    assert!(!known(1) && known(2));
    assert_eq!(locked(&repeats.senders).known.len(), MOST_SENDERS);
}

/// Twenty connections of one sender are there, then comes one more; the first one ends while that one asks
/// for the judge of its window of this number. Answers for each of five windows whether it is compared.
async fn compared_by_a_newcomer(ends_at: usize) -> Vec<bool> {
    let temp = tempfile::tempdir().unwrap();
    let (_writer, repeats) = repeats(&temp.path().join("spool"));
    let name = Arc::from("a");
    let member = |id: u64| Member::new(&repeats, (&name, &name), &Arc::new(Trail::new(id, 0)));
    let members: Vec<_> = (0..20).map(member).collect();
    for one in &members {
        one.judge(|| false).await;
    }
    let newcomer = member(20);
    let mut compared = Vec::new();
    for window in 0..5 {
        let end = async {
            if window == ends_at {
                members[0].finish();
            }
        };
        let (judge, ()) = tokio::join!(newcomer.judge(|| false), end);
        compared.push(judge.is_some());
        let judge = judge.map(|mut judge| {
            judge.end_window();
            judge
        });
        newcomer.landed(judge);
    }
    compared
}

/// Two connections of one sender that are known and whose peers take nothing, and the writer of their spool.
async fn two_of_one() -> (tempfile::TempDir, Writer, [(Member, Arc<Trail>); 2]) {
    let temp = tempfile::tempdir().unwrap();
    let (writer, repeats) = repeats(&temp.path().join("spool"));
    let name = Arc::from("a");
    let two = [0, 1].map(|id| {
        let trail = Arc::new(Trail::new(id, 0));
        trail.set_stalled(true);
        (Member::new(&repeats, (&name, &name), &trail), trail)
    });
    for (member, _) in &two {
        let judge = member.judge(|| false).await;
        member.landed(judge);
    }
    // Because of the end of another one both compare.
    let gone = Member::new(&repeats, (&name, &name), &Arc::new(Trail::new(2, 0)));
    gone.judge(|| true).await;
    gone.finish();
    (temp, writer, two)
}

/// Whether a judgement waits for something.
async fn waits(member: &Member) -> bool {
    let judging = member.judge(|| false);
    tokio::time::timeout(Duration::from_secs(60), judging)
        .await
        .is_err()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_compared_before_all_was_handed_over_that_an_ended_connection_had() {
    let (_temp, _writer, [(first, _), (second, _)]) = two_of_one().await;
    first.end(false);
    assert!(waits(&second).await);
    assert!(
        second.judge(|| true).await.is_some(),
        "nobody waits any more"
    );
    first.finish();
    assert!(!waits(&second).await);
    // Also for one that came later.
    let (_temp, _writer, [(first, _), (second, _)]) = two_of_one().await;
    second.end(false);
    assert!(waits(&first).await);
}

#[tokio::test(start_paused = true)]
async fn of_two_connections_that_end_the_later_one_waits_for_the_other() {
    let (_temp, _writer, [(first, _), (second, _)]) = two_of_one().await;
    first.end(false);
    second.end(false);
    assert!(waits(&second).await);
    assert!(!waits(&first).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_compared_before_what_another_connection_handed_over_is_durable() {
    let (_temp, _writer, [(_, trail), (second, _)]) = two_of_one().await;
    trail.appended();
    assert!(waits(&second).await);
    assert!(
        second.judge(|| true).await.is_some(),
        "nobody waits any more"
    );
    trail.placed(span(0, 0, 1));
    assert!(!waits(&second).await);
}

#[tokio::test(start_paused = true)]
async fn among_many_what_an_ended_connection_handed_over_is_durable_first() {
    let temp = tempfile::tempdir().unwrap();
    let (_writer, repeats) = repeats(&temp.path().join("spool"));
    let name = Arc::from("a");
    let members: Vec<_> = (0..20)
        .map(|id| {
            let trail = Arc::new(Trail::new(id, 0));
            (Member::new(&repeats, (&name, &name), &trail), trail)
        })
        .collect();
    for (member, _) in &members {
        member.judge(|| true).await;
    }
    let (ended, trail) = &members[0];
    trail.appended();
    ended.finish();
    let newcomer = Member::new(&repeats, (&name, &name), &Arc::new(Trail::new(20, 0)));
    assert!(waits(&newcomer).await);
    trail.placed(span(0, 0, 1));
    assert!(!waits(&newcomer).await);
}

#[tokio::test(start_paused = true)]
async fn digests_that_are_known_are_compared_with_before_their_blocks_are_durable() {
    let (_temp, _writer, [(first, trail), (second, own)]) = two_of_one().await;
    let landed = |event: &'static [u8]| {
        let (first, second, trail) = (&first, &second, &trail);
        async move {
            let mut judge = first.judge(|| false).await.unwrap();
            judge.payload(event);
            judge.end_window();
            assert_eq!(judge.end_block(), [0_u8; 0]);
            trail.appended();
            first.landed(Some(judge));
            if trail.is_ended() {
                first.finish();
            }
            let judge = tokio::time::timeout(Duration::from_secs(60), second.judge(|| false));
            judge.await.ok().flatten().map(|mut judge| {
                judge.payload(event);
                judge.end_block()
            })
        }
    };
    // While it is open its digests are not kept.
    assert_eq!(landed(b"one").await, None);
    trail.placed(span(0, 0, 1));
    first.end(false);
    assert_eq!(landed(b"two").await, Some(vec![1]));
    let known = |trail: &Trail| trail.blocks_from(0).len();
    assert_eq!(
        (known(&trail), trail.is_comparable(2), trail.has_placed(2)),
        (1, true, false)
    );
    // Each is there once: as known, and then in the spool.
    trail.placed(span(7, 1, 1));
    assert_eq!(trail.blocks_from(0), [stored(1, span(7, 1, 1))]);
    assert!(!own.is_ended());
}

#[test]
fn digests_are_known_until_their_block_is_durable_or_failed() {
    let cut = |id| {
        let trail = Trail::new(id, 0);
        trail.end(false);
        for _ in 0..3 {
            trail.appended();
        }
        trail
    };
    let digests = |count: u128| vec![(0..count).collect::<Vec<_>>()];
    let trail = cut(0);
    trail.know(1, digests(2));
    assert!(
        !trail.is_comparable(3),
        "of the first and the last one nothing is known"
    );
    trail.placed(span(0, 2, 1));
    assert!(trail.is_comparable(2) && !trail.is_comparable(3));
    trail.know(2, digests(2));
    assert!(trail.is_comparable(3));
    trail.failed();
    assert_eq!(trail.blocks_from(0).len(), 1, "what failed is nowhere");
    // Of many nothing is known, and behind a gap neither.
    let trail = cut(1);
    trail.know(0, digests(300));
    assert!(!trail.is_comparable(1));
    trail.know(0, digests(1));
    trail.know(2, digests(1));
    assert!(!trail.is_comparable(1) && !trail.is_comparable(3));
    // A block that was durable by then is there once.
    let trail = cut(3);
    trail.placed(span(0, 1, 1));
    trail.know(0, vec![vec![1], vec![2], vec![3]]);
    let numbers: Vec<_> = trail
        .blocks_from(0)
        .iter()
        .map(|block| block.number)
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    // Of a connection that ended in order neither: its events are compared in a row.
    let trail = Trail::new(2, 0);
    trail.end(true);
    trail.appended();
    trail.know(0, digests(20));
    assert!(!trail.is_comparable(1) && trail.blocks_from(0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_another_connection_handed_over_while_it_compared_is_waited_for_too() {
    let (_temp, _writer, [(first, trail), (second, _)]) = two_of_one().await;
    let judge = first.judge(|| false).await.unwrap();
    let begun = Instant::now();
    let judging = async {
        let judge = second.judge(|| false).await;
        (judge.is_some(), begun.elapsed().as_secs())
    };
    let handing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        trail.appended();
        drop(judge);
        tokio::time::sleep(Duration::from_secs(1)).await;
        trail.placed(span(0, 0, 1));
    };
    assert_eq!(tokio::join!(judging, handing).0, (true, 2));
}

#[tokio::test]
async fn among_many_an_end_that_is_seen_late_is_compared_with() {
    // While the first window waits, while it is compared still, and after that.
    let first = [true, true, true, false, false];
    assert_eq!(compared_by_a_newcomer(0).await, first);
    let third = [false, false, true, false, false];
    assert_eq!(compared_by_a_newcomer(1).await, third);
    assert_eq!(compared_by_a_newcomer(2).await, [false; 5]);
}

#[tokio::test(start_paused = true)]
async fn what_had_landed_before_a_start_is_known_for_an_hour() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("spool");
    drop(Writer::open(&dir, WriterOptions::default()).unwrap());
    let spool = Spool::open(&dir).unwrap();
    let before = Before::new(5, None, HashSet::new());
    assert!(!before.is_over());
    before.take(&spool, "a");
    before.end_if_empty();
    assert!(before.is_over());
    let before = Before::new(5, None, HashSet::new());
    tokio::time::advance(EXPIRY).await;
    before.take(&spool, "a");
    before.end_if_empty();
    assert!(before.is_over());
    assert!(Before::new(0, None, HashSet::new()).is_over());
}

#[tokio::test]
async fn digests_above_the_limit_are_let_go_and_read_again_on_need() {
    let temp = tempfile::tempdir().unwrap();
    let (_writer, repeats) = repeats(&temp.path().join("spool"));
    let name = Arc::from("a");
    let trail = ended(0, &[span(0, 5, 1)]);
    let (sender, _) = repeats.join(&name, &trail).await.unwrap();
    trail.end(false);
    trail.finish();
    sender.leave(&trail);
    let mut base = sender.base.lock().await;
    assert_eq!(wanted(&sender, &mut base), [0]);
    base.digests.add((0..5).collect());
    drop(base);
    repeats.count(0, 5);
    repeats.count(0, MOST_DIGESTS - 5);
    assert_eq!(sender.base.lock().await.digests.len(), 5);
    let busy = sender.base.lock().await;
    repeats.count(0, 1);
    assert_eq!(busy.digests.len(), 5);
    drop(busy);
    repeats.count(1, 1);
    assert_eq!(repeats.held.load(Ordering::Relaxed), MOST_DIGESTS - 4);
    let mut base = sender.base.lock().await;
    assert_eq!(base.digests.len(), 0);
    assert_eq!(wanted(&sender, &mut base), [0]);
}

#[test]
fn a_multiset_forgets_what_was_taken_out() {
    let mut set = Multiset::default();
    set.add(vec![3, 1, 3, 2]);
    assert_eq!(set.len(), 3);
    assert!(set.take(1) && !set.take(1) && !set.take(4));
    set.add(vec![0, 3, 9]);
    assert_eq!(set.len(), 4);
    assert!(set.take(3) && set.take(3) && set.take(3) && !set.take(3));
}

/// A model of the judge, in a few lines.
fn model(base: &[u8], windows: &[Vec<u8>], enough: u32) -> Vec<Vec<bool>> {
    let (mut base, mut quiet) = (base.to_vec(), 0);
    let mut judge = |events: &Vec<u8>| {
        if quiet == enough {
            return vec![false; events.len()];
        }
        let mut marks = Vec::new();
        for event in events {
            let found = base.iter().position(|one| one == event);
            marks.push(found.is_some());
            found.map(|at| base.remove(at));
        }
        quiet = if marks.contains(&true) { 0 } else { quiet + 1 };
        marks
    };
    windows.iter().map(&mut judge).collect()
}

proptest! {
    #[test]
    fn the_judge_is_the_model(
        layers in prop::collection::vec(prop::collection::vec(0_u8..6, 0..12), 0..4),
        windows in prop::collection::vec(prop::collection::vec(0_u8..9, 0..5), 0..12),
        enough in 1_u32..5,
    ) {
        let digester = Digester::keyed([1; 32]);
        let base = Arc::new(tokio::sync::Mutex::new(Base::default()));
        for layer in &layers {
            let digests = layer.iter().map(|event| digester.payload(&[*event]));
            base.try_lock().unwrap().digests.add(digests.collect());
        }
        let course = Course { enough, ..Course::default() };
        let mut judge = Judge::new((base.try_lock_owned().unwrap(), Multiset::default()), digester, course);
        let mut marks = Vec::new();
        for window in &windows {
            for event in window {
                judge.payload(&[*event]);
            }
            judge.end_window();
            let bits = judge.end_block();
            let bit = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
            marks.push((0..window.len()).map(bit).collect::<Vec<_>>());
        }
        let expected = model(&layers.concat(), &windows, enough);
        let found = expected.iter().flatten().filter(|one| **one).count() as u64;
        prop_assert_eq!(marks, expected);
        prop_assert_eq!(judge.counts().1, found);
    }
}
