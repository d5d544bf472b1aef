//! The calls and events of both applications, and the invariants between them.

use std::collections::{BTreeMap, BTreeSet};

use ackline_core::Sequence;
use ackline_relink::frame::{Acknowledgement, Operation};
use ackline_relink::{Change, ChannelId, Event, Side};

use super::{End, Setup, mark_of};

/// One life of a channel at its sender.
#[derive(Debug, Clone, Default)]
struct Outgoing {
    /// The identity of each message, and its decision.
    sent: Vec<(u32, Option<bool>)>,
    decided: usize,
    /// For each decision: the number of messages up to its end.
    ends: BTreeSet<usize>,
    received: usize,
    consumed: usize,
    /// Messages up to the last one whose outcome is known.
    outcome: usize,
    closing: bool,
    /// The number of unacknowledged messages that it was told.
    closed: Option<u32>,
}

/// One life of a channel at its receiver.
#[derive(Debug, Clone, Default)]
struct Incoming {
    life: usize,
    delivered: usize,
    consumed: usize,
    decided: Vec<bool>,
    answers: BTreeMap<usize, bool>,
    /// Messages up to the last one that was answered.
    answered: usize,
    closing: bool,
}

/// The record of both applications.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    outgoing: [BTreeMap<u8, Vec<Outgoing>>; 2],
    incoming: [BTreeMap<u8, Vec<Incoming>>; 2],
    transactions: [bool; 2],
    implicit: [bool; 2],
    /// Whether closes wait until all messages are consumed, so that their fate is known.
    waits: [bool; 2],
    marks: u32,
    closed: [bool; 2],
    /// The number of the first message in the first life of the channels of each end.
    first: [u32; 2],
}

impl Oracle {
    pub(crate) fn new(setup: &Setup) -> Self {
        let ends = &setup.ends;
        Self {
            outgoing: Default::default(),
            incoming: Default::default(),
            transactions: [0, 1].map(|end: usize| setup.parameters.transactions(ends[end].role)),
            implicit: [0, 1].map(|end: usize| ends[end].own_channel_id_size() == 0),
            waits: [0, 1].map(|end: usize| ends[end].close_when_consumed),
            marks: 0,
            closed: [false; 2],
            first: setup.first,
        }
    }

    pub(crate) fn next_mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    pub(crate) fn is_over(&self) -> bool {
        self.closed == [true; 2]
    }

    /// Returns the index of a message in its life.
    const fn at(&self, sender: End, life: usize, sequence: Sequence) -> usize {
        let first = if life == 0 { self.first[sender] } else { 0 };
        sequence.since(Sequence(first)) as usize
    }

    /// Returns the number of a message of the current life.
    fn sequence(&self, sender: End, life: usize, at: u32) -> Sequence {
        let first = if life == 0 { self.first[sender] } else { 0 };
        Sequence(first).plus(at)
    }

    /// Returns the number of a message that has arrived.
    pub(crate) fn arrived_sequence(&self, end: End, channel: u8, at: u32) -> Sequence {
        let life = self.arriving(end, channel).expect("it has messages");
        self.sequence(1 - end, life.life, at)
    }

    /// Returns the number of a message that was sent.
    pub(crate) fn sent_sequence(&self, end: End, channel: u8, at: u32) -> Sequence {
        let lives = &self.outgoing[end][&self.own(end, channel)];
        self.sequence(end, lives.len() - 1, at)
    }

    /// Returns the channel's index; without ids there is one channel.
    const fn own(&self, end: End, channel: u8) -> u8 {
        if self.implicit[end] { 0 } else { channel }
    }

    fn current(&mut self, end: End, channel: u8) -> &mut Outgoing {
        let channel = self.own(end, channel);
        let lives = self.outgoing[end]
            .get_mut(&channel)
            .expect("it was sent on");
        lives.last_mut().expect("it was sent on")
    }

    fn open(&self, end: End, channel: u8) -> Option<&Outgoing> {
        let life = self.outgoing[end].get(&self.own(end, channel))?.last()?;
        life.closed.is_none().then_some(life)
    }

    fn arriving(&self, end: End, channel: u8) -> Option<&Incoming> {
        self.incoming[end].get(&channel)?.last()
    }

    fn arriving_mut(&mut self, end: End, channel: u8) -> &mut Incoming {
        let lives = self.incoming[end]
            .get_mut(&channel)
            .expect("it has messages");
        lives.last_mut().expect("it has messages")
    }

    pub(crate) fn sent(&mut self, end: End, channel: u8, mark: u32, sequence: Sequence) {
        let channel = self.own(end, channel);
        let lives = self.outgoing[end].entry(channel).or_default();
        if lives.last().is_none_or(|life| life.closed.is_some()) {
            lives.push(Outgoing::default());
        }
        let life = lives.len() - 1;
        let at = self.at(end, life, sequence);
        let life = self.current(end, channel);
        assert_eq!(at, life.sent.len());
        assert!(!life.closing);
        life.sent.push((mark, None));
    }

    pub(crate) fn consumed(&mut self, end: End, channel: u8, through: u32) {
        self.arriving_mut(end, channel).consumed = through as usize + 1;
    }

    pub(crate) fn decided(&mut self, end: End, channel: u8, commit: bool, through: Sequence) {
        let life = self.outgoing[end][&self.own(end, channel)].len() - 1;
        let count = self.at(end, life, through) + 1;
        let life = self.current(end, channel);
        for (_, decision) in &mut life.sent[life.decided..count] {
            assert_eq!(decision.replace(commit), None);
        }
        life.decided = count;
        life.ends.insert(count);
    }

    /// Returns the messages of an answer, if it is allowed.
    pub(crate) fn answer(
        &mut self,
        end: End,
        channel: u8,
        through: Option<u32>,
        success: bool,
    ) -> Option<u32> {
        let life = self.arriving_mut(end, channel);
        let next = (life.answered..life.decided.len()).find(|at| life.decided[*at]);
        let through = match through {
            Some(through) => through as usize,
            None => next?,
        };
        if through < life.answered || life.decided.get(through) != Some(&true) {
            return None;
        }
        for at in life.answered..=through {
            if life.decided[at] {
                assert_eq!(life.answers.insert(at, success), None);
            }
        }
        life.answered = through + 1;
        u32::try_from(through).ok()
    }

    pub(crate) fn closing(&mut self, end: End, channel: u8) {
        self.current(end, channel).closing = true;
    }

    pub(crate) fn outgoing(&self, end: End) -> Vec<u8> {
        self.outgoing[end].keys().copied().collect()
    }

    pub(crate) fn incoming(&self, end: End) -> Vec<u8> {
        self.incoming[end].keys().copied().collect()
    }

    /// Returns the last message that may be consumed.
    pub(crate) fn to_consume(&self, end: End, channel: u8) -> Option<u32> {
        let life = self.arriving(end, channel)?;
        let last = life.delivered.checked_sub(1)?;
        (life.consumed < life.delivered).then(|| number(last))
    }

    pub(crate) fn first_to_consume(&self, end: End, channel: u8) -> Option<u32> {
        let life = self.arriving(end, channel)?;
        (life.consumed < life.delivered).then(|| number(life.consumed))
    }

    pub(crate) fn may_decide(&self, end: End, channel: u8) -> bool {
        let life = self.open(end, channel);
        self.transactions[end] && life.is_some_and(|life| life.decided < life.sent.len())
    }

    /// Returns the first and the last message that may be decided.
    pub(crate) fn to_decide(&self, end: End, channel: u8) -> Option<(u32, u32)> {
        let life = self.open(end, channel).filter(|_| self.transactions[end])?;
        let last = life.sent.len().checked_sub(1)?;
        (life.decided <= last).then(|| (number(life.decided), number(last)))
    }

    pub(crate) fn may_answer(&self, end: End, channel: u8) -> bool {
        self.arriving(end, channel)
            .is_some_and(|life| (life.answered..life.decided.len()).any(|at| life.decided[at]))
    }

    pub(crate) fn event(&mut self, end: End, event: &Event) {
        match event {
            Event::Message {
                channel,
                sequence,
                payload,
            } => self.arrived(end, of(channel), *sequence, mark_of(payload)),
            Event::Acknowledged {
                channel,
                acknowledgement,
                through,
            } => self.acknowledged(end, of(channel), *acknowledgement, *through),
            Event::Decided {
                channel,
                operation,
                through,
            } => self.told(end, of(channel), *operation == Operation::Commit, *through),
            Event::Closing { channel } => self.arriving_mut(end, of(channel)).closing = true,
            Event::Closed {
                channel,
                unacknowledged,
            } => {
                let life = self.current(end, of(channel));
                assert!(life.closing && life.closed.is_none());
                assert_eq!(*unacknowledged as usize, life.sent.len() - life.consumed);
                life.closed = Some(*unacknowledged);
            }
            Event::LinkClosed => {
                assert!(!self.closed[end]);
                self.closed[end] = true;
            }
            Event::LinkLost
            | Event::Resumed
            | Event::PeerShutdown
            | Event::Hint(_)
            | Event::Pong { .. } => {}
        }
    }

    fn arrived(&mut self, end: End, channel: u8, sequence: Sequence, mark: u32) {
        let senders = &self.outgoing[1 - end][&channel];
        let find = |life: &Outgoing| life.sent.iter().position(|(sent, _)| *sent == mark);
        // A multicast may name a channel twice, so one life may have the same mark several times.
        let life = senders.iter().rposition(|life| find(life).is_some());
        let life = life.expect("a message that was sent on this channel");
        let sequence = self.at(1 - end, life, sequence);
        assert_eq!(senders[life].sent[sequence].0, mark, "in its order");
        let lives = self.incoming[end].entry(channel).or_default();
        if lives.last().is_none_or(|last| last.life != life) {
            assert!(
                lives
                    .last()
                    .is_none_or(|last| last.life < life && last.closing)
            );
            lives.push(Incoming {
                life,
                ..Incoming::default()
            });
        }
        let own = lives.last_mut().expect("just made");
        assert!(!own.closing);
        assert_eq!(own.delivered, sequence, "exactly once and in order");
        own.delivered += 1;
    }

    fn told(&mut self, end: End, channel: u8, commit: bool, through: Sequence) {
        let life = self.arriving(end, channel).expect("it has messages").life;
        let count = self.at(1 - end, life, through) + 1;
        let own = self.arriving_mut(end, channel);
        assert!(count > own.decided.len() && count <= own.delivered);
        let (from, life) = (own.decided.len(), own.life);
        own.decided.resize(count, commit);
        let sender = &self.outgoing[1 - end][&channel][life];
        assert!(sender.ends.contains(&count), "a decision is told whole");
        for (_, decision) in &sender.sent[from..count] {
            assert_eq!(*decision, Some(commit));
        }
    }

    fn acknowledged(&mut self, end: End, channel: u8, what: Acknowledgement, through: Sequence) {
        let life = self.outgoing[end][&channel].len() - 1;
        let count = self.at(end, life, through) + 1;
        let peers = self.incoming[1 - end].get(&channel).cloned();
        let peer = peers.and_then(|lives| lives.into_iter().find(|it| it.life == life));
        let peer = peer.expect("the peer knows the channel");
        let own = self.current(end, channel);
        match what {
            Acknowledgement::Received => {
                assert!(count > own.received && count <= peer.delivered);
                own.received = count;
            }
            Acknowledgement::Consumed => {
                assert!(count > own.consumed && count <= peer.consumed);
                own.consumed = count;
                own.received = own.received.max(count);
            }
            Acknowledgement::Committed | Acknowledgement::Uncommitted => {
                assert!(count > own.outcome);
                let success = what == Acknowledgement::Committed;
                for at in own.outcome..count {
                    if own.sent[at].1 == Some(true) {
                        assert_eq!(peer.answers.get(&at), Some(&success), "message {at}");
                    }
                }
                own.outcome = count;
            }
            Acknowledgement::Closed => unreachable!("closed is an event of its own"),
        }
    }

    /// Checks the invariants at the end.
    pub(crate) fn check(&self) {
        for end in [0, 1] {
            for (channel, lives) in &self.outgoing[end] {
                for (at, life) in lives.iter().enumerate() {
                    let peers = self.incoming[1 - end].get(channel);
                    let peer = peers.and_then(|lives| lives.iter().find(|it| it.life == at));
                    self.check_life(end, *channel, life, peer);
                }
            }
        }
    }

    fn check_life(&self, end: End, channel: u8, life: &Outgoing, peer: Option<&Incoming>) {
        let what = || format!("end {end}, channel {channel}: {life:?} {peer:?}");
        assert!(life.closed.is_some() || self.implicit[end], "{}", what());
        let unknown = life.closed.unwrap_or(0) > 0;
        if unknown && peer.is_none() {
            // All or none: the peer has never heard of the channel (R-RELINK-V5).
            assert!(!self.waits[end] && life.received == 0, "{}", what());
            return;
        }
        assert!(!unknown || !self.waits[end], "{}", what());
        let peer = peer.unwrap_or_else(|| unreachable!("{}", what()));
        let all = life.sent.len();
        assert_eq!((peer.delivered, peer.consumed), (all, all), "{}", what());
        if !self.transactions[end] {
            return;
        }
        assert_eq!((life.decided, peer.decided.len()), (all, all), "{}", what());
        for (at, (_, decision)) in life.sent.iter().enumerate() {
            let answered = peer.answers.contains_key(&at);
            assert_eq!(*decision == Some(true), answered, "{}", what());
            let is_known = !answered || at < life.outcome;
            assert!(is_known || !self.waits[end], "{}", what());
        }
    }

    /// Handles that the process of an end has started again: it has the state in its journal, and the other end
    /// repeats the rest.
    pub(crate) fn crashed(&mut self, end: End, log: &[Change]) {
        let known = Known::of(log);
        self.outgoing[end].retain(|channel, lives| {
            let own = known.outgoing.get(channel).map_or(&[][..], Vec::as_slice);
            lives.truncate(own.len());
            if let (Some(life), Some(own)) = (lives.last_mut(), own.last()) {
                restart(life, own);
            }
            !lives.is_empty()
        });
        self.incoming[end].retain(|channel, lives| {
            let peers = known.incoming.get(channel).copied().unwrap_or_default();
            if lives.len() > peers.ended
                && let Some(life) = lives.last_mut()
            {
                life.answers.retain(|at, _| *at < peers.answered);
                life.decided.truncate(peers.answered);
                life.answered = peers.answered;
                life.consumed = peers.consumed.max(peers.answered);
                life.delivered = life.consumed;
                life.closing = false;
                if life.delivered == 0 {
                    lives.pop();
                }
            }
            !lives.is_empty()
        });
    }
}

/// The state that the changes of a journal make.
#[derive(Default)]
struct Known {
    outgoing: BTreeMap<u8, Vec<KnownLife>>,
    incoming: BTreeMap<u8, KnownPeers>,
}

/// One life of an own channel.
#[derive(Default)]
struct KnownLife {
    sent: usize,
    decided: usize,
    outcome: usize,
    consumed: usize,
    closing: bool,
    closed: bool,
}

/// The current life of a channel of the peer, and how many have ended.
#[derive(Default, Clone, Copy)]
struct KnownPeers {
    consumed: usize,
    answered: usize,
    ended: usize,
}

impl Known {
    fn of(log: &[Change]) -> Self {
        let mut known = Self::default();
        for change in log {
            known.read(change);
        }
        known
    }

    fn own(&mut self, channel: &ChannelId) -> &mut KnownLife {
        let lives = self.outgoing.get_mut(&of(channel)).expect("it was sent on");
        lives.last_mut().expect("it was sent on")
    }

    fn peers(&mut self, channel: &ChannelId) -> &mut KnownPeers {
        self.incoming.entry(of(channel)).or_default()
    }

    fn read(&mut self, change: &Change) {
        let count = |through: &Sequence| through.0 as usize + 1;
        match change {
            Change::Sent {
                channel, sequence, ..
            } => {
                let lives = self.outgoing.entry(of(channel)).or_default();
                if lives.last().is_none_or(|life| life.closed) {
                    lives.push(KnownLife::default());
                }
                self.own(channel).sent = count(sequence);
            }
            Change::Acknowledged { channel, through } => {
                self.own(channel).consumed = count(through);
            }
            Change::Decided {
                channel, through, ..
            } => self.own(channel).decided = count(through),
            Change::Outcome { channel, through } => self.own(channel).outcome = count(through),
            Change::Closing { channel } => self.own(channel).closing = true,
            Change::Consumed { channel, through } => self.peers(channel).consumed = count(through),
            Change::Answered {
                channel, through, ..
            } => self.peers(channel).answered = count(through),
            Change::Closed {
                side: Side::Outgoing,
                channel,
            } => self.own(channel).closed = true,
            Change::Closed {
                side: Side::Incoming,
                channel,
            } => {
                let ended = self.peers(channel).ended + 1;
                *self.peers(channel) = KnownPeers {
                    ended,
                    ..KnownPeers::default()
                };
            }
            Change::Established(_)
            | Change::HandedOver { .. }
            | Change::CloseLeaves { .. }
            | Change::Shutdown => {}
        }
    }
}

fn restart(life: &mut Outgoing, own: &KnownLife) {
    life.sent.truncate(own.sent);
    for (_, decision) in &mut life.sent[own.decided..] {
        *decision = None;
    }
    life.decided = own.decided;
    life.outcome = own.outcome;
    life.consumed = own.consumed;
    life.received = own.consumed;
    life.closing = own.closing;
    if !own.closed {
        life.closed = None;
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("tests send few messages")
}

fn of(channel: &ChannelId) -> u8 {
    channel.as_bytes().first().copied().unwrap_or(0)
}
