//! The memory of messages that wait in a broker: a few of those that came together keep no more than they are counted for.

use std::sync::Arc;

use ackline_micromsg::broker::{FanOut, Held, Routed, Run};
use ackline_micromsg::subscriptions::Subscriptions;

use super::*;

/// Bytes that may be in use beside the messages: a read buffer, and what waits in the end.
const BESIDE: u64 = 2 << 20;

/// Lets one of `of` messages wait, as messages of a queue or of a topic, until they have come `reads` times. Returns the peak
/// of memory, and the bytes that are counted.
fn wait(extensions: &str, reads: usize, of: usize, read: impl Fn(usize) -> Vec<u8>) -> (u64, u64) {
    let mut end = established(extensions);
    let held = Held::new(u64::MAX, || ());
    let mut topics = Subscriptions::default();
    topics.set("q", 0, None);
    let mut fan_out = FanOut::default();
    let mut waiting: (Vec<Arc<Routed>>, Vec<Run>) = Default::default();
    let most = peak(|| {
        let mut count = 0;
        for number in 0..reads {
            let mut input = BytesMut::from(&read(number)[..]);
            while !input.is_empty() {
                end.receive(Instant::now(), &mut input).unwrap();
                while let Some(event) = end.poll_event() {
                    let Event::Message(message) = event else {
                        continue;
                    };
                    count += 1;
                    match count % (2 * of) {
                        0 => waiting.0.push(held.queued(&message)),
                        half if half == of => fan_out.add(&topics, &held, &message, |_| 0),
                        _ => {}
                    }
                }
            }
            fan_out.take(&held, |_, runs| waiting.1.extend(runs));
        }
    });
    let counted = held.bytes();
    let of_topics: usize = waiting.1.iter().map(|run| run.messages().len()).sum();
    assert!(waiting.0.len() >= 50 && of_topics >= 50);
    drop(waiting);
    assert_eq!(held.bytes(), 0);
    (u64::try_from(most).unwrap(), counted)
}

/// A MESSAGE frame whose length has one byte.
fn small(payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    [&[0, 0, 1, 1, b'q', 0, 0, len], payload].concat()
}

#[test]
fn one_of_sixteen_small_messages_counts_for_all() {
    let (most, counted) = wait("", 1_000, 16, |_| small(&[7; 30]).repeat(512));
    assert!(most <= counted + BESIDE, "{most} of {counted}");
    assert!(counted < 4 * most, "{most} of {counted}");
}

#[test]
fn messages_that_wait_together_count_once() {
    let payload = [7; 200];
    let (most, counted) = wait("", 200, 1, |_| small(&payload).repeat(512));
    let messages = 200 * 512;
    assert!(most <= counted + BESIDE, "{most} of {counted}");
    // Half of them are a queue's, and half a topic's, so that each memory counts twice.
    assert!(counted < messages * 2 * (208 + 128) + BESIDE, "{counted}");
}

#[test]
fn a_large_message_keeps_no_buffer() {
    let frame = message(0, 1, b"", &vec![7; 20 << 10]);
    let (most, counted) = wait("", 240, 12, |_| frame.repeat(12));
    assert!(most <= counted + BESIDE, "{most} of {counted}");
}

#[test]
fn messages_with_long_lengths_and_of_fragments_keep_no_others() {
    let long = message(0, 1, b"", &[7; 30]);
    let (most, counted) = wait("", 400, 16, |_| long.repeat(256));
    assert!(most <= counted + BESIDE, "{most} of {counted}");
    let begin = message(16, 1, b"", b"");
    let parts = [begin, message(0, 1, b"", &[7; 2_000])].concat();
    let (most, counted) = wait("", 400, 16, |_| parts.repeat(64));
    assert!(most <= counted + BESIDE, "{most} of {counted}");
}

#[test]
fn types_count_with_their_messages() {
    let typed = |letter: usize| {
        let name = vec![b'a' + u8::try_from(letter % 26).unwrap(); 20_000];
        [vec![10, 1], large(&name), small(&[7; 30])].concat()
    };
    let (most, counted) = wait("dotnet", 40, 1, |_| (0..16).flat_map(typed).collect());
    assert!(most <= counted + BESIDE, "{most} of {counted}");
}
