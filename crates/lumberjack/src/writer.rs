//! The writer: sends windows of events and waits for their acknowledgements.
//!
//! Decided here: sequence numbers, the events that an acknowledgement covers, the two deadlines.
//! Not here: resending over another connection: at the end the application learns which events were
//! not acknowledged.

mod in_flight;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, UsageError};
use bytes::{Buf, Bytes, BytesMut};

use crate::deflate::{Deflate, KEPT};
use crate::frame::{put_compressed, put_data, put_header, put_json};
use crate::slow_start::SlowStart;
use crate::walker::{Head, Walker, wide};
use crate::wire::{From, HEADER, WINDOW};
use crate::{Kind, Limits, OutRecord, SequenceMode, Version, WriterConfig};
use in_flight::{Flight, InFlight};

/// The events of a [`Writer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterEvent {
    /// Every event of a window has been acknowledged.
    Acknowledged {
        /// The window's id.
        window: u64,
    },
    /// The connection has ended before a window was acknowledged.
    Unacknowledged {
        /// The window's id.
        window: u64,
        /// The first event, from 0, that was not acknowledged.
        from: u32,
    },
}

/// The writer's end of a connection.
#[derive(Debug)]
pub struct Writer {
    config: WriterConfig,
    limits: Limits,
    state: State,
    in_flight: InFlight,
    outbox: VecDeque<Bytes>,
    events: VecDeque<WriterEvent>,
    windows: u64,
    next: Sequence,
    size: Option<SlowStart>,
    envelopes: Envelopes,
    input: Input,
    waits: Waits,
}

/// The memory of envelopes, reused for every window.
#[derive(Debug)]
struct Envelopes {
    deflate: Option<Deflate>,
    /// The frames of the next envelope.
    plain: Vec<u8>,
}

/// The input of acknowledgements.
#[derive(Debug)]
struct Input {
    walker: Walker,
    /// Bytes received before the current frame.
    offset: u64,
    /// The input's length after the last call, which is the walker's position in it.
    left: usize,
}

/// The starts of the writer's waits.
#[derive(Debug, Default)]
struct Waits {
    read_since: Option<Instant>,
    progress_since: Option<Instant>,
    paused: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Open,
    Closing,
    Draining,
    Closed,
    Failed(ProtocolError<Kind>),
}

/// The limits of the next window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Events, at least 1.
    pub events: u32,
    /// Bytes of plain frames with their headers ([`OutRecord::wire_len`]).
    pub bytes: u64,
}

impl Writer {
    /// A writer at the start of a connection.
    pub fn new(config: WriterConfig) -> Self {
        let next = match config.sequence {
            SequenceMode::PerWindow => 1,
            SequenceMode::Cumulative { next } => next,
        };
        let size = config
            .slow_start
            .map(|start| SlowStart::new(start, config.max_window));
        Self {
            envelopes: Envelopes {
                deflate: config
                    .compression
                    .filter(|level| *level > 0)
                    .map(Deflate::new),
                plain: Vec::new(),
            },
            config,
            size,
            limits: Limits::default(),
            state: State::Open,
            in_flight: InFlight::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            windows: 0,
            next: Sequence(next),
            input: Input {
                walker: Walker::new(From::Reader, false),
                offset: 0,
                left: 0,
            },
            waits: Waits::default(),
        }
    }

    /// Sends a window. Returns its id, counted from 1.
    ///
    /// # Errors
    /// `closed`, `closing` after [`finish`](Self::finish), `empty_window`, `window_too_large`,
    /// `too_many_in_flight`, `empty_json`, `frame_too_large`; nothing was sent.
    pub fn send_window<'a, I>(&mut self, now: Instant, records: I) -> Result<u64, UsageError>
    where
        I: IntoIterator<Item = &'a OutRecord, IntoIter: Clone>,
    {
        let records = records.into_iter();
        let (count, bytes) = self.admit(records.clone())?;
        let first = self.first_sequence();
        let wire = self.encode(count, bytes, records);
        if self.in_flight.windows.is_empty() {
            self.waits.read_since = Some(now);
            self.waits.progress_since = Some(now);
        }
        self.windows = self.windows.saturating_add(1);
        self.in_flight.events = self.in_flight.events.saturating_add(count);
        self.in_flight.bytes = self.in_flight.bytes.saturating_add(bytes);
        self.in_flight.windows.push_back(Flight {
            window: self.windows,
            first,
            records: count,
            allowed: self.window_size(),
            bytes,
            acked: 0,
            skips_zero: self.skips_zero(),
        });
        self.outbox.push_back(wire);
        Ok(self.windows)
    }

    /// Events in flight that are not acknowledged; also after the end.
    pub fn unacknowledged(&self) -> u64 {
        self.in_flight
            .windows
            .iter()
            .fold(0, |sum, flight| sum.saturating_add(flight.rest().into()))
    }

    /// Windows that may be sent now.
    pub fn room(&self) -> usize {
        match self.state {
            State::Open => self
                .max_in_flight()
                .saturating_sub(self.in_flight.windows.len()),
            _ => 0,
        }
    }

    /// The limits of the next window; `None` while none may be sent.
    pub fn allowance(&self) -> Option<Allowance> {
        if self.room() == 0 {
            return None;
        }
        let events = match self.config.max_in_flight_events {
            Some(most) => most.saturating_sub(self.in_flight.events),
            None => u32::MAX,
        };
        let bytes = match self.config.max_in_flight_bytes {
            Some(most) => most.saturating_sub(self.in_flight.bytes),
            None => u64::MAX,
        };
        let events = events.min(self.window_size());
        (events > 0 && bytes > 0).then_some(Allowance { events, bytes })
    }

    /// Events that a window may hold by `max_window` and slow start: the start of the next
    /// connection to the same peer (`slow_start`).
    pub fn window_size(&self) -> u32 {
        let most = self.config.max_window;
        self.size.map_or(most, |size| size.size().min(most))
    }

    /// Sends nothing more; ends the connection when everything is acknowledged.
    pub fn finish(&mut self, _now: Instant) {
        if self.state == State::Open {
            self.state = State::Closing;
            self.drain_if_done();
        }
    }

    /// Whether [`finish`](Self::finish) was called, or the connection is over.
    pub fn is_finishing(&self) -> bool {
        self.state != State::Open
    }

    /// Checks the window. Returns its events and the bytes of its plain frames.
    fn admit<'a>(
        &self,
        records: impl Iterator<Item = &'a OutRecord> + Clone,
    ) -> Result<(u32, u64), UsageError> {
        match self.state {
            State::Open => {}
            State::Closing => {
                return Err(UsageError::new(
                    "closing",
                    "finish was called; open a new connection",
                ));
            }
            _ => return Err(UsageError::new("closed", "the connection has ended")),
        }
        let (mut count, mut bytes) = (0_u32, 0_u64);
        for record in records.clone() {
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(wide(record.wire_len()));
        }
        self.admit_size(count, bytes)?;
        for record in records {
            record.check(&self.limits)?;
        }
        Ok((count, bytes))
    }

    fn admit_size(&self, count: u32, bytes: u64) -> Result<(), UsageError> {
        let refuse = |code, message| Err(UsageError::new(code, message));
        if count == 0 {
            return refuse("empty_window", "a window holds at least one event");
        }
        if count > self.window_size() {
            return refuse(
                "window_too_large",
                "more events than max_window or slow_start; send several windows",
            );
        }
        let Some(allowed) = self.allowance() else {
            return refuse(
                "too_many_in_flight",
                "max_in_flight windows, events or bytes wait for their acknowledgements",
            );
        };
        if count > allowed.events || bytes > allowed.bytes {
            return refuse(
                "too_many_in_flight",
                "above max_in_flight_events or max_in_flight_bytes",
            );
        }
        Ok(())
    }

    fn max_in_flight(&self) -> usize {
        match self.config.version {
            Version::V1 => self.config.max_in_flight.min(1),
            Version::V2 => self.config.max_in_flight,
        }
    }

    const fn cumulative(&self) -> bool {
        matches!(self.config.sequence, SequenceMode::Cumulative { .. })
    }

    const fn skips_zero(&self) -> bool {
        self.cumulative() && matches!(self.config.version, Version::V2)
    }

    fn first_sequence(&mut self) -> Sequence {
        if !self.cumulative() {
            self.next = Sequence(1);
        }
        if self.skips_zero() && self.next.0 == 0 {
            self.next = Sequence(1);
        }
        self.next
    }

    /// The whole window as one buffer: the window frame, then its events, in one envelope or plain.
    fn encode<'a>(
        &mut self,
        count: u32,
        bytes: u64,
        records: impl Iterator<Item = &'a OutRecord>,
    ) -> Bytes {
        let version = self.config.version;
        // The events are in memory already: this length is not a peer's claim.
        let room = usize::try_from(bytes).unwrap_or(0).saturating_add(HEADER);
        let mut wire = Vec::new();
        let mut plain = std::mem::take(&mut self.envelopes.plain);
        let out = match self.envelopes.deflate {
            Some(_) => &mut plain,
            None => &mut wire,
        };
        out.reserve(room);
        if self.envelopes.deflate.is_none() {
            put_header(out, version, WINDOW, count);
        }
        for record in records {
            if self.skips_zero() && self.next.0 == 0 {
                self.next = Sequence(1);
            }
            match record {
                OutRecord::Json(payload) => put_json(out, version, self.next.0, payload),
                OutRecord::Data(pairs) => put_data(out, version, self.next.0, pairs),
            }
            self.next = self.next.next();
        }
        if let Some(deflate) = &mut self.envelopes.deflate {
            put_header(&mut wire, version, WINDOW, count);
            put_compressed(&mut wire, version, deflate, &plain);
            plain.clear();
            plain.shrink_to(KEPT);
            self.envelopes.plain = plain;
        }
        wire.into()
    }

    fn acknowledge(&mut self, now: Instant, version: Version, number: u32) -> Result<(), Kind> {
        let number = Sequence(number);
        if number.0 == 0 && !self.is_zero_in_flight(version) {
            return Ok(());
        }
        if version != self.config.version {
            return Err(Kind::VersionMixed);
        }
        let lookup = match self.config.sequence {
            SequenceMode::PerWindow => self.in_oldest(number),
            SequenceMode::Cumulative { .. } => self.in_any(number),
        };
        match lookup {
            Some((at, covered)) => self.progress(now, at, covered),
            None if self.cumulative() && self.is_behind(number) => {}
            None => return Err(Kind::OutOfRange(number.0)),
        }
        Ok(())
    }

    /// Whether a 0 is a sequence number of ours and not a keepalive.
    fn is_zero_in_flight(&self, version: Version) -> bool {
        version == Version::V1
            && self.config.version == Version::V1
            && self
                .in_flight
                .windows
                .iter()
                .any(|flight| flight.covered(Sequence(0)).is_some())
    }

    fn in_oldest(&self, number: Sequence) -> Option<(usize, u32)> {
        Some((0, self.in_flight.windows.front()?.covered(number)?))
    }

    /// The window that a cumulative number, or a count, belongs to.
    fn in_any(&self, number: Sequence) -> Option<(usize, u32)> {
        if let Some(found) = self.in_oldest(number) {
            return Some(found);
        }
        if self.config.accept_count_acks
            && let Some(oldest) = self.in_flight.windows.front()
            && oldest.records == number.0
        {
            return Some((0, oldest.records));
        }
        if !self.config.accept_count_acks && self.is_behind(number) {
            return None;
        }
        let mut flights = self.in_flight.windows.iter().enumerate();
        flights.find_map(|(at, flight)| Some((at, flight.covered(number)?)))
    }

    fn is_behind(&self, number: Sequence) -> bool {
        self.in_flight
            .last_completed
            .is_some_and(|last| number == last || last.is_after(number))
    }

    /// Everything before window `at`, and `covered` events of it, have been acknowledged.
    fn progress(&mut self, now: Instant, at: usize, covered: u32) {
        let mut grown = at > 0;
        for _ in 0..at {
            self.complete_oldest();
        }
        if let Some(oldest) = self.in_flight.windows.front_mut() {
            let more = covered.saturating_sub(oldest.acked);
            grown |= more > 0;
            oldest.acked = oldest.acked.saturating_add(more);
            self.in_flight.events = self.in_flight.events.saturating_sub(more);
            if oldest.rest() == 0 {
                self.complete_oldest();
            }
        }
        if grown {
            self.waits.progress_since = Some(now);
        }
        if self.in_flight.windows.is_empty() {
            self.waits.read_since = None;
            self.waits.progress_since = None;
        }
        self.drain_if_done();
    }

    fn complete_oldest(&mut self) {
        let Some(flight) = self.in_flight.windows.pop_front() else {
            return;
        };
        let steps = flight.records.saturating_sub(1);
        let mut last = flight.first.plus(steps);
        if flight.skips_zero && last.0 < flight.first.0 {
            last = last.next();
        }
        self.in_flight.last_completed = Some(last);
        self.in_flight.events = self.in_flight.events.saturating_sub(flight.rest());
        self.in_flight.bytes = self.in_flight.bytes.saturating_sub(flight.bytes);
        if let Some(size) = &mut self.size {
            size.acknowledged(flight.records, flight.allowed);
        }
        self.events.push_back(WriterEvent::Acknowledged {
            window: flight.window,
        });
    }

    fn drain_if_done(&mut self) {
        if self.state == State::Closing && self.in_flight.windows.is_empty() {
            self.state = State::Draining;
        }
    }

    fn take(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Kind> {
        loop {
            let mut rest: &[u8] = input;
            let mut walker = self.input.walker.clone();
            let Some(walked) = walker.step(&mut rest, &self.limits)? else {
                return Ok(());
            };
            if let Head::Ack { sequence } = walked.head {
                self.acknowledge(now, walked.version, sequence)?;
            }
            input.advance(walked.len);
            self.input.offset = self.input.offset.saturating_add(wide(walked.len));
        }
    }

    fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.input.offset,
        };
        self.end(State::Failed(error.clone()));
        error
    }

    /// Ends the connection: unacknowledged events must be sent again.
    fn end(&mut self, state: State) {
        self.state = state;
        self.outbox.clear();
        if let Some(size) = &mut self.size
            && !self.in_flight.windows.is_empty()
        {
            size.failed();
        }
        for flight in &self.in_flight.windows {
            self.events.push_back(WriterEvent::Unacknowledged {
                window: flight.window,
                from: flight.acked,
            });
        }
    }

    fn deadlines(&self) -> [Option<Instant>; 2] {
        let after = |since: Option<Instant>, wait: Option<Duration>| since?.checked_add(wait?);
        let read = self
            .waits
            .read_since
            .filter(|_| self.waits.paused.is_none());
        [
            after(read, self.config.read_timeout),
            after(
                self.waits
                    .progress_since
                    .filter(|_| self.waits.paused.is_none()),
                self.config.progress_timeout,
            ),
        ]
    }
}

impl Connection for Writer {
    type Event = WriterEvent;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        match &self.state {
            State::Open | State::Closing => {}
            State::Failed(error) => return Err(error.clone()),
            State::Draining | State::Closed => {
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
        }
        if input.len() > self.input.left && self.waits.read_since.is_some() {
            self.waits.read_since = Some(now);
        }
        self.take(now, input).map_err(|kind| self.fail(kind))?;
        self.input.left = input.len();
        Ok(Need::Input { at_least: 6 })
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        match &self.state {
            State::Failed(error) => return Err(error.clone()),
            State::Closed => {}
            _ => self.end(State::Closed),
        }
        Ok(())
    }

    fn poll_event(&mut self) -> Option<WriterEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut SendQueue) {
        while out.room() > 0 {
            let Some(window) = self.outbox.pop_front() else {
                return;
            };
            out.put(window);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !matches!(self.state, State::Open | State::Closing) {
            return None;
        }
        self.deadlines().into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        match &self.state {
            State::Open | State::Closing => {}
            State::Failed(error) => return Err(error.clone()),
            State::Draining | State::Closed => return Ok(()),
        }
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let [read, progress] = self.deadlines();
        if is_due(read) {
            return Err(self.fail(Kind::Timeout("read_timeout")));
        }
        if is_due(progress) {
            return Err(self.fail(Kind::NoProgress));
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        if !on {
            self.waits.paused.get_or_insert(now);
            return;
        }
        let Some(paused) = self.waits.paused.take() else {
            return;
        };
        let pause = now.saturating_duration_since(paused);
        for since in [&mut self.waits.read_since, &mut self.waits.progress_since] {
            *since = since.and_then(|since| since.checked_add(pause));
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state {
            State::Open | State::Closing => Lifecycle::Open,
            State::Draining => Lifecycle::Draining,
            State::Closed | State::Failed(_) => Lifecycle::Closed,
        }
    }
}
