//! The reader's timers beyond the conversations of tests/vectors: pauses, two versions, a slow consumer.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests need an instant, and may panic

use std::time::Instant;

use ackline_core::{Connection, Lifecycle, Need};
use ackline_lumberjack::frame::{Frame, Version};
use ackline_lumberjack::{Reader, ReaderConfig};

use crate::wire::{self, feed, json, seconds, sent, window};

const V1: Version = Version::V1;
const V2: Version = Version::V2;
const KEEPALIVE: &[u8] = b"2A\0\0\0\0";

fn keeping_alive() -> Reader {
    Reader::new(ReaderConfig {
        keepalive: Some(seconds(3)),
        ..ReaderConfig::bare()
    })
}

fn take(reader: &mut Reader, now: Instant, frames: &[Frame]) {
    feed(reader, now, &mut wire::wire(frames)).unwrap();
}

#[test]
fn keepalives_end_with_the_last_v2_window() {
    let (now, mut reader) = (Instant::now(), keeping_alive());
    take(
        &mut reader,
        now,
        &[window(V2, 1), json(V2, 1), window(V1, 1), json(V1, 1)],
    );
    assert_eq!(reader.poll_timeout(), Some(now + seconds(3)));
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x01");
    assert_eq!(reader.poll_timeout(), None, "the v1 window gets none");
    reader.handle_timeout(now + seconds(60)).unwrap();
    assert_eq!(sent(&mut reader, now + seconds(60)), b"");
}

#[test]
fn a_later_window_does_not_put_the_keepalive_off() {
    let (now, mut reader) = (Instant::now(), keeping_alive());
    take(&mut reader, now, &[window(V2, 1), json(V2, 1)]);
    take(&mut reader, now + seconds(2), &[window(V2, 1), json(V2, 1)]);
    assert_eq!(reader.poll_timeout(), Some(now + seconds(3)));
}

#[test]
fn an_acknowledgement_takes_the_place_of_a_keepalive() {
    let (now, mut reader) = (Instant::now(), keeping_alive());
    take(&mut reader, now, &[window(V2, 1), json(V2, 1)]);
    take(&mut reader, now, &[window(V2, 1), json(V2, 1)]);
    let due = now + seconds(3);
    reader.handle_timeout(due).unwrap();
    reader.ack(due, 1).unwrap();
    assert_eq!(sent(&mut reader, due), b"2A\0\0\0\x01");
    assert_eq!(reader.poll_timeout(), Some(due + seconds(3)));
}

#[test]
fn a_handled_keepalive_is_not_due_again_before_it_is_sent() {
    let (now, mut reader) = (Instant::now(), keeping_alive());
    take(&mut reader, now, &[window(V2, 1), json(V2, 1)]);
    let due = now + seconds(3);
    reader.handle_timeout(due).unwrap();
    assert_eq!(reader.poll_timeout(), Some(due + seconds(3)));
    assert_eq!(sent(&mut reader, due), KEEPALIVE);
}

#[test]
fn while_reading_is_off_v2_peers_are_kept_alive_and_v1_peers_are_not() {
    let now = Instant::now();
    for (version, keepalive) in [(V2, KEEPALIVE), (V1, b"")] {
        let mut reader = keeping_alive();
        take(&mut reader, now, &[window(version, 2), json(version, 1)]);
        reader.reading(now, false);
        let due = now + seconds(3);
        reader.handle_timeout(due).unwrap();
        assert_eq!(sent(&mut reader, due), keepalive);
    }
}

#[test]
fn the_peers_timers_stand_still_while_reading_is_off() {
    let now = Instant::now();
    let config = || ReaderConfig {
        first_byte_timeout: Some(seconds(10)),
        stall_timeout: Some(seconds(10)),
        idle_timeout: Some(seconds(10)),
        ..ReaderConfig::bare()
    };
    let silent = |_: &mut Reader| {};
    let inside = |reader: &mut Reader| take(reader, now, &[window(V2, 2), json(V2, 1)]);
    let settled = |reader: &mut Reader| {
        take(reader, now, &[window(V2, 1), json(V2, 1)]);
        reader.ack(now + seconds(4), 1).unwrap();
        sent(reader, now + seconds(4));
    };
    type Begin<'a> = &'a dyn Fn(&mut Reader);
    let cases: [(Begin<'_>, u64); 3] = [(&silent, 10), (&inside, 10), (&settled, 14)];
    for (begin, due) in cases {
        let mut reader = Reader::new(config());
        reader.reading(now, true);
        begin(&mut reader);
        assert_eq!(reader.poll_timeout(), Some(now + seconds(due)));
        reader.reading(now + seconds(5), false);
        reader.reading(now + seconds(20), false);
        assert_eq!(reader.poll_timeout(), None);
        reader.handle_timeout(now + seconds(100)).unwrap();
        assert_eq!(reader.lifecycle(), Lifecycle::Open);
        reader.reading(now + seconds(105), true);
        assert_eq!(reader.poll_timeout(), Some(now + seconds(due + 100)));
    }
}

#[test]
fn a_peer_is_not_blamed_for_our_delays() {
    let now = Instant::now();
    let mut config = ReaderConfig {
        stall_timeout: Some(seconds(30)),
        ..ReaderConfig::bare()
    };
    config.limits.max_unacked_windows = 1;
    let mut reader = Reader::new(config);
    let frames = [window(V2, 1), json(V2, 1), window(V2, 2), json(V2, 1)];
    let mut input = wire::wire(&frames);
    let (_, need) = feed(&mut reader, now, &mut input).unwrap();
    assert_eq!((need, reader.poll_timeout()), (Need::Room, None));
    let later = now + seconds(3600);
    reader.handle_timeout(later).unwrap();
    reader.ack(later, 1).unwrap();
    sent(&mut reader, later);
    feed(&mut reader, later, &mut input).unwrap();
    assert_eq!(reader.poll_timeout(), Some(later + seconds(30)));
}

#[test]
fn a_part_of_a_frame_stalls() {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        stall_timeout: Some(seconds(30)),
        idle_timeout: Some(seconds(900)),
        ..ReaderConfig::bare()
    });
    let mut input = wire::wire(&[window(V2, 1)]).split_to(3);
    feed(&mut reader, now, &mut input).unwrap();
    assert_eq!(reader.poll_timeout(), Some(now + seconds(30)));
    let error = reader.handle_timeout(now + seconds(30)).unwrap_err();
    assert_eq!(
        error.kind,
        ackline_lumberjack::Kind::Timeout("--stall-timeout")
    );
}

#[test]
fn a_silent_peer_has_the_first_byte_timer_alone() {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        first_byte_timeout: Some(seconds(10)),
        idle_timeout: Some(seconds(5)),
        ..ReaderConfig::bare()
    });
    reader.reading(now, true);
    assert_eq!(reader.poll_timeout(), Some(now + seconds(10)));
    take(&mut reader, now + seconds(9), &[window(V2, 0)]);
    sent(&mut reader, now + seconds(9));
    assert_eq!(reader.poll_timeout(), Some(now + seconds(14)), "idle");
}
