//! The end of a reader's connection: by a stop, an error, or the peer.

use super::*;

#[test]
fn stop_drops_an_incomplete_window() {
    let (now, mut reader) = (Instant::now(), reader());
    let mut input = wire::wire(&[window(V2, 2), json(V2, 1)]);
    feed(&mut reader, now, &mut input).unwrap();
    reader.stop(now);
    assert_eq!(
        (reader.held_bytes(), reader.lifecycle()),
        (0, Lifecycle::Draining)
    );
    let mut late = wire::wire(&[json(V2, 2)]);
    assert_eq!(feed(&mut reader, now, &mut late).unwrap().0.len(), 0);
    assert!(late.is_empty());
}

#[test]
fn only_plain_parts_of_v1_windows_go_early_and_only_on_demand() {
    let now = Instant::now();
    let plain = [window(V1, 3), json(V1, 1)];
    let wrapped = [window(V1, 3), envelope(V1, vec![json(V1, 1)])];
    for (tail_idle, frames, parts) in [
        (Some(seconds(1)), &plain, 1),
        (Some(seconds(1)), &wrapped, 0),
        (None, &plain, 0),
    ] {
        let mut reader = Reader::new(ReaderConfig {
            tail_idle,
            ..ReaderConfig::bare()
        });
        feed(&mut reader, now, &mut wire::wire(frames)).unwrap();
        reader.receive_eof(now).unwrap();
        let came = std::iter::from_fn(|| reader.poll_event()).count();
        assert_eq!(came, parts);
        assert_eq!(reader.held_bytes(), if parts == 1 { 12 } else { 0 });
    }
}

/// A reader that was handed two windows and then a frame that breaks the protocol.
fn failed_with_two(settle_after_error: bool) -> (Instant, Reader) {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        settle_after_error,
        ..ReaderConfig::default()
    });
    let frames = [window(V2, 1), json(V2, 4), window(V2, 1), json(V2, 5)];
    let mut input = wire::wire(&frames);
    input.extend_from_slice(b"2X");
    let error = reader.receive(now, &mut input).unwrap_err();
    assert_eq!(error.kind.code(), "lumberjack.unknown_frame_type");
    assert_eq!(reader.lifecycle(), Lifecycle::Closed);
    (now, reader)
}

#[test]
fn a_window_that_was_overrun_is_not_acknowledged_but_those_before_it_are() {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        settle_after_error: true,
        ..ReaderConfig::default()
    });
    let frames = [
        window(V2, 1),
        json(V2, 4),
        window(V2, 1),
        json(V2, 5),
        json(V2, 6),
    ];
    let error = reader.receive(now, &mut wire::wire(&frames)).unwrap_err();
    assert_eq!(error.kind.code(), "lumberjack.overrun");
    assert!(reader.owes_answers());
    assert!(reader.ack(now, 2).is_err());
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x04");
    assert!(!reader.owes_answers());
}

/// A reader that was handed two windows and a part, and then the peer's end.
fn half_closed(settle_after_error: bool) -> (Instant, Reader) {
    let now = Instant::now();
    let mut reader = Reader::new(ReaderConfig {
        settle_after_error,
        ..ReaderConfig::default()
    });
    let frames = [window(V2, 1), json(V2, 4), window(V2, 1), json(V2, 5)];
    let mut input = wire::wire(&frames);
    input.extend_from_slice(&wire::wire(&[window(V2, 2), json(V2, 6)]));
    reader.receive(now, &mut input).unwrap();
    reader.receive_eof(now).unwrap();
    assert_eq!(reader.lifecycle(), Lifecycle::Closed);
    (now, reader)
}

#[test]
fn by_default_the_peers_end_ends_the_acknowledgements() {
    let (now, mut reader) = half_closed(false);
    assert!(!reader.owes_answers());
    assert_eq!(reader.ack(now, 1).unwrap_err().code, "closed");
    assert_eq!(sent(&mut reader, now), b"");
}

#[test]
fn windows_complete_before_the_peers_end_are_acknowledged_until_the_driver_hangs_up() {
    let (now, mut reader) = half_closed(true);
    assert!(reader.owes_answers());
    assert!(matches!(reader.poll_event(), Some(Event::Window(_))));
    reader.ack(now, 2).unwrap();
    assert_eq!(sent(&mut reader, now), b"", "in their order");
    // No timer runs any more, and no keepalive is sent.
    assert_eq!(reader.poll_timeout(), None);
    reader.handle_timeout(now + seconds(60)).unwrap();
    assert_eq!(sent(&mut reader, now), b"");
    let mut more = BytesMut::from(&b"2X"[..]);
    reader.receive(now, &mut more).unwrap();
    reader.ack(now, 1).unwrap();
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x042A\0\0\0\x05");
    assert!(!reader.owes_answers());
    let (now, mut reader) = half_closed(true);
    reader.hang_up();
    assert!(!reader.owes_answers());
    assert_eq!(reader.ack(now, 1).unwrap_err().code, "closed");
    assert_eq!(sent(&mut reader, now), b"");
}

#[test]
fn at_its_end_a_peer_that_is_owed_nothing_is_gone() {
    let mut reader = Reader::new(ReaderConfig {
        settle_after_error: true,
        ..ReaderConfig::default()
    });
    let now = Instant::now();
    let mut input = wire::wire(&[window(V2, 2), json(V2, 6)]);
    reader.receive(now, &mut input).unwrap();
    reader.receive_eof(now).unwrap();
    assert!(!reader.owes_answers());
    assert_eq!(reader.held_bytes(), 0);
}

#[test]
fn by_default_an_error_ends_the_acknowledgements() {
    let (now, mut reader) = failed_with_two(false);
    assert!(!reader.owes_answers());
    assert_eq!(reader.ack(now, 1).unwrap_err().code, "closed");
    assert_eq!(reader.landed(now, 1).unwrap_err().code, "closed");
    assert_eq!(sent(&mut reader, now), b"");
}

#[test]
fn windows_complete_before_an_error_are_acknowledged_until_the_driver_hangs_up() {
    let (now, mut reader) = failed_with_two(true);
    assert!(reader.owes_answers());
    assert_eq!(reader.unacknowledged(), 2);
    assert!(matches!(reader.poll_event(), Some(Event::Window(_))));
    reader.landed(now, 2).unwrap();
    reader.ack(now, 2).unwrap();
    assert_eq!(sent(&mut reader, now), b"", "in their order");
    assert!(reader.owes_answers());
    // No timer runs any more, and no keepalive is sent.
    assert_eq!(reader.poll_timeout(), None);
    assert!(reader.handle_timeout(now + seconds(60)).is_err());
    assert_eq!(sent(&mut reader, now), b"");
    reader.ack(now, 1).unwrap();
    assert!(reader.owes_answers(), "they are still to be sent");
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x042A\0\0\0\x05");
    assert!(!reader.owes_answers());
    let (now, mut reader) = failed_with_two(true);
    reader.ack(now, 1).unwrap();
    reader.hang_up();
    assert!(!reader.owes_answers());
    assert_eq!(reader.ack(now, 2).unwrap_err().code, "closed");
    assert_eq!(sent(&mut reader, now), b"2A\0\0\0\x04", "accepted before");
}
