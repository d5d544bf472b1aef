//! One queue: each message goes to one receiver, in order, and stays with it until that receiver has acknowledged it
//! (REQ-MM-33).
//!
//! This module decides which receiver gets which message, and the first position that is not acknowledged. It has no I/O:
//! the caller delivers the messages that are handed out, and reports acknowledgements and the room of each receiver.
//!
//! ```text
//! push ─► waiting ─► hand ─► out, at one receiver ─► ack ─► gone
//!            ▲ │               │
//!            │ └─► aside: no receiver can take it now, messages behind it go on
//!            └── its receiver has left: back in its place
//! ```
//!
//! Receivers take turns. A receiver gets its messages in the order of their positions, but for messages that came back from
//! another one, and those that its new filter admits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::Filter;
use crate::broker::Routed;
use crate::text::Properties;

/// A queue with receivers of type `R`; each message carries a tag of type `T`, such as its publisher.
#[derive(Debug)]
pub struct Queue<R, T> {
    receivers: Vec<Receiver<R>>,
    /// The receiver whose turn is next.
    turn: usize,
    /// Messages that no receiver was looked for yet.
    fresh: VecDeque<(u64, Waiting<T>)>,
    /// Messages that came before those, and that no receiver could take.
    aside: BTreeMap<u64, Waiting<T>>,
    most_aside: usize,
    look: Look,
    /// Messages at their receivers.
    out: BTreeMap<u64, Out<R, T>>,
    /// The position behind the last message that has come.
    next: u64,
    /// Bytes of all messages.
    bytes: usize,
    /// Bytes of those that are out.
    out_bytes: usize,
}

/// The messages aside that are still to be looked at, because something has changed.
#[derive(Debug)]
struct Look {
    /// The first one.
    from: u64,
    /// Also those that no filter admitted.
    at_all: bool,
}

#[derive(Debug)]
struct Receiver<R> {
    whose: R,
    filter: Option<Arc<Filter>>,
    room: Room,
}

/// The messages that a receiver can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Their number.
    pub messages: usize,
    /// Their bytes; the last one may be larger than the rest of them.
    pub bytes: usize,
}

impl Room {
    const fn is_there(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }

    const fn take(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[derive(Debug)]
struct Waiting<T> {
    message: Arc<Routed>,
    tag: T,
    /// Whether a receiver had it before.
    was_handed: bool,
    /// Whether the filter of a receiver admits it.
    is_wanted: bool,
}

#[derive(Debug)]
struct Out<R, T> {
    receiver: R,
    message: Arc<Routed>,
    tag: T,
}

/// A message for a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed<R> {
    /// The receiver.
    pub receiver: R,
    /// The message's position.
    pub position: u64,
    /// The message.
    pub message: Arc<Routed>,
    /// Whether a receiver had it before, which may have processed it.
    pub was_handed: bool,
}

/// The result of a search for a receiver.
enum Found {
    /// The receiver at this place.
    At(usize),
    /// All receivers that want it are full.
    Full,
    /// No filter admits it.
    Unwanted,
}

impl<R: Clone + Eq, T> Queue<R, T> {
    /// An empty queue. At most `most_aside` messages that no receiver can take let others pass.
    pub const fn new(most_aside: usize) -> Self {
        Self {
            receivers: Vec::new(),
            turn: 0,
            fresh: VecDeque::new(),
            aside: BTreeMap::new(),
            most_aside,
            look: Look {
                from: u64::MAX,
                at_all: false,
            },
            out: BTreeMap::new(),
            next: 0,
            bytes: 0,
            out_bytes: 0,
        }
    }

    /// Adds a receiver without room, or changes its filter. Returns whether it is a new one.
    pub fn subscribe(&mut self, whose: R, filter: Option<Arc<Filter>>) -> bool {
        self.look = Look {
            from: 0,
            at_all: true,
        };
        if let Some(one) = self.find(&whose) {
            one.filter = filter;
            return false;
        }
        self.receivers.push(Receiver {
            whose,
            filter,
            room: Room::default(),
        });
        true
    }

    /// Hands a receiver no further messages. It keeps those that it has until it has acknowledged them or
    /// [leaves](Self::remove).
    pub fn unsubscribe(&mut self, whose: &R) {
        let Some(at) = self.receivers.iter().position(|one| one.whose == *whose) else {
            return;
        };
        self.receivers.remove(at);
        if self.turn > at {
            self.turn = self.turn.saturating_sub(1);
        }
    }

    /// Removes a receiver, also one that has unsubscribed: the messages that it has not acknowledged wait again, in their
    /// places.
    pub fn remove(&mut self, whose: &R) {
        self.unsubscribe(whose);
        let its = self.out.iter().filter(|(_, out)| out.receiver == *whose);
        let its: Vec<u64> = its.map(|(position, _)| *position).collect();
        for position in its {
            if let Some(out) = self.out.remove(&position) {
                self.out_bytes = self.out_bytes.saturating_sub(out.message.bytes());
                let waiting = Waiting {
                    message: out.message,
                    tag: out.tag,
                    was_handed: true,
                    is_wanted: true,
                };
                self.aside.insert(position, waiting);
            }
        }
        self.look.from = 0;
    }

    /// Sets the room of a receiver.
    pub fn set_room(&mut self, whose: &R, room: Room) {
        if let Some(one) = self.find(whose) {
            let had_room = one.room.is_there();
            one.room = room;
            if !had_room && room.is_there() {
                self.look.from = 0;
            }
        }
    }

    /// Sets the room of every receiver.
    pub fn set_rooms(&mut self, mut room: impl FnMut(&R) -> Room) {
        for one in &mut self.receivers {
            let had_room = one.room.is_there();
            one.room = room(&one.whose);
            if !had_room && one.room.is_there() {
                self.look.from = 0;
            }
        }
    }

    fn find(&mut self, whose: &R) -> Option<&mut Receiver<R>> {
        self.receivers.iter_mut().find(|one| one.whose == *whose)
    }

    /// Adds a message. Returns whether it was added: its position must be behind all others.
    pub fn push(&mut self, position: u64, message: Arc<Routed>, tag: T) -> bool {
        if position < self.next {
            return false;
        }
        self.next = position.saturating_add(1);
        self.bytes = self.bytes.saturating_add(message.bytes());
        let waiting = Waiting {
            message,
            tag,
            was_handed: false,
            is_wanted: false,
        };
        self.fresh.push_back((position, waiting));
        true
    }

    /// The positions below this one that were not pushed are none of this queue's.
    pub fn advance(&mut self, position: u64) {
        self.next = self.next.max(position);
    }

    /// Drops the messages at the end that were not looked at yet: they can be pushed again. Returns the position of the first
    /// one.
    pub fn drop_fresh(&mut self) -> Option<u64> {
        let first = self.fresh.front()?.0;
        let dropped = std::mem::take(&mut self.fresh);
        let bytes = dropped.iter().map(|(_, waiting)| waiting.message.bytes());
        self.bytes = self
            .bytes
            .saturating_sub(bytes.fold(0, usize::saturating_add));
        self.next = first;
        Some(first)
    }

    /// Forgets all messages: those from this position on are pushed again.
    pub fn restart(&mut self, position: u64) {
        self.fresh = VecDeque::new();
        self.aside = BTreeMap::new();
        self.out = BTreeMap::new();
        (self.bytes, self.out_bytes) = (0, 0);
        self.next = position;
    }

    /// The positions of the messages that wait for a receiver.
    pub fn waiting_positions(&self) -> impl Iterator<Item = u64> {
        let fresh = self.fresh.iter().map(|(position, _)| *position);
        self.aside.keys().copied().chain(fresh)
    }

    /// Hands out the next message that a receiver can take; call it until there is none.
    pub fn hand(&mut self) -> Option<Handed<R>> {
        if !self.receivers.iter().any(|one| one.room.is_there()) {
            return None;
        }
        self.hand_aside().or_else(|| self.hand_fresh())
    }

    fn hand_aside(&mut self) -> Option<Handed<R>> {
        loop {
            let next = self.aside.range(self.look.from..).next();
            let Some((&position, waiting)) = next else {
                self.look = Look {
                    from: u64::MAX,
                    at_all: false,
                };
                return None;
            };
            self.look.from = position.saturating_add(1);
            if !waiting.is_wanted && !self.look.at_all {
                continue;
            }
            match self.receiver_of(&waiting.message) {
                Found::At(at) => {
                    let waiting = self.aside.remove(&position)?;
                    return self.give(at, position, waiting);
                }
                found => self.judge_aside(position, &found),
            }
            if !self.receivers.iter().any(|one| one.room.is_there()) {
                return None;
            }
        }
    }

    fn judge_aside(&mut self, position: u64, found: &Found) {
        if let Some(waiting) = self.aside.get_mut(&position) {
            waiting.is_wanted = matches!(found, Found::Full);
        }
    }

    fn hand_fresh(&mut self) -> Option<Handed<R>> {
        loop {
            let (_, waiting) = self.fresh.front()?;
            let found = self.receiver_of(&waiting.message);
            if !matches!(found, Found::At(_)) && self.aside.len() >= self.most_aside {
                return None;
            }
            let (position, mut waiting) = self.fresh.pop_front()?;
            if let Found::At(at) = found {
                return self.give(at, position, waiting);
            }
            waiting.is_wanted = matches!(found, Found::Full);
            self.aside.insert(position, waiting);
        }
    }

    /// The receiver for a message: of those that want it and have room, the one whose turn is next.
    fn receiver_of(&self, message: &Routed) -> Found {
        let mut properties = None;
        let mut found = Found::Unwanted;
        let (before, behind) = self.receivers.split_at(self.turn.min(self.receivers.len()));
        let in_turn = behind.iter().chain(before);
        for (steps, one) in in_turn.enumerate() {
            let is_wanted = one.filter.as_ref().is_none_or(|filter| {
                let read = || {
                    let mut read = Properties::new(message.properties().as_bytes());
                    read.index();
                    read
                };
                filter.matches(properties.get_or_insert_with(read))
            });
            if is_wanted && one.room.is_there() {
                let at = before.len().saturating_add(steps);
                return Found::At(at.checked_rem(self.receivers.len()).unwrap_or(0));
            }
            if is_wanted {
                found = Found::Full;
            }
        }
        found
    }

    fn give(&mut self, at: usize, position: u64, waiting: Waiting<T>) -> Option<Handed<R>> {
        let receiver = self.receivers.get_mut(at)?;
        let bytes = waiting.message.bytes();
        receiver.room.take(bytes);
        self.out_bytes = self.out_bytes.saturating_add(bytes);
        let handed = Handed {
            receiver: receiver.whose.clone(),
            position,
            message: Arc::clone(&waiting.message),
            was_handed: waiting.was_handed,
        };
        let out = Out {
            receiver: receiver.whose.clone(),
            message: waiting.message,
            tag: waiting.tag,
        };
        self.out.insert(position, out);
        self.turn = at.saturating_add(1);
        Some(handed)
    }

    /// A receiver has acknowledged a message: returns its tag; `None` if the receiver does not have it any more.
    pub fn ack(&mut self, whose: &R, position: u64) -> Option<T> {
        let is_its = self
            .out
            .get(&position)
            .is_some_and(|out| out.receiver == *whose);
        let out = if is_its {
            self.out.remove(&position)
        } else {
            None
        }?;
        let bytes = out.message.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        self.out_bytes = self.out_bytes.saturating_sub(bytes);
        Some(out.tag)
    }

    /// The first position that is not acknowledged: everything below it is finished.
    pub fn mark(&self) -> u64 {
        let firsts = [
            self.out.keys().next().copied(),
            self.aside.keys().next().copied(),
            self.fresh.front().map(|(position, _)| *position),
        ];
        firsts.into_iter().flatten().min().unwrap_or(self.next)
    }

    /// The position behind the last message that has come.
    pub const fn next_position(&self) -> u64 {
        self.next
    }

    /// Messages that wait for a receiver.
    pub fn waiting(&self) -> usize {
        self.fresh.len().saturating_add(self.aside.len())
    }

    /// Messages that receivers have and have not acknowledged.
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// Bytes of all messages, waiting and out.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the messages that wait for a receiver.
    pub const fn waiting_bytes(&self) -> usize {
        self.bytes.saturating_sub(self.out_bytes)
    }

    /// The receivers.
    pub fn receivers(&self) -> impl ExactSizeIterator<Item = &R> {
        self.receivers.iter().map(|one| &one.whose)
    }

    /// Whether nobody works on it: no receiver is there or has messages.
    pub fn is_idle(&self) -> bool {
        self.receivers.is_empty() && self.out.is_empty()
    }

    /// Whether messages wait that let no other one pass: as many as may are aside.
    pub fn is_stuck(&self) -> bool {
        self.aside.len() >= self.most_aside && !self.fresh.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects)]
mod tests;
