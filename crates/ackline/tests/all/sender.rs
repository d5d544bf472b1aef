//! The sender at receivers that behave in one way each, on a paused clock.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::time::Duration;

use ackline::lumberjack::{
    Batch, HostState, SenderError, SenderOptions, SenderState, WindowReceipt,
};
use ackline_testkit::lines::{keep, lines};
use bytes::Bytes;

use crate::pipe::{Act, HOUR, Host, SECOND, events, options, sender};

fn upto(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[tokio::test(start_paused = true)]
async fn everything_arrives_once_in_order_in_windows_of_the_set_size() {
    let host = Host::new([], Act::Ack);
    let sender = sender(
        &[&host],
        SenderOptions {
            batch_events: 100,
            ..options()
        },
    );
    sender.connected().await.unwrap();
    let receipt = sender.send(&events(1..=1050), None).await.unwrap();
    assert_eq!((receipt.first(), receipt.last()), (1, 1050));
    receipt.acknowledged(HOUR).await.unwrap();
    assert!(receipt.is_acknowledged());
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.numbers(), upto(1050));
    assert_eq!(kept.windows[..10], [100; 10]);
    assert_eq!(kept.windows[10..], [50]);
    let stats = sender.stats();
    assert_eq!(
        (
            stats.possible_repeats,
            stats.reconnects,
            stats.unacknowledged
        ),
        (0, 0, 0)
    );
    let receipts = sender.receipts();
    assert_eq!(receipts.len(), 11);
    assert!(
        receipts
            .iter()
            .all(|one| one.acknowledged == one.events && !one.repeats)
    );
    assert_eq!((receipts[10].first, receipts[10].last), (1001, 1050));
}

#[tokio::test(start_paused = true)]
async fn windows_end_at_the_bytes_and_a_larger_event_goes_alone() {
    let host = Host::new([], Act::Ack);
    let sender = sender(
        &[&host],
        SenderOptions {
            batch_bytes: 100,
            ..options()
        },
    );
    let wide = |n: u64, width: usize| Bytes::from(format!("{n:width$}"));
    let payloads = vec![
        wide(1, 30),
        wide(2, 30),
        wide(3, 30),
        wide(4, 500),
        wide(5, 1),
    ];
    let sent = sender.send(&Batch::json(payloads).unwrap(), None).await;
    sent.unwrap().acknowledged(HOUR).await.unwrap();
    assert_eq!(host.kept.lock().unwrap().windows, [2, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn small_batches_share_windows_unless_they_are_windows_of_their_own() {
    let host = Host::new([], Act::Late(SECOND));
    let mut wanted = options();
    wanted.writer.max_in_flight = 1;
    let sender = sender(&[&host], wanted);
    sender.connected().await.unwrap();
    sender.try_send(&events(1..=1)).unwrap();
    // The first one is on its way: the others wait and are put together.
    while sender.stats().hosts[0].in_flight_windows == 0 {
        tokio::task::yield_now().await;
    }
    for n in 2..=9 {
        sender.try_send(&events(n..=n)).unwrap();
    }
    sender.try_send(&events(10..=11).as_window()).unwrap();
    sender.try_send(&events(12..=13).as_window()).unwrap();
    sender.flush(HOUR).await.unwrap();
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.windows, [1, 8, 2, 2]);
    assert_eq!(kept.numbers(), upto(13));
}

#[tokio::test(start_paused = true)]
async fn only_the_rest_of_a_window_acknowledged_in_part_is_sent_again() {
    let host = Host::new([Act::PartThenEnd], Act::Ack);
    let sender = sender(&[&host], options());
    let sent = sender.send(&events(1..=10), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    let again: Vec<u64> = (6..=10).collect();
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.numbers(), [upto(10), again].concat());
    assert_eq!(sender.stats().possible_repeats, 5);
    let receipts = sender.receipts();
    assert_eq!((receipts[0].events, receipts[0].acknowledged), (10, 5));
    assert_eq!((receipts[1].first, receipts[1].last), (6, 10));
    assert!(receipts[1].repeats);
}

#[tokio::test(start_paused = true)]
async fn what_was_out_goes_out_again_in_order_after_a_reconnect() {
    let host = Host::new([Act::BlackHole], Act::Ack);
    let sender = sender(
        &[&host],
        SenderOptions {
            batch_events: 5,
            ..options()
        },
    );
    let sent = sender.send(&events(1..=20), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.numbers(), [upto(10), upto(20)].concat());
    assert_eq!(sender.stats().possible_repeats, 10);
    assert_eq!(sender.stats().reconnects, 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_blocks_and_says_so() {
    let host = Host::new([], Act::Late(SECOND));
    let sender = sender(
        &[&host],
        SenderOptions {
            buffer_events: Some(10),
            ..options()
        },
    );
    sender.try_send(&events(1..=10)).unwrap();
    assert_eq!(
        sender.try_send(&events(11..=11)).err(),
        Some(SenderError::Blocked)
    );
    assert_eq!(sender.stats().state, SenderState::Blocked);
    let late = sender.send(&events(11..=11), Some(SECOND / 10)).await;
    assert!(matches!(
        late,
        Err(SenderError::Timeout {
            unacknowledged: 10,
            ..
        })
    ));
    let sent = sender.send(&events(11..=11), HOUR).await.unwrap();
    assert_eq!(sender.stats().state, SenderState::Open);
    sent.acknowledged(HOUR).await.unwrap();
    let refused = sender.try_send(&events(1..=11)).err().unwrap();
    assert!(refused.to_string().contains("buffer_events"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn close_tells_exactly_what_is_not_acknowledged() {
    let host = Host::new([Act::Parts, Act::BlackHole], Act::BlackHole);
    host.set(Act::Deaf);
    let sender = sender(
        &[&host],
        SenderOptions {
            batch_events: 4,
            ..options()
        },
    );
    let first = sender.send(&events(1..=8), None).await.unwrap();
    first.acknowledged(HOUR).await.unwrap();
    host.go_down();
    let second = sender.send(&events(9..=20), None).await.unwrap();
    let begin = tokio::time::Instant::now();
    let rest = sender.close(SECOND * 3).await;
    assert_eq!(begin.elapsed(), SECOND * 3);
    assert_eq!(rest.ranges(), [(9, 20)]);
    assert_eq!(rest.events(), 12);
    assert_eq!(rest.records().count(), 12);
    let error = second.acknowledged(None).await.unwrap_err();
    assert_eq!(error, SenderError::Closed { unacknowledged: 12 });
    assert!(matches!(
        sender.try_send(&events(1..=1)),
        Err(SenderError::Usage(_))
    ));
    assert_eq!(sender.close(SECOND).await.events(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_sender_leaves_unacknowledged_is_a_warning() {
    keep();
    let told = |events: u64| lines("sender.unacknowledged", format!("events={events} "));
    let host = Host::new([], Act::BlackHole);
    let leaving = async |count: u64| {
        let sender = sender(&[&host], options());
        sender.send(&events(1..=count), None).await.unwrap();
        tokio::time::sleep(SECOND).await;
        sender
    };
    let closed = leaving(4_001).await;
    assert_eq!(closed.close(SECOND).await.events(), 4_001);
    let line = told(4_001).pop().unwrap();
    assert!(line.contains("hosts=\"host0\""), "{line}");
    closed.close(SECOND).await;
    drop(closed);
    assert_eq!(told(4_001).len(), 1);

    drop(leaving(4_002).await);
    assert_eq!(told(4_002).len(), 1);
    // A caller that aborts knows that events may be left, so nothing is logged.
    let aborted = leaving(4_003).await;
    aborted.abort();
    drop(aborted);
    assert_eq!(told(4_003).len(), 0);

    let host = Host::new([], Act::Ack);
    let sender = sender(&[&host], options());
    let sent = sender.send(&events(1..=4_004), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    sender.close(SECOND).await;
    drop(sender);
    assert_eq!(told(0).len() + told(4_004).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_acknowledgements_and_no_longer() {
    let host = Host::new([], Act::Late(SECOND * 2));
    let sender = sender(&[&host], options());
    sender.send(&events(1..=5), None).await.unwrap();
    let begin = tokio::time::Instant::now();
    let rest = sender.close(SECOND * 60).await;
    assert_eq!(rest.events(), 0);
    assert!(begin.elapsed() < SECOND * 3, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_host_does_not_stall_the_others() {
    let slow = Host::new([], Act::BlackHole);
    let fast = Host::new([], Act::Ack);
    let sender = sender(
        &[&slow, &fast],
        SenderOptions {
            batch_events: 10,
            ..options()
        },
    );
    sender.connected().await.unwrap();
    let begin = tokio::time::Instant::now();
    for n in 0..100 {
        sender
            .send(&events(n * 10 + 1..=n * 10 + 10), None)
            .await
            .unwrap();
    }
    while sender.unacknowledged() > 20 {
        assert!(begin.elapsed() < SECOND, "{:?}", sender.stats());
        tokio::task::yield_now().await;
    }
    // The two windows at the slow one move after its read timeout.
    sender.flush(HOUR).await.unwrap();
    assert!(begin.elapsed() < SECOND * 40);
    let mut numbers = fast.kept.lock().unwrap().numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, upto(1000));
}

#[tokio::test(start_paused = true)]
async fn hosts_of_equal_speed_share_the_load() {
    let hosts: Vec<_> = (0..3).map(|_| Host::new([], Act::Late(SECOND))).collect();
    let all: Vec<_> = hosts.iter().collect();
    let sender = sender(
        &all,
        SenderOptions {
            batch_events: 10,
            ..options()
        },
    );
    for n in 0..90 {
        sender
            .send(&events(n * 10 + 1..=n * 10 + 10), None)
            .await
            .unwrap();
    }
    sender.flush(HOUR).await.unwrap();
    for host in &hosts {
        let kept = host.kept.lock().unwrap();
        assert_eq!(kept.windows.len(), 30);
        assert!(
            kept.events.is_sorted(),
            "the events of one host keep their order"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_goes_to_the_host_with_the_fewest_events_outstanding() {
    let hosts = [(); 2].map(|()| Host::new([], Act::BlackHole));
    let mut wanted = options();
    wanted.writer.max_in_flight = 8;
    let sender = sender(&[&hosts[0], &hosts[1]], wanted);
    tokio::time::sleep(SECOND).await;
    assert!(
        sender
            .stats()
            .hosts
            .iter()
            .all(|host| host.connections == 1)
    );
    sender.try_send(&events(1..=100).as_window()).unwrap();
    tokio::time::sleep(SECOND).await;
    for n in 0..5 {
        let small = events(101 + n * 10..=110 + n * 10).as_window();
        sender.try_send(&small).unwrap();
        tokio::time::sleep(SECOND).await;
    }
    let mut kept = hosts.map(|host| host.kept.lock().unwrap().windows.clone());
    kept.sort();
    assert_eq!(kept, [vec![10; 5], vec![100]]);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_room_for_the_next_event_does_not_keep_it_from_the_others() {
    let hosts = [(); 2].map(|()| Host::new([], Act::BlackHole));
    let mut wanted = options();
    wanted.writer.max_in_flight = 8;
    wanted.writer.max_in_flight_bytes = Some(100);
    let sender = sender(&[&hosts[0], &hosts[1]], wanted);
    // The first takes one event of 90 bytes, the second two of 12; the last one has 60.
    for (widths, from) in [(vec![80], 1), (vec![2, 2], 2), (vec![50], 4)] {
        let text = |(n, width): (usize, usize)| Bytes::from(format!("{:width$}", from + n));
        let payloads = widths.into_iter().enumerate().map(text).collect();
        sender
            .try_send(&Batch::json(payloads).unwrap().as_window())
            .unwrap();
        tokio::time::sleep(SECOND).await;
    }
    let mut kept = hosts.map(|host| host.kept.lock().unwrap().numbers());
    kept.sort();
    assert_eq!(kept, [vec![1], vec![2, 3, 4]]);
}

#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_of_a_window_counts_before_it_is_whole() {
    let host = Host::new([], Act::Answer([b"2A\0\0\0", &[3][..]].concat()));
    let sender = sender(&[&host], options());
    sender.send(&events(1..=10), None).await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(sender.unacknowledged(), 7);
    assert_eq!(sender.stats().hosts[0].outstanding, 7);
}

#[tokio::test(start_paused = true)]
async fn the_first_acknowledgement_makes_waits_short_again() {
    let host = Host::new([Act::Windows(1)], Act::Ack);
    host.go_down();
    let wanted = SenderOptions {
        batch_events: 1,
        ..options()
    };
    let sender = sender(&[&host], wanted);
    let first = sender.send(&events(1..=1), None).await.unwrap();
    sender.send(&events(2..=3), None).await.unwrap();
    tokio::time::sleep(SECOND * 600).await;
    host.come_up();
    first.acknowledged(HOUR).await.unwrap();
    let begin = tokio::time::Instant::now();
    sender.flush(HOUR).await.unwrap();
    assert!(begin.elapsed() <= SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_ends_what_it_accepts_is_not_asked_again_at_once() {
    let (rude, sound) = (Host::new([], Act::CutAfter(0)), Host::new([], Act::Ack));
    let sender = sender(&[&rude, &sound], options());
    sender.connected().await.unwrap();
    for n in 1..=1000 {
        sender.send(&events(n..=n), None).await.unwrap();
        tokio::time::sleep(SECOND / 100).await;
    }
    sender.flush(HOUR).await.unwrap();
    let attempts = rude.kept.lock().unwrap().attempts;
    assert!((2..20).contains(&attempts), "{attempts} in 10 s");
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_goes_back_to_its_own_host_first() {
    let hosts = [(); 2].map(|()| Host::new([], Act::Windows(2)));
    let mut wanted = SenderOptions {
        batch_events: 5,
        ..options()
    };
    wanted.writer.max_in_flight = 3;
    let sender = sender(&[&hosts[0], &hosts[1]], wanted);
    let sent = sender.send(&events(1..=500), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    let receipts = sender.receipts();
    let lost = |one: &&WindowReceipt| one.acknowledged < one.events;
    let losses = receipts.iter().filter(lost).count();
    assert!(losses > 10, "{losses}");
    for again in receipts.iter().filter(|one| one.repeats) {
        let before = receipts
            .iter()
            .filter(lost)
            .find(|one| one.first == again.first)
            .unwrap();
        assert_eq!(before.host, again.host);
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_after_an_abort_does_not_wait() {
    let host = Host::new([], Act::BlackHole);
    let sender = sender(&[&host], options());
    sender.send(&events(1..=5), None).await.unwrap();
    tokio::time::sleep(SECOND).await;
    sender.abort();
    let begin = tokio::time::Instant::now();
    let rest = sender.close(SECOND * 60).await;
    assert_eq!(rest.ranges(), [(1, 5)]);
    assert_eq!(rest.possibly_arrived(), 5);
    assert!(begin.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_down_is_left_out_and_comes_back() {
    let (first, second) = (Host::new([], Act::Ack), Host::new([], Act::Ack));
    first.go_down();
    let sender = sender(
        &[&first, &second],
        SenderOptions {
            batch_events: 1,
            ..options()
        },
    );
    sender.connected().await.unwrap();
    let sent = sender.send(&events(1..=50), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    assert_eq!(second.kept.lock().unwrap().numbers(), upto(50));
    first.come_up();
    second.go_down();
    let sent = sender.send(&events(51..=100), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    // Events that may have arrived at the second host waited for its next attempt; they come last.
    let mut numbers = first.kept.lock().unwrap().numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, (51..=100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn nobody_there_is_told_at_once_and_tried_again() {
    let host = Host::new([], Act::Ack);
    host.go_down();
    let sender = sender(&[&host], options());
    let error = sender.connected().await.unwrap_err();
    assert!(
        error.to_string().contains("cannot connect to host0"),
        "{error}"
    );
    let sent = sender.send(&events(1..=5), None).await.unwrap();
    tokio::time::sleep(SECOND * 3600).await;
    let attempts = host.kept.lock().unwrap().attempts;
    assert!(
        (60..=180).contains(&attempts),
        "{attempts} attempts in an hour"
    );
    host.come_up();
    sent.acknowledged(Some(SECOND * 61)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_ended_while_idle_is_noticed_before_anything_is_written() {
    let host = Host::new([Act::Windows(1), Act::Windows(1)], Act::Ack);
    let sender = sender(&[&host], options());
    for n in 1..=3 {
        let sent = sender.send(&events(n..=n), None).await.unwrap();
        sent.acknowledged(HOUR).await.unwrap();
        tokio::time::sleep(SECOND * 100).await;
    }
    let kept = host.kept.lock().unwrap();
    assert_eq!((kept.numbers(), kept.connections), (upto(3), 3));
    assert_eq!(sender.stats().possible_repeats, 0);
}

#[tokio::test(start_paused = true)]
async fn after_an_end_while_idle_the_next_event_connects_at_once() {
    let host = Host::new([], Act::Ack);
    let sender = sender(&[&host], options());
    for n in 1..=10 {
        let begin = tokio::time::Instant::now();
        let sent = sender.send(&events(n..=n), None).await.unwrap();
        sent.acknowledged(HOUR).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "event {n}");
        tokio::time::sleep(SECOND * 2).await;
        host.go_down();
        until(|| sender.stats().hosts[0].state == HostState::Idle).await;
        host.come_up();
    }
    let attempts = host.kept.lock().unwrap().attempts;
    assert_eq!(attempts, 10, "and none before it");
}

/// Waits for a condition that needs no virtual time.
async fn until(happened: impl Fn() -> bool) {
    let mut turns = 0;
    while !happened() {
        turns += 1;
        assert!(turns < 1000, "it did not happen");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_lives_for_its_ttl_and_drains_first() {
    let host = Host::new([], Act::Late(SECOND));
    let wanted = SenderOptions {
        ttl: Some(SECOND * 60),
        batch_events: 1,
        ..options()
    };
    let sender = sender(&[&host], wanted);
    let begin = tokio::time::Instant::now();
    for n in 1..=600 {
        sender.send(&events(n..=n), None).await.unwrap();
    }
    sender.flush(HOUR).await.unwrap();
    assert!(
        begin.elapsed() < SECOND * 602,
        "two windows were out all the time"
    );
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.numbers(), upto(600));
    assert!((8..=13).contains(&kept.connections), "{}", kept.connections);
    assert_eq!(sender.stats().possible_repeats, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_start_grows_and_halves_and_survives_a_reconnect() {
    let script = [Act::Windows(3), Act::CutAfter(60)];
    let host = Host::new(script, Act::Ack);
    let mut wanted = options();
    wanted.writer.slow_start = Some(10);
    wanted.writer.max_in_flight = 1;
    wanted.batch_events = 40;
    let sender = sender(&[&host], wanted);
    let sent = sender.send(&events(1..=200), None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
    let kept = host.kept.lock().unwrap();
    assert_eq!(kept.numbers(), upto(200));
    assert_eq!(kept.windows[..3], [10, 15, 23]);
    // 35 was next when the third answer ended the connection or was cut: half of it, then up again.
    assert_eq!(kept.windows[3], 17);
    assert!(kept.windows.iter().all(|size| *size <= 40));
}
