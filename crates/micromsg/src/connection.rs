//! One end of a connection: the handshake, the verbs, and the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::{
    Block, EVENTS_PER_CALL, Lifecycle, Need, ProtocolError, SendQueue, StallTimeouts, Timing,
    UsageError,
};
use bytes::{Bytes, BytesMut};

use crate::config::{DotnetFrames, Negotiation};
use crate::frame::{self, Head, Stop, Version};
use crate::negotiation::{self, Agreed, Lists};
use crate::parts::Parts;
use crate::text::{Extension, check_destination, check_texts, write_extensions};
use crate::{Config, Filter, Kind, Role, refusal};

mod acks;
mod commands;
mod event;
mod fragments;
mod outgoing;
mod proposal;
mod receive;
mod window;

use event::EventQueue;
pub use event::{Connected, Event, Message, Subscribe};
use fragments::Fragments;
use outgoing::Outgoing;
use proposal::Asked;
pub use proposal::Proposal;
use window::{Receiving, Sending};

pub use frame::VERSION;

/// Bytes of answers that the peer has caused and not read: from here on nothing more is read from it.
const OWED_BYTES: usize = 64 << 10;

/// Bytes of extensions that count as part of a connection, like its other fields: usual lists have fewer.
const FREE_BYTES: usize = 4 << 10;
/// Bytes of the longest .NET type that a sender keeps, to name it again only when it changes.
const KEPT_TYPE_BYTES: usize = 1 << 10;

/// One end of a connection. Both ends may send messages, at any time (REQ-MM-3), and these have numbers and windows of their
/// own in each direction (R-MM-13). Nothing is sent again by itself: an application that connects anew sends again what was
/// not acknowledged (R-MM-25).
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    timing: Timing,
    came: Came,
    agreed: Agreed,
    sending: Sending,
    receiving: Receiving,
    /// The message that comes in fragments.
    incoming: Option<Fragments>,
    names: Names,
    events: EventQueue,
    outgoing: Outgoing,
    block: Block,
}

/// The peer's bytes and frames that were taken.
#[derive(Debug, Default)]
struct Came {
    /// Bytes before the frame that is taken next.
    offset: u64,
    /// Whole messages and other frames.
    finished: u64,
}

/// Names that frames of extensions share.
#[derive(Debug, Default)]
struct Names {
    /// The .NET types that the peer and this end have named last (R-MM-32).
    dotnet: [Option<Arc<str>>; 2],
    /// Whether that of this end is a long name, which is not kept.
    is_long: bool,
    /// The extension of the peer's last frame.
    last: Option<(u8, Arc<str>)>,
}

/// The place of a connection in its life.
#[derive(Debug)]
struct State {
    role: Role,
    life: Life,
    /// The time when the handshake began, or went on last.
    since: Option<Instant>,
    error: Option<ProtocolError<Kind>>,
    /// Whether the end came from the peer's end of its direction alone: messages that came before may be acknowledged.
    is_half_open: bool,
    /// Bytes of memory behind the extensions that both ends have named.
    named_bytes: usize,
}

#[derive(Debug)]
enum Life {
    /// `connect` was not called.
    Idle,
    /// A client waits for the server's reply.
    Asked,
    /// A server waits for the client's first handshake.
    Waiting,
    /// The application has not answered the peer's handshake.
    Proposed(Box<Asked>),
    /// A server has replied to these lists with those, and waits for the final handshake.
    Replied(Box<Replied>),
    /// Frames go in both directions.
    Running,
    /// It is over.
    Ended,
}

/// A handshake that a server has replied to.
#[derive(Debug)]
struct Replied {
    asked: Asked,
    reply: Lists,
}

/// A message to send.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outbound<'a> {
    /// Its destination: ASCII, up to 255 bytes.
    pub destination: &'a str,
    /// Its properties as they go on the wire, from [`write_properties`](crate::text::write_properties).
    pub properties: &'a str,
    /// Its .NET type, if the extension `dotnet` was agreed on. One frame names it whenever it changes. `None`: that of the
    /// message before holds on; an empty one ends that.
    pub dotnet_type: Option<&'a str>,
}

impl Connection {
    /// A connection before its beginning.
    pub fn new(now: Instant, role: Role, config: Config) -> Self {
        Self {
            sending: Sending::new(config.next_send),
            receiving: Receiving::new(config.next_receive),
            config,
            state: State {
                role,
                life: Life::Idle,
                since: None,
                error: None,
                is_half_open: false,
                named_bytes: 0,
            },
            timing: Timing::new(now),
            came: Came::default(),
            agreed: Agreed::default(),
            incoming: None,
            names: Names::default(),
            events: EventQueue::default(),
            outgoing: Outgoing::default(),
            block: Block::default(),
        }
    }

    /// A connection whose handshake has ended with these extensions.
    ///
    /// # Errors
    /// Their list breaks a rule.
    pub fn established(
        now: Instant,
        role: Role,
        config: Config,
        extensions: Vec<Extension>,
    ) -> Result<Self, Kind> {
        let mut made = Self::new(now, role, config);
        made.agreed = Agreed::established(extensions)?;
        made.state.life = Life::Running;
        Ok(made)
    }

    /// Begins the connection: the client sends its handshake (REQ-MM-9), the server waits for it.
    ///
    /// # Errors
    /// `closed`: the connection is over or was begun before. `not_ascii`, `out_of_range`: the identity, or the lists are
    /// longer than 65,535 bytes.
    pub fn connect(&mut self, now: Instant) -> Result<(), UsageError> {
        if !matches!(self.state.life, Life::Idle) {
            return Err(refusal::CLOSED);
        }
        let identity = &self.config.terms.identity;
        if !identity.is_ascii() {
            return Err(refusal::NOT_ASCII);
        }
        let lists = Lists::own(&self.config.terms);
        let texts = written(&lists);
        if texts.iter().any(|list| !list.is_ascii()) {
            return Err(refusal::NOT_ASCII);
        }
        if identity.len() > 255 || texts.iter().any(|list| list.len() > 65_535) {
            return Err(refusal::HANDSHAKE_TOO_LONG);
        }
        self.state.since = Some(now);
        if self.state.role == Role::Server {
            self.state.life = Life::Waiting;
            return Ok(());
        }
        self.state.life = Life::Asked;
        self.put_handshake(VERSION, &lists);
        Ok(())
    }

    fn put_handshake(&mut self, version: Version, lists: &Lists) {
        let [required, optional] = written(lists);
        let identity = &self.config.terms.identity;
        self.outgoing.put_handshake(|out| {
            frame::put_handshake(out, version, identity, [&required, &optional]);
        });
    }

    /// Whether verbs are allowed now: all frames are, once the handshake has ended (REQ-MM-18).
    fn check(&self) -> Result<(), UsageError> {
        match self.state.life {
            Life::Running => Ok(()),
            Life::Ended => Err(refusal::CLOSED),
            _ => Err(refusal::HANDSHAKE_INCOMPLETE),
        }
    }

    /// The messages that may wait for their acknowledgement; `None` without acknowledgements, which are an extension
    /// (REQ-MM-4).
    pub(crate) fn windowed(&self) -> Option<u16> {
        self.agreed.ack().map(|(_, window)| window)
    }

    /// Sends a message. Returns its sequence number.
    ///
    /// # Errors
    /// `handshake_incomplete`, `closed`, `window_full`; `not_ascii`; `out_of_range`: a destination above 255 bytes, properties
    /// above 65,535 (R-MM-V13), or a payload of 2^32; `extension_not_negotiated`: a .NET type without `dotnet`.
    pub fn send(&mut self, message: Outbound<'_>, payload: &Bytes) -> Result<u16, UsageError> {
        self.check_send(message)?;
        self.send_checked(message, payload)
    }

    /// Sends a message that [`check_send`](Self::check_send) has just allowed.
    pub(crate) fn send_checked(
        &mut self,
        message: Outbound<'_>,
        payload: &Bytes,
    ) -> Result<u16, UsageError> {
        if payload.len() > usize::try_from(u32::MAX).unwrap_or(usize::MAX) {
            return Err(refusal::PAYLOAD_TOO_LONG);
        }
        let sequence_number = self.begin(message.dotnet_type);
        let head = Head {
            sequence_number,
            destination: message.destination,
            properties: message.properties,
        };
        let fragment = self.fragment();
        self.outgoing.message(&head, payload, fragment);
        Ok(sequence_number)
    }

    /// Sends a message whose texts are sound, whose type may be named, and which is not too long.
    pub(crate) fn send_parts(
        &mut self,
        parts: &Parts,
        dotnet_type: Option<&str>,
    ) -> Result<(), UsageError> {
        self.check_room()?;
        let sequence_number = self.begin(dotnet_type);
        let fragment = self.fragment();
        self.outgoing.parts(sequence_number, parts, fragment);
        Ok(())
    }

    /// The number of the next message, which has this type.
    fn begin(&mut self, dotnet_type: Option<&str>) -> u16 {
        self.name_type(dotnet_type);
        let window = self.windowed();
        self.sending.begin(window)
    }

    /// Whether there is a connection, with room in its window.
    fn check_room(&self) -> Result<(), UsageError> {
        self.check()?;
        if !self.sending.has_room(self.windowed()) {
            return Err(refusal::WINDOW_FULL);
        }
        Ok(())
    }

    fn fragment(&self) -> usize {
        usize::try_from(self.config.fragment_size)
            .unwrap_or(usize::MAX)
            .max(1)
    }

    /// Whether a message would be sent now.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn check_send(&self, message: Outbound<'_>) -> Result<(), UsageError> {
        self.check()?;
        check_destination(message.destination)?;
        check_texts(message.properties, message.dotnet_type)?;
        if message.dotnet_type.is_some() && self.agreed.id("dotnet").is_none() {
            return Err(refusal::EXTENSION_NOT_NEGOTIATED);
        }
        self.check_room()
    }

    /// Names the type of the next message, if it is another one than the last, or always (REQ-MM-32, R-MM-32). A long name is not kept, and
    /// so goes out again with each message.
    fn name_type(&mut self, wanted: Option<&str>) {
        let [_, own] = &mut self.names.dotnet;
        let is_needed = |wanted: &&str| {
            let is_always = self.config.dotnet_frames == DotnetFrames::Always;
            (is_always && !wanted.is_empty())
                || self.names.is_long
                || own.as_deref().unwrap_or_default() != *wanted
        };
        let Some(wanted) = wanted.filter(is_needed) else {
            return;
        };
        self.names.is_long = wanted.len() > KEPT_TYPE_BYTES;
        *own = (!self.names.is_long).then(|| wanted.into());
        if let Some(id) = self.agreed.id("dotnet") {
            self.put_extension(id, wanted.as_bytes());
        }
    }

    fn put_extension(&mut self, id: u8, payload: &[u8]) {
        self.outgoing.put(|out| {
            frame::put_extension(out, id, payload.len());
            out.extend_from_slice(payload);
        });
    }

    /// Whether the application answers the peer's proposals.
    pub(crate) fn is_manual(&self) -> bool {
        self.config.terms.negotiation == Negotiation::Manual
    }

    /// Whether the handshake agreed on an extension.
    pub fn has_extension(&self, name: &str) -> bool {
        self.agreed.id(name).is_some()
    }

    /// The extensions of the connection, in the order of their numbers.
    pub fn extensions(&self) -> &[Extension] {
        self.agreed.extensions()
    }

    /// Ends the connection with an ERROR frame, behind everything that waits.
    ///
    /// # Errors
    /// `closed`.
    pub fn fail(&mut self, message: &str) -> Result<(), UsageError> {
        if matches!(self.state.life, Life::Ended) {
            return Err(refusal::CLOSED);
        }
        self.outgoing.fail(message.to_owned());
        self.end();
        Ok(())
    }

    /// Ends the connection in good order, behind everything that waits: the protocol has no frame for it.
    ///
    /// # Errors
    /// `closed`.
    pub fn close(&mut self) -> Result<(), UsageError> {
        if matches!(self.state.life, Life::Ended) {
            return Err(refusal::CLOSED);
        }
        self.acknowledge_processed();
        self.end();
        Ok(())
    }

    /// Drops large messages that wait for the transport.
    pub(crate) fn drop_messages(&mut self) {
        self.outgoing.drop_messages();
    }

    /// Bytes that wait for the transport, without those of heads.
    pub const fn waiting_bytes(&self) -> usize {
        self.outgoing.bytes().0
    }

    /// The limits of this end.
    pub const fn limits(&self) -> &crate::Limits {
        &self.config.limits
    }

    /// The .NET type that the peer has named last.
    pub(crate) fn peer_type(&self) -> Option<&str> {
        let [theirs, _] = &self.names.dotnet;
        theirs.as_deref()
    }

    /// The violation that has ended the connection.
    pub const fn fault(&self) -> Option<&ProtocolError<Kind>> {
        self.state.error.as_ref()
    }

    /// Whether the handshake has ended and the connection has not.
    pub const fn is_running(&self) -> bool {
        matches!(self.state.life, Life::Running)
    }

    fn end(&mut self) {
        if !self.is_running() {
            self.state.named_bytes = 0;
        }
        self.state.life = Life::Ended;
        self.incoming = None;
    }

    /// The peer broke a rule: one ERROR frame with the reason (REQ-MM-26). Answers to frames before it still go out.
    fn broken(&mut self, kind: Kind) -> ProtocolError<Kind> {
        let error = ProtocolError {
            kind,
            offset: self.came.offset,
        };
        self.outgoing.drop_messages();
        self.outgoing.fail(error.kind.to_string());
        self.end();
        self.state.error = Some(error.clone());
        error
    }

    fn deadlines(&self) -> [(Option<Instant>, Due); 3] {
        let after = |since: Option<Instant>, wait: Option<Duration>| {
            let both = since.zip(wait);
            both.and_then(|(since, wait)| since.checked_add(wait))
        };
        let (config, timing) = (&self.config, &self.timing);
        let hears = timing.paused.is_none();
        let (is_running, is_shaking) = match self.state.life {
            Life::Running => (true, false),
            Life::Idle | Life::Proposed(_) | Life::Ended => (false, false),
            _ => (false, true),
        };
        let shaking = self.state.since.filter(|_| is_shaking && hears);
        let is_inside = timing.partial || self.incoming.is_some();
        let inside = (is_inside && is_running && hears).then_some(timing.last_byte);
        let processed = self.receiving.since().filter(|_| is_running);
        [
            (
                after(shaking, config.handshake_timeout),
                Due::Wrong("--handshake-timeout"),
            ),
            (
                after(inside, config.message_receive_timeout),
                Due::Wrong("--message-receive-timeout"),
            ),
            (after(processed, config.ack_timer), Due::Ack),
        ]
    }
}

/// A deadline that has passed.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// The peer was silent too long.
    Wrong(&'static str),
    /// Processed messages are acknowledged.
    Ack,
}

fn written(lists: &Lists) -> [String; 2] {
    [&lists.required, &lists.optional].map(|list| write_extensions(list))
}

impl ackline_core::Connection for Connection {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.timing.input(now, input.len());
        let need = self.take_input(input);
        self.timing.taken(input.len(), &need);
        need
    }

    fn receive_eof(&mut self, _now: Instant) -> Result<(), ProtocolError<Kind>> {
        if let Some(error) = &self.state.error {
            return Err(error.clone());
        }
        if !matches!(self.state.life, Life::Ended) {
            self.state.is_half_open = self.is_running();
            self.end();
        }
        Ok(())
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut SendQueue) {
        let fragment = self.fragment();
        self.outgoing.transmit(out, fragment);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines().into_iter().filter_map(|(at, _)| at).min()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        for (at, due) in self.deadlines() {
            match due {
                _ if at.is_none_or(|at| at > now) => {}
                Due::Wrong(option) => return Err(self.broken(Kind::Timeout { option })),
                Due::Ack => self.acknowledge_processed(),
            }
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, on: bool) {
        let before = self.timing.pause;
        self.timing.reading(now, on);
        let pause = self.timing.pause.saturating_sub(before);
        // Bytes that the peer has sent meanwhile were not read.
        self.state.since = self.state.since.and_then(|since| since.checked_add(pause));
    }

    fn lifecycle(&self) -> Lifecycle {
        match self.state.life {
            Life::Ended if self.state.error.is_some() => Lifecycle::Closed,
            Life::Ended => Lifecycle::Draining,
            _ => Lifecycle::Open,
        }
    }

    fn held_bytes(&self) -> usize {
        let (_, owed) = self.outgoing.bytes();
        let [theirs, _] = &self.names.dotnet;
        let named = theirs.as_ref().map_or(0, |name| name.len());
        let held = self.events.bytes().saturating_add(self.coming_bytes());
        let lists = self.state.named_bytes.saturating_sub(FREE_BYTES);
        let held = held.saturating_add(owed).saturating_add(named);
        held.saturating_add(lists)
    }

    fn complete_bytes(&self) -> usize {
        self.events.bytes()
    }

    fn coming_bytes(&self) -> usize {
        self.incoming.as_ref().map_or(0, Fragments::held)
    }

    fn finished(&self) -> u64 {
        self.came.finished
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts {
            send: Some(ackline_core::SEND_TIMEOUT),
            silence: None,
        }
    }

    fn detached(&mut self, _now: Instant) -> bool {
        self.end();
        self.state.is_half_open = false;
        false
    }
}
