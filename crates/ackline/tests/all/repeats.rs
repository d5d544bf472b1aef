//! Marks of repeats: the events that a sender landed last are marked, each once, and nothing is
//! compared while links are healthy.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use crate::common::{Sender, landed, repeats, start, until, window};
use ackline::spool::{Access, Spool};
use serde_json::json;
use std::time::{Duration, Instant};

/// Sends one window of these events and waits for its acknowledgement.
async fn deliver(sender: &mut Sender, events: &[&str]) {
    sender.send(&window(b'2', events)).await;
    assert!(sender.ack_of_window().await.is_some());
}

/// The same over a connection of its own, which is cut off then.
async fn deliver_and_reset(receiver: &ackline::Receiver, host: &str, events: &[&str]) {
    let mut sender = Sender::from(receiver, host).await;
    deliver(&mut sender, events).await;
    sender.reset();
}

/// Waits until so many connections are open.
async fn open(receiver: &ackline::Receiver, wanted: u64) {
    until(receiver, "connections", |stats| stats.connections == wanted).await;
}

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("spool");
    (temp, dir)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_digested_while_links_are_healthy() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut first = Sender::new(&receiver).await;
    for _ in 0..100 {
        deliver(&mut first, &["same", "again"]).await;
    }
    assert_eq!(receiver.stats().received.compared, 0);
    first.reset();
    open(&receiver, 0).await;
    // A sender that is back is compared for three windows and no longer.
    let mut second = Sender::new(&receiver).await;
    for round in 0..20 {
        let event = format!("new {round}");
        deliver(&mut second, &[&event, "x"]).await;
    }
    let stats = receiver.stats();
    assert_eq!((stats.received.compared, stats.received.repeats), (6, 0));
    // A connection that sends nothing, as a health check, is no history.
    drop(Sender::from(&receiver, "127.0.0.9").await);
    open(&receiver, 1).await;
    deliver(&mut Sender::from(&receiver, "127.0.0.9").await, &["y"]).await;
    assert_eq!(receiver.stats().received.compared, 6);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_only_the_host_that_sent_it_repeats() {
    let (_temp, dir) = folder();
    let first = start(&dir, &json!({})).await;
    deliver_and_reset(&first, "127.0.0.1", &["a", "b"]).await;
    first.stop(None).await;
    drop(first);
    let second = start(&dir, &json!({})).await;
    deliver(&mut Sender::from(&second, "127.0.0.2").await, &["a", "b"]).await;
    assert_eq!(second.stats().received.compared, 0);
    assert_eq!(repeats(&dir), Vec::<String>::new());
    deliver(&mut Sender::from(&second, "127.0.0.1").await, &["b"]).await;
    assert_eq!(repeats(&dir), ["b"]);
    second.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_once_answers_once() {
    let (_temp, dir) = folder();
    let first = start(&dir, &json!({})).await;
    deliver_and_reset(&first, "127.0.0.1", &["twice", "once", "twice"]).await;
    first.stop(None).await;
    drop(first);
    let second = start(&dir, &json!({})).await;
    let mut sender = Sender::new(&second).await;
    for _ in 0..2 {
        deliver(&mut sender, &["twice", "twice", "once", "once"]).await;
    }
    let marks: Vec<_> = landed(&dir).into_iter().skip(3).map(|one| one.1).collect();
    let mut expected = [false; 8];
    expected[..3].fill(true);
    assert_eq!(marks, expected);
    second.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_64_windows_of_a_connection_are_known_acknowledged_or_not() {
    let (_temp, dir) = folder();
    for is_started_anew in [false, true] {
        let mut receiver = start(&dir, &json!({})).await;
        let name = |at: usize| format!("{is_started_anew} {at}");
        let mut sender = Sender::new(&receiver).await;
        for at in 0..70 {
            deliver(&mut sender, &[&name(at)]).await;
        }
        sender.reset();
        open(&receiver, 0).await;
        if is_started_anew {
            receiver.stop(None).await;
            drop(receiver);
            receiver = start(&dir, &json!({})).await;
        }
        let before = repeats(&dir).len();
        let all: Vec<_> = (0..70).map(name).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        deliver(&mut Sender::new(&receiver).await, &all).await;
        assert_eq!(repeats(&dir)[before..], all[6..]);
        receiver.stop(None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_of_a_resend_is_one_too() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    for round in 0..5 {
        let mut sender = Sender::new(&receiver).await;
        deliver(&mut sender, &["a", "b"]).await;
        deliver(&mut sender, &["c"]).await;
        sender.reset();
        open(&receiver, 0).await;
        assert_eq!(repeats(&dir).len(), 3 * round);
    }
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_open_all_the_time_may_bring_the_resend() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut other = Sender::new(&receiver).await;
    deliver(&mut other, &["other 1"]).await;
    let mut broken = Sender::new(&receiver).await;
    deliver(&mut broken, &["broken 1"]).await;
    // Long enough for both to be taken to send new events.
    for at in 2..30 {
        deliver(&mut other, &[&format!("other {at}")]).await;
        deliver(&mut broken, &[&format!("broken {at}")]).await;
    }
    let compared = receiver.stats().received.compared;
    deliver(&mut other, &["quiet"]).await;
    assert_eq!(receiver.stats().received.compared, compared);
    broken.reset();
    open(&receiver, 1).await;
    deliver(&mut other, &["in flight"]).await;
    deliver(&mut other, &["broken 28", "broken 29", "other 30"]).await;
    assert_eq!(repeats(&dir), ["broken 28", "broken 29"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_peer_takes_nothing_any_more_is_known_as_cut() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    // As one whose network is gone: its end will not come, and acknowledgements stay on this side.
    let mut lost = Sender::with_buffer(&receiver, 2_304).await;
    let filled = fill(&receiver, &mut lost).await;
    lost.send(&window(b'2', &["a", "b"])).await;
    until(&receiver, "landed", |stats| {
        stats.acked.acked_events >= filled + 2
    })
    .await;
    settled(&lost).await;
    let mut again = Sender::new(&receiver).await;
    deliver(&mut again, &["b", "c"]).await;
    deliver(&mut again, &["a", "e"]).await;
    assert_eq!(repeats(&dir), ["b", "a"]);
    receiver.stop(None).await;
}

/// Sends windows of one event and reads none of their acknowledgements until a kilobyte of them waits at the receiver
/// and stays there; how many.
async fn fill(receiver: &ackline::Receiver, sender: &mut Sender) -> u64 {
    let batch = window(b'2', &["filler"]).repeat(100);
    for sent in (100..20_000).step_by(100) {
        sender.send(&batch).await;
        until(receiver, "acked", |stats| stats.acked.acked_events == sent).await;
        if sender.untaken() >= 1_024 && settled(sender).await >= 1_024 {
            return sent;
        }
    }
    unreachable!("they are taken for ever");
}

/// Waits until this system has taken none of the receiver's output for a second; returns the bytes
/// that wait there then. A full buffer finds a little room a few times, when the receiver's system
/// asks it again.
async fn settled(sender: &Sender) -> u64 {
    let (mut before, mut same) = (sender.untaken(), 0);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = sender.untaken();
        same = if now == before { same + 1 } else { 0 };
        if same == 20 {
            return now;
        }
        before = now;
    }
    unreachable!("it is taken for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_one_repeat_came_the_next_one_may_come_by_another_connection() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut broken = Sender::new(&receiver).await;
    deliver(&mut broken, &["t 1", "t 2"]).await;
    let mut one = Sender::new(&receiver).await;
    deliver(&mut one, &["one"]).await;
    let mut two = Sender::new(&receiver).await;
    deliver(&mut two, &["two"]).await;
    broken.reset();
    open(&receiver, 2).await;
    for at in 0..20 {
        deliver(&mut one, &[&format!("one {at}")]).await;
    }
    deliver(&mut two, &["t 1"]).await;
    deliver(&mut one, &["t 2"]).await;
    assert_eq!(repeats(&dir), ["t 1", "t 2"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_before_an_end_that_has_come_is_read_before_its_copy() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    for round in 0..20 {
        let event = |name: &str| format!("{round} {name}");
        let mut lost = Sender::new(&receiver).await;
        deliver(&mut lost, &[&event("a")]).await;
        // The second window and the end wait in the socket.
        lost.send(&window(b'2', &[&event("b"), &event("d")])).await;
        drop(lost);
        let mut again = Sender::new(&receiver).await;
        deliver(&mut again, &[&event("b"), &event("c")]).await;
        again.reset();
        open(&receiver, 0).await;
        assert_eq!(repeats(&dir).last(), Some(&event("b")));
        assert_eq!(repeats(&dir).len(), round + 1);
    }
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_agents_behind_one_address_are_all_known_when_they_are_back() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    const AGENTS: usize = 40;
    let mut agents = Vec::new();
    for agent in 0..AGENTS {
        let mut sender = Sender::new(&receiver).await;
        deliver(&mut sender, &[&format!("{agent} a"), &format!("{agent} b")]).await;
        agents.push(sender);
    }
    agents.into_iter().for_each(Sender::reset);
    open(&receiver, 0).await;
    let mut back = Vec::new();
    for agent in 0..AGENTS {
        let mut sender = Sender::new(&receiver).await;
        deliver(&mut sender, &[&format!("{agent} b"), &format!("{agent} c")]).await;
        // It goes on with new events, and is compared no longer, before the next one is back.
        for at in 0..4 {
            deliver(&mut sender, &[&format!("{agent} new {at}")]).await;
        }
        back.push(sender);
    }
    let expected: Vec<_> = (0..AGENTS).map(|agent| format!("{agent} b")).collect();
    assert_eq!(repeats(&dir), expected);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_behind_the_same_address_does_not_hide_that_another_is_back() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut lost = Sender::new(&receiver).await;
    deliver(&mut lost, &["lost 1", "lost 2"]).await;
    lost.reset();
    open(&receiver, 0).await;
    // It takes the place of the one that is lost, and has nothing in common with it.
    let mut new = Sender::new(&receiver).await;
    for round in 0..20 {
        deliver(&mut new, &[&format!("new {round}")]).await;
    }
    deliver(&mut Sender::new(&receiver).await, &["lost 1", "lost 2"]).await;
    assert_eq!(repeats(&dir), ["lost 1", "lost 2"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_many_one_that_is_back_at_once_is_known() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut idle = Vec::new();
    for agent in 0..24 {
        let mut sender = Sender::new(&receiver).await;
        deliver(&mut sender, &[&format!("idle {agent}")]).await;
        idle.push(sender);
    }
    const ROUNDS: usize = 25;
    for round in 0..ROUNDS {
        let event = |at: usize| format!("{round} {at}");
        let (first, second) = (
            window(b'2', &[&event(0), &event(1)]),
            window(b'2', &[&event(2)]),
        );
        // Its end, in order, stands behind windows that nobody has read.
        let mut lost = Sender::new(&receiver).await;
        lost.send(&[&first[..], &second, b"2W\0\0\0\x09"].concat())
            .await;
        drop(lost);
        let mut again = Sender::new(&receiver).await;
        again.send(&first).await;
        assert!(again.ack_of_window().await.is_some());
        again.send(&second).await;
        assert!(again.ack_of_window().await.is_some());
    }
    receiver.stop(None).await;
    let found = landed(&dir);
    let marked = found.iter().filter(|(_, is_repeat)| *is_repeat).count();
    let mut events: Vec<_> = found.into_iter().map(|one| one.0).collect();
    let landed = events.len();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), idle.len() + 3 * ROUNDS);
    // Where the cut came before a window was landed, there is one copy of it; where the machine has kept the end of a
    // connection from the receiver for longer than it looks for one, a copy is taken for new.
    let copies = landed - events.len();
    assert!(
        marked <= copies && marked + 9 >= copies,
        "{marked} of {copies}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_that_come_at_once_after_a_start_find_what_they_had_landed() {
    let (_temp, dir) = folder();
    for round in 0..10 {
        let mut senders = tokio::task::JoinSet::new();
        let receiver = start(&dir, &json!({})).await;
        let before = repeats(&dir).len();
        for agent in 0..8 {
            let receiver = receiver.clone();
            senders.spawn(async move {
                let event = |at: usize| format!("{agent} {at}");
                let mut sender = Sender::new(&receiver).await;
                deliver(&mut sender, &[&event(round), &event(round + 1)]).await;
                sender.reset();
            });
        }
        senders.join_all().await;
        let found = repeats(&dir)[before..].to_vec();
        assert_eq!(found.len(), if round == 0 { 0 } else { 8 }, "{found:?}");
        receiver.stop(None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_of_version_1_are_recognised_too() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let pair = b"1W\0\0\0\x011D\0\0\0\x01\0\0\0\x01\0\0\0\x04line\0\0\0\x01x";
    for round in 0..2 {
        let mut sender = Sender::new(&receiver).await;
        sender.send(pair).await;
        assert!(sender.ack_of_window().await.is_some());
        sender.reset();
        open(&receiver, 0).await;
        assert_eq!(receiver.stats().received.repeats, round);
    }
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_has_removed_is_not_compared_with() {
    let (_temp, dir) = folder();
    let options = json!({"segment_bytes": 1, "retain_committed_ms": 1});
    let receiver = start(&dir, &options).await;
    let mut sender = Sender::new(&receiver).await;
    deliver(&mut sender, &["gone"]).await;
    deliver(&mut sender, &["kept"]).await;
    let spool = Spool::open_with(&dir, Access::default()).unwrap();
    spool.add_consumer("etl", 1).unwrap();
    // Retention looks every 10 s.
    let deadline = Instant::now() + Duration::from_secs(60);
    while spool.first_kept().unwrap() == 0 {
        assert!(Instant::now() < deadline, "nothing was removed in 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(spool.first_kept().unwrap(), 1);
    sender.reset();
    open(&receiver, 0).await;
    deliver(&mut Sender::new(&receiver).await, &["gone", "kept", "new"]).await;
    assert_eq!(repeats(&dir), ["kept"]);
    receiver.stop(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spool_without_a_key_gets_one() {
    let (_temp, dir) = folder();
    let first = start(&dir, &json!({})).await;
    deliver_and_reset(&first, "127.0.0.1", &["a"]).await;
    first.stop(None).await;
    drop(first);
    std::fs::remove_file(dir.join("key")).unwrap();
    let second = start(&dir, &json!({})).await;
    deliver(&mut Sender::new(&second).await, &["a", "b"]).await;
    assert_eq!(repeats(&dir), ["a"]);
    second.stop(None).await;
}

/// So many events that differ.
fn different(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{name} {at}")).collect()
}

fn texts(events: &[String]) -> Vec<&str> {
    events.iter().map(String::as_str).collect()
}

/// Delivers over a connection that ends when all is acknowledged and taken.
async fn deliver_in_order(receiver: &ackline::Receiver, events: &[&str]) {
    let mut sender = Sender::new(receiver).await;
    deliver(&mut sender, events).await;
    drop(sender);
    open(receiver, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_events_over_connections_that_end_in_order_are_all_new() {
    let (_temp, dir) = folder();
    let ticks = ["tick"; 20];
    for count in [1, 1, 1, 1, 1, 5, 20, 20] {
        let receiver = start(&dir, &json!({})).await;
        deliver_in_order(&receiver, &ticks[..count]).await;
        // The next one comes to the same receiver, then to one that was started again.
        deliver_in_order(&receiver, &ticks[..count]).await;
        assert_eq!(receiver.stop(None).await, 0);
    }
    assert_eq!(landed(&dir).len(), 2 * 50);
    assert_eq!(repeats(&dir), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_events_over_connections_that_are_open_at_once_are_all_new() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let receiver = receiver.clone();
        writers.spawn(async move {
            let mut sender = Sender::new(&receiver).await;
            for _ in 0..50 {
                deliver(&mut sender, &["tick"]).await;
            }
        });
    }
    writers.join_all().await;
    assert_eq!(receiver.stop(None).await, 0);
    assert_eq!(landed(&dir).len(), 200);
    assert_eq!(repeats(&dir), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_stretch_again_after_an_end_in_order_is_known_from_sixteen_events_on() {
    let (_temp, dir) = folder();
    for is_started_anew in [false, true] {
        let mut receiver = start(&dir, &json!({})).await;
        let long = different(&format!("long {is_started_anew}"), 40);
        let long = texts(&long);
        let short = different(&format!("short {is_started_anew}"), 15);
        let short = texts(&short);
        let before = repeats(&dir).len();
        deliver_in_order(&receiver, &long).await;
        deliver_in_order(&receiver, &short).await;
        if is_started_anew {
            assert_eq!(receiver.stop(None).await, 0);
            drop(receiver);
            receiver = start(&dir, &json!({})).await;
        }
        // A sender that had written down where it was some events ago.
        let mut again = Sender::new(&receiver).await;
        deliver(&mut again, &short).await;
        deliver(&mut again, &long[20..]).await;
        deliver(&mut again, &[&format!("new {is_started_anew}")]).await;
        assert_eq!(repeats(&dir)[before..], long[20..]);
        again.reset();
        receiver.stop(None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_end_in_order_the_comparison_ends_with_64_events_that_match_nothing() {
    let (_temp, dir) = folder();
    let receiver = start(&dir, &json!({})).await;
    deliver_in_order(&receiver, &texts(&different("old", 100))).await;
    let mut sender = Sender::new(&receiver).await;
    for event in texts(&different("new", 100)) {
        deliver(&mut sender, &[event]).await;
    }
    assert_eq!(receiver.stats().received.compared, 64);
    receiver.stop(None).await;
}
