//! Two ends of a link, the bytes between them, transports that are cut, and the invariants: in each life of a channel
//! every message arrives exactly once and in order, every decision is told, and every commit is answered once.
//!
//! The oracle records the calls and events of both applications. It does not look into a link.
#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, SendQueue, Sequence, UsageError};
use ackline_relink::frame::{EndpointName, Parameters, Role};
use ackline_relink::{
    Attach, Binder, Change, ChannelId, ConnectorConfig, Decision, EndpointConfig, Event, Handshake,
    HandshakeEvent, Link, LinkConfig, LinkKey, LinkState, ListenerConfig, Payload, Side,
    StartChannel,
};
use bytes::{Buf, Bytes, BytesMut};

#[path = "oracle.rs"]
pub(crate) mod oracle;

use oracle::Oracle;

/// An end: the connector is 0, the listener 1.
pub(crate) type End = usize;

/// The options of both ends.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) parameters: Parameters,
    pub(crate) ends: [LinkConfig; 2],
    /// The number of the first message in the first life of channels 0 to 2 of each end.
    pub(crate) first: [u32; 2],
}

impl Setup {
    pub(crate) fn new(parameters: Parameters) -> Self {
        let end = |role| {
            let mut config = LinkConfig::new(role, parameters);
            config.ping_after = None;
            config.pong_timeout = None;
            config.packet_receive_timeout = None;
            config
        };
        Self {
            parameters,
            ends: [end(Role::Connector), end(Role::Listener)],
            first: [0; 2],
        }
    }

    /// Lets channels 0 to 2 of an end exist from the start; their next message has that number.
    pub(crate) fn start_at(&mut self, end: End, first: u32) {
        self.first[end] = first;
        let size = self.ends[end].own_channel_id_size();
        for channel in 0..if size == 0 { 1 } else { 3_u64 } {
            for (at, side) in [(end, Side::Outgoing), (1 - end, Side::Incoming)] {
                self.ends[at].channels.push(StartChannel {
                    side,
                    channel: ChannelId::le(channel, size).unwrap(),
                    next: Sequence(first),
                });
            }
        }
    }
}

/// One end and its bytes on the way.
#[derive(Default)]
struct Process {
    link: Option<Link>,
    handshake: Option<Handshake>,
    input: BytesMut,
    /// Bytes on the way to the other end.
    sent: BytesMut,
    /// The changes in the journal, if there is one, and how many of them are safe.
    disk: Vec<Change>,
    safe: usize,
    /// All changes that were ever in it.
    log: Vec<Change>,
}

/// A cut, which happens when so many bytes of the transport have arrived in one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The sender of the bytes.
    pub(crate) from: End,
    pub(crate) after: u64,
}

/// The two ends.
pub(crate) struct World {
    setup: Setup,
    now: Instant,
    sides: [Process; 2],
    binder: Binder,
    /// Bytes that have arrived on this transport, by sender.
    pub(crate) arrived: [u64; 2],
    /// Cuts to come, the next one last.
    pub(crate) cuts: Vec<Cut>,
    /// The number of changes in an end's journal at which its process dies, and whether it kept those that it had not
    /// confirmed.
    pub(crate) crash_at: Option<(End, usize, bool)>,
    pub(crate) is_connected: bool,
    pub(crate) oracle: Oracle,
    pub(crate) resumed: u64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let endpoint = EndpointConfig {
            endpoint_name: name(),
            parameters: setup.parameters,
        };
        Self {
            oracle: Oracle::new(&setup),
            setup,
            now: Instant::now(),
            sides: Default::default(),
            binder: Binder::new(7, 1, vec![endpoint]),
            arrived: [0; 2],
            cuts: Vec::new(),
            crash_at: None,
            is_connected: false,
            resumed: 0,
        }
    }

    pub(crate) fn link(&self, end: End) -> Option<&Link> {
        self.sides[end].link.as_ref()
    }

    /// Makes a new transport, in any state of the link.
    pub(crate) fn connect(&mut self) {
        self.cut();
        if self.is_over(0) {
            // The connector has no reason to connect again, and the listener gives the link up after a while.
            self.give_up(1);
            return;
        }
        let old = self.sides[0].link.as_ref().map(Link::key);
        let mut config = ConnectorConfig::new(name(), self.setup.parameters);
        config.handshake_timeout = None;
        self.sides[0].handshake = Some(Handshake::connector(self.now, config, old));
        let listener = ListenerConfig {
            handshake_timeout: None,
        };
        self.sides[1].handshake = Some(Handshake::listener(self.now, listener));
        self.is_connected = true;
        self.arrived = [0; 2];
    }

    /// Removes the transport with all bytes on their way.
    pub(crate) fn cut(&mut self) {
        self.is_connected = false;
        for side in &mut self.sides {
            side.handshake = None;
            side.input.clear();
            side.sent.clear();
            if let Some(link) = &mut side.link {
                link.detached(self.now);
            }
        }
    }

    /// Writes the output of the end, as much as a driver would.
    pub(crate) fn transmit(&mut self, end: End) -> bool {
        if !self.is_connected {
            return false;
        }
        let side = &mut self.sides[end];
        let mut out = SendQueue::new();
        if let Some(handshake) = &mut side.handshake {
            handshake.poll_transmit(self.now, &mut out);
        } else if let Some(link) = &mut side.link {
            link.poll_transmit(self.now, &mut out);
        }
        let moved = !out.is_empty();
        side.sent.extend_from_slice(&out.copy_to_bytes(out.len()));
        self.events(end);
        moved
    }

    /// Returns how many changes the journal of an end has taken.
    pub(crate) fn journaled(&self, end: End) -> usize {
        self.sides[end].log.len()
    }

    /// Returns how many bytes of an end are on their way.
    pub(crate) fn in_flight(&self, from: End) -> usize {
        self.sides[from].sent.len()
    }

    /// Delivers up to `count` bytes to the other end, and makes a cut that is due.
    pub(crate) fn deliver(&mut self, from: End, count: usize) {
        let mut count = count.min(self.in_flight(from));
        let due = self.cuts.last().filter(|cut| cut.from == from).copied();
        if let Some(cut) = due {
            let left = cut.after.saturating_sub(self.arrived[from]);
            count = count.min(usize::try_from(left).unwrap());
        }
        let bytes = self.sides[from].sent.split_to(count);
        self.arrived[from] += count as u64;
        self.sides[1 - from].input.extend_from_slice(&bytes);
        self.receive(1 - from);
        if due.is_some_and(|cut| cut.after <= self.arrived[from]) {
            self.cuts.pop();
            self.cut();
        }
    }

    fn receive(&mut self, end: End) {
        loop {
            if self.sides[end].handshake.is_some() {
                if !self.shake_hands(end) {
                    return;
                }
                continue;
            }
            let side = &mut self.sides[end];
            let Some(link) = &mut side.link else {
                return;
            };
            let need = match link.receive(self.now, &mut side.input) {
                Ok(need) => need,
                Err(error) => panic!("end {end}: {error}"),
            };
            self.events(end);
            if matches!(need, Need::Input { .. }) {
                return;
            }
        }
    }

    /// Does one step. Returns whether there may be another.
    fn shake_hands(&mut self, end: End) -> bool {
        let side = &mut self.sides[end];
        let handshake = side.handshake.as_mut().expect("looked at");
        let need = handshake.receive(self.now, &mut side.input).unwrap();
        match handshake.poll_event() {
            Some(HandshakeEvent::Requested(block)) => {
                let decision = self.binder.decide(&block).unwrap();
                if let Decision::New(_) = decision {
                    self.start_anew();
                }
                let ident = self.binder.ident(decision);
                let handshake = self.sides[end].handshake.as_mut().expect("looked at");
                handshake.accept(self.now, ident).unwrap();
                true
            }
            Some(HandshakeEvent::Established { key, resumed }) => {
                assert_eq!(handshake.lifecycle(), Lifecycle::Handover);
                let mut out = SendQueue::new();
                handshake.poll_transmit(self.now, &mut out);
                side.sent.extend_from_slice(&out.copy_to_bytes(out.len()));
                side.handshake = None;
                self.attach(end, key, resumed);
                true
            }
            Some(HandshakeEvent::LinkLost) => panic!("the link is lost"),
            None => need == Need::Room,
        }
    }

    /// Handles a new link of the listener: the first one, one after an ident that the connector never got, or one
    /// after a link that the listener has closed and the connector has not.
    fn start_anew(&mut self) {
        if self.sides[0].link.is_some() {
            assert!(self.is_over(1), "a known link became a new one");
            return;
        }
        let listener = &mut self.sides[1];
        listener.link = None;
        (listener.disk, listener.log, listener.safe) = (Vec::new(), Vec::new(), 0);
        self.oracle = Oracle::new(&self.setup);
    }

    fn is_over(&self, end: End) -> bool {
        let link = self.link(end);
        link.is_some_and(|link| matches!(link.state(), LinkState::Closed | LinkState::Lost))
    }

    /// Handles that the other end does not know the link any more: a link with nothing left to do is closed then.
    fn give_up(&mut self, end: End) {
        if let Some(link) = &mut self.sides[end].link {
            link.lose(self.now);
        }
        self.events(end);
    }

    fn attach(&mut self, end: End, key: LinkKey, resumed: bool) {
        self.resumed += u64::from(resumed);
        if !resumed && self.sides[end].link.is_some() {
            self.give_up(end);
            return;
        }
        let side = &mut self.sides[end];
        let attach = if resumed {
            Attach::Resumed
        } else {
            side.link = Some(Link::new(self.setup.ends[end].clone(), key));
            Attach::New(key)
        };
        let link = side.link.as_mut().expect("old or new");
        assert_eq!(link.key(), key);
        link.attach(self.now, attach);
        if !resumed {
            // The layer above keeps a link before it answers the connector.
            self.keep(end, true);
        }
    }

    fn events(&mut self, end: End) {
        let Some(link) = &mut self.sides[end].link else {
            return;
        };
        while let Some(event) = link.poll_event() {
            assert_ne!(event, Event::LinkLost, "end {end}");
            if event == Event::LinkClosed && end == 1 {
                self.binder.forget(link.key().link_id);
            }
            self.oracle.event(end, &event);
        }
    }

    /// Delivers all bytes again and again until there are none. Cuts that are due happen, and a new transport follows
    /// at once.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.oracle.is_over() {
                return;
            }
            if !self.is_connected {
                self.connect();
            }
            let mut moved = false;
            for end in [0, 1] {
                moved |= self.keep(end, true);
                moved |= self.transmit(end);
                moved |= self.in_flight(end) > 0;
                self.deliver(end, usize::MAX);
            }
            if !moved && self.is_connected {
                return;
            }
        }
        unreachable!("no rest");
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
        for end in [0, 1] {
            if let Some(link) = &mut self.sides[end].link {
                link.handle_timeout(self.now).unwrap();
            }
        }
    }

    /// Lets the journal of an end take the changes, and confirm them or not. Returns whether there were any.
    pub(crate) fn keep(&mut self, end: End, confirm: bool) -> bool {
        let side = &mut self.sides[end];
        let Some(link) = &mut side.link else {
            return false;
        };
        let before = side.disk.len();
        let waits = link.is_journaling();
        while let Some(change) = link.poll_journal() {
            side.disk.push(change);
            let unsafe_changes = side.disk.len() - side.safe;
            if let Some((at, changes, kept)) = self.crash_at
                && (at, changes) == (end, side.log.len() + unsafe_changes)
            {
                self.crash_at = None;
                self.crash(end, if kept { unsafe_changes } else { 0 }, changes % 2 == 0);
                return true;
            }
        }
        if confirm {
            link.journaled(self.now);
            side.log.extend_from_slice(&side.disk[side.safe..]);
            side.safe = side.disk.len();
        }
        side.disk.len() > before || (waits && confirm)
    }

    /// The process of an end dies and starts again from its journal, with the safe changes and `more` of those that
    /// were not confirmed.
    pub(crate) fn crash(&mut self, end: End, more: usize, compact: bool) {
        let config = self.setup.ends[end].clone();
        if !config.journal || self.is_over(end) || self.sides[end].link.is_none() {
            return;
        }
        self.cut();
        let side = &mut self.sides[end];
        side.disk.truncate(side.safe + more);
        side.log.extend_from_slice(&side.disk[side.safe..]);
        let mut link = Link::restore(config.clone(), side.disk.clone()).unwrap();
        if compact {
            let snapshot = link.snapshot();
            link = Link::restore(config, snapshot.clone()).unwrap();
            assert_eq!(link.snapshot(), snapshot);
            side.disk = snapshot;
        }
        side.safe = side.disk.len();
        side.link = Some(link);
        self.oracle.crashed(end, &side.log);
    }

    // Calls of the applications: each goes to the link, and to the oracle if the link accepts it.

    fn call<T>(
        &mut self,
        end: End,
        call: impl FnOnce(&mut Link, Instant) -> Result<T, UsageError>,
    ) -> Option<T> {
        let link = self.sides[end].link.as_mut()?;
        let result = call(link, self.now).ok();
        self.events(end);
        result
    }

    pub(crate) fn send(&mut self, end: End, channels: &[u8], size: usize) -> bool {
        let ids: Vec<_> = channels.iter().map(|it| self.id(end, *it)).collect();
        // A multicast carries one payload, which names no channel, and the oracle keeps it for each channel.
        let mark = self.oracle.next_mark();
        let payload = payload(mark, size);
        let sent = self.call(end, |link, now| link.send(now, &ids, payload));
        let Some(sequences) = sent else {
            return false;
        };
        for (channel, sequence) in channels.iter().zip(sequences) {
            self.oracle.sent(end, *channel, mark, sequence);
        }
        true
    }

    pub(crate) fn consume(&mut self, end: End, channel: u8, through: u32) -> bool {
        let id = self.id(1 - end, channel);
        self.oracle.consumed(end, channel, through);
        let sequence = self.oracle.arrived_sequence(end, channel, through);
        let consume = |link: &mut Link, now| link.consume(now, &id, sequence);
        let done = self.call(end, consume).is_some();
        assert!(done, "consume {channel} through {through}");
        done
    }

    pub(crate) fn notify_received(&mut self, end: End, channel: u8) {
        let id = self.id(1 - end, channel);
        self.call(end, |link, now| link.notify_received(now, &id));
    }

    pub(crate) fn decide(
        &mut self,
        end: End,
        channel: u8,
        commit: bool,
        through: Option<u32>,
    ) -> bool {
        let id = self.id(end, channel);
        let through = through.map(|at| self.oracle.sent_sequence(end, channel, at));
        let decide = |link: &mut Link, now| {
            if commit {
                link.commit(now, &id, through)
            } else {
                link.rollback(now, &id, through)
            }
        };
        let Some(through) = self.call(end, decide) else {
            return false;
        };
        self.oracle.decided(end, channel, commit, through);
        true
    }

    pub(crate) fn answer(
        &mut self,
        end: End,
        channel: u8,
        through: Option<u32>,
        success: bool,
    ) -> bool {
        let id = self.id(1 - end, channel);
        // The outcome may take effect during the call.
        let expected = self.oracle.answer(end, channel, through, success);
        let expected = expected.map(|at| self.oracle.arrived_sequence(end, channel, at));
        let through = through.map(|at| self.oracle.arrived_sequence(end, channel, at));
        let answer = |link: &mut Link, now| {
            if success {
                link.committed(now, &id, through)
            } else {
                link.uncommitted(now, &id, through)
            }
        };
        let answered = self.call(end, answer);
        assert_eq!(answered, expected, "end {end} answers {channel}");
        answered.is_some()
    }

    pub(crate) fn close_channel(&mut self, end: End, channel: u8) -> bool {
        let id = self.id(end, channel);
        let close = |link: &mut Link, now| link.close_channel(now, &id);
        let done = self.call(end, close).is_some();
        if done {
            self.oracle.closing(end, channel);
        }
        done
    }

    pub(crate) fn ping(&mut self, end: End) {
        self.call(end, Link::ping);
    }

    pub(crate) fn shutdown(&mut self, end: End) {
        self.call(end, Link::shutdown);
    }

    /// Returns the id of a channel that `end` sends on.
    fn id(&self, end: End, channel: u8) -> ChannelId {
        let size = self.setup.ends[end].own_channel_id_size();
        ChannelId::le(if size == 0 { 0 } else { channel.into() }, size).unwrap()
    }

    /// Lets both applications do all that is left to do, and shut down.
    pub(crate) fn finish(&mut self) {
        for _ in 0..200 {
            self.settle();
            for end in [0, 1] {
                self.finish_end(end);
            }
            self.settle();
            self.advance(Duration::from_millis(100));
            if self.oracle.is_over() {
                break;
            }
        }
        let resumed = self.resumed;
        let state = || [0, 1].map(|end| self.link(end).map(Link::state));
        assert!(
            self.oracle.is_over(),
            "{resumed} resumes: {:?}, {:?}",
            state(),
            self.oracle
        );
        self.oracle.check();
        for end in [0, 1] {
            let link = self.sides[end].link.as_ref().expect("it was established");
            assert_eq!(link.held_bytes(), 0);
            assert_eq!(link.unacknowledged().count(), 0);
        }
    }

    fn finish_end(&mut self, end: End) {
        for channel in self.oracle.incoming(end) {
            if let Some(through) = self.oracle.to_consume(end, channel) {
                self.consume(end, channel, through);
            }
            while self.oracle.may_answer(end, channel) {
                self.answer(end, channel, None, channel.is_multiple_of(2));
            }
        }
        for channel in self.oracle.outgoing(end) {
            while self.oracle.may_decide(end, channel) && self.decide(end, channel, true, None) {}
            self.close_channel(end, channel);
        }
        self.shutdown(end);
    }
}

fn name() -> EndpointName {
    EndpointName::try_from("depot").unwrap()
}

/// Returns a message with its identity in the payload.
fn payload(mark: u32, size: usize) -> Payload {
    let mut bytes = vec![0; size.max(4)];
    bytes[..4].copy_from_slice(&mark.to_le_bytes());
    Payload::from(Bytes::from(bytes))
}

/// Returns the identity in a message.
pub(crate) fn mark_of(payload: &Payload) -> u32 {
    let first = payload.parts().next().expect("every message has a part");
    u32::from_le_bytes(first[..4].try_into().unwrap())
}
