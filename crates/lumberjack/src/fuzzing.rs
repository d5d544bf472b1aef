//! The entries of the fuzz targets and of the replay of their corpora: each takes any bytes and
//! fails an assertion if a promise of the crate does not hold for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{Connection, ErrorKind, Lifecycle, Need, ProtocolError, SendQueue};
use bytes::{Buf, BytesMut};

use crate::frame::{self, From};
use crate::{
    Event, Expander, Invalid, Kind, Limits, OnInvalid, OutRecord, Reader, ReaderConfig, Record,
    SequenceMode, Version, Window, Writer, WriterConfig, WriterEvent,
};

/// The outcome of a reader's run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    windows: Vec<(u64, u32, u32, usize)>,
    /// The number, the code and the offset of each window that was set aside.
    invalid: Vec<(u64, &'static str, u64)>,
    sent: Vec<u8>,
    error: Option<ProtocolError<Kind>>,
}

/// Any split of the bytes gives the same result as the whole; every window can be read back.
pub fn receive(now: Instant, data: &[u8]) {
    let (split, bytes) = data.split_first().unwrap_or((&0, &[]));
    // A writer that numbers from 1: a later envelope may be set aside.
    let bytes = &[b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x02{}", bytes].concat();
    for on_invalid in [OnInvalid::Refuse, OnInvalid::Quarantine] {
        let whole = run(now, bytes, bytes.len(), on_invalid);
        let cut = run(
            now,
            bytes,
            usize::from(*split).saturating_add(1),
            on_invalid,
        );
        assert_eq!(whole, cut, "a split is visible");
        let single = run(now, bytes, 1, on_invalid);
        assert_eq!(whole, single, "a split into bytes is visible");
    }
}

fn run(now: Instant, bytes: &[u8], chunk: usize, on_invalid: OnInvalid) -> Outcome {
    let mut reader = Reader::new(ReaderConfig {
        on_invalid,
        ..config()
    });
    let mut outcome = Outcome::default();
    let mut input = BytesMut::new();
    let mut expander = Expander::new();
    for part in bytes.chunks(chunk.max(1)) {
        input.extend_from_slice(part);
        loop {
            let need = reader.receive(now, &mut input);
            while let Some(event) = reader.poll_event() {
                let id = match event {
                    Event::Window(window) => {
                        outcome.windows.push(summed(&window, &mut expander));
                        window.id
                    }
                    Event::Invalid(invalid) => {
                        let code = invalid.kind.code();
                        outcome.invalid.push((invalid.id, code, invalid.offset));
                        invalid.id
                    }
                };
                let _ = reader.ack(now, id);
            }
            send(&mut reader, now, &mut outcome.sent);
            match need {
                Ok(Need::Input { at_least }) => {
                    assert!(at_least > input.len(), "input is asked for that is there");
                    break;
                }
                Ok(Need::Room | Need::Again) => {}
                Err(error) => {
                    // How much was acknowledged in time depends on the application, not the reader.
                    outcome.sent.clear();
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    assert_eq!(reader.unacknowledged(), 0, "every window was acknowledged");
    outcome
}

fn summed(window: &Window, expander: &mut Expander) -> (u64, u32, u32, usize) {
    let mut payload: usize = 0;
    let mut records: u32 = 0;
    let read = window.for_each_record(expander, |record| {
        records = records.saturating_add(1);
        payload = payload.saturating_add(size(record));
    });
    assert_eq!(read, Ok(()), "a window that was handed on is sound");
    assert_eq!(records, window.records, "a window holds what it says");
    (window.id, window.window_size, window.last_sequence, payload)
}

fn size(record: Record<'_>) -> usize {
    match record {
        Record::Json { payload, .. } => payload.len(),
        Record::Data { pairs, .. } => pairs.fold(0, |sum: usize, (key, value)| {
            sum.saturating_add(key.len()).saturating_add(value.len())
        }),
    }
}

fn send(reader: &mut Reader, now: Instant, sent: &mut Vec<u8>) {
    let mut queue = SendQueue::new();
    reader.poll_transmit(now, &mut queue);
    sent.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
}

fn config() -> ReaderConfig {
    let mut config = ReaderConfig::bare();
    config.limits = Limits {
        max_inflated_bytes: 1 << 20,
        max_json_bytes: 1 << 16,
        max_data_bytes: 1 << 16,
        ..Limits::default()
    };
    config
}

/// Any order of bytes, acknowledgements, time and stops keeps the counts right.
pub fn ops(start: Instant, data: &[u8]) {
    let mut reader = Reader::new(ReaderConfig {
        tail_idle: Some(Duration::from_secs(1)),
        on_invalid: OnInvalid::Quarantine,
        limits: config().limits,
        ..ReaderConfig::default()
    });
    let (mut now, mut input, mut sent) = (start, BytesMut::new(), Vec::new());
    let mut rest = data;
    let mut handed_on: u64 = 0;
    while let Some((op, behind)) = rest.split_first() {
        rest = behind;
        let argument = usize::from(op >> 3);
        match op & 7 {
            0..=2 => {
                let (part, behind) = rest.split_at(argument.saturating_add(1).min(rest.len()));
                rest = behind;
                input.extend_from_slice(part);
                let _ = reader.receive(now, &mut input);
            }
            3 => {
                let _ = reader.ack(now, wide(argument));
            }
            4 => at_window(&mut reader, now, argument, handed_on),
            5 => {
                now = now
                    .checked_add(Duration::from_millis(wide(argument) << 6))
                    .unwrap_or(now);
                let _ = reader.handle_timeout(now);
            }
            6 => reader.reading(now, argument & 1 == 0),
            _ if argument == 31 => reader.stop(now),
            _ => send(&mut reader, now, &mut sent),
        }
        while let Some(event) = reader.poll_event() {
            handed_on = handed_on.saturating_add(1);
            let (Event::Window(Window { id, .. }) | Event::Invalid(Invalid { id, .. })) = event;
            assert_eq!(id, handed_on, "windows are counted from 1 without a gap");
        }
        let stats = reader.stats();
        assert_eq!(stats.windows, handed_on, "every window is handed on once");
        assert!(
            stats.acked_windows <= handed_on,
            "only what was handed on is acknowledged"
        );
        assert_eq!(sent.len() % 6, 0, "only acknowledgements are sent");
    }
    let _ = reader.receive_eof(now);
}

/// A verb for the last window or the one before: all of them may be called for any window.
fn at_window(reader: &mut Reader, now: Instant, argument: usize, last: u64) {
    let window = last.saturating_sub(wide(argument >> 2));
    let before = reader.held_bytes();
    match argument & 3 {
        0 | 1 => {
            let _ = reader.ack(now, window);
            assert_eq!(before, reader.held_bytes(), "only what was sent is let go");
        }
        2 => {
            let _ = reader.landed(now, window);
            assert!(reader.held_bytes() <= before, "what has landed weighs less");
        }
        _ => {
            let is_refused = reader.refuse(now, window).is_ok();
            let failed = reader.handle_timeout(now).is_err();
            assert!(failed || !is_refused, "a refused window is the end");
        }
    }
}

/// Any order of windows, answers, time and ends keeps a writer's count of unacknowledged events
/// right: each window is settled once, and only sent events can be acknowledged.
pub fn writer(start: Instant, data: &[u8]) {
    let (shape, rest) = data.split_first().unwrap_or((&0, &[]));
    let mut run = Writing {
        writer: Writer::new(writer_config(*shape)),
        now: start,
        input: BytesMut::new(),
        windows: VecDeque::new(),
        sent: 0,
    };
    let mut rest = rest;
    while let Some((op, behind)) = rest.split_first() {
        rest = run.step(*op, behind);
        run.check();
    }
    let _ = run.writer.receive_eof(run.now);
    run.check();
    assert!(run.windows.is_empty(), "the end settles every window");
}

/// A configuration for each value.
fn writer_config(shape: u8) -> WriterConfig {
    let is = |bit: u8| shape >> bit & 1 == 1;
    let on_and_on = SequenceMode::Cumulative {
        // Both ends of the number range: they wrap soon.
        next: if is(1) { u32::MAX.wrapping_sub(20) } else { 1 },
    };
    WriterConfig {
        version: if is(2) { Version::V1 } else { Version::V2 },
        compression: is(3).then_some(1),
        sequence: if is(0) {
            on_and_on
        } else {
            SequenceMode::PerWindow
        },
        max_in_flight: 3,
        max_in_flight_events: is(4).then_some(12),
        max_in_flight_bytes: is(5).then_some(100),
        slow_start: is(6).then_some(2),
        max_window: 8,
        accept_count_acks: is(7),
        ..WriterConfig::default()
    }
}

/// A writer and the model of its windows.
struct Writing {
    writer: Writer,
    now: Instant,
    input: BytesMut,
    /// The ids and events of the unsettled windows.
    windows: VecDeque<(u64, u32)>,
    sent: u64,
}

impl Writing {
    fn step<'a>(&mut self, op: u8, rest: &'a [u8]) -> &'a [u8] {
        let argument = op >> 3;
        match op & 7 {
            0 | 1 => self.send(argument & 15),
            2 => self.answer(&[b"2A", &u32::from(argument).to_be_bytes()[..]].concat()),
            3 => {
                let near = u32::from(argument).wrapping_sub(28);
                self.answer(&[b"2A", &near.to_be_bytes()[..]].concat());
            }
            4 => self.answer(&[b"1A", &u32::from(argument).to_be_bytes()[..]].concat()),
            5 => {
                let (part, behind) = rest.split_at(usize::from(argument).min(rest.len()));
                self.answer(part);
                return behind;
            }
            6 => {
                let passed = Duration::from_secs(u64::from(argument));
                self.now = self.now.checked_add(passed).unwrap_or(self.now);
                let _ = self.writer.handle_timeout(self.now);
            }
            _ if argument == 31 => self.writer.finish(self.now),
            _ => self.writer.reading(self.now, argument & 1 == 0),
        }
        rest
    }

    fn send(&mut self, events: u8) {
        let before = (self.writer.unacknowledged(), self.writer.allowance());
        let records = vec![OutRecord::Json(b"{}"[..].into()); events.into()];
        match self.writer.send_window(self.now, &records) {
            Ok(window) => {
                let most = before.1.map_or(0, |allowed| allowed.events);
                assert!(u32::from(events) <= most, "more than was allowed");
                self.sent = self.sent.saturating_add(1);
                assert_eq!(window, self.sent, "windows are counted from 1");
                self.windows.push_back((window, events.into()));
            }
            Err(_) => assert_eq!(
                before,
                (self.writer.unacknowledged(), self.writer.allowance()),
                "what is refused changes nothing"
            ),
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let before = self.writer.unacknowledged();
        let _ = self.writer.receive(self.now, &mut self.input);
        let after = self.writer.unacknowledged();
        assert!(after <= before, "an answer takes no acknowledgement back");
    }

    /// Every event settles the oldest window, and the rest is unacknowledged.
    fn check(&mut self) {
        let mut left: u64 = 0;
        let is_over = self.writer.lifecycle() == Lifecycle::Closed;
        while let Some(event) = self.writer.poll_event() {
            let (oldest, events) = self.windows.pop_front().expect("a window is settled once");
            match event {
                WriterEvent::Acknowledged { window } => assert_eq!(window, oldest),
                WriterEvent::Unacknowledged { window, from } => {
                    assert!(is_over, "only the end leaves a window unacknowledged");
                    assert_eq!(window, oldest);
                    assert!(from < events, "of what was sent some is not acknowledged");
                    left = left.saturating_add(events.saturating_sub(from).into());
                }
            }
        }
        let sent = self.windows.iter().map(|(_, events)| u64::from(*events));
        let unacknowledged = self.writer.unacknowledged();
        if !is_over {
            assert!(unacknowledged <= sent.sum(), "more than was sent");
        } else if left > 0 {
            assert_eq!(unacknowledged, left, "the end tells exactly what is left");
        }
        let mut queue = SendQueue::new();
        self.writer.poll_transmit(self.now, &mut queue);
    }
}

/// Decoded frames encode to bytes that decode to the same frames.
pub fn roundtrip(data: &[u8]) {
    let limits = config().limits;
    for side in [From::Writer, From::Reader] {
        let Ok(Some((frame, _))) = frame::decode(data, &limits, side) else {
            continue;
        };
        let mut bytes = Vec::new();
        frame::encode(&frame, 1, &mut bytes);
        let again = frame::decode(&bytes, &limits, side);
        assert_eq!(
            again,
            Ok(Some((frame, bytes.len()))),
            "a frame does not survive a round trip"
        );
    }
}

fn wide(number: usize) -> u64 {
    crate::walker::wide(number)
}
