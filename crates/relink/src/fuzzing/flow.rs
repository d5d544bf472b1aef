//! The model of the messages that each channel of one direction carries.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::collections::BTreeMap;

use ackline_core::Sequence;
use bytes::Buf;

use crate::frame::{Acknowledgement, Operation};
use crate::{ChannelId, Payload};

/// Messages of a channel that may wait to be consumed.
pub(super) const WINDOW: u32 = 8;

/// The messages that a side has sent on one channel since it was opened.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) life: u32,
    pub(super) base: u32,
    pub(super) sent: u32,
    pub(super) consumed: u32,
    /// For each message: commit, or rollback.
    pub(super) decided: Vec<bool>,
    /// For each message: the answer of its receiver.
    pub(super) answers: Vec<Option<bool>>,
    /// Messages up to the last one whose outcome the sender knows.
    pub(super) outcomes: u32,
    pub(super) closing: bool,
}

/// The state of the other side.
#[derive(Debug)]
pub(super) struct In {
    pub(super) life: u32,
    pub(super) base: u32,
    pub(super) got: u32,
    pub(super) consumed: u32,
    pub(super) decided: u32,
    pub(super) answered: u32,
    pub(super) closing: bool,
    pub(super) sizes: Vec<usize>,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) outgoing: BTreeMap<ChannelId, Out>,
    pub(super) incoming: BTreeMap<ChannelId, In>,
    pub(super) lives: BTreeMap<ChannelId, u32>,
    /// The channel and index of each message. A multicast may name a channel several times.
    pub(super) places: BTreeMap<(ChannelId, u32), Vec<(u32, u32)>>,
}

impl Flow {
    pub(super) fn sent(&mut self, id: &ChannelId, number: u32, sequence: Sequence) {
        let lives = &mut self.lives;
        let out = self.outgoing.entry(id.clone()).or_insert_with(|| {
            let life = lives.entry(id.clone()).or_default();
            *life += 1;
            Out {
                life: *life - 1,
                ..Out::default()
            }
        });
        assert_eq!(
            sequence,
            Sequence(out.base).plus(out.sent),
            "numbers have no gaps"
        );
        let places = self.places.entry((id.clone(), number)).or_default();
        places.push((out.life, out.sent));
        out.sent += 1;
        out.answers.push(None);
        assert!(out.sent - out.consumed <= WINDOW, "the window holds");
    }

    pub(super) fn got(&mut self, id: &ChannelId, sequence: Sequence, payload: &Payload) {
        let bytes = payload.parts().next().expect("one part");
        let number = bytes.as_ref().get_u32();
        assert_eq!(bytes, content(number), "the payload is the sent one");
        let places = self.places.get(&(id.clone(), number));
        let places = places.expect("it was sent on this channel");
        let next = self.incoming.get(id).map(|one| (one.life, one.got));
        if !next.is_some_and(|next| places.contains(&next)) {
            let (life, _) = *places
                .iter()
                .find(|(_, at)| *at == 0)
                .expect("neither the next message nor the first of a channel opened again");
            let is_new = self
                .incoming
                .get(id)
                .is_none_or(|one| one.closing && one.life < life);
            assert!(is_new, "a channel begins again only after its end");
            self.incoming.insert(id.clone(), In::new(life, 0));
        }
        let incoming = self.incoming.get_mut(id).expect("it was made");
        assert_eq!(sequence, Sequence(incoming.base).plus(incoming.got));
        assert!(!incoming.closing, "nothing comes after a close");
        incoming.got += 1;
        incoming.sizes.push(payload.bytes());
        assert!(
            incoming.got - incoming.consumed <= WINDOW,
            "the window holds"
        );
    }

    pub(super) fn acknowledged(
        &mut self,
        id: &ChannelId,
        what: Acknowledgement,
        through: Sequence,
    ) {
        let out = self.outgoing.get_mut(id).expect("the channel is open");
        let count = through.since(Sequence(out.base)) + 1;
        let incoming = self.incoming.get(id).filter(|one| one.life == out.life);
        let incoming = incoming.expect("something of it has arrived");
        match what {
            Acknowledgement::Received => assert!(count <= incoming.got),
            Acknowledgement::Consumed => {
                assert!(out.consumed < count && count <= incoming.consumed);
                out.consumed = count;
            }
            Acknowledgement::Committed | Acknowledgement::Uncommitted => {
                let said = what == Acknowledgement::Committed;
                assert!(out.outcomes < count, "each outcome is told once");
                for at in out.outcomes..count {
                    let expected = out.decided[wide(at)].then_some(said);
                    assert_eq!(
                        out.answers[wide(at)],
                        expected,
                        "the outcome is the receiver's"
                    );
                }
                out.outcomes = count;
            }
            Acknowledgement::Closed => unreachable!("it has an event of its own"),
        }
    }

    pub(super) fn decided(&mut self, id: &ChannelId, operation: Operation, through: Sequence) {
        let incoming = self.incoming.get_mut(id).expect("the channel is open");
        let out = self.outgoing.get(id).expect("it waits for its end");
        assert_eq!(out.life, incoming.life);
        let count = through.since(Sequence(incoming.base)) + 1;
        assert!(incoming.decided < count && count <= incoming.got);
        for at in incoming.decided..count {
            assert_eq!(out.decided[wide(at)], operation == Operation::Commit);
        }
        incoming.decided = count;
    }
}

impl In {
    pub(super) const fn new(life: u32, base: u32) -> Self {
        Self {
            life,
            base,
            got: 0,
            consumed: 0,
            decided: 0,
            answered: 0,
            closing: false,
            sizes: Vec::new(),
        }
    }

    pub(super) fn held(&self) -> usize {
        self.sizes[wide(self.consumed)..].iter().sum()
    }
}

impl Out {
    /// Messages up to the last one that was committed.
    pub(super) fn last_committed(&self) -> u32 {
        index(
            self.decided
                .iter()
                .rposition(|commit| *commit)
                .map_or(0, |at| at + 1),
        )
    }
}

/// Returns a payload with a number in it. Its size varies so that some messages are copied and some sliced.
pub(super) fn content(number: u32) -> Vec<u8> {
    let more = if number % 7 == 3 {
        1_500
    } else {
        wide(number % 11)
    };
    let mut content = number.to_be_bytes().to_vec();
    content.resize(4 + more, 7);
    content
}

pub(super) fn wide(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub(super) fn index(count: usize) -> u32 {
    u32::try_from(count).expect("there are few")
}
