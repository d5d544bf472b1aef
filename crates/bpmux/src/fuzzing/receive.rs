//! Any bytes against one end.

use std::time::Instant;

use ackline_core::{Connection as _, Need, ProtocolError, SendQueue};
use bytes::{Buf, Bytes, BytesMut};

use super::ops::config;
use crate::chunk::{Decoded, Head, decode, encode};
use crate::{Connection, Counts, EntityKind, Event, Kind, Target};

/// The outcome of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    held: usize,
    sent: Vec<u8>,
    /// Bytes that were not taken. Nothing is promised of them after an error.
    left: usize,
    counts: Option<Counts>,
    error: Option<ProtocolError<Kind>>,
}

/// Any split of the bytes gives the same as the bytes as a whole: the same events, the same error at the same
/// place, and afterwards the same output, which is sound. The first two bytes choose the configuration of the end and its
/// calls, the third the split.
pub(super) fn receive(now: Instant, data: &[u8]) {
    let Some(([first, second, split], bytes)) = data.split_first_chunk() else {
        return;
    };
    let whole = run(now, *first, *second, bytes, bytes.len());
    let cut = run(
        now,
        *first,
        *second,
        bytes,
        usize::from(*split).saturating_add(1),
    );
    assert_eq!(whole, cut, "a split is visible");
    if bytes.len() <= SINGLE {
        let single = run(now, *first, *second, bytes, 1);
        assert_eq!(whole, single, "a split into bytes is visible");
    }
}

/// The longest input that is cut into bytes, in bytes: the work grows with the square of the length.
const SINGLE: usize = 4_096;

/// Returns an end that has opened, requested, closed and cancelled something, all of it sent.
fn prepared(now: Instant, first: u8, second: u8) -> Connection {
    let bit = |at: u8| second >> at & 1 == 1;
    let mut end = Connection::new(now, config(first));
    let payload = Bytes::from_static(b"payload");
    // The results do not matter: calls that are not allowed in this state are refused.
    if bit(0) {
        for (id, kind) in [EntityKind::Sink, EntityKind::Stream, EntityKind::Duplex]
            .into_iter()
            .enumerate()
        {
            let id = u32::try_from(id).unwrap_or_default();
            let _ = end.open(kind, id, Bytes::new());
            let _ = end.grant_credit(Target::Own(id), 20);
            let _ = end.send(Target::Own(id), payload.clone());
        }
    }
    if bit(1) {
        let _ = end.request(0, Bytes::new());
        let _ = end.request(1, payload.clone());
    }
    let _ = end.grant_credit(Target::Top, if bit(2) { 100 } else { u64::MAX >> 1 });
    if bit(3) {
        let _ = end.close(Target::Own(0), Bytes::new());
        let _ = end.cancel(Target::Own(1), payload.clone());
        let _ = end.cancel(Target::Own(2), Bytes::new());
        let _ = end.cancel_request(0, Bytes::new());
    }
    if bit(4) {
        let _ = end.close(Target::Top, Bytes::new());
    }
    if bit(5) {
        let _ = end.cancel(Target::Top, Bytes::new());
    }
    if bit(6) {
        let _ = end.want_room(Target::Top, crate::Waiting::default());
        let _ = end.close(Target::Own(2), payload);
    }
    end.poll_transmit(now, &mut SendQueue::new());
    end
}

fn run(now: Instant, first: u8, second: u8, bytes: &[u8], chunk: usize) -> Outcome {
    let mut end = prepared(now, first, second);
    let mut outcome = Outcome {
        events: Vec::new(),
        held: 0,
        sent: Vec::new(),
        left: 0,
        counts: None,
        error: None,
    };
    let mut input = BytesMut::new();
    for part in bytes.chunks(chunk.max(1)) {
        input.extend_from_slice(part);
        if let Err(error) = pump(now, &mut end, &mut input, &mut outcome) {
            outcome.error = Some(error);
            break;
        }
    }
    drain(&mut end, now, &mut outcome.sent);
    outcome
        .events
        .extend(std::iter::from_fn(|| end.poll_event()));
    assert_chunks(&outcome.sent);
    outcome.held = end.held_bytes();
    if outcome.error.is_some() {
        assert_eq!(outcome.held, 0, "nothing is held after an error");
        let again = pump(now, &mut end, &mut input, &mut outcome);
        assert_eq!(again.err(), outcome.error, "the first error is kept");
        assert!(
            end.send(Target::Top, Bytes::new()).is_err(),
            "calls are refused"
        );
    } else {
        outcome.left = input.len();
        outcome.counts = Some(end.counts());
    }
    outcome
}

fn pump(
    now: Instant,
    end: &mut Connection,
    input: &mut BytesMut,
    outcome: &mut Outcome,
) -> Result<(), ProtocolError<Kind>> {
    loop {
        let need = end.receive(now, input);
        let before = outcome.events.len();
        outcome
            .events
            .extend(std::iter::from_fn(|| end.poll_event()));
        match need? {
            Need::Input { at_least } => {
                assert!(
                    at_least > input.len(),
                    "more input is asked for than there is"
                );
                return Ok(());
            }
            Need::Room => assert!(outcome.events.len() > before, "room is there"),
            Need::Again => {}
        }
    }
}

fn drain(end: &mut Connection, now: Instant, into: &mut Vec<u8>) {
    loop {
        let mut queue = SendQueue::new();
        end.poll_transmit(now, &mut queue);
        if !queue.has_remaining() {
            return;
        }
        into.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
    }
}

/// Checks that the bytes are whole chunks in their narrowest form.
fn assert_chunks(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let decoded = decode(bytes);
        let Ok(Decoded::Whole { head, len }) = decoded else {
            unreachable!("an unsound chunk is sent: {decoded:?}");
        };
        let payload = match head {
            Head::Payload { length, .. } => usize::try_from(length).unwrap_or(usize::MAX),
            _ => 0,
        };
        let (sent, rest) = bytes.split_at(len);
        assert_eq!(sent, encode(head).as_ref(), "the narrowest form");
        bytes = rest.get(payload..).expect("the payload is whole");
    }
}
