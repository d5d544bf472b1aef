//! Complaints of users of other writers (`lumberjack-reading.md`, section 2), with a test for each
//! row that concerns a writer, and a session cut at each of its bytes.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::lumberjack::{Batch, Sender, SenderOptions, SequenceMode};
use bytes::Bytes;
use tokio::time::Instant;

use crate::pipe::{Act, HOUR, Host, SECOND, events, options, sender};

async fn deliver(sender: &Sender, batch: &Batch) {
    let sent = sender.send(batch, None).await.unwrap();
    sent.acknowledged(HOUR).await.unwrap();
}

fn ack(number: u32) -> Vec<u8> {
    [&b"2A"[..], &number.to_be_bytes()].concat()
}

/// Rows 1 and 2.
#[tokio::test(start_paused = true)]
async fn endless_keepalives_end_at_the_progress_deadline_and_the_events_go_out_again() {
    let host = Host::new([Act::KeepaliveOnly], Act::Ack);
    let sender = sender(&[&host], options());
    sender.connected().await.unwrap();
    let begin = Instant::now();
    let sent = sender.send(&events(1..=3), None).await.unwrap();
    tokio::time::sleep(SECOND * 299).await;
    assert_eq!(sender.stats().oldest, Some(SECOND * 299));
    assert_eq!(host.kept.lock().unwrap().connections, 1);
    sent.acknowledged(HOUR).await.unwrap();
    assert!(
        (300..303).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(host.kept.lock().unwrap().numbers(), [1, 2, 3, 1, 2, 3]);
    assert!(
        sender.stats().hosts[0]
            .last_error
            .as_ref()
            .unwrap()
            .contains("grew in time")
    );
    assert_eq!(sender.stats().oldest, None);
}

/// Row 1: silence is another deadline.
#[tokio::test(start_paused = true)]
async fn a_silent_receiver_ends_at_the_read_timeout() {
    let host = Host::new([Act::BlackHole], Act::Ack);
    let sender = sender(&[&host], options());
    sender.connected().await.unwrap();
    let begin = Instant::now();
    deliver(&sender, &events(1..=3)).await;
    assert!(
        (30..33).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
}

/// Row 4.
#[tokio::test(start_paused = true)]
async fn no_more_is_in_flight_than_allowed_in_windows_events_and_bytes() {
    let limits = [
        (3, None, None, vec![4, 4, 4]),
        (9, Some(10), None, vec![4, 4, 2]),
        (9, None, Some(11 * 6 + 5), vec![4, 2]),
        (1, Some(100), Some(1000), vec![4]),
    ];
    for (windows, events_in, bytes_in, expected) in limits {
        let host = Host::new([], Act::BlackHole);
        let mut wanted = SenderOptions {
            batch_events: 4,
            ..options()
        };
        wanted.writer.max_in_flight = windows;
        wanted.writer.max_in_flight_events = events_in;
        wanted.writer.max_in_flight_bytes = bytes_in;
        let sender = sender(&[&host], wanted);
        let digits = (0..50).map(|n| Bytes::from((n % 10).to_string())).collect();
        sender
            .send(&Batch::json(digits).unwrap(), None)
            .await
            .unwrap();
        tokio::time::sleep(SECOND * 20).await;
        assert_eq!(
            host.kept.lock().unwrap().windows,
            expected,
            "{windows} {events_in:?}"
        );
        let stats = sender.stats();
        assert_eq!(stats.hosts[0].in_flight_windows, expected.len());
        assert_eq!(
            usize::try_from(stats.hosts[0].outstanding).unwrap(),
            expected.iter().sum::<usize>()
        );
    }
}

/// Row 21: an acknowledgement of events that were not sent, of another version, or other bytes
/// altogether.
#[tokio::test(start_paused = true)]
async fn a_wrong_answer_acknowledges_nothing() {
    let more = [ack(1), ack(4)].concat();
    let answers: [(&[u8], u64); 6] = [
        (&ack(4), 0),
        (&ack(u32::MAX), 0),
        (b"1A\0\0\0\x03", 0),
        (b"2W\0\0\0\x03", 0),
        (b"HTTP/1.1 400", 0),
        (&more, 1),
    ];
    for (answer, acked) in answers {
        let host = Host::new([Act::Answer(answer.to_vec())], Act::Ack);
        let sender = sender(&[&host], options());
        deliver(&sender, &events(1..=3)).await;
        let receipts = sender.receipts();
        assert_eq!(
            (receipts[0].acknowledged, receipts[1].acknowledged),
            (acked, 3 - acked)
        );
        assert!(receipts[1].repeats);
        let again: Vec<u64> = (1 + acked..=3).collect();
        assert_eq!(
            host.kept.lock().unwrap().numbers(),
            [vec![1, 2, 3], again].concat()
        );
    }
}

/// Row 3: one window's acknowledgement is not another's, and one that goes back changes nothing.
#[tokio::test(start_paused = true)]
async fn acknowledgements_that_repeat_or_go_back_complete_nothing_twice() {
    let answer = [ack(2), ack(1), ack(2), ack(0), ack(3)].concat();
    let host = Host::new([], Act::Answer(answer));
    let mut wanted = SenderOptions {
        batch_events: 3,
        ..options()
    };
    wanted.writer.max_in_flight = 1;
    let sender = sender(&[&host], wanted);
    deliver(&sender, &events(1..=9)).await;
    let receipts = sender.receipts();
    assert_eq!(receipts.len(), 3);
    assert!(receipts.iter().all(|one| one.acknowledged == 3));
    assert_eq!(sender.stats().possible_repeats, 0);
}

/// Row 22.
#[tokio::test(start_paused = true)]
async fn numbers_that_wrap_do_not_stop_the_acknowledgements() {
    let answers = [u32::MAX, 3, 6].map(|last| Act::Answer(ack(last)));
    for (at, answer) in answers.into_iter().enumerate() {
        let host = Host::new([], answer);
        let mut wanted = options();
        let first = [u32::MAX - 2, u32::MAX, 4][at];
        wanted.writer.sequence = SequenceMode::Cumulative { next: first };
        let sender = sender(&[&host], wanted);
        host.expect_any_sequence();
        let count = if at == 1 { 4 } else { 3 };
        deliver(&sender, &events(1..=count)).await;
        assert_eq!(sender.stats().possible_repeats, 0);
    }
}

/// Row 22, of a server that counts.
#[tokio::test(start_paused = true)]
async fn counts_are_acknowledgements_where_numbers_go_on_and_on() {
    let host = Host::new([], Act::Count);
    host.expect_any_sequence();
    let mut wanted = SenderOptions {
        batch_events: 3,
        ..options()
    };
    wanted.writer.sequence = SequenceMode::Cumulative { next: 1 };
    wanted.writer.accept_count_acks = true;
    let sender = sender(&[&host], wanted);
    deliver(&sender, &events(1..=9)).await;
    let kept = host.kept.lock().unwrap();
    assert_eq!((kept.connections, kept.windows.len()), (1, 3));
    assert_eq!(sender.stats().possible_repeats, 0);
}

/// Row 29.
#[tokio::test(start_paused = true)]
async fn a_close_tells_the_rest_to_the_event_after_partial_acknowledgements() {
    let host = Host::new([], Act::Answer(ack(2)));
    let sender = sender(
        &[&host],
        SenderOptions {
            batch_events: 5,
            ..options()
        },
    );
    sender.send(&events(1..=12), None).await.unwrap();
    let rest = sender.close(SECOND * 5).await;
    assert_eq!(rest.ranges(), [(3, 12)]);
    assert_eq!(rest.possibly_arrived(), 8);
}

/// Every cut point of the bytes out: whole events are kept once, the others go out again.
#[tokio::test(start_paused = true)]
async fn a_session_of_two_windows_survives_a_cut_at_each_byte_out() {
    let session = 2 * (6 + 3 * 11);
    for cut in 0..=session {
        for is_reset in [false, true] {
            let act = if is_reset {
                Act::ResetAfter(cut)
            } else {
                Act::CutAfter(cut)
            };
            let host = Host::new([act], Act::Ack);
            let sender = sender(
                &[&host],
                SenderOptions {
                    batch_events: 3,
                    ..options()
                },
            );
            deliver(&sender, &events(1..=6)).await;
            let kept = host.kept.lock().unwrap();
            let mut distinct = kept.numbers();
            let copies = distinct.len() as u64;
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct, [1, 2, 3, 4, 5, 6], "cut at {cut}");
            let repeats = sender.stats().possible_repeats;
            assert!(
                copies - 6 <= repeats && repeats <= 6,
                "cut at {cut}: {copies}, {repeats}"
            );
            if !is_reset {
                // The whole window was acknowledged, and the acknowledgement came before the end.
                assert_eq!(copies, 6, "cut at {cut}");
            }
        }
    }
}

/// Every cut point of the bytes in: an acknowledgement counts when all of it has come.
#[tokio::test(start_paused = true)]
async fn a_session_of_two_windows_survives_a_cut_at_each_byte_in() {
    for cut in 0..=12 {
        let host = Host::new([Act::CutAnswersAfter(cut)], Act::Ack);
        let sender = sender(
            &[&host],
            SenderOptions {
                batch_events: 3,
                ..options()
            },
        );
        deliver(&sender, &events(1..=6)).await;
        let kept = host.kept.lock().unwrap().numbers();
        let expected: &[u64] = match cut {
            0..=5 => &[1, 2, 3, 1, 2, 3, 4, 5, 6],
            7..=11 => &[1, 2, 3, 4, 5, 6, 4, 5, 6],
            _ => &[1, 2, 3, 4, 5, 6],
        };
        assert_eq!(kept, expected, "cut at {cut}");
        let repeats = sender.stats().possible_repeats;
        assert_eq!(
            repeats,
            if cut < 6 {
                6
            } else if cut < 12 {
                3
            } else {
                0
            },
            "cut at {cut}"
        );
    }
}
