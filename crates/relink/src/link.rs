//! One end of a link: a state machine that outlives its transports.
//!
//! ```text
//!              attach            peer's resume
//!   Connecting ------> Resuming -------------> Up
//!       ^     (new: Up)   |                    |   shutdown      both shut down,
//!       |                 v                    v                 no channel left
//!       +------------- detached <-------- ShuttingDown --------------> Closed
//!
//!   Lost: the peer does not know the link any more, or its state does not fit
//! ```
//!
//! A link decides on sequence numbers, windows, acknowledgements, the messages that go out again after a cut, and the
//! life of channels and of the link. It does not make transports, give a link up by itself, or look into messages. The
//! parts are modules: [`outgoing`] and [`incoming`] channels, [`answers`], [`transactions`], [`resume`], [`receive`],
//! [`transmit`], [`timers`], [`journal`].
//!
//! Its rules: REQ-RELINK-22.

mod answers;
mod channels;
mod end;
mod ends;
mod events;
mod handover;
mod incoming;
mod journal;
mod nameable;
mod outgoing;
mod reader;
mod receive;
mod resume;
mod share;
mod standing;
#[cfg(test)]
mod table;
mod timers;
mod totals;
mod transactions;
mod transmit;
mod transport;
mod untold;
mod verbs;

use std::time::{Duration, Instant};

use ackline_core::{
    Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, StallTimeouts,
};
use bytes::BytesMut;

use crate::frame::{Acknowledgement, Hint, Operation};
use crate::{ChannelId, Kind, LinkConfig, LinkKey, Payload, Side};

use channels::Channels;
use end::{End, Over};
use events::Events;
use incoming::Incoming;
pub use journal::Change;
use journal::Journal;
use outgoing::Outgoing;
use reader::Reader;
use share::Share;
pub use share::{CHANNEL_BYTES, FREE_CHANNELS, FREE_OUTCOMES, OUTCOME_BYTES};
pub use standing::Standing;
use totals::Totals;
use transport::Transport;
use transport::split::Split;

/// An event that a [`Link`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The link is over: [`Link::unacknowledged`] has the messages that may be sent again over another link.
    LinkLost,
    /// Both sides have shut down and nothing is left: the link is over.
    LinkClosed,
    /// The peer has announced every message that it had got before the cut.
    Resumed,
    /// A message.
    Message {
        /// The peer's channel.
        channel: ChannelId,
        /// Its number on that channel.
        sequence: Sequence,
        /// The message.
        payload: Payload,
    },
    /// The peer has acknowledged own messages.
    Acknowledged {
        /// The own channel.
        channel: ChannelId,
        /// The kind; never [`Acknowledgement::Closed`].
        acknowledgement: Acknowledgement,
        /// The last of the messages.
        through: Sequence,
    },
    /// The peer has decided on its messages.
    Decided {
        /// The peer's channel.
        channel: ChannelId,
        /// Commit or rollback.
        operation: Operation,
        /// The last of the messages.
        through: Sequence,
    },
    /// The peer closes its channel: no more messages come on it.
    Closing {
        /// The peer's channel.
        channel: ChannelId,
    },
    /// An own channel has ended.
    Closed {
        /// The own channel.
        channel: ChannelId,
        /// Messages never acknowledged as consumed. After a cut their fate is unknown: all of them were consumed, or
        /// none of them arrived (R-RELINK-V5). The answers to commits may be lost too. With `close_when_consumed` there
        /// is no such doubt.
        unacknowledged: u32,
    },
    /// The peer opens no more channels.
    PeerShutdown,
    /// The listener gives a hint, which is an extension of the specification ([`Link::hear_hints`]).
    Hint(Hint),
    /// A ping was answered.
    Pong {
        /// From the ping's emission to its pong.
        round_trip: Duration,
    },
}

/// The phase of a link's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It has no transport.
    Connecting,
    /// It has a transport, and the peer has not announced everything yet.
    Resuming,
    /// It has a transport and messages flow.
    Up,
    /// [`Link::shutdown`] was called, or the peer has shut down.
    ShuttingDown,
    /// Both sides have shut down.
    Closed,
    /// The peer does not know it any more.
    Lost,
}

impl LinkState {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Resuming => "resuming",
            Self::Up => "up",
            Self::ShuttingDown => "shutting_down",
            Self::Closed => "closed",
            Self::Lost => "lost",
        }
    }
}

/// The link that a new transport carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// The start of this link.
    New(LinkKey),
    /// The same link as the transport before.
    Resumed,
}

/// The counts of a link since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Messages that `send` took, once for each channel.
    pub messages_sent: u64,
    /// Their payload bytes.
    pub bytes_sent: u64,
    /// Messages that were emitted again after a cut.
    pub messages_sent_again: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Messages that came again and were dropped (`resume_from_consumed`).
    pub messages_skipped: u64,
    /// Transports that the link has had.
    pub transports: u64,
    /// Transports on which the peer has announced every message that it had got.
    pub resumes: u64,
    /// Own channels that are open.
    pub channels_outgoing: usize,
    /// Channels of the peer that are open.
    pub channels_incoming: usize,
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    key: LinkKey,
    end: End,
    reader: Reader,
    outgoing: Channels<Outgoing>,
    incoming: Channels<Incoming>,
    transport: Option<Transport>,
    events: Events,
    journal: Option<Journal>,
    share: Share,
    totals: Totals,
    /// The position in the output of all transports, counted in answers: it orders outcomes and pings.
    position: u64,
}

impl Link {
    /// A link without a transport.
    pub fn new(mut config: LinkConfig, key: LinkKey) -> Self {
        // The journal has no messages that are not consumed, so the peer has to repeat them.
        config.resume_from_consumed |= config.journal;
        let mut link = Self {
            key,
            end: End::default(),
            reader: Reader::new(&config),
            outgoing: Channels::new(),
            incoming: Channels::new(),
            transport: None,
            events: Events::default(),
            journal: config.journal.then(Journal::default),
            share: Share::default(),
            totals: Totals::default(),
            position: 0,
            config,
        };
        let channels = std::mem::take(&mut link.config.channels);
        for start in &channels {
            let id = start.channel.clone();
            match start.side {
                Side::Outgoing => {
                    let channel = Outgoing::new(start.next, link.own_transactions());
                    link.outgoing.insert(id, channel);
                }
                Side::Incoming => {
                    let channel = Incoming::new(start.next, link.peer_transactions(), 0);
                    link.incoming.insert(id, channel);
                }
            }
        }
        link.config.channels = channels;
        link
    }

    /// The identity of the link.
    pub const fn key(&self) -> LinkKey {
        self.key
    }

    /// The configuration that it was made with.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Whether it has a transport that works.
    pub fn is_attached(&self) -> bool {
        !self.end.is_over() && self.transport.as_ref().is_some_and(Transport::works)
    }

    /// Where the link is in its life.
    pub fn state(&self) -> LinkState {
        match (self.end.over(), &self.transport) {
            (Some(Over::Closed), _) => LinkState::Closed,
            (Some(Over::Lost), _) => LinkState::Lost,
            _ if !self.is_attached() => LinkState::Connecting,
            (None, Some(transport)) if transport.is_resuming() => LinkState::Resuming,
            _ if self.end.is_called() || self.end.is_peers() => LinkState::ShuttingDown,
            _ => LinkState::Up,
        }
    }

    /// Messages that the window of a channel has still room for.
    pub fn send_room(&self, channel: &ChannelId) -> u32 {
        let used = self
            .outgoing
            .look(channel.as_bytes())
            .and_then(|key| self.outgoing.get(key))
            .map_or(0, Outgoing::outstanding);
        self.send_window().saturating_sub(used)
    }

    /// Messages sent and not acknowledged as consumed, by ascending channel, in order; also after the end.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (&ChannelId, Sequence, &Payload)> {
        self.outgoing.iter().flat_map(|(id, channel)| {
            let messages = channel.messages();
            messages.map(move |(sequence, payload)| (id, sequence, payload))
        })
    }

    /// The own channels that are open, ascending, and how many of their messages are not consumed.
    pub fn channels(&self) -> impl Iterator<Item = (&ChannelId, u32)> {
        let channels = self.outgoing.iter();
        channels.map(|(id, channel)| (id, channel.outstanding()))
    }

    /// The counts since the link was made.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            channels_outgoing: self.outgoing.len(),
            channels_incoming: self.incoming.len(),
            ..self.totals.stats()
        }
    }

    const fn send_window(&self) -> u32 {
        // Half of all numbers, so that it is always clear which of two is the later one.
        const MOST: u32 = 0x7fff_ffff;
        if self.config.send_window < MOST {
            self.config.send_window
        } else {
            MOST
        }
    }

    const fn own_transactions(&self) -> bool {
        self.config.parameters.transactions(self.config.role)
    }

    const fn peer_transactions(&self) -> bool {
        self.config.parameters.transactions(self.config.role.peer())
    }

    fn event(&mut self, event: Event) {
        self.events.push(event, 0);
    }

    /// Ends the link, if both sides have shut down and nothing is left (R-RELINK-V17).
    fn close_if_done(&mut self) {
        if !self.end.is_peers() || !self.end.is_emitted() || !self.is_attached() {
            return;
        }
        let drained = if self.config.peer_channel_id_size() == 0 {
            self.incoming.iter().all(|(_, channel)| channel.is_told())
        } else {
            self.incoming.is_empty()
        };
        if drained && self.transport.as_ref().is_some_and(Transport::owes_nothing) {
            self.end.finish(Over::Closed);
            self.event(Event::LinkClosed);
        }
    }
}

impl Connection for Link {
    type Event = Event;
    type Kind = Kind;

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        self.take_input(now, input)
    }

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.input_ended(now)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.put_output(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        self.timers(now)
    }

    fn reading(&mut self, now: Instant, on: bool) {
        if let Some(transport) = &mut self.transport {
            transport.timing.reading(now, on);
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        match (&self.transport, self.end.over()) {
            (Some(transport), _) if !transport.works() => Lifecycle::Closed,
            (_, Some(Over::Lost)) | (None, Some(_)) => Lifecycle::Closed,
            (Some(_), Some(Over::Closed)) => Lifecycle::Draining,
            (_, None) => Lifecycle::Open,
        }
    }

    fn held_bytes(&self) -> usize {
        self.totals.held()
    }

    fn finished(&self) -> u64 {
        self.totals.stats().messages_received
    }

    fn complete_bytes(&self) -> usize {
        self.totals.held()
    }

    fn step_bytes(&self) -> usize {
        let split = self.transport.as_ref().map(|it| &it.split);
        split.map_or(0, Split::step_bytes)
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts::of_pings(self.config.ping_after, self.config.pong_timeout)
    }

    fn detached(&mut self, now: Instant) -> bool {
        self.detach(now);
        !self.end.is_over()
    }
}
