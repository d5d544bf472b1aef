//! The reader: takes windows of events and acknowledges each once, in order.
//!
//! ```text
//!            W(n)            n events            v2: Shut ──W──► Open
//! Unannounced ───► Open(n) ───────────► window ─┤
//!   each event is                               v1: Open(n) again
//!   a window                 W(0): answered in its place, then Shut
//! ```
//!
//! Decided here: when a window is complete and which frame violates the order; in `envelopes`, how
//! an envelope takes effect; in `aside`, which unreadable one is set aside; in `connection`, when
//! windows are acknowledged and how the connection ends. Not here: whether a frame is sound
//! (`walker`), the zlib stream (`envelope`), the timers (`timing`).

mod aside;
mod connection;
mod envelopes;

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{EVENTS_PER_CALL, INFLATED_PER_CALL, Need, ProtocolError, UsageError};
use bytes::{Buf, BytesMut};

use crate::envelope::{Envelope, Inflate};
use crate::inflate::Tries;
use crate::partial::Partial;
use crate::pending::{Pending, Waiting};
use crate::timing::Timing;
use crate::walker::{Head, Walked, Walker, wide};
use crate::wire::{ACK, From, HEADER};
use crate::{Invalid, Kind, NoWindow, ReaderConfig, Version, Window};
use ackline_core::LimitHit;
use aside::Aside;

/// The events of a [`Reader`].
#[derive(Debug, Clone)]
pub enum Event {
    /// A window is complete and waits for [`Reader::ack`].
    Window(Window),
    /// A window that cannot be read waits for [`Reader::ack`] or [`Reader::refuse`]. Only with
    /// [`OnInvalid::Quarantine`](crate::OnInvalid::Quarantine).
    Invalid(Invalid),
}

/// Counters since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaderStats {
    /// Complete windows, without empty ones.
    pub windows: u64,
    /// Events in them; in an unreadable one, as many as were announced.
    pub events: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Places inside a window where the sequence does not increase by one.
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
    envelopes: Envelopes,
    partial: Partial,
    aside: Aside,
    pending: Pending,
    events: VecDeque<Event>,
    timing: Timing,
    requests: Requests,
    stats: ReaderStats,
}

/// The envelope in progress, and the memory to inflate it.
#[derive(Debug, Default)]
struct Envelopes {
    current: Option<Box<Envelope>>,
    /// The scratch, kept from one envelope to the next inside one `receive`.
    inflate: Option<Inflate>,
    tries: Tries,
}

/// The requests of timers, driver and application.
#[derive(Debug, Default)]
struct Requests {
    /// A keepalive is to be sent.
    keepalive: bool,
    /// The driver sends our end: nothing more is acknowledged.
    hung_up: bool,
    /// `retire` was called.
    retiring: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Open,
    /// `stop` was called: no more input is taken, complete windows are still acknowledged.
    Stopping,
    /// The peer has ended: complete windows are still acknowledged, nothing else is sent.
    Settling,
    Draining,
    Closed,
    Failed(ProtocolError<Kind>),
}

/// The window of the next event.
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

/// The reader's position in the stream.
#[derive(Debug)]
struct Input {
    walker: Walker,
    /// Bytes at the front of the input buffer that have been walked over.
    scanned: usize,
    /// Bytes left in the input buffer by the last `receive`.
    left: usize,
    /// Bytes received before the current frame.
    offset: u64,
    /// The version of the last whole frame.
    peer: Option<Version>,
    /// The last `receive` stopped for our sake.
    held_up: bool,
}

/// The end of a walk over the input.
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

/// The work that one `receive` may still do.
struct Budget {
    inflated: usize,
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
            envelopes: Envelopes::default(),
            partial: Partial::default(),
            aside: Aside::default(),
            pending: Pending::default(),
            events: VecDeque::new(),
            timing: Timing::default(),
            requests: Requests::default(),
            stats: ReaderStats::default(),
        }
    }

    /// Acknowledges a window, in any order; the bytes leave in the order of the windows. After an error, and
    /// after the peer's end, only with [`settle_after_error`](ReaderConfig::settle_after_error).
    ///
    /// # Errors
    /// `closed` after the end of the connection, `unknown_window` for a window that is not waiting
    /// for it.
    pub fn ack(&mut self, now: Instant, window: u64) -> Result<(), UsageError> {
        self.timing.touch(now);
        self.is_taking()?;
        if self.pending.acknowledge(window) {
            return Ok(());
        }
        Err(UNKNOWN_WINDOW)
    }

    fn is_taking(&self) -> Result<(), UsageError> {
        let is_taking = match self.state {
            State::Open | State::Stopping | State::Settling => true,
            State::Failed(_) => self.config.settle_after_error,
            State::Draining | State::Closed => false,
        };
        if is_taking && !self.requests.hung_up {
            return Ok(());
        }
        Err(UsageError::new(
            "closed",
            "the connection has ended; the sender sends again",
        ))
    }

    /// Marks the window as stored, though it may not be acknowledged yet: its bytes are no longer
    /// held.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn landed(&mut self, now: Instant, window: u64) -> Result<(), UsageError> {
        self.timing.touch(now);
        self.is_taking()?;
        if self.pending.landed(window) {
            return Ok(());
        }
        Err(UNKNOWN_WINDOW)
    }

    /// Takes no more input; ends the connection when every complete window is acknowledged.
    pub fn stop(&mut self, now: Instant) {
        self.timing.touch(now);
        if self.state == State::Open {
            self.drop_unfinished();
            self.state = State::Stopping;
            self.drain_if_settled();
        }
    }

    /// As [`stop`](Self::stop), once the begun window is complete: its writer loses nothing.
    pub fn retire(&mut self, now: Instant) {
        self.timing.touch(now);
        self.requests.retiring = true;
        self.stop_between_windows(now);
    }

    fn stop_between_windows(&mut self, now: Instant) -> bool {
        let is_between = self.envelopes.current.is_none() && !self.is_inside_window();
        let stops = self.requests.retiring && is_between && self.state == State::Open;
        if stops {
            self.stop(now);
        }
        stops
    }

    /// Windows that were handed on and that the application has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.pending.unacknowledged()
    }

    /// Whether windows had not been acknowledged when the peer's end came.
    pub fn owed_at_end(&self) -> bool {
        self.pending.was_owed_at_end()
    }

    /// Counters since the connection began.
    pub fn stats(&self) -> ReaderStats {
        self.stats
    }

    fn take(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, Kind> {
        let mut budget = Budget {
            inflated: INFLATED_PER_CALL,
        };
        loop {
            if self.stop_between_windows(now) {
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            let room = self.config.limits.max_unacked_windows.max(1);
            if self.pending.len() >= room || self.events.len() >= EVENTS_PER_CALL {
                return Ok(Need::Room);
            }
            if budget.inflated == 0 {
                return Ok(Need::Again);
            }
            if let Some(envelope) = self.envelopes.current.take() {
                if let Err(kind) = self.work(now, envelope, &mut budget) {
                    self.set_aside(now, kind)?;
                }
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
                    budget.inflated = budget.inflated.saturating_sub(WINDOW_WORK);
                    self.announce(version, size)?;
                    input.advance(HEADER);
                    self.pass(HEADER);
                    self.aside.announced(self.input.offset);
                }
                Stop::Envelope { version, len } => self.begin_envelope(version, len, input),
            }
        }
    }

    /// Walks over the frames in `input` to the next one that is more than an event of the open
    /// window, and takes the events' bytes.
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
            if version == Version::V1 && !self.config.v1 {
                return Err(Kind::V1NeedsDurableAck);
            }
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

    /// Takes one event into the window. Returns whether that completes it.
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
            self.config.limits.max_window_bytes,
        );
        if value <= limit {
            return Ok(());
        }
        Err(Kind::WindowBytesTooLarge(LimitHit {
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
        self.aside.forget();
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
            fault: None,
        });
        Ok(())
    }

    /// Hands the filled window on.
    fn complete(&mut self, now: Instant) {
        let version = self.input.peer.unwrap_or(Version::V2);
        self.partial.settle();
        let partial = std::mem::take(&mut self.partial);
        self.aside.handed_on(self.turn, &partial);
        self.stats.gaps = self.stats.gaps.saturating_add(partial.gaps);
        let id = self.next_window(
            now,
            Waiting {
                id: None,
                version,
                sequence: partial.last_sequence,
                records: partial.records,
                charge: partial.charge,
                acknowledged: false,
                fault: None,
            },
        );
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

    /// Gives the open window, which is full, its number and its place in the queue.
    fn next_window(&mut self, now: Instant, waiting: Waiting) -> u64 {
        self.turn = match self.turn {
            Turn::Open {
                version: Version::V1,
                size,
                ..
            } => Turn::Open {
                version: Version::V1,
                size,
                rearmed: true,
            },
            Turn::Open { .. } => Turn::Shut,
            shut => shut,
        };
        let id = self.stats.windows.saturating_add(1);
        self.stats.windows = id;
        self.stats.events = self.stats.events.saturating_add(waiting.records.into());
        if waiting.version == Version::V2 && !self.pending.has_v2() {
            self.timing.pending(now);
        }
        self.pending.push(Waiting {
            id: Some(id),
            ..waiting
        });
        id
    }

    fn pass(&mut self, len: usize) {
        self.input.offset = self.input.offset.saturating_add(wide(len));
    }
}

impl Budget {
    fn spend(&mut self, inflated: usize) {
        self.inflated = self.inflated.saturating_sub(inflated);
    }
}

/// A window's announcement takes as much work as inflating so many bytes, or more.
const WINDOW_WORK: usize = 256;

const UNKNOWN_WINDOW: UsageError = UsageError::new(
    "unknown_window",
    "no such window waits for an acknowledgement",
);
