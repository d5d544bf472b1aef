//! A link's machine with the input that its application has still to take: the one thing that the driver
//! drives.
//!
//! It takes the machine's events as they come, so that acknowledgements reach their waits however many
//! messages wait to be received; the waiting input is bounded by windows and the memory budget.

mod inbox;
mod sending;
mod sent;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::{
    Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, StallTimeouts, UsageError,
};
use ackline_link::Link;
use ackline_relink::frame::{Acknowledgement, Operation};
use ackline_relink::{
    self as machine, Attach, ChannelId, Error, Kind, LinkLost, LinkState, Stage, Told,
    Unacknowledged,
};
use bytes::BytesMut;

use self::inbox::Inbox;
pub use self::inbox::{Decided, Event, Message};
use self::sent::Sent;
use super::interest::{Interest, Wait};
use super::link_host::{LinkHost, as_machine};
use super::receipt::Receipt;

/// Counters of a link: its traffic, and the messages that it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The machine's own numbers.
    pub link: machine::LinkStats,
    /// Payload bytes sent and not acknowledged as consumed.
    pub unacknowledged_bytes: usize,
    /// Messages that wait to be received.
    pub waiting: usize,
    /// Events that nobody took in time.
    pub missed_events: u64,
}

/// A ping that is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// Pings that were answered before it.
    pub pongs: u64,
    /// Transports of the link when it was sent.
    pub transports: u64,
}

/// A link's machine with the input that waits for its application.
#[derive(Debug)]
pub struct Session {
    machine: machine::Link,
    inbox: Inbox,
    sent: Sent,
    has_peer_shut_down: bool,
    /// Pings answered.
    pongs: u64,
    /// The time that the last answer took.
    round_trip: Duration,
    over: Option<Error>,
    /// The reason why this side gives the link up.
    reason: Option<Arc<str>>,
    told: Told,
}

impl Session {
    /// A session whose unacknowledged messages have so many bytes at the most.
    pub(super) fn new(machine: machine::Link, send_bytes: usize) -> Self {
        Self {
            inbox: Inbox::new(machine.stats().messages_received),
            sent: Sent::new(&machine, send_bytes),
            machine,
            has_peer_shut_down: false,
            pongs: 0,
            round_trip: Duration::ZERO,
            over: None,
            reason: None,
            told: Told::default(),
        }
    }

    /// The link that receipts wait on.
    pub(super) fn linked(&self, link: &Link<Self>) {
        self.sent.kept.linked(link.downgrade());
    }

    /// The receipt of the last message of a channel that is not over.
    pub(super) fn last_receipt(&self, channel: &ChannelId) -> Option<Receipt> {
        self.sent.last_receipt(channel)
    }

    /// The machine.
    pub fn machine(&self) -> &machine::Link {
        &self.machine
    }

    /// Where the link is in its life; closed also where it has ended in this process alone.
    pub fn state(&self) -> LinkState {
        match (&self.over, self.machine.state()) {
            (None, state) => state,
            (Some(Error::Lost(_)), _) => LinkState::Lost,
            (Some(_), _) => LinkState::Closed,
        }
    }

    /// Why the link is over, if it is.
    pub fn over(&self) -> Option<&Error> {
        self.over.as_ref()
    }

    /// The messages that have arrived, up to so many; `None` when no more can come.
    ///
    /// # Errors
    /// The link is over, and every message was taken.
    pub fn receive(&mut self, max: usize) -> Result<Option<Vec<Message>>, Error> {
        let messages = &mut self.inbox.messages;
        let count = messages.len().min(max);
        if count > 0 {
            return Ok(Some(messages.drain(..count).collect()));
        }
        self.is_alive()?;
        Ok((!self.has_all()).then(Vec::new))
    }

    /// Whether no message can come any more.
    fn has_all(&self) -> bool {
        self.has_peer_shut_down && !self.has_open_incoming()
    }

    fn has_open_incoming(&self) -> bool {
        self.machine.config().peer_channel_id_size() > 0
            && self.machine.stats().channels_incoming > 0
    }

    /// The next decision of the peer's.
    ///
    /// # Errors
    /// The link is over, and every decision was taken.
    pub fn decided(&mut self) -> Result<Option<Decided>, Error> {
        match self.inbox.take_decision() {
            None => self.is_alive().map(|()| None),
            decided => Ok(decided),
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The link is over, and every event was taken.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        match self.inbox.events.pop_front() {
            None => self.is_alive().map(|()| None),
            event => Ok(event),
        }
    }

    /// A verb of the machine's that changes one channel or the link.
    ///
    /// # Errors
    /// The machine's refusals; the link is over.
    pub fn verb<R>(
        &mut self,
        verb: impl FnOnce(&mut machine::Link) -> Result<R, UsageError>,
    ) -> Result<R, Error> {
        self.asked(verb, |error, _| Error::refused(error))
    }

    /// A verb of the machine's, and the error of its refusal.
    pub(super) fn asked<R>(
        &mut self,
        verb: impl FnOnce(&mut machine::Link) -> Result<R, UsageError>,
        refused: impl FnOnce(UsageError, &machine::Link) -> Error,
    ) -> Result<R, Error> {
        self.is_alive()?;
        let result = verb(&mut self.machine).map_err(|error| refused(error, &self.machine))?;
        self.take();
        Ok(result)
    }

    /// Notes the stage that own messages of a channel have reached.
    pub(super) fn reach(&mut self, channel: &ChannelId, stage: Stage, through: Sequence) {
        self.sent.reach(channel, stage, through);
    }

    /// Opens no more channels, and closes those that are open.
    ///
    /// # Errors
    /// The link is over.
    pub fn shutdown(&mut self, now: Instant) -> Result<(), Error> {
        self.verb(|machine| {
            let open: Vec<_> = machine.channels().map(|(id, _)| id.clone()).collect();
            for channel in open {
                // One that is closing already, or cannot be closed, needs nothing.
                let _ = machine.close_channel(now, &channel);
            }
            machine.shutdown(now)
        })
    }

    /// The link is let go in this process: if it is not kept on disk, it is lost.
    pub(super) fn let_go(&mut self, now: Instant) {
        if self.over.is_some() {
            return;
        }
        if self.machine.config().journal {
            self.end(Error::LetGo);
        } else {
            self.lose(now, "it was closed here");
        }
    }

    /// Whether a wait for this is over: it is there, or the link is over.
    pub(super) fn has(&self, interest: &Interest) -> bool {
        self.over.is_some()
            || match interest {
                Interest::Message => !self.inbox.messages.is_empty() || self.has_all(),
                Interest::Decision => !self.inbox.decisions.is_empty(),
                Interest::Event => !self.inbox.events.is_empty(),
                Interest::Room(channel) => {
                    self.machine.send_room(channel) > 0 && self.sent.has_room()
                }
                Interest::RoomFor { counts, bytes } => {
                    let mut counts = counts.iter();
                    let machine = &self.machine;
                    self.sent.fits(*bytes)
                        && counts.all(|(channel, count)| machine.send_room(channel) >= *count)
                }
                Interest::Acknowledged => self.machine.unacknowledged().next().is_none(),
                Interest::Pong(ping) => !matches!(self.pong(*ping), Ok(None)),
                Interest::Connected => self.machine.is_attached(),
                Interest::End => false,
            }
    }

    /// The listener's limits and reasons, as told on this transport.
    pub fn told(&self) -> Told {
        self.told
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// `not_connected`; the link is over.
    pub fn ping(&mut self, now: Instant) -> Result<Ping, Error> {
        self.verb(|machine| machine.ping(now))?;
        Ok(Ping {
            pongs: self.pongs,
            transports: self.machine.stats().transports,
        })
    }

    /// The time that the answer to a ping took, once it is there.
    ///
    /// # Errors
    /// `not_connected`: it cannot come any more; the link is over.
    pub fn pong(&self, ping: Ping) -> Result<Option<Duration>, Error> {
        if self.pongs > ping.pongs {
            return Ok(Some(self.round_trip));
        }
        self.is_alive()?;
        let is_same = self.machine.stats().transports == ping.transports;
        if is_same && self.machine.is_attached() {
            return Ok(None);
        }
        Err(NO_PONG.into())
    }

    /// Pings answered so far.
    pub(super) const fn pongs(&self) -> u64 {
        self.pongs
    }

    /// Counters of the link: its traffic, and the messages that it holds.
    pub fn stats(&self) -> Stats {
        Stats {
            link: self.machine.stats(),
            unacknowledged_bytes: self.sent.bytes,
            waiting: self.inbox.messages.len(),
            missed_events: self.inbox.missed,
        }
    }

    fn is_alive(&self) -> Result<(), Error> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Takes the machine's events.
    fn take(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.take_one(event);
        }
        if self.has_all() {
            self.sent.wake(Wait::Message);
        }
    }

    fn take_one(&mut self, event: machine::Event) {
        match event {
            machine::Event::Message {
                channel,
                sequence,
                payload,
            } => {
                self.inbox.message(channel, sequence, payload);
                self.sent.wake(Wait::Message);
            }
            machine::Event::Acknowledged {
                channel,
                acknowledgement,
                through,
            } => self.acknowledged(&channel, acknowledgement, through),
            machine::Event::Decided {
                channel,
                operation,
                through,
            } => {
                self.inbox.decisions.push_back(Decided {
                    channel,
                    is_commit: operation == Operation::Commit,
                    through,
                });
                self.sent.wake(Wait::Decision);
            }
            machine::Event::Closing { channel } => self.tell(Event::Closing { channel }),
            machine::Event::Closed {
                channel,
                unacknowledged,
            } => {
                self.sent.close(&channel);
                self.tell(Event::Closed {
                    channel,
                    unacknowledged,
                });
            }
            machine::Event::PeerShutdown => {
                self.has_peer_shut_down = true;
                self.tell(Event::PeerShutdown);
            }
            machine::Event::Resumed => self.tell(Event::Resumed),
            machine::Event::Pong { round_trip } => {
                self.pongs += 1;
                self.round_trip = round_trip;
                self.sent.wake(Wait::Pong);
            }
            machine::Event::Hint(hint) => self.told.hear(hint),
            machine::Event::LinkClosed => self.end(Error::Closed),
            machine::Event::LinkLost => {
                let lost = Arc::new(self.lost());
                self.end(Error::Lost(lost));
            }
        }
    }

    fn acknowledged(&mut self, channel: &ChannelId, what: Acknowledgement, through: Sequence) {
        let stage = match what {
            Acknowledgement::Received => Stage::Received,
            Acknowledgement::Consumed => Stage::Consumed,
            Acknowledgement::Committed => Stage::Answered(true),
            Acknowledgement::Uncommitted => Stage::Answered(false),
            Acknowledgement::Closed => return,
        };
        // Of one that has ended nothing is heard any more.
        if self.over.is_none() {
            self.sent.reach(channel, stage, through);
        }
    }

    fn lost(&self) -> LinkLost {
        LinkLost {
            reason: self.reason.clone().unwrap_or_else(|| UNKNOWN.into()),
            unacknowledged: self.unacknowledged(),
        }
    }

    /// Messages sent and not acknowledged as consumed.
    pub fn unacknowledged(&self) -> Vec<Unacknowledged> {
        let waiting = self.machine.unacknowledged();
        let each = waiting.map(|(channel, sequence, payload)| Unacknowledged {
            channel: channel.clone(),
            sequence,
            payload: payload.clone(),
        });
        each.collect()
    }

    fn end(&mut self, why: Error) {
        self.sent.end(&why);
        self.over.get_or_insert(why);
    }

    fn tell(&mut self, event: Event) {
        self.inbox.event(event);
        self.sent.wake(Wait::Event);
    }
}

impl LinkHost for Session {
    fn machine(&self) -> &machine::Link {
        &self.machine
    }

    fn machine_mut(&mut self) -> &mut machine::Link {
        &mut self.machine
    }

    fn attach(&mut self, now: Instant, how: Attach) {
        self.machine.attach(now, how);
        self.told = Told::default();
        let resumed = matches!(how, Attach::Resumed);
        self.tell(Event::Connected { resumed });
        self.sent.wake(Wait::Connected);
        self.sent.wake(Wait::Pong);
        self.take();
    }

    fn lose(&mut self, now: Instant, reason: &str) {
        self.reason = Some(reason.into());
        self.machine.lose(now);
        self.take();
    }

    fn journaled(&mut self, now: Instant) {
        self.machine.journaled(now);
        self.sent.kept.reach(self.machine.changes_kept());
        self.sent.wake(Wait::Kept);
        self.take();
    }

    fn fail(&mut self, error: Error) {
        self.end(error);
    }
}

impl Connection for Session {
    /// Taken by the methods of this type.
    type Event = std::convert::Infallible;
    type Kind = Kind;

    as_machine!(|it, _now| it.take());

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        loop {
            if self.inbox.is_full(self.machine.key()) {
                return Ok(Need::Room);
            }
            let need = self.machine.receive(now, input);
            self.take();
            match need {
                Ok(Need::Room) => {}
                other => return other,
            }
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn lifecycle(&self) -> Lifecycle {
        self.machine.lifecycle()
    }

    fn held_bytes(&self) -> usize {
        let inbox = self.inbox.held_bytes();
        self.machine.held_bytes().saturating_add(inbox)
    }

    fn complete_bytes(&self) -> usize {
        self.held_bytes()
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.machine.detached(now);
        self.tell(Event::Disconnected);
        self.sent.wake(Wait::Pong);
        self.take();
        goes_on
    }

    fn poll_wake(&mut self) -> Option<u64> {
        self.sent.poll_wake()
    }
}

const UNKNOWN: &str = "the peer does not know it any more, or its state does not fit";
const NO_PONG: UsageError =
    UsageError::new("not_connected", "the transport went before the pong came");
