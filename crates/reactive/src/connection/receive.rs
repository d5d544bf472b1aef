//! The messages of the peer.
//!
//! A hello that is missing, double or of the other role is a violation (R-RS-9), as is another version (REQ-RS-6). The
//! extensions that both ends support are active, also if a list repeats some or names unknown ones (R-RS-11). A goodbye is
//! accepted in place of a hello (R-RS-V1); it answers this end's, or is answered with one without a reason (R-RS-7,
//! R-RS-V5).

use std::sync::Arc;

use ackline_core::Payload;
use bytes::Buf as _;

use super::{
    Block, Bytes, BytesMut, Connection, EVENTS_PER_CALL, Event, Kind, Life, Message, Need,
    OWED_BYTES, ProtocolError, Role, Stop, VERSION, decode, type_of, types,
};
use crate::error::Subject;

/// Elements up to this many bytes are copied: a larger one keeps the buffer in which it came.
const COPIED_BYTES: usize = 16 << 10;

impl Connection {
    pub(super) fn take_input(&mut self, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        for _ in 0..EVENTS_PER_CALL {
            if let Some(error) = &self.state.error {
                return Err(error.clone());
            }
            if self.state.life == Life::Ended {
                self.count(input.len());
                input.clear();
                return Ok(Need::Input { at_least: 1 });
            }
            let is_idle = self.state.life == Life::Idle;
            if is_idle || self.events.is_full() || self.outgoing.owed >= OWED_BYTES {
                return Ok(Need::Room);
            }
            match self.take_message(input) {
                Ok(()) => self.messages = self.messages.saturating_add(1),
                Err(Stop::More(at_least)) => return Ok(Need::Input { at_least }),
                Err(Stop::Wrong(kind)) => return Err(self.fail(kind)),
            }
        }
        Ok(Need::Again)
    }

    fn count(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.offset = self.offset.saturating_add(bytes);
    }

    fn take_message(&mut self, input: &mut BytesMut) -> Result<(), Stop> {
        if !self.state.has_hello {
            self.check_first(type_of(input)?)?;
        }
        let (message, len) = decode(input, &self.config.limits, &self.known())?;
        let left = input.len().saturating_sub(len);
        let handled = self.handle(message, Frame { input, len });
        input.advance(input.len().saturating_sub(left));
        handled?;
        // An error stands at the message that it is about.
        self.count(len);
        Ok(())
    }

    /// Before the peer's hello the type alone decides (R-RS-V6).
    fn check_first(&self, message_type: u64) -> Result<(), Kind> {
        let (expected, other) = match self.role {
            Role::Client => (types::SERVER_HELLO, types::CLIENT_HELLO),
            Role::Server => (types::CLIENT_HELLO, types::SERVER_HELLO),
        };
        match message_type {
            types::GOODBYE => Ok(()),
            found if found == expected => Ok(()),
            found if found == other => Err(Kind::UnexpectedHello {
                reason: "it is the hello of this end's role",
            }),
            message_type => Err(Kind::HelloExpected { message_type }),
        }
    }

    fn handle(&mut self, message: Message, frame: Frame<'_>) -> Result<(), Kind> {
        match message {
            Message::Hello {
                version,
                extensions,
                ..
            } => self.hello(version, &extensions)?,
            Message::Goodbye { reason } => self.peer_goodbye(&reason),
            // After this end's goodbye only the sizes of elements matter (R-RS-V11), and what the peer wants no more of.
            Message::Subscribed {
                subscriber,
                element_size,
            } if self.state.has_goodbye => {
                let _ = self.subscriptions.subscribed(subscriber, element_size);
            }
            Message::Cancel { subscriber } if self.state.has_goodbye => {
                self.publications.cancel(subscriber);
            }
            _ if self.state.has_goodbye => {}
            Message::Subscribed {
                subscriber,
                element_size,
            } => self.subscribed(subscriber, element_size)?,
            Message::Subscribe {
                publisher,
                subscriber,
                initial_demand,
            } => self.peer_subscribes(publisher, subscriber, initial_demand)?,
            Message::Request { subscriber, demand } => self.peer_requests(subscriber, demand),
            Message::Cancel { subscriber } => {
                if self.publications.cancel(subscriber) {
                    self.events.push(Event::Cancel { subscriber });
                }
            }
            Message::Complete { subscriber } => {
                if self.subscriptions.complete(subscriber)? {
                    self.events.push(Event::Complete { subscriber });
                }
            }
            Message::Error { subscriber, error } => {
                if self.subscriptions.error(subscriber)? {
                    let error = Arc::from(error);
                    self.events.push(Event::Error { subscriber, error });
                }
            }
            Message::Extension {
                message_type,
                fields,
            } => self.events.push(Event::Extension {
                message_type,
                fields,
            }),
            Message::Next { .. } | Message::Packed { .. } | Message::Part { .. } => {
                self.data(message, frame)?;
            }
        }
        Ok(())
    }

    fn hello(&mut self, version: u64, theirs: &[u64]) -> Result<(), Kind> {
        if self.state.has_hello && self.state.has_goodbye {
            return Ok(());
        }
        if self.state.has_hello {
            let reason = "the hellos were exchanged before";
            return Err(Kind::UnexpectedHello { reason });
        }
        if version != VERSION {
            return Err(Kind::UnsupportedVersion { version });
        }
        self.state.has_hello = true;
        let mut active = self.config.extensions.clone();
        active.retain(|own| theirs.contains(own));
        active.sort_unstable();
        active.dedup();
        self.state.active.clone_from(&active);
        if self.state.has_goodbye {
            return Ok(());
        }
        if self.role == Role::Server {
            self.say_hello();
        }
        self.events.push(Event::Connected { extensions: active });
        Ok(())
    }

    fn peer_goodbye(&mut self, reason: &str) {
        let has_said_goodbye = self.state.has_goodbye;
        self.events.push(Event::Goodbye {
            reason: reason.to_owned(),
        });
        if !has_said_goodbye {
            self.tell_ends(reason);
        }
        // One that was not sent yet answers the peer's, as if both had crossed (R-RS-7).
        let own = self.outgoing.goodbye.take();
        self.end(own.or_else(|| (!has_said_goodbye).then(String::new)));
    }

    fn subscribed(&mut self, subscriber: u64, element_size: u64) -> Result<(), Kind> {
        if self.subscriptions.subscribed(subscriber, element_size)? {
            self.events.push(Event::Subscribed {
                subscriber,
                element_size,
            });
        }
        Ok(())
    }

    fn peer_subscribes(
        &mut self,
        publisher: String,
        subscriber: u64,
        initial_demand: u64,
    ) -> Result<(), Kind> {
        if self.publications.has(subscriber) {
            // R-RS-16.
            let subject = Subject::Peer(subscriber);
            return Err(Kind::SubscriberInUse { subject });
        }
        let most = self.config.limits.max_subscriptions;
        if self.publications.len() >= most {
            self.refuse(
                subscriber,
                false,
                &format!(
                    "this end serves {most} subscriptions at once (its option max_subscriptions)"
                ),
            );
            return Ok(());
        }
        self.publications.begin(subscriber, initial_demand);
        self.events.push(Event::Subscribe {
            publisher,
            subscriber,
            initial_demand,
        });
        Ok(())
    }

    /// The peer requests elements: 0 of them ends the stream with an error (R-RS-V7), and a request that crossed the
    /// stream's end is ignored (R-RS-15).
    fn peer_requests(&mut self, subscriber: u64, demand: u64) {
        if demand == 0 {
            if let Some(is_accepted) = self.publications.refuse(subscriber) {
                self.refuse(subscriber, is_accepted, "a request of 0 elements");
                self.events.push(Event::Cancel { subscriber });
            }
        } else if self.publications.request(subscriber, demand) {
            self.events.push(Event::Request { subscriber, demand });
        }
    }

    /// Answers a subscription of the peer with an error (R-RS-17).
    fn refuse(&mut self, subscriber: u64, is_accepted: bool, error: &str) {
        if !is_accepted {
            self.outgoing.answer(&Message::Subscribed {
                subscriber,
                element_size: 0,
            });
        }
        self.outgoing.answer(&Message::Error {
            subscriber,
            error: error.to_owned(),
        });
    }

    /// An element, several, or a part of one. Those of cancelled subscriptions are dropped (R-RS-V10).
    fn data(&mut self, message: Message, frame: Frame<'_>) -> Result<(), Kind> {
        match message {
            Message::Next {
                subscriber,
                element,
            } => self.element(subscriber, element, frame)?,
            Message::Packed {
                subscriber,
                element_size,
                count,
                elements,
            } => self.packed((subscriber, element_size, count), elements, frame)?,
            Message::Part {
                subscriber,
                element,
                data,
                is_last,
            } => self.part((subscriber, element), data, is_last, frame)?,
            _ => {}
        }
        Ok(())
    }

    fn element(
        &mut self,
        subscriber: u64,
        element: std::ops::Range<usize>,
        frame: Frame<'_>,
    ) -> Result<(), Kind> {
        if self.subscriptions.take(subscriber, 1)? {
            let element = Payload::from(frame.slice(&mut self.block, element));
            self.events.push(Event::Next {
                subscriber,
                element,
            });
        }
        Ok(())
    }

    fn packed(
        &mut self,
        (subscriber, element_size, count): (u64, usize, u64),
        elements: std::ops::Range<usize>,
        frame: Frame<'_>,
    ) -> Result<(), Kind> {
        if self.subscriptions.take(subscriber, count)? && count > 0 {
            let elements = frame.slice(&mut self.block, elements);
            self.events.push(Event::Packed {
                subscriber,
                element_size,
                elements,
            });
        }
        Ok(())
    }

    fn part(
        &mut self,
        (subscriber, element): (u64, u64),
        data: std::ops::Range<usize>,
        is_last: bool,
        frame: Frame<'_>,
    ) -> Result<(), Kind> {
        let limits = &self.config.limits;
        let length = data.len();
        if !self
            .subscriptions
            .part((subscriber, element), length, is_last, limits)?
        {
            return Ok(());
        }
        let data = frame.slice(&mut self.block, data);
        if self.config.parts {
            if is_last {
                self.subscriptions.joined(subscriber, element, Bytes::new());
            }
            self.events.push(Event::Part {
                subscriber,
                element,
                data,
                is_last,
            });
        } else if is_last {
            let element = self.subscriptions.joined(subscriber, element, data);
            self.events.push(Event::Next {
                subscriber,
                element,
            });
        } else {
            let limits = &self.config.limits;
            self.subscriptions
                .keep((subscriber, element), data, limits)?;
        }
        Ok(())
    }
}

/// The bytes of a message, in front of the input.
struct Frame<'a> {
    input: &'a mut BytesMut,
    len: usize,
}

impl Frame<'_> {
    /// A part of it. A small one is copied and left in the input: to take it out would cost more than to pass it.
    fn slice(self, block: &mut Block, range: std::ops::Range<usize>) -> Bytes {
        if range.len() > COPIED_BYTES {
            return self.input.split_to(self.len).freeze().slice(range);
        }
        let bytes = self.input.get(range).unwrap_or_default();
        // It, and others of its length behind it.
        let count = self.input.len().checked_div(self.len).unwrap_or(1);
        block.copy(bytes, count.min(EVENTS_PER_CALL))
    }
}
