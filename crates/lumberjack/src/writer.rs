//! The writer: sends windows of events and waits for their acknowledgements.
//!
//! Decided here: sequence numbers, what an acknowledgement covers, the two deadlines. Not here: what is
//! sent again over which connection: at the end the application is told what was not acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, UsageError};
use bytes::{Buf, Bytes, BytesMut};

use crate::deflate::{Deflate, KEPT};
use crate::frame::{put_compressed, put_data, put_header, put_json};
use crate::walker::{Head, Walker, wide};
use crate::wire::{From, WINDOW};
use crate::{Kind, Limits, SequenceMode, Version, WriterConfig};

/// One event to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutRecord {
    /// JSON text, sent as it is in a `J` frame.
    Json(Bytes),
    /// Keys and values, sent in a `D` frame.
    Data(Vec<(Bytes, Bytes)>),
}

/// What a [`Writer`] tells.
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
    in_flight: VecDeque<Flight>,
    outbox: VecDeque<Bytes>,
    events: VecDeque<WriterEvent>,
    windows: u64,
    next: Sequence,
    last_completed: Option<Sequence>,
    walker: Walker,
    /// What makes envelopes, and the frames of the next one: reused for every window.
    deflate: Option<Deflate>,
    plain: Vec<u8>,
    offset: u64,
    read_since: Option<Instant>,
    progress_since: Option<Instant>,
    /// The input's length after the last call, and where the walker stands in it.
    left: usize,
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

/// A window that is in flight.
#[derive(Debug)]
struct Flight {
    window: u64,
    first: Sequence,
    records: u32,
    /// Events acknowledged so far.
    acked: u32,
    skips_zero: bool,
}

impl Flight {
    /// How many events the number covers, if it belongs to this window.
    fn covered(&self, number: Sequence) -> Option<u32> {
        let wrapped = number.0 < self.first.0;
        if self.skips_zero && number.0 == 0 {
            return None;
        }
        let skipped = u32::from(self.skips_zero && wrapped);
        let covered = number
            .since(self.first)
            .checked_sub(skipped)?
            .checked_add(1)?;
        (covered <= self.records).then_some(covered)
    }

    const fn rest(&self) -> u32 {
        self.records.saturating_sub(self.acked)
    }
}

impl Writer {
    /// A writer at the start of a connection.
    pub fn new(config: WriterConfig) -> Self {
        let next = match config.sequence {
            SequenceMode::PerWindow => 1,
            SequenceMode::Cumulative { next } => next,
        };
        Self {
            deflate: config.compression.map(Deflate::new),
            plain: Vec::new(),
            config,
            limits: Limits::default(),
            state: State::Open,
            in_flight: VecDeque::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            windows: 0,
            next: Sequence(next),
            last_completed: None,
            walker: Walker::new(From::Reader, false),
            offset: 0,
            read_since: None,
            progress_since: None,
            left: 0,
            paused: None,
        }
    }

    /// Sends a window; answers its id, counted from 1.
    ///
    /// # Errors
    /// `closed`, `closing` after [`finish`](Self::finish), `empty_window`, `window_too_large`,
    /// `too_many_in_flight`, `empty_json`, `frame_too_large`; nothing was sent.
    pub fn send_window(&mut self, now: Instant, records: &[OutRecord]) -> Result<u64, UsageError> {
        let count = self.admit(records)?;
        let first = self.first_sequence();
        let wire = self.encode(count, records);
        if self.in_flight.is_empty() {
            self.read_since = Some(now);
            self.progress_since = Some(now);
        }
        self.windows = self.windows.saturating_add(1);
        self.in_flight.push_back(Flight {
            window: self.windows,
            first,
            records: count,
            acked: 0,
            skips_zero: self.skips_zero(),
        });
        self.outbox.push_back(wire);
        Ok(self.windows)
    }

    /// Events in flight that have not been acknowledged; also after the end.
    pub fn unacknowledged(&self) -> u64 {
        self.in_flight
            .iter()
            .fold(0, |sum, flight| sum.saturating_add(flight.rest().into()))
    }

    /// Windows that may be sent now.
    pub fn room(&self) -> usize {
        match self.state {
            State::Open => self.max_in_flight().saturating_sub(self.in_flight.len()),
            _ => 0,
        }
    }

    /// Sends nothing more; ends the connection when everything has been acknowledged.
    pub fn finish(&mut self, _now: Instant) {
        if self.state == State::Open {
            self.state = State::Closing;
            self.drain_if_done();
        }
    }

    fn admit(&self, records: &[OutRecord]) -> Result<u32, UsageError> {
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
        if records.is_empty() {
            return Err(UsageError::new(
                "empty_window",
                "a window holds at least one event",
            ));
        }
        let count = u32::try_from(records.len())
            .ok()
            .filter(|count| *count <= self.config.max_window)
            .ok_or(UsageError::new(
                "window_too_large",
                "more events than max_window; send several windows",
            ))?;
        if self.in_flight.len() >= self.max_in_flight() {
            return Err(UsageError::new(
                "too_many_in_flight",
                "max_in_flight windows wait for their acknowledgements",
            ));
        }
        for record in records {
            check_record(record, &self.limits)?;
        }
        Ok(count)
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
    fn encode(&mut self, count: u32, records: &[OutRecord]) -> Bytes {
        let version = self.config.version;
        let mut wire = Vec::new();
        put_header(&mut wire, version, WINDOW, count);
        let mut plain = std::mem::take(&mut self.plain);
        let out = match self.deflate {
            Some(_) => &mut plain,
            None => &mut wire,
        };
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
        if let Some(deflate) = &mut self.deflate {
            put_compressed(&mut wire, version, deflate, &plain);
            plain.clear();
            plain.shrink_to(KEPT);
            self.plain = plain;
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

    /// Whether a 0 is a number of ours and not a keepalive.
    fn is_zero_in_flight(&self, version: Version) -> bool {
        version == Version::V1
            && self.config.version == Version::V1
            && self
                .in_flight
                .iter()
                .any(|flight| flight.covered(Sequence(0)).is_some())
    }

    fn in_oldest(&self, number: Sequence) -> Option<(usize, u32)> {
        Some((0, self.in_flight.front()?.covered(number)?))
    }

    /// The window that a cumulative number, or a count, belongs to.
    fn in_any(&self, number: Sequence) -> Option<(usize, u32)> {
        if let Some(found) = self.in_oldest(number) {
            return Some(found);
        }
        if self.config.accept_count_acks
            && let Some(oldest) = self.in_flight.front()
            && oldest.records == number.0
        {
            return Some((0, oldest.records));
        }
        if !self.config.accept_count_acks && self.is_behind(number) {
            return None;
        }
        let mut flights = self.in_flight.iter().enumerate();
        flights.find_map(|(at, flight)| Some((at, flight.covered(number)?)))
    }

    fn is_behind(&self, number: Sequence) -> bool {
        self.last_completed
            .is_some_and(|last| number == last || last.is_after(number))
    }

    /// Everything before window `at`, and `covered` events of it, have been acknowledged.
    fn progress(&mut self, now: Instant, at: usize, covered: u32) {
        let mut grown = at > 0;
        for _ in 0..at {
            self.complete_oldest();
        }
        if let Some(oldest) = self.in_flight.front_mut() {
            grown |= covered > oldest.acked;
            oldest.acked = oldest.acked.max(covered);
            if oldest.rest() == 0 {
                self.complete_oldest();
            }
        }
        if grown {
            self.progress_since = Some(now);
        }
        if self.in_flight.is_empty() {
            self.read_since = None;
            self.progress_since = None;
        }
        self.drain_if_done();
    }

    fn complete_oldest(&mut self) {
        let Some(flight) = self.in_flight.pop_front() else {
            return;
        };
        let steps = flight.records.saturating_sub(1);
        let mut last = flight.first.plus(steps);
        if flight.skips_zero && last.0 < flight.first.0 {
            last = last.next();
        }
        self.last_completed = Some(last);
        self.events.push_back(WriterEvent::Acknowledged {
            window: flight.window,
        });
    }

    fn drain_if_done(&mut self) {
        if self.state == State::Closing && self.in_flight.is_empty() {
            self.state = State::Draining;
        }
    }

    fn take(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Kind> {
        loop {
            let mut rest: &[u8] = input;
            let mut walker = self.walker.clone();
            let Some(walked) = walker.step(&mut rest, &self.limits)? else {
                return Ok(());
            };
            if let Head::Ack { sequence } = walked.head {
                self.acknowledge(now, walked.version, sequence)?;
            }
            input.advance(walked.len);
            self.offset = self.offset.saturating_add(wide(walked.len));
        }
    }

    fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.offset,
        };
        self.end(State::Failed(error.clone()));
        error
    }

    /// The connection is over: what was not acknowledged is to be sent again.
    fn end(&mut self, state: State) {
        self.state = state;
        self.outbox.clear();
        for flight in &self.in_flight {
            self.events.push_back(WriterEvent::Unacknowledged {
                window: flight.window,
                from: flight.acked,
            });
        }
    }

    fn deadlines(&self) -> [Option<Instant>; 2] {
        let after = |since: Option<Instant>, wait: Option<Duration>| since?.checked_add(wait?);
        let read = self.read_since.filter(|_| self.paused.is_none());
        [
            after(read, self.config.read_timeout),
            after(
                self.progress_since.filter(|_| self.paused.is_none()),
                self.config.progress_timeout,
            ),
        ]
    }
}

fn check_record(record: &OutRecord, limits: &Limits) -> Result<(), UsageError> {
    let too_large = UsageError::new("frame_too_large", "an event is larger than a frame may be");
    match record {
        OutRecord::Json(payload) if payload.is_empty() => {
            Err(UsageError::new("empty_json", "a JSON payload is not empty"))
        }
        OutRecord::Json(payload) if payload.len() > limits.json => Err(too_large),
        OutRecord::Json(_) => Ok(()),
        OutRecord::Data(pairs) => {
            let most = usize::try_from(limits.pairs).unwrap_or(usize::MAX);
            let bytes = pairs.iter().fold(10_usize, |sum, (key, value)| {
                sum.saturating_add(8)
                    .saturating_add(key.len())
                    .saturating_add(value.len())
            });
            let fits = |(key, value): &(Bytes, Bytes)| {
                key.len() <= limits.field && value.len() <= limits.field
            };
            if pairs.len() <= most && bytes <= limits.data && pairs.iter().all(fits) {
                return Ok(());
            }
            Err(too_large)
        }
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
        if input.len() > self.left && self.read_since.is_some() {
            self.read_since = Some(now);
        }
        self.take(now, input).map_err(|kind| self.fail(kind))?;
        self.left = input.len();
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
            self.paused.get_or_insert(now);
            return;
        }
        let Some(paused) = self.paused.take() else {
            return;
        };
        let pause = now.saturating_duration_since(paused);
        for since in [&mut self.read_since, &mut self.progress_since] {
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
