//! This end's subscriptions: their elements, whole, packed or in parts, and their ends.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ackline_core::Payload;
use bytes::Bytes;

use super::{Demand, Serial, Session, Untaken};
use crate::{Error, refusal};

/// Bytes of elements after which one call hands out no more, 256 KiB: elements that were handed out are no longer within
/// the memory of the connection.
pub const MOST_AT_ONCE: usize = 256 << 10;

/// A part of an element; one that came whole is one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The number that the publisher gave the element; `None` for an element that came whole. Parts of several elements may
    /// alternate, and whole elements may come between them.
    pub element: Option<u64>,
    /// Its bytes.
    pub data: Payload,
    /// Whether the element ends with it.
    pub is_last: bool,
}

/// A subscription of this end.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) id: u64,
    demand: Demand,
    items: VecDeque<Item>,
    /// Elements that have come, whole or in part, and were not taken.
    waiting: u64,
    /// Numbers of elements of which parts came and the last one did not.
    begun: HashSet<Option<u64>>,
    /// The size of the elements, once it was accepted.
    pub(super) element_size: Option<u64>,
    pub(super) ended: Option<Ended>,
}

/// The end of a stream.
#[derive(Debug, Clone)]
pub(super) enum Ended {
    /// The publisher has completed it.
    Complete,
    /// This end has cancelled it.
    Cancelled,
    /// It has ended with an error.
    Failed(Arc<str>),
    /// It has ended with the connection.
    Lost,
}

/// Something that came.
#[derive(Debug)]
pub(super) enum Item {
    /// An element.
    Element(Payload),
    /// Elements of the stream's size, one behind the other.
    Packed(Bytes),
    /// A part of an element.
    Part(Part),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Element(element) => element.held_bytes(),
            Self::Packed(elements) => elements.len(),
            Self::Part(part) => part.data.held_bytes(),
        }
    }
}

impl Inbox {
    pub(super) fn new(id: u64, demand: Demand) -> Self {
        Self {
            id,
            demand,
            items: VecDeque::new(),
            waiting: 0,
            begun: HashSet::new(),
            element_size: None,
            ended: None,
        }
    }

    /// The size of every element, if they have one.
    fn size(&self) -> Option<usize> {
        let size = self.element_size.filter(|size| *size > 0)?;
        usize::try_from(size).ok()
    }

    /// Elements in bytes that are packed.
    fn count(&self, bytes: usize) -> u64 {
        let count = bytes.checked_div(self.size().unwrap_or(0)).unwrap_or(0);
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    pub(super) fn push(&mut self, item: Item, untaken: &mut Untaken) {
        let came = match &item {
            Item::Element(_) => 1,
            Item::Packed(elements) => self.count(elements.len()),
            Item::Part(part) if part.is_last => u64::from(!self.begun.remove(&part.element)),
            Item::Part(part) => u64::from(self.begun.insert(part.element)),
        };
        self.waiting = self.waiting.saturating_add(came);
        untaken.add(item.bytes());
        self.items.push_back(item);
    }

    fn taken(&mut self, count: u64) {
        self.waiting = self.waiting.saturating_sub(count);
    }

    /// The bytes in front, up to `most`, of a stream of elements of `size`: at least one element.
    fn take_bytes(&mut self, (size, most): (usize, usize), untaken: &mut Untaken) -> Option<Bytes> {
        let taken = match self.items.front_mut()? {
            Item::Packed(elements) => {
                let most = most
                    .checked_div(size)
                    .unwrap_or(0)
                    .max(1)
                    .saturating_mul(size);
                if elements.len() > most {
                    let taken = elements.split_to(most);
                    untaken.bytes = untaken.bytes.saturating_sub(taken.len());
                    self.taken(self.count(taken.len()));
                    return Some(taken);
                }
                std::mem::take(elements)
            }
            Item::Element(element) => {
                let bytes = element.to_bytes();
                untaken.bytes = untaken.bytes.saturating_sub(element.held_bytes());
                untaken.bytes = untaken.bytes.saturating_add(bytes.len());
                bytes
            }
            Item::Part(_) => return None,
        };
        self.items.pop_front();
        untaken.remove(taken.len());
        self.taken(self.count(taken.len()));
        Some(taken)
    }

    /// Whether a part of an element is in front.
    fn is_in_parts(&self) -> bool {
        matches!(self.items.front(), Some(Item::Part(_)))
    }

    fn take_part(&mut self, untaken: &mut Untaken) -> Option<Part> {
        if let Some(size) = self.size()
            && !self.is_in_parts()
        {
            let data = self.take_bytes((size, size), untaken)?;
            return Some(whole(data.into()));
        }
        let item = self.items.pop_front()?;
        untaken.remove(item.bytes());
        let part = match item {
            Item::Element(element) => whole(element),
            Item::Packed(elements) => whole(elements.into()),
            Item::Part(part) => part,
        };
        if part.is_last {
            self.taken(1);
        }
        Some(part)
    }

    /// Drops everything that was not taken.
    fn clear(&mut self, untaken: &mut Untaken) {
        for item in self.items.drain(..) {
            untaken.remove(item.bytes());
        }
        self.waiting = 0;
    }
}

fn whole(data: Payload) -> Part {
    Part {
        element: None,
        data,
        is_last: true,
    }
}

impl Session {
    /// Subscribes to a publisher of the peer.
    ///
    /// # Errors
    /// `invalid_demand`, `invalid_low_water`, `closing`, `not_connected`; [`Error::Ended`].
    pub fn subscribe(&mut self, publisher: &str, demand: Demand) -> Result<Serial, Error> {
        demand.check()?;
        let longest = self.machine.limits().max_string_bytes;
        if u64::try_from(publisher.len()).is_ok_and(|it| it > longest) {
            return Err(refusal::NAME_TOO_LONG.into());
        }
        let id = self.machine.free_id();
        let subscribed = self.machine.subscribe(publisher, id, demand.initial);
        self.told(subscribed)?;
        let serial = self.number();
        self.inboxes.insert(serial, Inbox::new(id, demand));
        self.own.insert(id, serial);
        Ok(serial)
    }

    /// The size of every element of a subscription that was accepted, or 0.
    ///
    /// # Errors
    /// [`Error::Blocked`]: it was not answered. [`Error::Failed`]: it was rejected. [`Error::Ended`].
    pub fn accepted(&self, serial: Serial) -> Result<u64, Error> {
        let inbox = self.inbox(serial)?;
        match inbox.element_size {
            // A rejection is an acceptance with an error behind it.
            Some(0) if inbox.items.is_empty() => match self.end_of(inbox) {
                Err(error @ Error::Failed(_)) => Err(error),
                _ => Ok(0),
            },
            Some(size) => Ok(size),
            None => self.end_of(inbox).map(|()| 0),
        }
    }

    /// The reason of the peer's goodbye in place of the end of the connection, if the peer has said goodbye.
    pub fn with_goodbye(&self, error: Error) -> Error {
        match (error, self.goodbye_reason()) {
            (Error::Ended(_), Some(reason)) => Error::Failed(reason),
            (error, _) => error,
        }
    }

    fn inbox(&self, serial: Serial) -> Result<&Inbox, Error> {
        let inbox = self.inboxes.get(&serial);
        inbox.ok_or_else(|| self.refused(refusal::UNKNOWN_SUBSCRIBER))
    }

    /// Whether a stream has come to its end.
    fn end_of(&self, inbox: &Inbox) -> Result<(), Error> {
        match &inbox.ended {
            None => Err(Error::Blocked),
            Some(Ended::Complete) => Ok(()),
            Some(Ended::Cancelled) => Err(Error::Cancelled),
            Some(Ended::Failed(text)) => Err(Error::Failed(Arc::clone(text))),
            // The link knows why.
            Some(Ended::Lost) => Err(match self.machine.fault() {
                Some(fault) => Error::Ended(ackline_core::End::Protocol(fault.clone())),
                None => Error::Blocked,
            }),
        }
    }

    /// Whether something can be taken of a subscription, or no more can come.
    pub(super) fn has_element(&self, serial: Serial) -> bool {
        let inbox = self.inboxes.get(&serial);
        inbox.is_none_or(|inbox| {
            let is_over = !matches!(self.end_of(inbox), Err(Error::Blocked));
            !inbox.items.is_empty() || is_over
        })
    }

    /// Something that was taken, or the end of its stream.
    fn or_end<T>(&self, serial: Serial, taken: Option<T>) -> Result<Option<T>, Error> {
        if taken.is_some() {
            return Ok(taken);
        }
        self.end_of(self.inbox(serial)?).map(|()| None)
    }

    /// Takes the next element; `None` when the stream is complete.
    ///
    /// # Errors
    /// [`Error::Blocked`]: none is there yet. [`Error::Failed`], [`Error::Ended`]; [`Error::Cancelled`] after an own
    /// [`cancel`](Self::cancel). `in_parts`: with [`Config::parts`](crate::Config::parts) elements are taken by
    /// [`take_part`](Self::take_part).
    pub fn take_element(&mut self, serial: Serial) -> Result<Option<Payload>, Error> {
        if self.machine.has_parts() {
            return Err(refusal::IN_PARTS.into());
        }
        let part = self.take_part(serial)?;
        Ok(part.map(|part| part.data))
    }

    /// Takes the elements that are there, at least one, up to `max`, and none behind one with which they have
    /// [`MOST_AT_ONCE`] bytes; none when the stream is complete.
    ///
    /// # Errors
    /// As [`take_element`](Self::take_element).
    pub fn take_elements(&mut self, serial: Serial, max: usize) -> Result<Vec<Payload>, Error> {
        let (mut elements, mut bytes) = (Vec::new(), 0_usize);
        if let Some(inbox) = self.inboxes.get_mut(&serial)
            && !self.machine.has_parts()
        {
            let most = max.max(1);
            while elements.len() < most && bytes < MOST_AT_ONCE {
                let Some(part) = inbox.take_part(&mut self.untaken) else {
                    break;
                };
                bytes = bytes.saturating_add(part.data.bytes());
                elements.push(part.data);
            }
        }
        if elements.is_empty() {
            // The reason why there is none.
            return Ok(self.take_element(serial)?.into_iter().collect());
        }
        self.replenish(serial)?;
        Ok(elements)
    }

    /// Takes elements of a fixed size that stand one behind the other, of up to `most` bytes, at least one; `None` when
    /// the stream is complete.
    ///
    /// # Errors
    /// As [`take_element`](Self::take_element), but `in_parts` only if a part is next. `not_fixed_size`: the elements have
    /// no fixed size.
    pub fn take_packed(&mut self, serial: Serial, most: usize) -> Result<Option<Bytes>, Error> {
        let inbox = self.inbox(serial)?;
        match (inbox.size(), inbox.items.front()) {
            (_, Some(Item::Part(_))) => return Err(refusal::IN_PARTS.into()),
            (None, Some(_)) => return Err(refusal::NOT_FIXED_SIZE.into()),
            _ => {}
        }
        let taken = self.inboxes.get_mut(&serial).and_then(|inbox| {
            let size = inbox.size()?;
            inbox.take_bytes((size, most), &mut self.untaken)
        });
        self.replenish(serial)?;
        self.or_end(serial, taken)
    }

    /// Takes the next part of an element, or the next element that came whole; `None` when the stream is complete.
    ///
    /// # Errors
    /// [`Error::Blocked`], [`Error::Failed`], [`Error::Cancelled`], [`Error::Ended`].
    pub fn take_part(&mut self, serial: Serial) -> Result<Option<Part>, Error> {
        let inbox = self.inboxes.get_mut(&serial);
        let taken = inbox.and_then(|inbox| inbox.take_part(&mut self.untaken));
        self.replenish(serial)?;
        self.or_end(serial, taken)
    }

    /// Requests more where few are requested or wait.
    fn replenish(&mut self, serial: Serial) -> Result<(), Error> {
        let inbox = self.inbox(serial)?;
        if inbox.ended.is_some() {
            return Ok(());
        }
        let (id, waiting, demand) = (inbox.id, inbox.waiting, inbox.demand);
        let Ok(requested) = self.machine.requested(id) else {
            return Ok(());
        };
        let begun = u64::try_from(self.machine.begun(id).unwrap_or(0)).unwrap_or(u64::MAX);
        let outstanding = requested.saturating_add(begun).saturating_add(waiting);
        let missing = demand.missing(outstanding);
        if missing > 0 {
            // The connection may be at its end.
            let _ = self.machine.request(id, missing);
        }
        Ok(())
    }

    /// Requests more elements, beside those that are requested by themselves.
    ///
    /// # Errors
    /// `invalid_demand`; `already_ended`: the stream has ended; [`Error::Ended`].
    pub fn request(&mut self, serial: Serial, count: u64) -> Result<(), Error> {
        let id = self.open_id(serial)?;
        let requested = self.machine.request(id, count);
        self.told(requested)
    }

    /// Elements that are requested and have not come.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn requested(&self, serial: Serial) -> Result<u64, Error> {
        let requested = self.machine.requested(self.open_id(serial)?);
        self.told(requested)
    }

    fn open_id(&self, serial: Serial) -> Result<u64, Error> {
        let inbox = self.inbox(serial)?;
        if inbox.ended.is_some() {
            return Err(self.refused(refusal::ALREADY_ENDED));
        }
        Ok(inbox.id)
    }

    /// Cancels a subscription: elements that have come and were not taken are dropped.
    ///
    /// # Errors
    /// `already_ended`: the stream has ended; [`Error::Ended`].
    pub fn cancel(&mut self, serial: Serial) -> Result<(), Error> {
        let id = self.open_id(serial)?;
        let cancelled = self.machine.cancel(id);
        self.told(cancelled)?;
        self.own.remove(&id);
        if let Some(inbox) = self.inboxes.get_mut(&serial) {
            inbox.clear(&mut self.untaken);
            inbox.ended = Some(Ended::Cancelled);
        }
        self.wake(super::Wait::Read(serial));
        Ok(())
    }

    /// The handle of a subscription was dropped: an open one is cancelled.
    pub fn drop_subscription(&mut self, serial: Serial) {
        let _ = self.cancel(serial);
        if let Some(mut inbox) = self.inboxes.remove(&serial) {
            inbox.clear(&mut self.untaken);
            // The connection may have ended before.
            if self.own.get(&inbox.id) == Some(&serial) {
                self.own.remove(&inbox.id);
            }
        }
    }
}
