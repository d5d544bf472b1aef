//! The frames of the peer.

use std::sync::Arc;

use ackline_core::Shared;
use bytes::Buf as _;

use super::proposal::Asked;
use super::window::Order;
use super::{
    Bytes, BytesMut, Connected, Connection, EVENTS_PER_CALL, Event, Filter, Fragments, Kind, Life,
    Lists, Message, Need, OWED_BYTES, ProtocolError, Replied, Stop, Subscribe, VERSION, Version,
    frame, negotiation,
};
use crate::Limits;
use crate::frame::Frame;
use crate::parts::{Parts, SMALL_BYTES};
use crate::text::{Command, read_command};

/// Bytes of a reason of the peer's that are kept.
const REASON_BYTES: usize = 64 << 10;

impl Connection {
    pub(super) fn take_input(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        for _ in 0..EVENTS_PER_CALL {
            if let Some(error) = &self.state.error {
                return Err(error.clone());
            }
            let (_, owed) = self.outgoing.bytes();
            match self.state.life {
                Life::Ended => {
                    self.count(input.len());
                    input.clear();
                    return Ok(Need::Input { at_least: 1 });
                }
                // Its end is noticed, but what it sends without an answer waits.
                Life::Proposed(_) if input.is_empty() => {
                    return Ok(Need::Input { at_least: 1 });
                }
                Life::Idle | Life::Proposed(_) => return Ok(Need::Room),
                _ if self.events.is_full() || owed >= OWED_BYTES => return Ok(Need::Room),
                _ => {}
            }
            match self.take_frame(input) {
                Ok(()) => {}
                Err(Stop::More(at_least)) => return Ok(Need::Input { at_least }),
                Err(Stop::Wrong(kind)) => return Err(self.broken(kind)),
            }
        }
        Ok(Need::Again)
    }

    fn count(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.came.offset = self.came.offset.saturating_add(bytes);
    }

    fn take_frame(&mut self, input: &mut BytesMut) -> Result<(), Stop> {
        let first = *input.first().ok_or(Stop::More(1))?;
        let is_running = matches!(self.state.life, Life::Running);
        if !is_running && !frame::is_error(first) {
            let len = self.take_handshake(input)?;
            input.advance(len);
            self.count(len);
            return Ok(());
        }
        let (frame, len) = frame::decode(input, &self.config.limits)?;
        let left = input.len().saturating_sub(len);
        let handled = self.handle(frame, Whole { input, len });
        input.advance(input.len().saturating_sub(left));
        handled?;
        // An error stands at the frame that it is about.
        self.count(len);
        Ok(())
    }

    /// Takes the handshake in front of the input; returns the number of its bytes. Its version is judged first (R-MM-V16).
    fn take_handshake(&mut self, input: &[u8]) -> Result<usize, Stop> {
        let version = frame::decode_version(input)?;
        self.check_version(version)?;
        let (handshake, len) = frame::decode_handshake(input)?;
        let text = |range: &std::ops::Range<usize>| input.get(range.clone()).unwrap_or_default();
        let limits = &self.config.limits;
        let lists = Lists::read(text(&handshake.required), text(&handshake.optional), limits)?;
        let identity = String::from_utf8_lossy(text(&handshake.identity)).into_owned();
        self.shake(version, identity, lists)?;
        Ok(len)
    }

    /// The lower version holds, and both ends must have its major one (REQ-MM-10, R-MM-18). A final handshake has that
    /// version or the client's own.
    fn check_version(&self, version: Version) -> Result<(), Kind> {
        let is_sound = match &self.state.life {
            Life::Replied(replied) => replied.asked.versions.contains(&version),
            _ => version.is_spoken(),
        };
        if is_sound {
            return Ok(());
        }
        Err(version.into())
    }

    fn shake(&mut self, version: Version, identity: String, lists: Lists) -> Result<(), Kind> {
        let lower = version.min(VERSION);
        let life = std::mem::replace(&mut self.state.life, Life::Running);
        if let Life::Replied(replied) = life {
            let Replied { asked, reply } = *replied;
            self.agreed = negotiation::check(&asked.lists, &reply, &lists)?;
            let [_, version] = asked.versions;
            self.connected(version, asked.identity);
            return Ok(());
        }
        self.propose(Asked {
            lists,
            versions: [version, lower],
            identity,
        })
    }

    pub(super) fn connected(&mut self, version: Version, identity: String) {
        self.state.named_bytes = negotiation::held_bytes(self.agreed.extensions());
        let extensions = self.agreed.names().map(str::to_owned).collect();
        self.events.push(Event::Connected(Connected {
            version,
            identity,
            extensions,
        }));
    }

    fn handle(&mut self, frame: Frame, whole: Whole<'_>) -> Result<(), Kind> {
        if !matches!(&frame, Frame::Message(message) if message.is_continued) {
            self.came.finished = self.came.finished.saturating_add(1);
        }
        match frame {
            Frame::Message(message) => self.message(&message, whole),
            Frame::Command { payload } => {
                let text = whole.get(&payload);
                negotiation::check_names(text, &self.config.limits)?;
                let command = read_command(text)?;
                self.commanded(command, text)
            }
            Frame::Extension { id, payload } => self.extension(id, payload, whole),
            Frame::Error { message } => {
                let reason = whole.get(&message);
                let reason = reason.get(..REASON_BYTES).unwrap_or(reason);
                let message = String::from_utf8_lossy(reason).into_owned();
                self.events.push(Event::Error { message });
                self.end();
                Ok(())
            }
        }
    }

    /// A message, or a fragment of one. It has the type that was in force when it began (R-MM-V15). What a destination means
    /// is left to extensions and applications (REQ-MM-23).
    fn message(&mut self, message: &frame::Message, whole: Whole<'_>) -> Result<(), Kind> {
        let number = message.sequence_number;
        let head = message.destination.start..message.properties.end;
        // It has one byte on the wire.
        let destination = u8::try_from(message.destination.len()).unwrap_or(u8::MAX);
        let order = match &self.incoming {
            Some(incoming) => {
                incoming.check(number, (whole.get(&head), destination))?;
                incoming.order
            }
            None => self.receiving.judge(number, self.windowed())?,
        };
        let before = self.incoming.as_ref().map_or(0, Fragments::bytes);
        let bytes = before.saturating_add(message.payload.len());
        let most = self.config.limits.max_message_bytes;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Limits::length(bytes, most, "--max-message-bytes")?;
        if !message.is_continued && self.incoming.is_none() {
            if order != Order::New {
                self.repeated(order);
                return Ok(());
            }
            let parts = self.parts(message, destination, whole);
            let [dotnet_type, _] = self.names.dotnet.clone();
            self.deliver(Message {
                sequence_number: number,
                parts,
                dotnet_type,
            });
            return Ok(());
        }
        let len = whole.len;
        let [head, payload] = whole.two_parts(&mut self.block, [head, message.payload.clone()]);
        let [dotnet_type, _] = &self.names.dotnet;
        let incoming = self.incoming.get_or_insert_with(|| {
            // It may stay for long, and must not hold more than itself.
            let head = Bytes::copy_from_slice(&head);
            Fragments::new((number, order), (head, destination), dotnet_type.clone())
        });
        incoming.push(payload, len);
        if message.is_continued {
            let held = u64::try_from(incoming.held()).unwrap_or(u64::MAX);
            Limits::length(held, self.config.most_incomplete, "--memory")?;
        } else if let Some(incoming) = self.incoming.take() {
            self.joined(incoming);
        }
        Ok(())
    }

    /// The texts and the payload of a message in one frame.
    fn parts(&mut self, message: &frame::Message, destination: u8, whole: Whole<'_>) -> Parts {
        let [texts, payload] = [
            message.destination.start..message.properties.end,
            message.payload.clone(),
        ];
        if !message.has_shortest_length() {
            let [head, payload] = whole.two_parts(&mut self.block, [texts, payload]);
            return Parts::apart(head, destination, payload.into());
        }
        let frame = whole.part(&mut self.block, texts.start..payload.end);
        // They have two bytes on the wire.
        let properties = u16::try_from(message.properties.len()).unwrap_or(u16::MAX);
        Parts::whole(frame, destination, properties)
    }

    /// The last fragment of a message has come.
    fn joined(&mut self, incoming: Fragments) {
        if incoming.order != Order::New {
            self.repeated(incoming.order);
            return;
        }
        self.deliver(Message {
            sequence_number: incoming.sequence_number,
            dotnet_type: incoming.dotnet_type.clone(),
            parts: incoming.joined(),
        });
    }

    fn deliver(&mut self, message: Message) {
        self.receiving
            .deliver(message.sequence_number, self.windowed());
        self.events.push(Event::Message(message));
    }

    /// A message has come again: if it was acknowledged, the last acknowledgement is sent again (R-MM-V4).
    fn repeated(&mut self, order: Order) {
        if let (Order::Repeat(true), Some((id, _))) = (order, self.agreed.ack()) {
            self.outgoing.ack_again(id, self.receiving.last());
        }
    }

    /// A command: subscriptions are understood where `pub-sub` was agreed on (R-MM-V14).
    fn commanded(&mut self, command: Command, text: &[u8]) -> Result<(), Kind> {
        let is_subscription = matches!(command.name.as_str(), "subscribe" | "unsubscribe");
        if !is_subscription || !self.has_extension("pub-sub") {
            self.events.push(Event::Command(command));
            return Ok(());
        }
        let value = |wanted: &str| {
            let mut found = command.properties.iter();
            let found = found.find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let Some(topic) = value("topic") else {
            return Err(Kind::InvalidCommand {
                text: String::from_utf8_lossy(text).chars().take(100).collect(),
                reason: "it names no topic",
            });
        };
        if command.name == "unsubscribe" {
            self.events.push(Event::Unsubscribe { topic });
            return Ok(());
        }
        let filter_text = value("filter");
        if let Some(text) = &filter_text {
            negotiation::check_names(text.as_bytes(), &self.config.limits)?;
        }
        let filter = filter_text
            .as_deref()
            .map(|text| Filter::read(text.as_bytes()));
        let filter = filter.transpose()?.map(Arc::new);
        self.events.push(Event::Subscribe(Subscribe {
            topic,
            filter,
            filter_text,
        }));
        Ok(())
    }

    fn extension(
        &mut self,
        id: u8,
        payload: std::ops::Range<usize>,
        whole: Whole<'_>,
    ) -> Result<(), Kind> {
        let count = self.agreed.len();
        let Some(name) = self.agreed.name(id) else {
            return Err(Kind::UnknownExtension { id, count });
        };
        let is_ack = self.agreed.ack().is_some_and(|(ack, _)| ack == id);
        match name {
            "ack" | "batch-ack" => self.acknowledged(is_ack, whole.get(&payload)),
            "dotnet" => {
                let name = whole.get(&payload);
                if !name.is_ascii() {
                    return Err(Kind::NotAscii {
                        field: "a .NET type",
                    });
                }
                let [theirs, _] = &mut self.names.dotnet;
                // An empty name is none.
                *theirs = (!name.is_empty()).then(|| String::from_utf8_lossy(name).into());
                Ok(())
            }
            name => {
                let name = match &self.names.last {
                    Some((last, name)) if *last == id => Arc::clone(name),
                    _ => Arc::from(name),
                };
                self.names.last = Some((id, Arc::clone(&name)));
                let (payload, _) = whole.part(&mut self.block, payload);
                self.events.push(Event::Extension { name, payload });
                Ok(())
            }
        }
    }

    /// The peer acknowledges messages (R-MM-V6).
    fn acknowledged(&mut self, is_ack: bool, payload: &[u8]) -> Result<(), Kind> {
        let number = payload.try_into().map(u16::from_be_bytes);
        let reason = match number {
            Ok(through) if is_ack => {
                if self.sending.acknowledged(through)? {
                    self.events.push(Event::Acknowledged { through });
                }
                return Ok(());
            }
            Ok(_) => "it comes by the extension that is not used",
            Err(_) => "it has not two bytes",
        };
        Err(Kind::InvalidAcknowledgement { reason })
    }
}

/// The bytes of a frame, in front of the input.
struct Whole<'a> {
    input: &'a mut BytesMut,
    len: usize,
}

impl Whole<'_> {
    fn get(&self, range: &std::ops::Range<usize>) -> &[u8] {
        self.input.get(range.clone()).unwrap_or_default()
    }

    /// A part of it. Of a small frame it is copied, and the frame left in the input: to take that out would cost more than
    /// to pass it.
    fn part(
        self,
        block: &mut super::Block,
        range: std::ops::Range<usize>,
    ) -> (Bytes, Option<Shared>) {
        if self.len > SMALL_BYTES {
            return (self.input.split_to(self.len).freeze().slice(range), None);
        }
        // It, and others of its length behind it.
        let count = self.input.len().checked_div(self.len).unwrap_or(1);
        block.copy_shared(self.get(&range), count.min(EVENTS_PER_CALL))
    }

    /// Two parts of it, as [`part`](Self::part).
    fn two_parts(
        self,
        block: &mut super::Block,
        [first, last]: [std::ops::Range<usize>; 2],
    ) -> [Bytes; 2] {
        let begin = first.start;
        let (both, _) = self.part(block, begin..last.end);
        [first, last].map(|range| {
            let [from, to] = [range.start, range.end].map(|at| at.saturating_sub(begin));
            both.slice(from..to)
        })
    }
}
