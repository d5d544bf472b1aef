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

mod digests;
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
