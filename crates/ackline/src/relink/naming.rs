//! The verbs that name messages: done with, decided, answered. The error for a message that cannot be named
//! now tells the channel, the message and the messages that can be named.

use std::collections::BTreeMap;
use std::time::Instant;

use ackline_core::{Sequence, UsageError};
use ackline_relink::{ChannelId, Error, Link, Stage};

use super::session::{Message, Session};

/// The identity of a message on its link: an earlier channel of the same id may have a message of
/// the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its number on its channel.
    pub sequence: Sequence,
    /// How many messages had come over the link before it, on all channels.
    pub place: u64,
}

impl Message {
    /// The identity of this message on its link.
    pub const fn mark(&self) -> Mark {
        Mark {
            sequence: self.sequence,
            place: self.place,
        }
    }
}

/// Of some messages the oldest and the newest on each channel.
#[derive(Debug, Clone, Default)]
pub struct Marks(BTreeMap<ChannelId, (Mark, Mark)>);

impl Marks {
    /// Adds a message, or the oldest and the newest of a run.
    pub fn add(&mut self, channel: ChannelId, oldest: Mark, newest: Mark) {
        let span = self.0.entry(channel).or_insert((oldest, newest));
        if oldest.place < span.0.place {
            span.0 = oldest;
        }
        if newest.place > span.1.place {
            span.1 = newest;
        }
    }
}

impl Session {
    /// The application is done with the peer's messages on a channel up to `through`.
    ///
    /// # Errors
    /// [`Error::UnknownChannel`]; [`Error::OutOfRange`]; the link is over.
    pub fn consume(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        through: Sequence,
    ) -> Result<(), Error> {
        self.asked(
            |machine| machine.consume(now, channel, through),
            |error, machine| {
                let may = machine.unconsumed(channel);
                Error::unnamed(error, (channel, false), Some(through), may)
            },
        )
    }

    /// The application is done with these messages, and those before them on their channels. Nothing changes
    /// if one of them is of a channel that was closed since.
    ///
    /// # Errors
    /// As [`consume`](Self::consume); [`Error::EarlierChannel`].
    pub fn consume_all(&mut self, now: Instant, messages: &Marks) -> Result<(), Error> {
        for (channel, (oldest, _)) in &messages.0 {
            let opened_at = self.machine().opened_at(channel);
            if opened_at.is_some_and(|opened_at| oldest.place < opened_at) {
                return Err(Error::EarlierChannel {
                    channel: channel.clone(),
                    sequence: oldest.sequence,
                });
            }
        }
        let mut newest = messages.0.iter();
        newest.try_for_each(|(channel, (_, newest))| self.consume(now, channel, newest.sequence))
    }

    /// Decides on own messages: those up to `through`, or the next one. Answers the last of them.
    ///
    /// # Errors
    /// The machine's refusals; the link is over.
    pub fn decide(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        is_commit: bool,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        let verb = if is_commit {
            Link::commit
        } else {
            Link::rollback
        };
        let decided = self.asked(
            |machine| verb(machine, now, channel, through),
            |error, machine| {
                let may = machine.undecided(channel);
                Error::unnamed(error, (channel, true), through, may)
            },
        )?;
        self.reach(channel, Stage::Decided(is_commit), decided);
        Ok(decided)
    }

    /// Answers the peer's commits: those up to `through`, or the next one. Answers the last of them.
    ///
    /// # Errors
    /// The machine's refusals; the link is over.
    pub fn answer(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        is_committed: bool,
        through: Option<Sequence>,
    ) -> Result<Sequence, Error> {
        let verb = if is_committed {
            Link::committed
        } else {
            Link::uncommitted
        };
        self.asked(
            |machine| verb(machine, now, channel, through),
            |error, machine| {
                let may = machine.unanswered(channel);
                Error::unnamed(error, (channel, false), through, may)
            },
        )
    }

    /// A verb of the machine's on one channel, of this end's or of the peer's.
    ///
    /// # Errors
    /// The machine's refusals; the link is over.
    pub fn on(
        &mut self,
        channel: &ChannelId,
        is_own: bool,
        verb: impl FnOnce(&mut Link) -> Result<(), UsageError>,
    ) -> Result<(), Error> {
        self.asked(verb, |error, _| {
            Error::unnamed(error, (channel, is_own), None, None)
        })
    }
}
