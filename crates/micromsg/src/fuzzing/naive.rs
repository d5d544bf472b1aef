//! A second decoder of the peer's bytes, written from the rules alone: the model for the real one. It has all of the input
//! at once, copies everything, and takes one frame after the other.
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // a panic is a finding

mod agreement;
mod frames;
mod texts;

use agreement::Agreed;
pub(super) use agreement::Own;
pub(super) use frames::Head;
use frames::{Cursor, Frame, Stop, ascii, check_limit};
use texts::{List, Pairs};

use super::filters::Condition;
use crate::{Limits, Role};

/// An event as plain data.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Connected([u8; 2], String, Vec<String>),
    /// A message with its payload and its .NET type.
    Message(Head, Vec<u8>, Option<String>),
    Acknowledged(u16),
    Command(String, Pairs),
    Extension(String, Vec<u8>),
    Subscribe(String, Option<(String, Vec<Condition>)>),
    Unsubscribe(String),
    Error(String),
}

/// The facts about an end before its first byte.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) role: Role,
    pub(super) own: Own,
    /// The extensions, if there is no handshake.
    pub(super) table: Option<&'static str>,
    pub(super) limits: Limits,
    /// The number of the first message in each direction.
    pub(super) first: u16,
    /// Messages that it sends before the first byte, as far as the window has room.
    pub(super) messages: usize,
    /// Bytes of the input after which the application acknowledges all messages that have come.
    pub(super) acks_at: usize,
}

/// Everything that the application is told.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) told: Vec<Told>,
    /// The code of the violation that ended the connection, and the offset of its frame.
    pub(super) error: Option<(&'static str, usize)>,
    /// Messages of this end, and of the peer, that wait for their acknowledgement; nothing after a violation.
    pub(super) waiting: Option<[usize; 2]>,
}

/// Reads all of the input.
pub(super) fn read(start: Start, input: &[u8]) -> Reading {
    let acks_at = start.acks_at;
    let mut end = End::new(start);
    let (mut at, mut error) = (0, None);
    while !matches!(end.stage, Stage::Over) {
        let mut cursor = Cursor { input, at };
        let frame = end.next(&mut cursor);
        let is_behind = matches!(frame, Err(Stop::End)) || cursor.at > acks_at;
        if is_behind && !end.has_acked {
            end.unacknowledged = 0;
            end.has_acked = true;
        }
        match frame.and_then(|frame| Ok(end.take(frame)?)) {
            Ok(()) => at = cursor.at,
            Err(Stop::End) => break,
            Err(Stop::Wrong(code)) => {
                error = Some((code, at));
                break;
            }
        }
    }
    Reading {
        told: end.told,
        waiting: error
            .is_none()
            .then_some([end.sent.len(), end.unacknowledged]),
        error,
    }
}

enum Stage {
    /// A client waits for the reply.
    Asked,
    /// A server waits for the first handshake.
    Waiting,
    /// A server waits for the final handshake, after the first one with this version, identity and lists.
    Replied([u8; 2], String, [List; 2]),
    Running,
    Over,
}

/// A message of which some fragments have come.
struct Partial {
    head: Head,
    payload: Vec<u8>,
    dotnet_type: Option<String>,
    is_new: bool,
}

struct End {
    start: Start,
    stage: Stage,
    agreed: Agreed,
    /// Numbers of own messages that wait for their acknowledgement, and the number that was acknowledged last.
    sent: Vec<u16>,
    last_acked: Option<u16>,
    /// Numbers of all messages that have come.
    received: Vec<u16>,
    unacknowledged: usize,
    has_acked: bool,
    partial: Option<Partial>,
    dotnet_type: Option<String>,
    told: Vec<Told>,
}

impl End {
    fn new(start: Start) -> Self {
        let stage = match (start.table, start.role) {
            (Some(_), _) => Stage::Running,
            (None, Role::Client) => Stage::Asked,
            (None, Role::Server) => Stage::Waiting,
        };
        let agreed = start.table.map(Agreed::established).unwrap_or_default();
        let mut sent = Vec::new();
        for _ in 0..agreed.window.map_or(0, |window| window.min(start.messages)) {
            sent.push(sent.last().map_or(start.first, |last| after(*last)));
        }
        Self {
            stage,
            agreed,
            sent,
            start,
            last_acked: None,
            received: Vec::new(),
            unacknowledged: 0,
            has_acked: false,
            partial: None,
            dotnet_type: None,
            told: Vec::new(),
        }
    }

    fn next<'a>(&self, cursor: &mut Cursor<'a>) -> Result<Frame<'a>, Stop> {
        let is_running = matches!(self.stage, Stage::Running);
        if is_running || frames::is_error(&cursor.input[cursor.at..]) {
            return frames::frame(cursor, &self.start.limits);
        }
        frames::handshake(cursor, |version| match &self.stage {
            // The effective version, or that of the client's first handshake.
            Stage::Replied(first, ..) => [*first, lower(*first)].contains(&version),
            _ => lower(version)[0] == 1,
        })
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), &'static str> {
        match frame {
            Frame::Handshake(version, identity, lists) => self.shake(version, identity, &lists),
            Frame::Message(head, payload, is_continued) => {
                self.message(head, payload, is_continued)
            }
            Frame::Command(text) => self.command(&text),
            Frame::Extension(id, payload) => self.extension(id, payload),
            Frame::Error(reason) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.told.push(Told::Error(reason));
                self.stage = Stage::Over;
                Ok(())
            }
        }
    }

    fn shake(
        &mut self,
        version: [u8; 2],
        identity: String,
        texts: &[String; 2],
    ) -> Result<(), &'static str> {
        let mut lists = [Vec::new(), Vec::new()];
        for (list, text) in lists.iter_mut().zip(texts) {
            texts::check_names(text, self.start.limits.max_names)?;
            *list = texts::list(text)?;
        }
        agreement::check_counts(&lists)?;
        let own = self.start.own;
        let (version, identity) = match std::mem::replace(&mut self.stage, Stage::Running) {
            Stage::Waiting => {
                own.check(&lists)?;
                self.stage = Stage::Replied(version, identity, lists);
                return Ok(());
            }
            Stage::Replied(version, identity, first) => {
                self.agreed = own.agree(&first, &lists)?;
                (version, identity)
            }
            _ => {
                self.agreed = own.decide(&lists)?;
                (version, identity)
            }
        };
        let names = self.agreed.names.clone();
        let told = Told::Connected(lower(version), identity, names);
        self.told.push(told);
        Ok(())
    }

    fn message(&mut self, head: Head, part: &[u8], is_continued: bool) -> Result<(), &'static str> {
        let mut partial = match self.partial.take() {
            Some(partial) if partial.head != head => return Err("continued_mismatch"),
            Some(partial) => partial,
            None => Partial {
                is_new: self.is_new(head.number)?,
                head,
                payload: Vec::new(),
                dotnet_type: self.dotnet_type.clone(),
            },
        };
        partial.payload.extend(part);
        check_limit(partial.payload.len(), self.start.limits.max_message_bytes)?;
        if is_continued {
            self.partial = Some(partial);
        } else if partial.is_new {
            if self.agreed.window.is_some() {
                self.received.push(partial.head.number);
                self.unacknowledged += 1;
            }
            let told = Told::Message(partial.head, partial.payload, partial.dotnet_type);
            self.told.push(told);
        }
        Ok(())
    }

    /// Whether a message is new; otherwise it is a repeat of one of the last.
    fn is_new(&self, number: u16) -> Result<bool, &'static str> {
        let Some(window) = self.agreed.window else {
            return Ok(true);
        };
        let last = self.received.last();
        let next = last.map_or(self.start.first, |last| after(*last));
        let mut last = self.received.iter().rev().take(window);
        if number != next {
            let is_repeat = last.any(|one| *one == number);
            return if is_repeat {
                Ok(false)
            } else {
                Err("sequence_mismatch")
            };
        }
        if self.unacknowledged == window {
            return Err("window_exceeded");
        }
        Ok(true)
    }

    fn command(&mut self, text: &str) -> Result<(), &'static str> {
        let most = self.start.limits.max_names;
        texts::check_names(text, most)?;
        let (name, pairs) = texts::command(text)?;
        let is_subscription = ["subscribe", "unsubscribe"].contains(&name.as_str());
        if !is_subscription || !self.agreed.names.iter().any(|one| one == "pub-sub") {
            self.told.push(Told::Command(name, pairs));
            return Ok(());
        }
        let value = |wanted| {
            let found = pairs.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let topic = value("topic").ok_or("invalid_command")?;
        let told = if name == "unsubscribe" {
            Told::Unsubscribe(topic)
        } else if let Some(text) = value("filter") {
            texts::check_names(&text, most)?;
            let conditions = texts::filter(&text)?;
            Told::Subscribe(topic, Some((text, conditions)))
        } else {
            Told::Subscribe(topic, None)
        };
        self.told.push(told);
        Ok(())
    }

    fn extension(&mut self, id: u8, payload: &[u8]) -> Result<(), &'static str> {
        let at = usize::from(id).checked_sub(1).ok_or("unknown_extension")?;
        let name = self.agreed.names.get(at).ok_or("unknown_extension")?;
        match name.as_str() {
            "ack" | "batch-ack" if self.agreed.ack() != Some(at) || payload.len() != 2 => {
                return Err("invalid_acknowledgement");
            }
            "ack" | "batch-ack" => {
                return self.acknowledged(u16::from_be_bytes([payload[0], payload[1]]));
            }
            "dotnet" => self.dotnet_type = Some(ascii(payload)?).filter(|name| !name.is_empty()),
            _ => {
                let told = Told::Extension(name.clone(), payload.to_vec());
                self.told.push(told);
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, number: u16) -> Result<(), &'static str> {
        if let Some(at) = self.sent.iter().position(|sent| *sent == number) {
            self.sent.drain(..=at);
            self.last_acked = Some(number);
            self.told.push(Told::Acknowledged(number));
            return Ok(());
        }
        if self.last_acked == Some(number) {
            return Ok(());
        }
        Err("out_of_range")
    }
}

/// The number behind this one.
fn after(number: u16) -> u16 {
    number.checked_add(1).unwrap_or(1)
}

/// The lower one of a version and our own.
fn lower(version: [u8; 2]) -> [u8; 2] {
    version.min([1, 0])
}
