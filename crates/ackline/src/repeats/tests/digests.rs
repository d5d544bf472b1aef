//! Digests of events, and the multiset that they are compared by.

use super::*;

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
