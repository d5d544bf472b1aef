//! The reader: takes windows of events and acknowledges each once, in their order.
//!
//! ```text
//!            W(n)            n events            v2: Shut ──W──► Open
//! Unannounced ───► Open(n) ───────────► window ─┤
//!   each event is                               v1: Open(n) again
//!   a window                 W(0): answered in its place, then Shut
//! ```
//!
//! Decided here: when a window is complete, which frame breaks the order, what is acknowledged when.
//! Not here: what a sound frame is (`walker`), the zlib stream (`envelope`), the timers (`timing`).

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{
    Connection, EVENTS_PER_CALL, INFLATED_PER_CALL, Lifecycle, Need, ProtocolError, SendQueue,
    UsageError,
};
use bytes::{Buf, Bytes, BytesMut};

use crate::envelope::{Checked, Envelope, Inflate};
use crate::error::Over;
use crate::frame::{ACK, From, HEADER};
use crate::partial::{KEEP_ABOVE, Partial};
use crate::pending::{Pending, Waiting};
use crate::timing::{Situation, Timing};
use crate::walker::{Head, Walked, Walker, wide};
use crate::{Kind, NoWindow, ReaderConfig, Version, Window};

/// What a [`Reader`] tells.
#[derive(Debug, Clone)]
pub enum Event {
    /// A window is complete and waits for [`Reader::ack`].
    Window(Window),
}

/// Counts since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaderStats {
    /// Complete windows, without empty ones.
    pub windows: u64,
    /// Events in them.
    pub events: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Places inside a window where the sequence does not go on by one.
    pub gaps: u64,
    /// Windows acknowledged on the wire.
    pub acked_windows: u64,
    /// Events in them.
    pub acked_events: u64,
    /// Keepalives sent.
    pub keepalives: u64,
}

/// The reader's end of a connection.
#[derive(Debug)]
pub struct Reader {
    config: ReaderConfig,
    state: State,
    turn: Turn,
    input: Input,
    envelope: Option<Box<Envelope>>,
    /// The scratch, kept from one envelope to the next inside one `receive`.
    inflate: Option<Inflate>,
    partial: Partial,
    pending: Pending,
    events: VecDeque<Event>,
    timing: Timing,
    keepalive: bool,
    stats: ReaderStats,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Open,
    /// `stop` was called: nothing more is taken, what is complete is still acknowledged.
    Stopping,
    Draining,
    Closed,
    Failed(ProtocolError<Kind>),
}

/// What the next event belongs to.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// No window frame yet.
    Unannounced,
    /// A window that takes events; `rearmed` if it has opened by itself.
    Open {
        version: Version,
        size: u32,
        rearmed: bool,
    },
    /// The last window is full, or was empty.
    Shut,
}

/// Where the reader stands in the stream.
#[derive(Debug)]
struct Input {
    walker: Walker,
    /// Bytes at the front of the input buffer that have been walked over.
    scanned: usize,
    /// Bytes left in the input buffer by the last `receive`.
    left: usize,
    /// Bytes received before the frame being looked at.
    offset: u64,
    /// The version of the last whole frame.
    peer: Option<Version>,
    /// The last `receive` stopped for our sake.
    held_up: bool,
}

/// What a walk over the input stopped at.
enum Stop {
    /// The end of the bytes.
    End,
    /// A window is complete.
    Complete,
    Window {
        version: Version,
        size: u32,
    },
    Envelope {
        version: Version,
        len: usize,
    },
}

/// What one `receive` may still do.
struct Budget {
    inflated: usize,
    windows: u64,
}

impl Reader {
    /// A reader at the start of a connection.
    pub fn new(config: ReaderConfig) -> Self {
        Self {
            config,
            state: State::Open,
            turn: Turn::Unannounced,
            input: Input {
                walker: Walker::new(From::Writer, false),
                scanned: 0,
                left: 0,
                offset: 0,
                peer: None,
                held_up: false,
            },
            envelope: None,
            inflate: None,
            partial: Partial::default(),
            pending: Pending::default(),
            events: VecDeque::new(),
            timing: Timing::default(),
            keepalive: false,
            stats: ReaderStats::default(),
        }
    }

    /// Acknowledges a window, in any order; the bytes leave in the order of the windows.
    ///
    /// # Errors
    /// `closed` after the end of the connection, `unknown_window` for a window that does not wait for it.
    pub fn ack(&mut self, now: Instant, window: u64) -> Result<(), UsageError> {
        self.timing.touch(now);
        if !matches!(self.state, State::Open | State::Stopping) {
            return Err(UsageError::new(
                "closed",
                "the connection has ended; the sender sends again",
            ));
        }
        if !self.pending.acknowledge(window) {
            return Err(UsageError::new(
                "unknown_window",
                "no such window waits for an acknowledgement",
            ));
        }
        Ok(())
    }

    /// Takes nothing more; ends the connection when every complete window has been acknowledged.
    pub fn stop(&mut self, now: Instant) {
        self.timing.touch(now);
        if self.state == State::Open {
            self.drop_unfinished();
            self.state = State::Stopping;
            self.drain_if_settled();
        }
    }

    /// Windows handed on and not acknowledged by the application.
    pub fn unacknowledged(&self) -> usize {
        self.pending.unacknowledged()
    }

    /// Counts since the connection began.
    pub fn stats(&self) -> ReaderStats {
        self.stats
    }

    fn take(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, Kind> {
        let mut budget = Budget {
            inflated: INFLATED_PER_CALL,
            windows: self.stats.windows.saturating_add(wide(EVENTS_PER_CALL)),
        };
        loop {
            let room = self.config.limits.unacked_windows.max(1);
            if self.pending.len() >= room || self.events.len() >= EVENTS_PER_CALL {
                return Ok(Need::Room);
            }
            if budget.inflated == 0 || self.stats.windows >= budget.windows {
                return Ok(Need::Again);
            }
            if let Some(envelope) = self.envelope.take() {
                self.work(now, envelope, &mut budget)?;
                continue;
            }
            match self.walk(input)? {
                Stop::End => {
                    let at_least = self
                        .input
                        .walker
                        .needed()
                        .max(input.len().saturating_add(1));
                    return Ok(Need::Input { at_least });
                }
                Stop::Complete => self.complete(now),
                Stop::Window { version, size } => {
                    self.announce(version, size)?;
                    input.advance(HEADER);
                    self.pass(HEADER);
                }
                Stop::Envelope { version, len } => self.begin_envelope(version, len, input),
            }
        }
    }

    /// Walks over the frames in `input` to the next one that is more than an event of the open window,
    /// and takes the events' bytes.
    fn walk(&mut self, input: &mut BytesMut) -> Result<Stop, Kind> {
        let mut rest = input.get(self.input.scanned..).unwrap_or_default();
        let mut run: usize = 0;
        let mut records: u32 = 0;
        let stop = loop {
            let Some(walked) = self.input.walker.step(&mut rest, &self.config.limits)? else {
                break Stop::End;
            };
            let version = walked.version;
            self.input.peer = Some(version);
            match walked.head {
                Head::Window { size } => break Stop::Window { version, size },
                Head::Compressed => {
                    break Stop::Envelope {
                        version,
                        len: walked.len,
                    };
                }
                Head::Json { .. } | Head::Data { .. } | Head::Ack { .. } => {}
            }
            let complete = self.admit(walked)?;
            self.pass(walked.len);
            run = run.saturating_add(walked.len);
            records = records.saturating_add(1);
            if complete {
                break Stop::Complete;
            }
        };
        let walked = input.len().saturating_sub(rest.len());
        if run > 0 {
            self.partial.add_run(input.split_to(run), records);
        }
        self.input.scanned = match stop {
            Stop::End => walked.saturating_sub(run),
            _ => 0,
        };
        Ok(stop)
    }

    /// Takes one event into the window; says whether that completes it.
    fn admit(&mut self, walked: Walked) -> Result<bool, Kind> {
        let (Head::Json { sequence } | Head::Data { sequence, .. }) = walked.head else {
            return Err(Kind::WrongDirection(ACK));
        };
        let complete = match self.turn {
            Turn::Unannounced => {
                if self.config.no_window == NoWindow::Refuse {
                    return Err(Kind::NoWindow);
                }
                true
            }
            Turn::Shut => return Err(Kind::Overrun),
            Turn::Open {
                version,
                size,
                rearmed,
            } => {
                if version != walked.version {
                    let unbound = rearmed && self.partial.records == 0;
                    return Err(if unbound {
                        Kind::Overrun
                    } else {
                        Kind::VersionMixed
                    });
                }
                self.partial.records.saturating_add(1) >= size
            }
        };
        self.has_room(walked.len)?;
        self.partial.count(sequence, walked.len);
        Ok(complete)
    }

    fn has_room(&self, more: usize) -> Result<(), Kind> {
        let (value, limit) = (
            self.partial.inflated.saturating_add(more),
            self.config.limits.window_bytes,
        );
        if value <= limit {
            return Ok(());
        }
        Err(Kind::WindowBytesTooLarge(Over {
            value: wide(value),
            limit: wide(limit),
            option: "--max-window-bytes",
        }))
    }

    /// A window frame.
    fn announce(&mut self, version: Version, size: u32) -> Result<(), Kind> {
        if let Turn::Open { version: open, .. } = self.turn
            && (open == Version::V2 || self.partial.records > 0)
        {
            return Err(Kind::PrematureWindow);
        }
        if size > 0 {
            self.turn = Turn::Open {
                version,
                size,
                rearmed: false,
            };
            return Ok(());
        }
        self.turn = Turn::Shut;
        self.pending.push(Waiting {
            id: None,
            version,
            sequence: 0,
            records: 0,
            charge: 0,
            acknowledged: true,
        });
        Ok(())
    }

    /// Hands the filled window on.
    fn complete(&mut self, now: Instant) {
        let version = self.input.peer.unwrap_or(Version::V2);
        let partial = std::mem::take(&mut self.partial);
        match self.turn {
            Turn::Open {
                version: Version::V1,
                size,
                ..
            } => {
                self.turn = Turn::Open {
                    version: Version::V1,
                    size,
                    rearmed: true,
                };
            }
            Turn::Open { .. } => self.turn = Turn::Shut,
            Turn::Unannounced | Turn::Shut => {}
        }
        self.stats.windows = self.stats.windows.saturating_add(1);
        self.stats.events = self.stats.events.saturating_add(partial.records.into());
        self.stats.gaps = self.stats.gaps.saturating_add(partial.gaps);
        if version == Version::V2 && !self.pending.has_v2() {
            self.timing.pending(now);
        }
        let id = self.stats.windows;
        self.pending.push(Waiting {
            id: Some(id),
            version,
            sequence: partial.last_sequence,
            records: partial.records,
            charge: partial.charge,
            acknowledged: false,
        });
        self.events.push_back(Event::Window(Window {
            id,
            version,
            window_size: partial.records,
            records: partial.records,
            first_sequence: partial.first_sequence,
            last_sequence: partial.last_sequence,
            pieces: partial.into_pieces(),
        }));
    }

    fn pass(&mut self, len: usize) {
        self.input.offset = self.input.offset.saturating_add(wide(len));
    }

    fn begin_envelope(&mut self, version: Version, len: usize, input: &mut BytesMut) {
        let bytes = if len < KEEP_ABOVE {
            let copy = Bytes::copy_from_slice(input.get(..len).unwrap_or_default());
            input.advance(len);
            copy
        } else {
            input.split_to(len).freeze()
        };
        let inflate = self.inflate.take().unwrap_or_else(Inflate::new);
        self.envelope = Some(Box::new(Envelope::new(version, bytes, inflate)));
    }

    /// One step of work on an envelope; puts it back unless it is done.
    fn work(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        if envelope.in_second_pass() {
            return self.apply_in_turns(now, envelope, budget);
        }
        match envelope.check(&self.config.limits)? {
            Checked::More(made) => {
                budget.spend(made);
                self.envelope = Some(envelope);
            }
            Checked::Sound => {
                budget.spend(ENVELOPE_COST);
                self.apply(now, envelope)?;
            }
        }
        Ok(())
    }

    /// An envelope is sound: it takes effect at once, or frame by frame in a second pass.
    fn apply(&mut self, now: Instant, mut envelope: Box<Envelope>) -> Result<(), Kind> {
        let summary = envelope.summary;
        let fits = match self.turn {
            Turn::Open { version, size, .. } => {
                version == envelope.version
                    && summary.records <= size.saturating_sub(self.partial.records)
            }
            Turn::Unannounced | Turn::Shut => false,
        };
        let empty = summary.records == 0;
        if summary.in_turns || !(fits || empty) {
            if self.windows_in(&envelope) > MOST_SHARES {
                envelope.plain = Some(BytesMut::new());
            }
            envelope.rewind();
            self.envelope = Some(envelope);
            return Ok(());
        }
        if !empty {
            self.has_room(summary.inflated)?;
            self.partial.count_all(&summary);
            self.share(&mut envelope, summary.records, summary.inflated);
            if let Turn::Open { size, .. } = self.turn
                && self.partial.records >= size
            {
                self.complete(now);
            }
        }
        self.finish_envelope(*envelope);
        Ok(())
    }

    /// How many windows an envelope may fill or begin.
    fn windows_in(&self, envelope: &Envelope) -> u32 {
        let summary = envelope.summary;
        let by_size = match self.turn {
            Turn::Unannounced => summary.records,
            Turn::Open {
                version: Version::V1,
                size,
                ..
            } => summary.records.checked_div(size).unwrap_or_default(),
            Turn::Open { .. } | Turn::Shut => 0,
        };
        // A v1 window in the envelope re-arms with a size that is not known here.
        if envelope.version == Version::V1 && summary.windows > 0 {
            return summary.records;
        }
        by_size.saturating_add(summary.windows)
    }

    /// The second pass: frame by frame, to the next complete window or the end of a piece.
    fn apply_in_turns(
        &mut self,
        now: Instant,
        mut envelope: Box<Envelope>,
        budget: &mut Budget,
    ) -> Result<(), Kind> {
        while let Some(walked) = envelope.next_frame(&self.config.limits)? {
            if walked.version != envelope.version {
                return Err(Kind::VersionMixed);
            }
            if let Head::Window { size } = walked.head {
                self.announce(walked.version, size)?;
                if let Some(plain) = &mut envelope.plain {
                    plain.clear();
                }
                self.envelope = Some(envelope);
                return Ok(());
            }
            let complete = self.admit(walked)?;
            envelope.applied = envelope.applied.saturating_add(1);
            envelope.share_bytes = envelope.share_bytes.saturating_add(walked.len);
            if complete {
                self.share_applied(&mut envelope);
                self.complete(now);
                self.envelope = Some(envelope);
                return Ok(());
            }
        }
        let made = envelope.refill(&self.config.limits)?;
        budget.spend(made.max(ENVELOPE_COST));
        if made > 0 {
            self.envelope = Some(envelope);
            return Ok(());
        }
        self.share_applied(&mut envelope);
        self.finish_envelope(*envelope);
        Ok(())
    }

    /// Gives the window being filled the events that were applied since the last share.
    fn share_applied(&mut self, envelope: &mut Envelope) {
        let records = envelope.applied.saturating_sub(envelope.share_from);
        if records == 0 {
            return;
        }
        let inflated = std::mem::take(&mut envelope.share_bytes);
        if let Some(plain) = &mut envelope.plain {
            self.partial.enveloped = true;
            self.partial.add_run(plain.split(), records);
            envelope.share_from = envelope.applied;
            return;
        }
        self.share(envelope, records, inflated);
    }

    /// The bytes of an envelope are charged once: to the last window that holds a share of it.
    fn share(&mut self, envelope: &mut Envelope, records: u32, inflated: usize) {
        let len = envelope.bytes.len();
        if let Some(window) = envelope.charged_to {
            self.pending.uncharge(window, len);
        }
        envelope.charged_to = Some(self.stats.windows.saturating_add(1));
        self.partial.charge = self.partial.charge.saturating_add(len);
        self.partial.add_envelope(envelope, records, inflated);
        envelope.share_from = envelope.share_from.saturating_add(records);
    }

    fn finish_envelope(&mut self, envelope: Envelope) {
        self.pass(envelope.bytes.len());
        self.inflate = Some(envelope.into_inflate());
    }

    fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.input.offset,
        };
        self.drop_unfinished();
        self.state = State::Failed(error.clone());
        error
    }

    fn drop_unfinished(&mut self) {
        self.partial = Partial::default();
        self.envelope = None;
        self.inflate = None;
    }

    fn drain_if_settled(&mut self) {
        if self.state == State::Stopping && self.pending.is_empty() {
            self.state = State::Draining;
        }
    }

    fn has_tail(&self) -> bool {
        let v1 = matches!(
            self.turn,
            Turn::Open {
                version: Version::V1,
                ..
            }
        );
        v1 && self.partial.records > 0 && !self.partial.enveloped
    }

    /// Hands on the part of a v1 window.
    fn complete_tail(&mut self, now: Instant) {
        // A part is never of another version than its window.
        self.input.peer = Some(Version::V1);
        self.complete(now);
    }

    fn situation(&self) -> Situation {
        let unfinished = match self.turn {
            Turn::Open {
                version: Version::V2,
                ..
            } => true,
            _ => self.partial.records > 0,
        };
        Situation {
            listening: self.state == State::Open && !self.input.held_up,
            v2_pending: self.pending.has_v2(),
            v2_peer: self.state == State::Open && self.input.peer == Some(Version::V2),
            pending: !self.pending.is_empty(),
            unfinished: unfinished || self.input.left > 0,
            tail: self.has_tail(),
        }
    }
}

impl Budget {
    fn spend(&mut self, inflated: usize) {
        self.inflated = self.inflated.saturating_sub(inflated);
    }
}

impl Connection for Reader {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.timing.touch(now);
        match &self.state {
            State::Open => {}
            State::Failed(error) => return Err(error.clone()),
            State::Stopping | State::Draining | State::Closed => {
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
        }
        let fresh = input.len().saturating_sub(self.input.left);
        self.stats.bytes = self.stats.bytes.saturating_add(wide(fresh));
        if fresh > 0 || self.input.held_up {
            self.timing.byte(now);
        }
        let need = self.take(now, input).map_err(|kind| self.fail(kind))?;
        self.partial.settle();
        self.inflate = None;
        self.input.left = input.len();
        self.input.held_up = !matches!(need, Need::Input { .. });
        Ok(need)
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        // This writer never sends the part again.
        if self.state == State::Open && self.config.tail_idle.is_some() && self.has_tail() {
            self.complete_tail(now);
        }
        self.drop_unfinished();
        self.state = State::Closed;
        Ok(())
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            // An idle connection holds no queue.
            self.events = VecDeque::new();
        }
        event
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.timing.touch(now);
        if self.state == State::Closed {
            return;
        }
        let before = out.len();
        while out.room() > 0 {
            let Some(waiting) = self.pending.pop() else {
                break;
            };
            put_ack(out, waiting.version, waiting.sequence);
            if waiting.id.is_some() {
                self.stats.acked_windows = self.stats.acked_windows.saturating_add(1);
                self.stats.acked_events = self
                    .stats
                    .acked_events
                    .saturating_add(waiting.records.into());
            }
            if self.pending.is_empty() {
                self.timing.settled(now);
            }
        }
        let keepalive = std::mem::take(&mut self.keepalive);
        if keepalive && out.len() == before && !matches!(self.state, State::Failed(_)) {
            put_ack(out, Version::V2, 0);
            self.stats.keepalives = self.stats.keepalives.saturating_add(1);
        }
        if out.len() > before {
            self.timing.sent(now);
        }
        self.drain_if_settled();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !matches!(self.state, State::Open | State::Stopping) {
            return None;
        }
        self.timing.due(&self.config, self.situation()).first()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.timing.touch(now);
        match &self.state {
            State::Open | State::Stopping => {}
            State::Failed(error) => return Err(error.clone()),
            State::Draining | State::Closed => return Ok(()),
        }
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let mut due = self.timing.due(&self.config, self.situation());
        if is_due(due.keepalive) {
            self.keepalive = true;
            self.timing.sent(now);
        }
        if is_due(due.tail) {
            self.complete_tail(now);
            // A window that is empty again has no stall.
            due = self.timing.due(&self.config, self.situation());
        }
        if is_due(due.first_byte) {
            return Err(self.fail(Kind::Timeout("--first-byte-timeout")));
        }
        if is_due(due.stall) {
            return Err(self.fail(Kind::Timeout("--stall-timeout")));
        }
        if is_due(due.idle) {
            self.state = State::Draining;
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.timing.touch(now);
        self.timing.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state {
            State::Open | State::Stopping => Lifecycle::Open,
            State::Draining => Lifecycle::Draining,
            State::Closed | State::Failed(_) => Lifecycle::Closed,
        }
    }

    fn held_bytes(&self) -> usize {
        let envelope = self
            .envelope
            .as_ref()
            .map_or(0, |envelope| envelope.bytes.len());
        self.pending
            .charge()
            .saturating_add(self.partial.charge)
            .saturating_add(envelope)
    }
}

fn put_ack(out: &mut SendQueue, version: Version, sequence: u32) {
    let [a, b, c, d] = sequence.to_be_bytes();
    out.put_slice(&[version.byte(), ACK, a, b, c, d]);
}

/// What an envelope costs beside its bytes, so that many tiny ones are not free.
const ENVELOPE_COST: usize = 4 * 1024;

/// Windows that may share one envelope. Each consumer of a share inflates the envelope up to its end, so
/// an envelope of more windows is handed on as plain frames.
const MOST_SHARES: u32 = 64;
