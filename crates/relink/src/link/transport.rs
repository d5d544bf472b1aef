//! The state that belongs to one transport and ends with it: the plan of the output, the answers owed, the pings, the
//! packet that is half taken, the first error.

pub(super) mod pings;
pub(super) mod split;

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use ackline_core::{ProtocolError, SendQueue, Timing};

use super::channels::Key;
use super::untold::AllUntold;
use crate::frame::{Hint, Packet, encode};
use crate::{ChannelId, Kind};
use pings::Pings;
use split::Split;

/// One step of the output for outgoing channels, in the order of the calls.
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

/// An answer that is owed to the peer for its channels.
#[derive(Debug)]
pub(crate) enum Answer {
    /// All answers that the channel owes.
    Channel(Key),
    /// `closed` for a channel that is not known (R-REL-21).
    Closed(ChannelId),
}

/// How far the announcements of this end are in a resume (R-RELINK-V2).
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    /// The channel announced last.
    pub(crate) after: Option<ChannelId>,
    /// The channel of the outcomes that come next.
    pub(crate) outcomes: Option<NextOutcome>,
}

/// The next run of a channel's outcomes to announce.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextOutcome {
    pub(crate) key: Key,
    pub(crate) run: usize,
}

/// How far both ends are in a resume.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    /// The announcements of this end, until all are emitted.
    own: Option<Announcing>,
    /// Whether the peer has still to announce something.
    peer: bool,
}

impl Resuming {
    fn new(resumes: bool) -> Self {
        Self {
            own: resumes.then(Announcing::default),
            peer: resumes,
        }
    }

    pub(crate) const fn announcing(&mut self) -> Option<&mut Announcing> {
        self.own.as_mut()
    }

    /// Whether this end has still to announce something.
    pub(crate) const fn is_announcing(&self) -> bool {
        self.own.is_some()
    }

    /// Whether the outcomes of a channel are being announced.
    pub(crate) fn is_replaying(&self, key: Key) -> bool {
        let next = self.own.as_ref().and_then(|it| it.outcomes);
        next.is_some_and(|next| next.key == key)
    }

    /// This end has announced everything.
    pub(crate) fn announced(&mut self) {
        self.own = None;
    }

    /// Whether the peer has still to announce something.
    pub(crate) const fn waits_for_peer(&self) -> bool {
        self.peer
    }

    /// The peer's resume arrives; returns false if it is not the first.
    pub(crate) const fn peer_resumes(&mut self) -> bool {
        std::mem::replace(&mut self.peer, false)
    }
}

/// Packets that go out before all others.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Whether the shutdown goes out again (R-REL-27).
    repeats_shutdown: bool,
    /// Hints still to be emitted, each kind once; `None`: the peer did not ask for hints.
    hints: Option<Vec<Hint>>,
}

impl Opening {
    pub(crate) const fn repeat_shutdown(&mut self) {
        self.repeats_shutdown = true;
    }

    /// The peer has asked for hints; these are the first ones.
    pub(crate) fn tell_hints(&mut self, hints: &[Hint]) {
        self.hints = Some(hints.to_vec());
    }

    /// Adds a hint, in place of one of its kind that has not gone out.
    pub(crate) fn hint(&mut self, hint: Hint) {
        if let Some(hints) = &mut self.hints {
            hints.retain(|other| !hint.is_same(*other));
            hints.push(hint);
        }
    }

    pub(crate) fn put(&mut self, out: &mut SendQueue) {
        if std::mem::take(&mut self.repeats_shutdown) {
            encode(&Packet::Shutdown, out);
        }
        if let Some(hints) = &mut self.hints {
            hints.drain(..).for_each(|hint| hint.encode(out));
        }
    }
}

/// Whether a transport carries packets.
#[derive(Debug)]
enum Condition {
    Works,
    /// The peer's end came.
    Ended,
    /// Its first error.
    Failed(ProtocolError<Kind>),
}

/// One transport of a link.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) opening: Opening,
    pub(crate) resuming: Resuming,
    pub(crate) plan: VecDeque<Step>,
    pub(crate) answers: VecDeque<Answer>,
    /// The timers of delayed acknowledgements.
    pub(crate) due: BTreeSet<(Instant, Key)>,
    pub(crate) pings: Pings,
    pub(crate) untold: AllUntold,
    pub(crate) timing: Timing,
    pub(crate) split: Split,
    /// Output that was caused before the transport's error.
    pub(crate) staged: SendQueue,
    /// Bytes taken from the input.
    offset: u64,
    condition: Condition,
}

impl Transport {
    pub(crate) fn new(now: Instant, resumes: bool) -> Self {
        Self {
            opening: Opening::default(),
            resuming: Resuming::new(resumes),
            plan: VecDeque::new(),
            answers: VecDeque::new(),
            due: BTreeSet::new(),
            pings: Pings::default(),
            untold: AllUntold::default(),
            timing: Timing::new(now),
            split: Split::new(),
            staged: SendQueue::new(),
            offset: 0,
            condition: Condition::Works,
        }
    }

    /// Whether it still carries packets.
    pub(crate) const fn works(&self) -> bool {
        matches!(self.condition, Condition::Works)
    }

    /// Returns its first error, if it has failed.
    pub(crate) fn check(&self) -> Result<(), ProtocolError<Kind>> {
        match &self.condition {
            Condition::Failed(error) => Err(error.clone()),
            Condition::Works | Condition::Ended => Ok(()),
        }
    }

    /// Keeps the first error and returns it.
    pub(crate) fn fail(&mut self, kind: Kind) -> ProtocolError<Kind> {
        if let Condition::Failed(first) = &self.condition {
            return first.clone();
        }
        let offset = self.offset;
        let error = ProtocolError { kind, offset };
        self.condition = Condition::Failed(error.clone());
        error
    }

    /// The peer's end came.
    pub(crate) fn end(&mut self) {
        self.condition = Condition::Ended;
    }

    /// So many bytes of the input were taken.
    pub(crate) fn taken(&mut self, len: usize) {
        let len = u64::try_from(len).unwrap_or(0);
        self.offset = self.offset.saturating_add(len);
    }

    pub(crate) const fn is_resuming(&self) -> bool {
        self.resuming.waits_for_peer() || self.resuming.is_announcing()
    }

    /// Whether no answer waits.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.answers.is_empty() && !self.resuming.is_announcing()
    }

    /// Plans messages of a channel, in one step with those that were planned last.
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

    /// Plans decisions of a channel, once for calls that follow one another.
    pub(crate) fn plan_decisions(&mut self, key: Key) {
        if let Some(Step::Decisions(last)) = self.plan.back()
            && *last == key
        {
            return;
        }
        self.plan.push_back(Step::Decisions(key));
    }
}
