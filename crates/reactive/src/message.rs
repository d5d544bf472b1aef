//! Messages: their types, how each is read from the front of the input, and how each is written.
//!
//! A message is delimited by its type (REQ-RS-3) and, for elements, by the size of the stream's elements (REQ-RS-23,
//! REQ-RS-25): the reader asks [`Streams`] for it, and refuses elements of a stream that it does not know (R-RS-14,
//! R-RS-V14). Our numbers of the types are those of R-RS-2, ids and demands are varints (R-RS-3), texts and lists stand
//! behind their lengths (REQ-RS-2, R-RS-4, R-RS-5), and every field is on the wire, also with its default value
//! (R-RS-6). No message has a boolean (R-RS-28).

use std::ops::Range;

use bytes::Bytes;

use crate::error::Subject;
use crate::varint::{Cursor, Stop, put_varint};
use crate::{Kind, Limits, UNBOUNDED};

mod inspect;

pub use inspect::Inspector;
pub(crate) use inspect::{apart, field as shown};

/// The types of messages.
pub mod types {
    /// `clientHello`.
    pub const CLIENT_HELLO: u64 = 1;
    /// `serverHello`.
    pub const SERVER_HELLO: u64 = 2;
    /// `subscribe`.
    pub const SUBSCRIBE: u64 = 3;
    /// `request`.
    pub const REQUEST: u64 = 4;
    /// `cancel`.
    pub const CANCEL: u64 = 5;
    /// `subscribed`.
    pub const SUBSCRIBED: u64 = 6;
    /// `onNext`.
    pub const ON_NEXT: u64 = 7;
    /// `onComplete`.
    pub const ON_COMPLETE: u64 = 8;
    /// `onError`.
    pub const ON_ERROR: u64 = 9;
    /// `onNextPacked`.
    pub const ON_NEXT_PACKED: u64 = 10;
    /// `onNextPart`.
    pub const ON_NEXT_PART: u64 = 11;
    /// `onNextLastPart`.
    pub const ON_NEXT_LAST_PART: u64 = 12;
    /// `goodbye`.
    pub const GOODBYE: u64 = 13;
    /// The first type that an extension may use.
    pub const FIRST_OF_EXTENSIONS: u64 = 64;
}

/// A message. Elements stand where they lie in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `clientHello` or `serverHello` (REQ-RS-4).
    Hello {
        /// Whether it is the client's.
        is_client: bool,
        /// The version.
        version: u64,
        /// The extensions that the sender supports.
        extensions: Vec<u64>,
    },
    /// `subscribe` (REQ-RS-12). The name means what the publisher's side makes of it (REQ-RS-22).
    Subscribe {
        /// The publisher's name.
        publisher: String,
        /// The id, chosen by the subscriber.
        subscriber: u64,
        /// The demand that it begins with.
        initial_demand: u64,
    },
    /// `request` (REQ-RS-13).
    Request {
        /// The subscription.
        subscriber: u64,
        /// The elements that may come beside those requested before.
        demand: u64,
    },
    /// `cancel` (REQ-RS-14).
    Cancel {
        /// The subscription.
        subscriber: u64,
    },
    /// `subscribed` (REQ-RS-15).
    Subscribed {
        /// The subscription.
        subscriber: u64,
        /// The size of every element, or 0.
        element_size: u64,
    },
    /// `onNext` (REQ-RS-16).
    Next {
        /// The subscription.
        subscriber: u64,
        /// The element.
        element: Range<usize>,
    },
    /// `onNextPacked` (REQ-RS-25).
    Packed {
        /// The subscription.
        subscriber: u64,
        /// The size of each element.
        element_size: usize,
        /// The number of elements.
        count: u64,
        /// All of them.
        elements: Range<usize>,
    },
    /// `onNextPart` or `onNextLastPart` (REQ-RS-26).
    Part {
        /// The subscription.
        subscriber: u64,
        /// The number of the element, chosen by the publisher.
        element: u64,
        /// A part of the element.
        data: Range<usize>,
        /// Whether it is the last one.
        is_last: bool,
    },
    /// `onComplete` (REQ-RS-17).
    Complete {
        /// The subscription.
        subscriber: u64,
    },
    /// `onError` (REQ-RS-18).
    Error {
        /// The subscription.
        subscriber: u64,
        /// The error's text.
        error: String,
    },
    /// `goodbye`.
    Goodbye {
        /// The reason.
        reason: String,
    },
    /// A message of an extension (R-RS-12).
    Extension {
        /// Its type.
        message_type: u64,
        /// Its fields.
        fields: Vec<Field>,
    },
}

/// The shape of a field of an extension's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A varint.
    Varint,
    /// A text behind its length.
    String,
    /// Bytes behind their length.
    Bytes,
}

/// A field of an extension's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A varint.
    Varint(u64),
    /// A text.
    String(String),
    /// Bytes.
    Bytes(Bytes),
}

impl Field {
    /// Its shape.
    pub const fn kind(&self) -> FieldKind {
        match self {
            Self::Varint(_) => FieldKind::Varint,
            Self::String(_) => FieldKind::String,
            Self::Bytes(_) => FieldKind::Bytes,
        }
    }
}

/// A message that an extension defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionMessage {
    /// Its type, 64 at least.
    pub message_type: u64,
    /// The extension.
    pub extension: u64,
    /// Its fields, in order.
    pub fields: Vec<FieldKind>,
}

/// The knowledge that the reader of messages needs beside them.
pub trait Streams {
    /// The size of the elements of a subscription that was accepted: 0 where each has a length of its own. `None` if there
    /// is no such subscription.
    fn element_size(&self, subscriber: u64) -> Option<u64>;

    /// The fields of a message of an active extension; `None` if there is no such message.
    fn extension(&self, message_type: u64) -> Option<&[FieldKind]>;
}

/// Reads the message at the front of `input`, and its length.
pub(crate) fn decode(
    input: &[u8],
    limits: &Limits,
    streams: &impl Streams,
) -> Result<(Message, usize), Stop> {
    let mut reader = Decoding {
        cursor: Cursor::new(input),
        limits,
    };
    let message_type = reader.cursor.varint()?;
    let message = reader.message(message_type, streams)?;
    Ok((message, reader.cursor.at()))
}

/// Reads the type of the message at the front of `input`.
pub(crate) fn type_of(input: &[u8]) -> Result<u64, Stop> {
    Cursor::new(input).varint()
}

struct Decoding<'a> {
    cursor: Cursor<'a>,
    limits: &'a Limits,
}

impl Decoding<'_> {
    fn message(&mut self, message_type: u64, streams: &impl Streams) -> Result<Message, Stop> {
        Ok(match message_type {
            types::CLIENT_HELLO | types::SERVER_HELLO => {
                self.hello(message_type == types::CLIENT_HELLO)?
            }
            types::SUBSCRIBE => Message::Subscribe {
                publisher: self.string("the name of a publisher")?,
                subscriber: self.cursor.varint()?,
                initial_demand: self.demand()?,
            },
            types::REQUEST => Message::Request {
                subscriber: self.cursor.varint()?,
                demand: self.demand()?,
            },
            types::CANCEL => Message::Cancel {
                subscriber: self.cursor.varint()?,
            },
            types::SUBSCRIBED => self.subscribed()?,
            types::ON_NEXT => self.next(streams)?,
            types::ON_COMPLETE => Message::Complete {
                subscriber: self.cursor.varint()?,
            },
            types::ON_ERROR => Message::Error {
                subscriber: self.cursor.varint()?,
                error: self.string("the text of an error")?,
            },
            types::ON_NEXT_PACKED => self.packed(streams)?,
            types::ON_NEXT_PART | types::ON_NEXT_LAST_PART => {
                self.part(message_type == types::ON_NEXT_LAST_PART, streams)?
            }
            types::GOODBYE => Message::Goodbye {
                reason: self.string("the reason of a goodbye")?,
            },
            _ => self.extension(message_type, streams)?,
        })
    }

    fn hello(&mut self, is_client: bool) -> Result<Message, Stop> {
        let version = self.cursor.varint()?;
        let (count, limit) = (self.cursor.varint()?, self.limits.max_extensions);
        let count = Limits::length(count, limit, "--max-extensions")?;
        // A vector grows as its items come: the count alone allocates nothing.
        let mut extensions = Vec::new();
        for _ in 0..count {
            extensions.push(self.cursor.varint()?);
        }
        Ok(Message::Hello {
            is_client,
            version,
            extensions,
        })
    }

    fn subscribed(&mut self) -> Result<Message, Stop> {
        let subscriber = self.cursor.varint()?;
        let element_size = self.cursor.varint()?;
        self.limits.element(element_size)?;
        Ok(Message::Subscribed {
            subscriber,
            element_size,
        })
    }

    /// The subscription of an element, and the size of its elements.
    fn stream(&mut self, streams: &impl Streams) -> Result<(u64, u64), Stop> {
        let subscriber = self.cursor.varint()?;
        let subject = Subject::Own(subscriber);
        let size = streams.element_size(subscriber);
        let size = size.ok_or(Kind::UnknownSubscriber { subject })?;
        Ok((subscriber, size))
    }

    fn next(&mut self, streams: &impl Streams) -> Result<Message, Stop> {
        let (subscriber, size) = self.stream(streams)?;
        let element = match size {
            0 => self.data()?,
            // The size was within the limit when the stream was accepted.
            size => self.fixed(size)?,
        };
        Ok(Message::Next {
            subscriber,
            element,
        })
    }

    fn packed(&mut self, streams: &impl Streams) -> Result<Message, Stop> {
        let (subscriber, size) = self.stream(streams)?;
        if size == 0 {
            let subject = Subject::Own(subscriber);
            return Err(Kind::PackedWithoutElementSize { subject }.into());
        }
        let count = self.cursor.varint()?;
        let elements = self.fixed(count.saturating_mul(size))?;
        Ok(Message::Packed {
            subscriber,
            element_size: usize::try_from(size).unwrap_or(usize::MAX),
            count,
            elements,
        })
    }

    fn part(&mut self, is_last: bool, streams: &impl Streams) -> Result<Message, Stop> {
        let (subscriber, _) = self.stream(streams)?;
        Ok(Message::Part {
            subscriber,
            element: self.cursor.varint()?,
            data: self.data()?,
            is_last,
        })
    }

    fn extension(&mut self, message_type: u64, streams: &impl Streams) -> Result<Message, Stop> {
        let kinds = streams.extension(message_type);
        let kinds = kinds.ok_or(Kind::UnknownMessageType { message_type })?;
        // Nothing is copied before the message is whole.
        let mut read = Vec::with_capacity(kinds.len());
        for kind in kinds {
            read.push(match kind {
                FieldKind::Varint => (self.cursor.varint()?, 0..0),
                FieldKind::String => (0, self.text_range()?),
                FieldKind::Bytes => (0, self.data()?),
            });
        }
        let mut fields = Vec::with_capacity(kinds.len());
        for (kind, (number, range)) in kinds.iter().zip(read) {
            fields.push(match kind {
                FieldKind::Varint => Field::Varint(number),
                FieldKind::String => Field::String(self.text(range, "a text of an extension")?),
                FieldKind::Bytes => Field::Bytes(Bytes::copy_from_slice(self.cursor.bytes(range))),
            });
        }
        Ok(Message::Extension {
            message_type,
            fields,
        })
    }

    /// Bytes behind their length.
    fn data(&mut self) -> Result<Range<usize>, Stop> {
        let length = self.cursor.varint()?;
        self.fixed(length)
    }

    /// So many bytes of elements.
    fn fixed(&mut self, length: u64) -> Result<Range<usize>, Stop> {
        let length = self.limits.element(length)?;
        self.cursor.take(length)
    }

    fn string(&mut self, field: &'static str) -> Result<String, Stop> {
        let range = self.text_range()?;
        self.text(range, field)
    }

    fn text_range(&mut self) -> Result<Range<usize>, Stop> {
        let length = self.cursor.varint()?;
        let length = self.limits.string(length)?;
        self.cursor.take(length)
    }

    fn text(&self, range: Range<usize>, field: &'static str) -> Result<String, Stop> {
        let text = std::str::from_utf8(self.cursor.bytes(range));
        let text = text.map_err(|_| Kind::InvalidUtf8 { field })?;
        Ok(text.to_owned())
    }

    fn demand(&mut self) -> Result<u64, Stop> {
        match self.cursor.varint()? {
            demand if demand > UNBOUNDED => Err(Kind::LongOverflow { demand }.into()),
            demand => Ok(demand),
        }
    }
}

/// Appends a text or bytes behind their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

/// Appends a message type and its first numbers.
pub(crate) fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        put_varint(out, *number);
    }
}

/// Appends a message; of one with elements, only the numbers before them.
pub(crate) fn put(out: &mut Vec<u8>, message: &Message) {
    put_numbers(out, &[type_number(message)]);
    match message {
        Message::Hello {
            version,
            extensions,
            ..
        } => {
            let count = u64::try_from(extensions.len()).unwrap_or(u64::MAX);
            put_numbers(out, &[*version, count]);
            put_numbers(out, extensions);
        }
        Message::Subscribe {
            publisher,
            subscriber,
            initial_demand,
        } => {
            put_bytes(out, publisher.as_bytes());
            put_numbers(out, &[*subscriber, *initial_demand]);
        }
        Message::Cancel { subscriber }
        | Message::Complete { subscriber }
        | Message::Next { subscriber, .. } => put_numbers(out, &[*subscriber]),
        Message::Request {
            subscriber,
            demand: number,
        }
        | Message::Subscribed {
            subscriber,
            element_size: number,
        }
        | Message::Packed {
            subscriber,
            count: number,
            ..
        }
        | Message::Part {
            subscriber,
            element: number,
            ..
        } => put_numbers(out, &[*subscriber, *number]),
        Message::Error { subscriber, error } => {
            put_numbers(out, &[*subscriber]);
            put_bytes(out, error.as_bytes());
        }
        Message::Goodbye { reason } => put_bytes(out, reason.as_bytes()),
        Message::Extension { fields, .. } => {
            for field in fields {
                put_field(out, field);
            }
        }
    }
}

/// The type of a message.
const fn type_number(message: &Message) -> u64 {
    match message {
        Message::Hello { is_client, .. } if *is_client => types::CLIENT_HELLO,
        Message::Hello { .. } => types::SERVER_HELLO,
        Message::Subscribe { .. } => types::SUBSCRIBE,
        Message::Request { .. } => types::REQUEST,
        Message::Cancel { .. } => types::CANCEL,
        Message::Subscribed { .. } => types::SUBSCRIBED,
        Message::Next { .. } => types::ON_NEXT,
        Message::Complete { .. } => types::ON_COMPLETE,
        Message::Error { .. } => types::ON_ERROR,
        Message::Packed { .. } => types::ON_NEXT_PACKED,
        Message::Part { is_last, .. } if *is_last => types::ON_NEXT_LAST_PART,
        Message::Part { .. } => types::ON_NEXT_PART,
        Message::Goodbye { .. } => types::GOODBYE,
        Message::Extension { message_type, .. } => *message_type,
    }
}

fn put_field(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Varint(value) => put_varint(out, *value),
        Field::String(text) => put_bytes(out, text.as_bytes()),
        Field::Bytes(bytes) => put_bytes(out, bytes),
    }
}
