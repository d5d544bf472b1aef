//! A link's machine with what its application has still to take: the one thing that the driver drives.
//!
//! It takes the machine's events as they come, so that acknowledgements reach who waits for them however
//! many messages wait to be received; what may wait is bounded by windows and the memory budget.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_core::{
    Connection, Lifecycle, LimitHit, Need, ProtocolError, SendQueue, Sequence, StallTimeouts,
    UsageError,
};
use ackline_relink::frame::{Acknowledgement, Operation};
use ackline_relink::{self as machine, Attach, ChannelId, Kind, LinkKey, LinkState, Payload};
use bytes::BytesMut;

use super::error::{Error, LinkLost, Unacknowledged};
use super::interest::Interest;
use super::link_host::LinkHost;
use super::receipt::{Kept, Progress, Receipt, Stage};
use super::told::Told;

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The peer's channel.
    pub channel: ChannelId,
    /// Its number there.
    pub sequence: Sequence,
    /// Its parts.
    pub payload: Payload,
    /// How many messages had come over the link before it, on all channels.
    pub(super) place: u64,
}

/// A decision of the peer's on messages that it sent in a transactional direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The peer's channel.
    pub channel: ChannelId,
    /// Whether they are to be processed; else they are rolled back.
    pub is_commit: bool,
    /// The last of the messages; the first follows those decided before.
    pub through: Sequence,
}

/// What happens to a link beside its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A transport carries the link.
    Connected {
        /// Not for the first time.
        resumed: bool,
    },
    /// The transport is gone; the link goes on without it.
    Disconnected,
    /// The peer has told all that it had got before the cut.
    Resumed,
    /// The peer closes its channel.
    Closing {
        /// The peer's channel.
        channel: ChannelId,
    },
    /// An own channel is closed.
    Closed {
        /// The own channel.
        channel: ChannelId,
        /// Its messages that were never acknowledged as consumed.
        unacknowledged: u32,
    },
    /// The peer opens no more channels.
    PeerShutdown,
}

/// What a link has carried and holds.
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

/// A link's machine with what waits for its application.
#[derive(Debug)]
pub struct Session {
    machine: machine::Link,
    inbox: VecDeque<Message>,
    /// Messages that have come.
    came: u64,
    decisions: VecDeque<Decided>,
    events: VecDeque<Event>,
    missed: u64,
    lives: HashMap<ChannelId, Arc<Progress>>,
    sent_bytes: usize,
    send_bytes: usize,
    has_peer_shut_down: bool,
    pongs: u64,
    round_trip: Duration,
    over: Option<Error>,
    /// How far the journal is, for who holds a receipt.
    kept: Arc<Kept>,
    /// Why the link is given up, if it is this side that does.
    reason: Option<Arc<str>>,
    told: Told,
    /// It was said that nothing is read because of decisions that wait.
    is_stalled: bool,
}

impl Session {
    /// A session whose unacknowledged messages have so many bytes at the most.
    pub(super) fn new(machine: machine::Link, send_bytes: usize) -> Self {
        let came = machine.stats().messages_received;
        let kept = Arc::new(Kept::new(machine.config().journal));
        let mut session = Self {
            machine,
            inbox: VecDeque::new(),
            came,
            decisions: VecDeque::new(),
            events: VecDeque::new(),
            missed: 0,
            lives: HashMap::new(),
            sent_bytes: 0,
            send_bytes,
            has_peer_shut_down: false,
            pongs: 0,
            round_trip: Duration::ZERO,
            over: None,
            kept,
            reason: None,
            told: Told::default(),
            is_stalled: false,
        };
        session.adopt();
        session
    }

    /// Messages of an earlier process count as those of this one do, and so does the last one that is over.
    fn adopt(&mut self) {
        for standing in self.machine.standings() {
            let life = Progress::adopted(&standing, Arc::clone(&self.kept));
            self.lives.insert(standing.channel.clone(), Arc::new(life));
        }
        for (channel, sequence, payload) in self.machine.unacknowledged() {
            let Some(life) = self.lives.get(channel) else {
                continue;
            };
            self.sent_bytes += payload.bytes();
            life.sent(sequence, payload.bytes(), 0);
        }
        for standing in self.machine.standings() {
            for (is_commit, through) in standing.decided {
                if let Some(life) = self.lives.get(standing.channel) {
                    life.reach(Stage::Decided(is_commit), through);
                }
            }
        }
    }

    /// The receipt of the last message of a channel that is not over.
    pub(super) fn last_receipt(&self, channel: &ChannelId) -> Option<Receipt> {
        let life = self.lives.get(channel)?;
        life.last_receipt()
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

    /// Sends a message on each of these channels, in one packet.
    ///
    /// # Errors
    /// [`Error::Blocked`] without room on one of them; the machine's refusals; the link is over.
    pub fn send(
        &mut self,
        now: Instant,
        channels: &[ChannelId],
        payload: &Payload,
    ) -> Result<Vec<Receipt>, Error> {
        self.is_alive()?;
        self.fits(payload)?;
        self.fits_windows(channels)?;
        let bytes = payload.bytes();
        let all = bytes.saturating_mul(channels.len());
        if self.sent_bytes > 0 && self.sent_bytes.saturating_add(all) > self.send_bytes {
            return Err(Error::Blocked);
        }
        let machine = &mut self.machine;
        let sent = match channels {
            [one] => machine
                .send_to(now, one, payload.clone())
                .map(|sequence| vec![sequence]),
            _ => machine.send(now, channels, payload.clone()),
        };
        let sequences = sent.map_err(|error| self.refused(error, channels))?;
        self.sent_bytes += all;
        let change = self.machine.changes_noted();
        let sent = channels.iter().zip(sequences);
        Ok(sent
            .map(|(channel, sequence)| {
                let life = self.life(channel, sequence);
                life.sent(sequence, bytes, change)
            })
            .collect())
    }

    /// A channel that is named more often than its window has messages would be waited for for ever.
    fn fits_windows(&self, channels: &[ChannelId]) -> Result<(), Error> {
        let window = usize::try_from(self.machine.config().send_window).unwrap_or(usize::MAX);
        if channels.len() <= window {
            return Ok(());
        }
        let mut counts: HashMap<&ChannelId, usize> = HashMap::new();
        for channel in channels {
            let count = counts.entry(channel).or_default();
            *count += 1;
            if *count > window {
                return Err(Error::Usage(TOO_OFTEN));
            }
        }
        Ok(())
    }

    /// Sends the messages on one channel, in order, while there is room: how many, and the receipt of the last
    /// of them, which stands for all.
    ///
    /// # Errors
    /// As [`send`](Self::send), if not even the first was sent.
    pub fn send_run(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        payloads: &[Payload],
    ) -> Result<(usize, Option<Receipt>), Error> {
        self.is_alive()?;
        let (mut first, mut sent) = (None, 0);
        for payload in payloads {
            let bytes = payload.bytes();
            let is_full =
                self.sent_bytes > 0 && self.sent_bytes.saturating_add(bytes) > self.send_bytes;
            let taken = if is_full {
                Err(Error::Blocked)
            } else {
                self.fits(payload).and_then(|()| {
                    let taken = self.machine.send_to(now, channel, payload.clone());
                    taken.map_err(|error| self.refused(error, std::slice::from_ref(channel)))
                })
            };
            match taken {
                Ok(sequence) => first = first.or(Some(sequence)),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            self.sent_bytes += bytes;
            sent += 1;
        }
        let (Some(first), run) = (first, &payloads[..sent]) else {
            return Ok((0, None));
        };
        let steps = u32::try_from(sent - 1).unwrap_or_default();
        let sizes = run.iter().map(Payload::bytes);
        let change = self.machine.changes_noted();
        let life = self.life(channel, first);
        let last = life.sent_run(first.plus(steps), sizes, change);
        Ok((sent, Some(last)))
    }

    /// Why a message is not sent on these channels.
    fn refused(&self, error: UsageError, channels: &[ChannelId]) -> Error {
        let wanted = self.machine.config().own_channel_id_size();
        let is_wrong = |channel: &&ChannelId| channel.len() != usize::from(wanted);
        match channels.iter().find(is_wrong) {
            Some(channel) if error.code == "invalid_channel_id" => Error::ChannelIdSize {
                channel: channel.clone(),
                wanted,
            },
            _ => refusal(error),
        }
    }

    /// A message that this side would refuse is not sent: it would come again with every transport.
    fn fits(&self, payload: &Payload) -> Result<(), Error> {
        let limits = &self.machine.config().limits;
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let parts = payload.as_slice().iter();
        let largest = parts.map(bytes::Bytes::len).max().unwrap_or(0);
        let all = [
            (
                payload.len(),
                limits.max_message_parts.into(),
                "max_message_parts",
            ),
            (largest, limits.max_part_bytes, "max_part_bytes"),
            (
                payload.bytes(),
                limits.max_message_bytes,
                "max_message_bytes",
            ),
        ];
        let over = all.iter().find(|(count, limit, _)| wide(*count) > *limit);
        over.map_or(Ok(()), |(count, limit, option)| {
            Err(Error::TooLarge(LimitHit {
                value: wide(*count),
                limit: *limit,
                option,
            }))
        })
    }

    /// The life of a channel, which begins with this message if there is none.
    fn life(&mut self, channel: &ChannelId, sequence: Sequence) -> &Arc<Progress> {
        if !self.lives.contains_key(channel) {
            let life = Progress::new(sequence, Arc::clone(&self.kept));
            let life = Arc::new(life);
            self.lives.insert(channel.clone(), life);
        }
        &self.lives[channel]
    }

    /// The messages that have arrived, up to so many; `None` when no more can come.
    ///
    /// # Errors
    /// The link is over, and every message was taken.
    pub fn receive(&mut self, max: usize) -> Result<Option<Vec<Message>>, Error> {
        let count = self.inbox.len().min(max);
        if count > 0 {
            return Ok(Some(self.inbox.drain(..count).collect()));
        }
        self.is_alive()?;
        let is_last = self.has_peer_shut_down && !self.has_open_incoming();
        Ok((!is_last).then(Vec::new))
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
        match self.decisions.pop_front() {
            None => self.is_alive().map(|()| None),
            decided => {
                self.is_stalled &= !self.decisions.is_empty();
                Ok(decided)
            }
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The link is over, and every event was taken.
    pub fn event(&mut self) -> Result<Option<Event>, Error> {
        match self.events.pop_front() {
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
        self.asked(verb, |error, _| refusal(error))
    }

    /// A verb of the machine's, and what is told of its refusal.
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

    /// Own messages of a channel have come so far.
    pub(super) fn reach(&self, channel: &ChannelId, stage: Stage, through: Sequence) {
        if let Some(life) = self.lives.get(channel) {
            life.reach(stage, through);
        }
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

    /// Whether there is something of this kind.
    pub(super) fn has(&self, interest: &Interest) -> bool {
        match interest {
            Interest::Message => {
                !self.inbox.is_empty() || (self.has_peer_shut_down && !self.has_open_incoming())
            }
            Interest::Decision => !self.decisions.is_empty(),
            Interest::Event => !self.events.is_empty(),
            Interest::Room(channel) => {
                self.machine.send_room(channel) > 0
                    && (self.sent_bytes == 0 || self.sent_bytes < self.send_bytes)
            }
            Interest::Connected => self.machine.is_attached(),
            Interest::End => self.over.is_some(),
        }
    }

    /// The listener's limits and reasons, as told on this transport.
    pub fn told(&self) -> Told {
        self.told
    }

    /// Pings answered so far, and how long the last one took.
    pub fn pongs(&self) -> (u64, Duration) {
        (self.pongs, self.round_trip)
    }

    /// What the link has carried and holds.
    pub fn stats(&self) -> Stats {
        Stats {
            link: self.machine.stats(),
            unacknowledged_bytes: self.sent_bytes,
            waiting: self.inbox.len(),
            missed_events: self.missed,
        }
    }

    /// Says once that the link reads nothing, until all decisions were taken.
    fn stall(&mut self) {
        if std::mem::replace(&mut self.is_stalled, true) {
            return;
        }
        let LinkKey { epoch, link_id } = self.machine.key();
        tracing::warn!(
            code = "relink.decisions_wait",
            epoch,
            link_id,
            decisions = MAX_DECISIONS,
            "the link reads nothing more until the application takes decisions"
        );
    }

    fn is_alive(&self) -> Result<(), Error> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Takes what the machine has to tell.
    fn take(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            self.take_one(event);
        }
    }

    fn take_one(&mut self, event: machine::Event) {
        match event {
            machine::Event::Message {
                channel,
                sequence,
                payload,
            } => {
                let place = self.came;
                self.came += 1;
                self.inbox.push_back(Message {
                    channel,
                    sequence,
                    payload,
                    place,
                });
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
            } => self.decisions.push_back(Decided {
                channel,
                is_commit: operation == Operation::Commit,
                through,
            }),
            machine::Event::Closing { channel } => self.tell(Event::Closing { channel }),
            machine::Event::Closed {
                channel,
                unacknowledged,
            } => {
                if let Some(life) = self.lives.remove(&channel) {
                    self.sent_bytes -= life.end(Error::ChannelClosed);
                }
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
        let life = self.lives.get(channel).filter(|_| self.over.is_none());
        if let Some(life) = life {
            self.sent_bytes -= life.reach(stage, through);
        }
    }

    fn lost(&self) -> LinkLost {
        let unacknowledged = self.machine.unacknowledged();
        LinkLost {
            reason: self.reason.clone().unwrap_or_else(|| UNKNOWN.into()),
            unacknowledged: unacknowledged
                .map(|(channel, sequence, payload)| Unacknowledged {
                    channel: channel.clone(),
                    sequence,
                    payload: payload.clone(),
                })
                .collect(),
        }
    }

    fn end(&mut self, why: Error) {
        // They stay: who asks for the last receipt is told by it what became of the message.
        for life in self.lives.values() {
            life.end(why.clone());
        }
        self.sent_bytes = 0;
        self.over.get_or_insert(why);
        self.kept.ended();
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
            self.missed += 1;
        }
        self.events.push_back(event);
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
        self.take();
    }

    fn lose(&mut self, now: Instant, reason: &str) {
        self.reason = Some(reason.into());
        self.machine.lose(now);
        self.take();
    }

    fn journaled(&mut self, now: Instant) {
        self.machine.journaled(now);
        self.kept.reach(self.machine.changes_kept());
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

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        loop {
            if self.decisions.len() >= MAX_DECISIONS {
                self.stall();
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

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let ended = self.machine.receive_eof(now);
        self.take();
        ended
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.machine.poll_transmit(now, out);
        self.take();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let handled = self.machine.handle_timeout(now);
        self.take();
        handled
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.machine.reading(now, on);
    }

    fn lifecycle(&self) -> Lifecycle {
        self.machine.lifecycle()
    }

    /// A message without a byte takes room too.
    fn held_bytes(&self) -> usize {
        let inbox = self.inbox.len().saturating_mul(size_of::<Message>());
        self.machine.held_bytes().saturating_add(inbox)
    }

    fn finished(&self) -> u64 {
        self.machine.finished()
    }

    fn complete_bytes(&self) -> usize {
        self.held_bytes()
    }

    fn step_bytes(&self) -> usize {
        self.machine.step_bytes()
    }

    fn stall_timeouts(&self) -> StallTimeouts {
        self.machine.stall_timeouts()
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.machine.detached(now);
        self.tell(Event::Disconnected);
        self.take();
        goes_on
    }
}

/// One channel, many times.
const TOO_OFTEN: UsageError = UsageError::new(
    "too_often",
    "a channel is named more often than send_window has messages: send them one by one",
);

fn refusal(error: UsageError) -> Error {
    if error.code == "window_full" {
        return Error::Blocked;
    }
    Error::Usage(error)
}

const UNKNOWN: &str = "the peer does not know it any more, or its state does not fit";
/// Events that wait to be taken; above it the oldest goes.
const MAX_EVENTS: usize = 1_024;
/// Decisions that wait to be taken; at so many nothing more is read.
const MAX_DECISIONS: usize = 65_536;
