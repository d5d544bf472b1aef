//! What belongs to one transport and is void with it: the plan of what is emitted, the answers owed, the
//! pings, the packet that is half taken, the first error.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ackline_core::{PART_BYTES, ProtocolError, SendQueue, Timing};
use bytes::Bytes;

use super::channels::Key;
use super::ends::Untold;
use crate::frame::Hint;
use crate::payload::COPIED_PARTS;
use crate::{ChannelId, Kind, Payload};

/// One step of what is emitted on outgoing channels, in the order of the calls.
#[derive(Debug)]
pub(crate) enum Step {
    /// The next messages of a channel.
    Messages { key: Key, count: u32 },
    /// The next message of each of these channels, one packet for all.
    Multicast(Box<[Key]>),
    /// The channel's close.
    Close(Key),
    /// Decisions on the channel's emitted messages.
    Decisions(Key),
}

/// Something owed to the peer for its channels.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Whatever the channel owes.
    Channel(Key),
    /// `closed` for a channel that is not known (R-REL-21).
    Closed(ChannelId),
}

/// How far the announcements of a resume are (R-RELINK-V2).
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    /// The channel announced last.
    pub(crate) after: Option<ChannelId>,
    /// The channel whose outcomes are being said, and the next run.
    pub(crate) outcomes: Option<(Key, usize)>,
}

/// A packet for several channels, or a large one, that is taken step by step.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) packet: Bytes,
    /// Channels done.
    pub(crate) done: u32,
    /// Parts of the message.
    pub(crate) parts: usize,
    /// The message, shared by all of them.
    pub(crate) payload: Option<Payload>,
}

impl Pending {
    /// Bytes that its next delivery adds to those held: the bytes of the first one are paid for by the packet, not the
    /// handles of many parts.
    pub(crate) fn cost(&self) -> usize {
        match self.payload.as_ref().filter(|_| self.done > 0) {
            Some(payload) => payload.held_bytes().saturating_add(DELIVERY_BYTES),
            None if self.parts > COPIED_PARTS => self.parts.saturating_mul(PART_BYTES),
            None => 0,
        }
    }
}

/// What one call of `receive` may add by deliveries beyond the first of their packets, if a single one is
/// not more.
pub(crate) const STEP_BYTES: usize = 16 << 10;
/// What a delivery costs beside its payload, about.
const DELIVERY_BYTES: usize = 64;

/// A ping that waits for its pong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ping {
    pub(crate) sent: Instant,
    /// Where in the output it left.
    pub(crate) position: u64,
    /// How long reading had been off until then.
    pub(crate) paused: Duration,
}

impl Ping {
    /// How long reading was off since it left.
    pub(crate) const fn pause(&self, so_far: Duration) -> Duration {
        so_far.saturating_sub(self.paused)
    }
}

/// One transport of a link.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) plan: VecDeque<Step>,
    pub(crate) answers: VecDeque<Answer>,
    /// Delayed acknowledgements.
    pub(crate) due: BTreeSet<(Instant, Key)>,
    /// Hints that have still to go out, each once; none, unless the peer asked for them.
    pub(crate) hints: Option<Vec<Hint>>,
    pub(crate) pongs_owed: u64,
    pub(crate) pings_wanted: u32,
    pub(crate) pings: VecDeque<Ping>,
    pub(crate) announcing: Option<Announcing>,
    /// The shutdown goes out again, first of all (R-REL-27).
    pub(crate) shutdown_again: bool,
    pub(crate) peer_resuming: bool,
    /// What was carried of decisions that were not told, and the channels where one is whole.
    pub(crate) untold: Untold,
    pub(crate) untold_channels: BTreeSet<Key>,
    pub(crate) timing: Timing,
    pub(crate) pending: Option<Pending>,
    /// What the call of `receive` may still add by messages for more than one channel.
    pub(crate) allowance: usize,
    /// Output that was caused before `fault`.
    pub(crate) staged: SendQueue,
    /// Bytes taken.
    pub(crate) offset: u64,
    pub(crate) fault: Option<ProtocolError<Kind>>,
    /// The peer's end came.
    pub(crate) ended: bool,
}

impl Transport {
    pub(crate) fn new(now: Instant, resumes: bool, shutdown_again: bool) -> Self {
        Self {
            plan: VecDeque::new(),
            answers: VecDeque::new(),
            due: BTreeSet::new(),
            hints: None,
            pongs_owed: 0,
            pings_wanted: 0,
            pings: VecDeque::new(),
            announcing: resumes.then(Announcing::default),
            shutdown_again,
            peer_resuming: resumes,
            untold: Untold::default(),
            untold_channels: BTreeSet::new(),
            timing: Timing::new(now),
            pending: None,
            allowance: STEP_BYTES,
            staged: SendQueue::new(),
            offset: 0,
            fault: None,
            ended: false,
        }
    }

    /// Whether it still carries packets.
    pub(crate) const fn works(&self) -> bool {
        self.fault.is_none() && !self.ended
    }

    /// A call of `receive` begins: what was asked for by [`step_bytes`](Self::step_bytes) was granted.
    pub(crate) fn begin_step(&mut self) {
        let next = self.pending.as_ref().map_or(0, Pending::cost);
        self.allowance = STEP_BYTES.max(next);
    }

    /// Whether the message that is half delivered waits for the next call.
    pub(crate) fn lacks_step(&self) -> bool {
        let next = self.pending.as_ref().map_or(0, Pending::cost);
        next > self.allowance
    }

    /// What the next call may add; nothing as long as each message has one channel.
    pub(crate) fn step_bytes(&self) -> usize {
        let next = self.pending.as_ref().map_or(0, Pending::cost);
        if next == 0 && self.allowance == STEP_BYTES {
            return 0;
        }
        STEP_BYTES.max(next)
    }

    pub(crate) const fn is_resuming(&self) -> bool {
        self.peer_resuming || self.announcing.is_some()
    }

    /// Whether the outcomes of a channel are being announced.
    pub(crate) fn is_replaying(&self, key: Key) -> bool {
        let replay = self.announcing.as_ref().and_then(|it| it.outcomes);
        replay.is_some_and(|(channel, _)| channel == key)
    }

    /// A hint goes out before anything else, in place of one of its kind that has not gone out.
    pub(crate) fn hint(&mut self, hint: Hint) {
        if let Some(hints) = &mut self.hints {
            hints.retain(|other| !hint.is_same(*other));
            hints.push(hint);
        }
    }

    /// Whether no answer waits.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.answers.is_empty() && self.announcing.is_none()
    }

    /// Messages of a channel, next to those that were planned last.
    pub(crate) fn plan_messages(&mut self, key: Key, count: u32) {
        if count == 0 {
            return;
        }
        if let Some(Step::Messages {
            key: last,
            count: planned,
        }) = self.plan.back_mut()
            && *last == key
        {
            *planned = planned.saturating_add(count);
            return;
        }
        self.plan.push_back(Step::Messages { key, count });
    }

    /// Decisions of a channel, once for those that were called one after the other.
    pub(crate) fn plan_decisions(&mut self, key: Key) {
        if let Some(Step::Decisions(last)) = self.plan.back()
            && *last == key
        {
            return;
        }
        self.plan.push_back(Step::Decisions(key));
    }

    /// What is untold of a channel has changed.
    pub(crate) fn count_untold(&mut self, key: Key, (before, after): (Untold, Untold)) {
        self.untold.sub(before);
        self.untold.add(after);
        if before.whole == 0 && after.whole > 0 {
            self.untold_channels.insert(key);
        }
    }

    /// A channel's decisions are told, or it is gone.
    pub(crate) fn forget_untold(&mut self, key: Key, told: Untold) {
        self.untold.sub(told);
        self.untold_channels.remove(&key);
    }
}
