//! Messages of this end: those that the machine has not taken, and the acknowledgements of the others.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Session;
use crate::broker::{Held, Routed, Run};
use crate::{Connection, Error, Outbound, refusal};

/// Messages that wait to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Bytes that may wait in the machine.
    most: usize,
    /// Messages that the machine has not taken.
    waiting: VecDeque<Delivery>,
    /// Their number.
    count: usize,
    /// Their bytes.
    bytes: usize,
    /// Where their places in the list are counted.
    places: Places,
    /// Messages of this end so far.
    sent: u64,
    /// Those of them that are acknowledged.
    acknowledged: u64,
    /// Whether a call was refused for want of room.
    is_wanted: bool,
}

impl Outbox {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            waiting: VecDeque::new(),
            count: 0,
            bytes: 0,
            places: Places {
                held: None,
                bytes: 0,
            },
            sent: 0,
            acknowledged: 0,
            is_wanted: false,
        }
    }

    /// Whether a frame may be given to the machine: one of any length is taken where nothing waits.
    pub(super) const fn has_room(&self, machine: &Connection, bytes: usize) -> bool {
        let waiting = machine.waiting_bytes();
        waiting == 0 || waiting.saturating_add(bytes) <= self.most
    }

    /// Gives waiting messages to the machine, as far as its window and its room go.
    pub(super) fn fill(&mut self, machine: &mut Connection) {
        self.give(machine);
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT_PLACES {
            self.waiting = VecDeque::new();
        }
        self.places.are(self.waiting.capacity());
    }

    fn give(&mut self, machine: &mut Connection) {
        let has_types = machine.has_extension("dotnet");
        while let Some((next, is_last)) = self.waiting.front().and_then(Delivery::next) {
            let bytes = next.bytes();
            if !self.has_room(machine, bytes) {
                return;
            }
            // The type only goes to ends that know of types. A message without one must not have that of another publisher.
            let dotnet_type = next.dotnet_type().map_or("", |name| &**name);
            if machine
                .send_parts(next.parts(), has_types.then_some(dotnet_type))
                .is_err()
            {
                // Its window is full, or the connection is over.
                return;
            }
            self.bytes = self.bytes.saturating_sub(bytes);
            self.count = self.count.saturating_sub(1);
            match self.waiting.front_mut() {
                Some(Delivery::Run(run)) if !is_last => run.advance(),
                _ => drop(self.waiting.pop_front()),
            }
            self.sent = self.sent.saturating_add(1);
        }
    }

    /// Drops the messages that the machine has not taken.
    pub(super) fn clear(&mut self) {
        self.waiting = VecDeque::new();
        (self.count, self.bytes) = (0, 0);
        self.places.are(0);
    }

    pub(super) fn acknowledged(&mut self, machine: &Connection) {
        self.acknowledged = self.sent.saturating_sub(u64::from(machine.pending()));
    }

    /// Whether somebody waits for room that is there now.
    pub(super) fn has_waiters(&mut self, machine: &Connection) -> bool {
        let is_woken = self.is_wanted && self.has_room(machine, 0);
        self.is_wanted &= !is_woken;
        is_woken
    }
}

impl Session {
    /// Sends a message; returns its position among all messages of this end, from 1.
    ///
    /// # Errors
    /// [`Error::Blocked`]: the handshake has not ended, as many messages as were agreed on wait for their acknowledgement, or
    /// there is no room. `not_ascii`, `out_of_range`, `message_too_large`, `extension_not_negotiated`; the end.
    pub fn send(&mut self, message: Outbound<'_>, payload: &Bytes) -> Result<u64, Error> {
        self.made()?;
        let len = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        if len > self.machine.limits().max_message_bytes {
            return Err(Error::Usage(refusal::MESSAGE_TOO_LARGE));
        }
        let checked = self.machine.check_send(message);
        let has_room =
            self.outbox.waiting.is_empty() && self.outbox.has_room(&self.machine, payload.len());
        match checked {
            Err(error) if error == refusal::WINDOW_FULL => return Err(Error::Blocked),
            Ok(()) if !has_room => {
                self.outbox.is_wanted = true;
                return Err(Error::Blocked);
            }
            checked => self.told(checked)?,
        }
        let sent = self.machine.send_checked(message, payload);
        self.told(sent)?;
        self.outbox.sent = self.outbox.sent.saturating_add(1);
        Ok(self.outbox.sent)
    }

    /// Whether a message of so many bytes would be taken. If not, the next room wakes those that wait for it.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        let is_open = self.machine.check_send(Outbound::default()).is_ok();
        let is_first = self.outbox.waiting.is_empty();
        let has_room = is_open && is_first && self.outbox.has_room(&self.machine, bytes);
        self.outbox.is_wanted |= !has_room;
        has_room
    }

    /// Whether a frame of so many bytes would be taken. If not, the next room wakes those that wait for it.
    pub(super) fn has_frame_room(&mut self, bytes: usize) -> bool {
        let has_room = self.outbox.has_room(&self.machine, bytes);
        self.outbox.is_wanted |= !has_room;
        has_room
    }

    /// Messages that may wait for their acknowledgement; `None` without acknowledgements, and before the end of the handshake.
    pub fn window(&self) -> Option<u16> {
        self.machine.windowed()
    }

    /// Counts the list of waiting messages as memory of a broker, beside the messages, which are counted once for all.
    pub fn count_places(&mut self, held: Arc<Held>) {
        self.outbox.places.held = Some(held);
    }

    /// Puts messages behind those that wait, to be sent as the window and the transport allow; returns the bytes that wait then.
    ///
    /// # Errors
    /// The connection is over.
    pub fn deliver<T: Into<Delivery>>(
        &mut self,
        messages: impl IntoIterator<Item = T>,
    ) -> Result<usize, Error> {
        self.over().map_or(Ok(()), Err)?;
        for delivery in messages {
            let delivery = delivery.into();
            let (count, bytes) = delivery.size();
            if count > 0 {
                self.outbox.count = self.outbox.count.saturating_add(count);
                self.outbox.bytes = self.outbox.bytes.saturating_add(bytes);
                self.outbox.waiting.push_back(delivery);
            }
        }
        self.outbox.fill(&mut self.machine);
        Ok(self.waiting_bytes())
    }

    /// Bytes of messages and frames that wait to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.outbox
            .bytes
            .saturating_add(self.machine.waiting_bytes())
    }

    /// The position of the next message that is delivered.
    pub fn next_position(&self) -> u64 {
        let waiting = u64::try_from(self.outbox.count).unwrap_or(u64::MAX);
        self.outbox.sent.saturating_add(waiting).saturating_add(1)
    }

    /// Messages that wait for room in the window or in the transport, and those that the peer has not acknowledged.
    pub fn outstanding(&self) -> (usize, u16) {
        (self.outbox.count, self.machine.pending())
    }

    /// Further messages that the peer's window has room for now; `None` without acknowledgements.
    pub fn window_room(&self) -> Option<usize> {
        let window = self.machine.windowed()?;
        let taken = usize::from(self.machine.pending()).saturating_add(self.outbox.count);
        Some(usize::from(window).saturating_sub(taken))
    }

    /// Messages of this end that the peer has acknowledged.
    pub const fn acknowledged_count(&self) -> u64 {
        self.outbox.acknowledged
    }

    /// Whether all messages up to a position are acknowledged.
    ///
    /// # Errors
    /// [`Error::Blocked`]: not yet. `extension_not_negotiated`: there are no acknowledgements; `out_of_range`: no such message
    /// was sent; [`Error::Unacknowledged`]: the connection has ended before; [`Error::Failed`]; [`Error::Ended`].
    pub fn acknowledged(&self, position: u64) -> Result<(), Error> {
        if position <= self.outbox.acknowledged {
            return Ok(());
        }
        if position > self.outbox.sent {
            return Err(Error::Usage(refusal::NOT_SENT));
        }
        if self.is_connected() && self.machine.windowed().is_none() {
            return Err(Error::Usage(refusal::EXTENSION_NOT_NEGOTIATED));
        }
        let left = self.outbox.sent.saturating_sub(self.outbox.acknowledged);
        match self.end() {
            None => Err(Error::Blocked),
            Some(_) if self.has_ended_quietly() => Err(Error::Unacknowledged(left)),
            Some(_) => Err(self.over().unwrap_or(Error::Blocked)),
        }
    }

    fn has_ended_quietly(&self) -> bool {
        self.failed.is_none() && self.machine.fault().is_none()
    }

    /// Messages of this end so far.
    pub const fn sent(&self) -> u64 {
        self.outbox.sent
    }
}

/// Messages to be sent to one end, shared with others.
#[derive(Debug)]
pub enum Delivery {
    /// One message.
    One(Arc<Routed>),
    /// Messages of a batch.
    Run(Run),
}

impl Delivery {
    /// The first message, and whether it is the last one.
    fn next(&self) -> Option<(&Routed, bool)> {
        match self {
            Self::One(message) => Some((message, true)),
            Self::Run(run) => match run.messages() {
                [] => None,
                [first, rest @ ..] => Some((first, rest.is_empty())),
            },
        }
    }

    /// The number of messages, and their bytes.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::One(message) => (1, message.bytes()),
            Self::Run(run) => {
                let messages = run.messages();
                let bytes = messages.iter().map(Routed::bytes);
                (messages.len(), bytes.fold(0, usize::saturating_add))
            }
        }
    }
}

impl From<Arc<Routed>> for Delivery {
    fn from(message: Arc<Routed>) -> Self {
        Self::One(message)
    }
}

impl From<Run> for Delivery {
    fn from(run: Run) -> Self {
        Self::Run(run)
    }
}

/// The bytes of a list of messages, as they are counted.
#[derive(Debug)]
struct Places {
    held: Option<Arc<Held>>,
    bytes: u64,
}

impl Places {
    /// The list has so many places; the first ones belong to the connection.
    fn are(&mut self, places: usize) {
        let more = places.saturating_sub(KEPT_PLACES);
        let bytes = more.saturating_mul(size_of::<Delivery>());
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if let Some(held) = self.held.as_ref().filter(|_| bytes != self.bytes) {
            held.replace(self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.are(0);
    }
}

/// Places of a list that are kept when it is empty, and are not counted.
const KEPT_PLACES: usize = 64;
