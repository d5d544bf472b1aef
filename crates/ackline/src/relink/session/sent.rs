//! The messages that a link has sent: the progress of each own channel, and the unacknowledged bytes.

use std::collections::HashMap;
use std::sync::Arc;

use ackline_core::Sequence;
use ackline_relink::{ChannelId, Error, Link, SentLife, Stage};

use crate::relink::interest::Wait;
use crate::relink::receipt::{Kept, Progress, Receipt};
use ackline_core::Wakes;

/// The lives of own channels. Changes here wake the waits.
#[derive(Debug)]
pub(super) struct Sent {
    lives: HashMap<ChannelId, Arc<Progress>>,
    /// Lives that have begun: the number of the next one.
    begun: u64,
    /// Payload bytes that are not acknowledged as consumed.
    pub(super) bytes: usize,
    /// Such bytes that there may be.
    most_bytes: usize,
    /// The journal's progress, which all receipts look at.
    pub(super) kept: Arc<Kept>,
    wakes: Wakes,
}

impl Sent {
    /// The messages of an earlier process count as those of this one do, and so does the last one that is over.
    pub(super) fn new(machine: &Link, most_bytes: usize) -> Self {
        let mut sent = Self {
            lives: HashMap::new(),
            begun: 0,
            bytes: 0,
            most_bytes,
            kept: Arc::new(Kept::new(machine.config().journal)),
            wakes: Wakes::default(),
        };
        for standing in machine.standings() {
            sent.begin(standing.channel, SentLife::adopted(&standing));
        }
        for (channel, sequence, payload) in machine.unacknowledged() {
            let Some(life) = sent.lives.get(channel) else {
                continue;
            };
            sent.bytes += payload.bytes();
            life.sent(sequence, std::iter::once(payload.bytes()), 0);
        }
        for standing in machine.standings() {
            for (is_commit, through) in standing.decided {
                sent.reach(standing.channel, Stage::Decided(is_commit), through);
            }
        }
        sent
    }

    /// Waits of this kind may have come true.
    pub(super) fn wake(&mut self, wait: Wait) {
        self.wakes.wake(wait.key());
    }

    /// The next key whose waits may have come true.
    pub(super) fn poll_wake(&mut self) -> Option<u64> {
        self.wakes.pop()
    }

    fn begin(&mut self, channel: &ChannelId, life: SentLife) {
        self.begun += 1;
        let life = Progress::new(self.begun, life, Arc::clone(&self.kept));
        self.lives.insert(channel.clone(), Arc::new(life));
    }

    /// Whether so many bytes more may be sent; without unacknowledged ones any number may.
    pub(super) const fn fits(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.most_bytes
    }

    /// Whether a message of some bytes may be sent.
    pub(super) const fn has_room(&self) -> bool {
        self.bytes == 0 || self.bytes < self.most_bytes
    }

    /// The life of a channel, which begins with this message if there is none.
    pub(super) fn life(&mut self, channel: &ChannelId, sequence: Sequence) -> &Arc<Progress> {
        if !self.lives.contains_key(channel) {
            self.begin(channel, SentLife::new(sequence));
        }
        &self.lives[channel]
    }

    /// The receipt of the last message of a channel that is not over.
    pub(super) fn last_receipt(&self, channel: &ChannelId) -> Option<Receipt> {
        self.lives.get(channel)?.last_receipt()
    }

    /// Own messages of a channel have come so far.
    pub(super) fn reach(&mut self, channel: &ChannelId, stage: Stage, through: Sequence) {
        let Some(life) = self.lives.get(channel) else {
            return;
        };
        self.bytes -= life.lock().reach(stage, through);
        let number = life.number();
        self.wake(Wait::Life(number));
        if stage == Stage::Consumed {
            self.wake(Wait::Room);
        }
    }

    /// A channel is closed: nothing more is heard of its messages.
    pub(super) fn close(&mut self, channel: &ChannelId) {
        if let Some(life) = self.lives.remove(channel) {
            self.bytes -= life.lock().end(Error::ChannelClosed);
            self.wake(Wait::Life(life.number()));
            self.wake(Wait::Kept);
        }
        self.wake(Wait::Room);
    }

    /// The link is over. The lives stay: the last receipt tells the fate of its message.
    pub(super) fn end(&mut self, why: &Error) {
        self.bytes = 0;
        for wait in Wait::KINDS {
            self.wake(wait);
        }
        for life in self.lives.values() {
            life.lock().end(why.clone());
            self.wakes.wake(Wait::Life(life.number()).key());
        }
    }
}
