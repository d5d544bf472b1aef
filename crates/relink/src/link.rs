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
//! Decided here: sequence numbers, windows, what is acknowledged, what is sent again after a cut, the
//! life of channels and of the link. Not here: how transports come to be, when to give a link up, and
//! what messages mean. What each part decides stands in its module: [`outgoing`] and [`incoming`]
//! channels, [`transactions`], [`resume`], [`receive`], [`transmit`], [`timing`], [`journal`].
//!
//! Its rules: REQ-RELINK-22.

mod channels;
mod ends;
mod handover;
mod incoming;
mod journal;
mod nameable;
mod outgoing;
mod receive;
mod resume;
mod share;
mod standing;
mod timers;
mod transactions;
mod transmit;
mod transport;
mod verbs;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ackline_core::{
    Block, Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, StallTimeouts,
};
use bytes::BytesMut;

use crate::frame::{Acknowledgement, Context, Hint, Operation};
use crate::{ChannelId, Kind, LinkConfig, LinkKey, Payload, Side};

use channels::Channels;
use incoming::Incoming;
pub use journal::Change;
use journal::Journal;
use outgoing::Outgoing;
use share::Share;
pub use share::{CHANNEL_BYTES, FREE_CHANNELS, FREE_OUTCOMES, OUTCOME_BYTES};
pub use standing::Standing;
use transport::Transport;

/// What a [`Link`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The link is over: [`Link::unacknowledged`] says what may be sent again over another.
    LinkLost,
    /// Both sides have shut down and nothing is left: the link is over.
    LinkClosed,
    /// The peer has announced everything that it got before the cut.
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
        /// What was acknowledged; never [`Acknowledgement::Closed`].
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
        /// Messages never acknowledged as consumed. After a cut their fate is unknown: all of them were
        /// consumed, or none of them arrived (R-RELINK-V5); and commits may have been answered that this
        /// end never hears of. Not so with `close_when_consumed`.
        unacknowledged: u32,
    },
    /// The peer opens no more channels.
    PeerShutdown,
    /// The listener tells something beside the specification ([`Link::hear_hints`]).
    Hint(Hint),
    /// A ping was answered.
    Pong {
        /// From the ping's emission to its pong.
        round_trip: Duration,
    },
}

/// Where a link is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It has no transport.
    Connecting,
    /// It has a transport; the peer has not announced everything yet.
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

/// What a new transport carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// The start of this link.
    New(LinkKey),
    /// The link as it was when the last transport ended.
    Resumed,
}

/// What has gone through a link since it was made.
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
    /// Transports on which the peer has announced everything that it had got.
    pub resumes: u64,
    /// Own channels that are open.
    pub channels_outgoing: usize,
    /// Channels of the peer's that are open.
    pub channels_incoming: usize,
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    context: Context,
    key: LinkKey,
    over: Option<Over>,
    outgoing: Channels<Outgoing>,
    incoming: Channels<Incoming>,
    transport: Option<Transport>,
    shutdown: Shutdown,
    peer_shutdown: bool,
    hears_hints: bool,
    /// With the payload bytes of each.
    events: VecDeque<(Event, usize)>,
    /// Payload bytes in `events`.
    event_bytes: usize,
    /// Payload bytes delivered and not consumed.
    held: usize,
    /// Copies of small messages, while there is input.
    block: Block,
    journal: Option<Journal>,
    share: Share,
    stats: LinkStats,
    /// Output of all transports, counted in answers: orders outcomes and pings.
    position: u64,
}

/// How a link has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Closed,
    Lost,
}

/// How far the own shutdown is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// It waits for own channels.
    Called,
    /// It may be told.
    Ready,
    /// It was emitted, on this transport or an earlier one.
    Emitted,
}

impl Link {
    /// A link without a transport.
    pub fn new(mut config: LinkConfig, key: LinkKey) -> Self {
        // What is not consumed is not in the journal.
        config.resume_from_consumed |= config.journal;
        let parameters = config.parameters;
        let context = Context {
            from: config.role.peer(),
            connector_channel_id_size: parameters.connector_channel_id_size,
            listener_channel_id_size: parameters.listener_channel_id_size,
        };
        let mut link = Self {
            context,
            key,
            over: None,
            outgoing: Channels::new(),
            incoming: Channels::new(),
            transport: None,
            shutdown: Shutdown::No,
            peer_shutdown: false,
            hears_hints: false,
            events: VecDeque::new(),
            event_bytes: 0,
            held: 0,
            block: Block::default(),
            journal: config.journal.then(Journal::default),
            share: Share::default(),
            stats: LinkStats::default(),
            position: 0,
            config,
        };
        let channels = std::mem::take(&mut link.config.channels);
        for start in &channels {
            let id = start.channel.clone();
            match start.side {
                Side::Outgoing => {
                    let channel = Outgoing::new(start.next, false, link.own_transactions());
                    link.outgoing.insert(id, channel);
                }
                Side::Incoming => {
                    let channel = Incoming::new(start.next, true, link.peer_transactions());
                    link.incoming.insert(id, channel);
                }
            }
        }
        link.config.channels = channels;
        link
    }

    /// Which link this is.
    pub const fn key(&self) -> LinkKey {
        self.key
    }

    /// What it was made with.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Whether it has a transport that works.
    pub fn is_attached(&self) -> bool {
        self.over.is_none() && self.transport.as_ref().is_some_and(Transport::works)
    }

    /// Where the link is in its life.
    pub fn state(&self) -> LinkState {
        match (self.over, &self.transport) {
            (Some(Over::Closed), _) => LinkState::Closed,
            (Some(Over::Lost), _) => LinkState::Lost,
            _ if !self.is_attached() => LinkState::Connecting,
            (None, Some(transport)) if transport.is_resuming() => LinkState::Resuming,
            _ if self.shutdown != Shutdown::No || self.peer_shutdown => LinkState::ShuttingDown,
            _ => LinkState::Up,
        }
    }

    /// Messages that may be sent on a channel now: what the window leaves.
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

    /// What has gone through the link.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            channels_outgoing: self.outgoing.len(),
            channels_incoming: self.incoming.len(),
            ..self.stats
        }
    }

    const fn send_window(&self) -> u32 {
        // Half of all numbers, so that before and behind are never in doubt.
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
        self.events.push_back((event, 0));
    }

    fn message_event(&mut self, event: Event, bytes: usize) {
        self.event_bytes = self.event_bytes.saturating_add(bytes);
        self.events.push_back((event, bytes));
    }

    /// Whether events must be taken before more input is looked at.
    fn is_full(&self) -> bool {
        self.events.len() >= self.config.max_events.max(1)
            || self.event_bytes >= self.config.max_event_bytes.max(1)
    }

    /// The end of the link, if both sides have shut down and nothing is left (R-RELINK-V17).
    fn close_if_done(&mut self) {
        let is_over = self.over.is_some() || !self.peer_shutdown;
        if is_over || self.shutdown != Shutdown::Emitted || !self.is_attached() {
            return;
        }
        let drained = if self.config.peer_channel_id_size() == 0 {
            self.incoming.iter().all(|(_, channel)| channel.is_told())
        } else {
            self.incoming.is_empty()
        };
        if drained && self.transport.as_ref().is_some_and(Transport::owes_nothing) {
            self.over = Some(Over::Closed);
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
        let (event, bytes) = self.events.pop_front()?;
        self.event_bytes = self.event_bytes.saturating_sub(bytes);
        Some(event)
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
        match (&self.transport, self.over) {
            (Some(transport), _) if !transport.works() => Lifecycle::Closed,
            (_, Some(Over::Lost)) | (None, Some(_)) => Lifecycle::Closed,
            (Some(_), Some(Over::Closed)) => Lifecycle::Draining,
            (_, None) => Lifecycle::Open,
        }
    }

    fn held_bytes(&self) -> usize {
        self.held
    }

    fn finished(&self) -> u64 {
        self.stats.messages_received
    }

    fn complete_bytes(&self) -> usize {
        self.held
    }

    fn step_bytes(&self) -> usize {
        self.transport.as_ref().map_or(0, Transport::step_bytes)
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts::of_pings(self.config.ping_after, self.config.pong_timeout)
    }

    fn detached(&mut self, now: Instant) -> bool {
        self.detach(now);
        self.over.is_none()
    }
}
