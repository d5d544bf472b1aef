//! One end of a proxy: the frames that a peer sends, whole and in their order, and those that go to it.
//!
//! A proxy has one for its client and one for the server, and passes on everything between them as it came: handshakes, so that
//! both ends agree on extensions that the proxy does not know; frames of these (REQ-MM-25), also with numbers that no extension
//! has (R-MM-31); acknowledgements; and errors. It looks at no more than a frame's kind, its length, and the numbers that
//! tell which messages are acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{
    Connection, EVENTS_PER_CALL, End, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts,
    Timing, Wakes,
};
use bytes::{Buf as _, Bytes, BytesMut};

use crate::frame::{self, Frame, Stop};
use crate::negotiation::{Agreed, Lists};
use crate::parts::SMALL_BYTES;
use crate::{Config, Error, Kind, Limits, Role, refusal};

/// The key of waits for frames of the peer, and for its end.
pub const FRAME: u64 = 1;
/// The key of waits for room.
pub const ROOM: u64 = 2;

/// Bytes of the peer's frames that wait to be passed on, from which on nothing more is read.
const MOST_BYTES: usize = 256 << 10;
/// Bytes of memory that a frame is charged besides its own.
const FRAME_BYTES: usize = size_of::<Passed>();

/// A frame or a handshake that is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Its bytes.
    pub bytes: Bytes,
    note: Note,
}

/// The part of a frame that a proxy looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    /// A handshake that decides on the extensions: the number of the one that acknowledges.
    Agreed(Option<u8>),
    /// The last frame of a message with this number.
    Message(u16),
    /// Two bytes of an extension, which may be an acknowledgement.
    Extension(u8, u16),
    /// Nothing.
    Other,
}

/// One end of a proxy.
#[derive(Debug)]
pub struct Relay {
    limits: Limits,
    timeouts: [Option<Duration>; 2],
    /// Handshakes that the peer has not sent.
    handshakes: u8,
    /// The time since which the peer owes one of them; `None`: the other end is to answer first.
    due: Option<Instant>,
    timing: Timing,
    /// Bytes that were taken, and frames.
    taken: [u64; 2],
    came: Waiting<Passed>,
    goes: Waiting<Bytes>,
    /// Bytes that may wait to be sent.
    most: usize,
    end: Ending,
    wakes: Wakes,
}

/// How far the end of a connection is.
#[derive(Debug, Default)]
struct Ending {
    fault: Option<ProtocolError<Kind>>,
    /// The ERROR frame behind everything that waits.
    error: Option<String>,
    has_eof: bool,
    is_closed: bool,
}

/// Frames, and their bytes.
#[derive(Debug)]
struct Waiting<T> {
    frames: VecDeque<T>,
    bytes: usize,
}

impl<T> Waiting<T> {
    const fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, frame: T, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.frames.push_back(frame);
    }

    fn pop(&mut self, bytes: impl FnOnce(&T) -> usize) -> Option<T> {
        let frame = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes(&frame));
        Some(frame)
    }
}

impl Passed {
    fn held(&self) -> usize {
        held(&self.bytes)
    }
}

/// Bytes of memory behind a frame.
fn held(frame: &Bytes) -> usize {
    frame.len().saturating_add(FRAME_BYTES)
}

impl Relay {
    /// An end whose peer has this role. Of `config` limits and timeouts are used; about `send_bytes` may wait to be sent.
    pub fn new(now: Instant, peer: Role, config: &Config, send_bytes: usize) -> Self {
        Self {
            limits: config.limits,
            timeouts: [config.handshake_timeout, config.message_receive_timeout],
            handshakes: match peer {
                Role::Client => 2,
                Role::Server => 1,
            },
            due: (peer == Role::Client).then_some(now),
            timing: Timing::new(now),
            taken: [0; 2],
            came: Waiting::new(),
            goes: Waiting::new(),
            most: send_bytes,
            end: Ending::default(),
            wakes: Wakes::default(),
        }
    }

    /// Takes the next frame of the peer's; `None` once it has ended its direction.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there. [`Error::Ended`].
    pub fn take(&mut self) -> Result<Option<Passed>, Error> {
        if let Some(passed) = self.came.pop(Passed::held) {
            return Ok(Some(passed));
        }
        match &self.end.fault {
            Some(fault) => Err(Error::Ended(End::Protocol(fault.clone()))),
            None if self.end.has_eof || self.end.is_closed => Ok(None),
            None => Err(Error::Blocked),
        }
    }

    /// Sends a frame to the peer, behind those that wait.
    ///
    /// # Errors
    /// [`Error::Blocked`]: no room. `closed`.
    pub fn put(&mut self, now: Instant, frame: &Bytes) -> Result<(), Error> {
        if self.end.is_closed || self.end.fault.is_some() {
            return Err(Error::Usage(refusal::CLOSED));
        }
        let waiting = self.goes.bytes;
        if waiting > 0 && waiting.saturating_add(held(frame)) > self.most {
            return Err(Error::Blocked);
        }
        self.goes.push(frame.clone(), held(frame));
        if self.handshakes > 0 {
            self.due = Some(now);
        }
        Ok(())
    }

    /// The rule that the peer broke.
    pub const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        self.end.fault.as_ref()
    }

    /// Ends the connection behind everything that waits, with an ERROR frame or in order.
    pub fn close(&mut self, error: Option<&str>) {
        if !self.end.is_closed && self.end.fault.is_none() {
            self.end.error = error.map(str::to_owned);
            self.end.is_closed = true;
            self.wake();
        }
    }

    fn wake(&mut self) {
        for key in [FRAME, ROOM] {
            self.wakes.wake(key);
        }
    }

    fn take_input(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        for _ in 0..EVENTS_PER_CALL {
            if let Some(fault) = &self.end.fault {
                return Err(fault.clone());
            }
            if self.end.is_closed {
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            if self.came.bytes >= MOST_BYTES {
                return Ok(Need::Room);
            }
            match self.next(input) {
                Ok((len, note)) => self.pass(input, len, note),
                Err(Stop::More(at_least)) => return Ok(Need::Input { at_least }),
                Err(Stop::Wrong(kind)) => return Err(self.broken(kind)),
            }
        }
        Ok(Need::Again)
    }

    /// The length of the frame in front of the input, and what is noted of it.
    fn next(&self, input: &[u8]) -> Result<(usize, Note), Stop> {
        let first = *input.first().ok_or(Stop::More(1))?;
        if self.handshakes > 0 && !frame::is_error(first) {
            return self.handshake(input);
        }
        let (frame, len) = frame::decode(input, &self.limits)?;
        let note = match frame {
            Frame::Message(message) if !message.is_continued => {
                Note::Message(message.sequence_number)
            }
            Frame::Extension { id, payload } => {
                let bytes = input.get(payload).unwrap_or_default();
                let number = bytes.try_into().map(u16::from_be_bytes);
                number.map_or(Note::Other, |number| Note::Extension(id, number))
            }
            _ => Note::Other,
        };
        Ok((len, note))
    }

    fn handshake(&self, input: &[u8]) -> Result<(usize, Note), Stop> {
        let version = frame::decode_version(input)?;
        if !version.is_spoken() {
            return Err(Kind::from(version).into());
        }
        let (handshake, len) = frame::decode_handshake(input)?;
        let text = |range| input.get(range).unwrap_or_default();
        let (required, optional) = (text(handshake.required), text(handshake.optional));
        let lists = Lists::read(required, optional, &self.limits)?;
        // That of a client's second one holds in the end.
        let all = [lists.required, lists.optional].concat();
        let agreed = Agreed::established(all);
        let ack = agreed.ok().and_then(|agreed| agreed.ack());
        Ok((len, Note::Agreed(ack.map(|(id, _)| id))))
    }

    fn pass(&mut self, input: &mut BytesMut, len: usize, note: Note) {
        if matches!(note, Note::Agreed(_)) {
            self.handshakes = self.handshakes.saturating_sub(1);
            self.due = None;
        }
        // A small frame must not keep the buffer in which it came.
        let bytes = if len > SMALL_BYTES {
            input.split_to(len).freeze()
        } else {
            let copied = Bytes::copy_from_slice(input.get(..len).unwrap_or_default());
            input.advance(len);
            copied
        };
        let [offset, frames] = &mut self.taken;
        *offset = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        *frames = frames.saturating_add(1);
        let passed = Passed { bytes, note };
        let held = passed.held();
        self.came.push(passed, held);
        self.wakes.wake(FRAME);
    }

    /// The peer broke a rule: one ERROR frame with the reason.
    fn broken(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let [offset, _] = self.taken;
        let fault = ProtocolError { kind, offset };
        self.end.error = Some(fault.kind.to_string());
        self.end.fault = Some(fault.clone());
        self.wake();
        fault
    }

    fn deadlines(&self) -> [(Option<Instant>, &'static str); 2] {
        let [handshake, inside] = self.timeouts;
        let is_over = self.end.fault.is_some() || self.end.is_closed || self.end.has_eof;
        let hears = self.timing.paused.is_none() && !is_over;
        let is_shaking = self.handshakes > 0;
        let is_inside = self.timing.partial && !is_shaking;
        let inside_since = is_inside.then_some(self.timing.last_byte);
        let after = |since: Option<Instant>, wait: Option<Duration>| {
            let both = since.zip(wait).filter(|_| hears);
            both.and_then(|(since, wait)| since.checked_add(wait))
        };
        [
            (after(self.due, handshake), "--handshake-timeout"),
            (after(inside_since, inside), "--message-receive-timeout"),
        ]
    }
}

impl Connection for Relay {
    // Everything is taken by its own verb.
    type Event = std::convert::Infallible;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.timing.input(now, input.len());
        let need = self.take_input(input);
        self.timing.taken(input.len(), &need);
        need
    }

    fn receive_eof(&mut self, _: Instant) -> Result<(), ProtocolError<Kind>> {
        self.end.has_eof = true;
        self.wake();
        self.end.fault.clone().map_or(Ok(()), Err)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut SendQueue) {
        while out.room() > 0 {
            if let Some(frame) = self.goes.pop(held) {
                out.put(frame);
                self.wakes.wake(ROOM);
                continue;
            }
            if let Some(error) = self.end.error.take() {
                out.put(frame::error(&error));
            }
            return;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines().into_iter().filter_map(|(at, _)| at).min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        for (at, option) in self.deadlines() {
            if at.is_some_and(|at| at <= now) {
                return Err(self.broken(Kind::Timeout { option }));
            }
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        let before = self.timing.pause;
        self.timing.reading(now, on);
        let pause = self.timing.pause.saturating_sub(before);
        self.due = self.due.and_then(|due| due.checked_add(pause));
    }

    fn lifecycle(&self) -> Lifecycle {
        let end = &self.end;
        if end.fault.is_some() || self.owes_answers() {
            return Lifecycle::Closed;
        }
        if end.is_closed {
            return Lifecycle::Draining;
        }
        Lifecycle::Open
    }

    fn held_bytes(&self) -> usize {
        self.came.bytes.saturating_add(self.goes.bytes)
    }

    fn complete_bytes(&self) -> usize {
        self.came.bytes
    }

    fn finished(&self) -> u64 {
        let [_, frames] = self.taken;
        frames
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts {
            send: Some(ackline_core::SEND_TIMEOUT),
            silence: None,
        }
    }

    /// After the peer's end: its messages may still be acknowledged.
    fn owes_answers(&self) -> bool {
        self.end.has_eof && !self.end.is_closed
    }

    fn hang_up(&mut self) {
        self.close(None);
    }

    fn detached(&mut self, _: Instant) -> bool {
        self.end.has_eof = true;
        self.close(None);
        self.wake();
        false
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop()
    }
}

/// Which messages of both ends of a proxy are acknowledged.
#[derive(Debug, Default)]
pub struct Books {
    /// The number of the extension that acknowledges.
    ack: Option<u8>,
    /// Of the client's and of the server's messages, the numbers of the last one that was sent, and of the last one that
    /// was acknowledged.
    numbers: [[Option<u16>; 2]; 2],
}

impl Books {
    /// Notes a frame of the client or of the server, before it is passed on.
    pub fn note(&mut self, of: Role, passed: &Passed) {
        let [own, other] = match of {
            Role::Client => [0, 1],
            Role::Server => [1, 0],
        };
        match passed.note {
            Note::Agreed(ack) if of == Role::Client => self.ack = ack,
            Note::Message(number) => self.set(own, 0, number),
            Note::Extension(id, number) if self.ack == Some(id) => self.set(other, 1, number),
            _ => {}
        }
    }

    fn set(&mut self, of: usize, which: usize, number: u16) {
        let numbers = self.numbers.get_mut(of);
        if let Some(place) = numbers.and_then(|numbers| numbers.get_mut(which)) {
            *place = Some(number);
        }
    }

    /// Whether messages of this end wait for their acknowledgement.
    pub const fn waits(&self, of: Role) -> bool {
        let [client, server] = self.numbers;
        let [sent, acknowledged] = match of {
            Role::Client => client,
            Role::Server => server,
        };
        let is_behind = match (sent, acknowledged) {
            (Some(sent), Some(acknowledged)) => sent != acknowledged,
            (sent, _) => sent.is_some(),
        };
        is_behind && self.ack.is_some()
    }
}
