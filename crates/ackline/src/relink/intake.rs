//! The machine of a link whose messages are landed: its messages come out as runs of one channel each, and a
//! run that is kept is consumed.
//!
//! ```text
//!                       plain direction
//! message ───────────────────────────────────────────────► run ─► block ─► kept: consumed
//!    └─ transactions: staged ─┬─ commit ─────────────────► run ─► block ─► kept: consumed, committed
//!                             ├─ rollback ─► empty run ──► block of none, in its turn: consumed
//!                             └─ commit without room for it ─► empty run ─► ... : consumed, uncommitted
//! ```
//!
//! This module decides which messages make a run, and how the sender is answered. A message that its sender
//! has not committed is never shown to anybody; it stands in memory, is not consumed, and comes again after a
//! crash. Messages that do not fit there are dropped, and their transaction is refused ([`Staged`]).
//! Undecided messages are charged to the limit that all links share, and make no other link wait.
//! With acknowledgements that wait for a consumer's commit, a transaction's messages are consumed when they
//! are durable, so that its sender's window moves, and its outcome waits; in a plain direction the
//! consumption waits.

use std::time::Instant;

use ackline_core::{
    Connection, Lifecycle, LimitHit, Need, ProtocolError, SendQueue, Sequence, StallTimeouts,
};
use ackline_link::Budget;
use ackline_relink::frame::{Hint, Operation};
use ackline_relink::{Attach, ChannelId, Event, Kind, Link, LinkState, Payload, Reason};
use bytes::BytesMut;

use super::kept::most_staged;
use super::link_host::{LinkHost, as_machine};
use super::staged::{MESSAGE_BYTES, Staged, to_u64};
use crate::ingest::Landable;
use ackline_core::{OneRun, Runs};

/// Messages of one channel with consecutive numbers.
#[derive(Debug)]
pub struct Run {
    /// The token that settles it.
    pub(super) token: u64,
    pub(super) channel: ChannelId,
    pub(super) first: Sequence,
    /// None for a rollback, for a commit whose messages were kept before, and for one that is refused.
    pub(super) payloads: Vec<Payload>,
    pub(super) bytes: usize,
    /// Why it cannot be kept.
    pub(super) no_room: Option<NoRoom>,
    /// The last message that it stands for.
    through: Sequence,
    decision: Option<Operation>,
    /// Payload bytes that the link holds for it, and nobody else.
    let_go: usize,
}

/// A transaction that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// Their messages.
    pub(super) messages: usize,
    /// Bytes that those messages would cost.
    pub(super) bytes: usize,
    /// The limit that they met.
    pub(super) over: Reason,
}

impl Run {
    fn new(channel: ChannelId, through: Sequence) -> Self {
        Self {
            token: 0,
            channel,
            first: through,
            payloads: Vec::new(),
            bytes: 0,
            no_room: None,
            through,
            decision: None,
            let_go: 0,
        }
    }

    /// The run behind this one, decided alike.
    fn append(&mut self, mut next: Self) {
        self.payloads.append(&mut next.payloads);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.let_go = self.let_go.saturating_add(next.let_go);
        self.through = next.through;
    }
}

impl OneRun for Run {
    type Key = ChannelId;

    fn key(&self) -> ChannelId {
        self.channel.clone()
    }

    fn size(&self) -> (usize, usize) {
        (self.payloads.len(), self.bytes)
    }
}

/// A run that was handed out and is not settled.
#[derive(Debug)]
struct Waiting {
    channel: ChannelId,
    through: Sequence,
    /// The outcome that its sender is told of its commit.
    outcome: Option<bool>,
    /// Payload bytes of its messages, which the link holds until they are consumed.
    payload: usize,
    /// They were let go before that.
    is_let_go: bool,
}

/// A link's machine whose messages are landed.
#[derive(Debug)]
pub struct Intake {
    link: Link,
    /// Whether the peer decides on its messages.
    is_transactional: bool,
    staged: Staged,
    /// Runs that are not settled.
    runs: Runs<Run, Waiting>,
    /// Payload bytes that the link holds and that were let go.
    let_go: usize,
    offset: u64,
    fault: Option<ProtocolError<Kind>>,
    is_stopping: bool,
    /// A restart would know the link: until then nothing of it is kept.
    is_known: bool,
}

impl Intake {
    /// Lands the messages of `link`; undecided messages may have an eighth of the budget, and their part of
    /// the limit that all links share.
    pub(super) fn new(link: Link, budget: &Budget) -> Self {
        Self::with_limit(link, most_staged(budget), budget)
    }

    fn with_limit(link: Link, most_staged: usize, budget: &Budget) -> Self {
        let config = link.config();
        let is_transactional = config.parameters.transactions(config.role.peer());
        Self {
            link,
            is_transactional,
            staged: Staged::new(most_staged, budget.undecided()),
            runs: Runs::default(),
            let_go: 0,
            offset: 0,
            fault: None,
            is_stopping: false,
            is_known: true,
        }
    }

    /// Numbers that were consumed before are passed over.
    fn consume(&mut self, now: Instant, channel: &ChannelId, through: Sequence) {
        let _ = self.link.consume(now, channel, through);
    }

    /// Takes the machine's events.
    fn take(&mut self, now: Instant) {
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message {
                    channel,
                    sequence,
                    payload,
                } if self.is_transactional => self.stage(channel, sequence, payload),
                Event::Message {
                    channel,
                    sequence,
                    payload,
                } => self.arrived(channel, sequence, payload),
                Event::Decided {
                    channel,
                    operation,
                    through,
                } => self.decided(channel, operation, through),
                Event::PeerShutdown => {
                    // A link that is over needs no second end.
                    let _ = self.link.shutdown(now);
                }
                _ => {}
            }
        }
    }

    fn arrived(&mut self, channel: ChannelId, sequence: Sequence, payload: Payload) {
        let bytes = payload.held_bytes();
        self.runs.charge(1, bytes);
        if let Some(run) = self.runs.last(&channel) {
            run.payloads.push(payload);
            run.bytes += bytes;
            run.through = sequence;
            return;
        }
        let mut run = Run::new(channel, sequence);
        run.payloads.push(payload);
        run.bytes = bytes;
        self.runs.push(run);
    }

    fn stage(&mut self, channel: ChannelId, sequence: Sequence, payload: Payload) {
        let bytes = payload.held_bytes();
        let Err(over) = self.staged.push(channel, sequence, payload) else {
            return;
        };
        self.let_go = self.let_go.saturating_add(bytes);
        if let Some(over) = over {
            self.link.hint(over.hint());
        }
    }

    fn decided(&mut self, channel: ChannelId, operation: Operation, through: Sequence) {
        let taken = self.staged.take(&channel, through);
        let (refused, refused_bytes) = taken.refused;
        let is_commit = operation == Operation::Commit;
        let mut run = Run::new(channel, through);
        run.decision = Some(operation);
        if is_commit && refused == 0 {
            self.runs.charge(taken.payloads.len(), taken.bytes);
            run.first = taken.first.unwrap_or(through);
            run.payloads = taken.payloads;
            run.bytes = taken.bytes;
        } else {
            // Those that were not kept are let go already.
            self.let_go = self.let_go.saturating_add(taken.bytes);
            run.let_go = taken.bytes.saturating_add(refused_bytes);
            let messages = taken.payloads.len().saturating_add(refused);
            let over = taken
                .over
                .unwrap_or(Reason::OverLink(to_u64(self.staged.most())));
            run.no_room = is_commit.then(|| NoRoom {
                messages,
                bytes: run
                    .let_go
                    .saturating_add(messages.saturating_mul(MESSAGE_BYTES)),
                over,
            });
            if is_commit {
                // Again: this transport may be another one.
                self.link.hint(over.hint());
            }
        }
        if let Some(last) = self.runs.last(&run.channel)
            && last.decision == run.decision
            && last.payloads.is_empty() == run.payloads.is_empty()
            && last.no_room.is_none()
            && run.no_room.is_none()
        {
            last.append(run);
        } else {
            self.runs.push(run);
        }
    }

    /// A peer that goes on and on with refused messages loses its link.
    fn refuse_staged(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let (value, limit) = (self.staged.refused_bytes(), self.staged.most());
        if value <= limit {
            return Ok(());
        }
        let error = ProtocolError {
            kind: Kind::Memory {
                what: "messages that are not decided, and have no room,",
                part: super::staged::PART,
                hit: LimitHit {
                    value: to_u64(value),
                    limit: to_u64(limit),
                    option: "--memory",
                },
            },
            offset: self.offset,
        };
        self.fault = Some(error.clone());
        self.staged.clear();
        self.link.lose(now);
        self.take(now);
        Err(error)
    }
}

impl Landable for Intake {
    fn settle(&mut self, now: Instant, token: u64) -> bool {
        let Some(run) = self.runs.settle(token) else {
            return false;
        };
        if run.is_let_go {
            self.let_go = self.let_go.saturating_sub(run.payload);
        }
        if matches!(self.link.state(), LinkState::Closed | LinkState::Lost) {
            return false;
        }
        self.consume(now, &run.channel, run.through);
        let answered = match run.outcome {
            Some(true) => self.link.committed(now, &run.channel, Some(run.through)),
            Some(false) => self.link.uncommitted(now, &run.channel, Some(run.through)),
            None => return true,
        };
        // Otherwise it was answered before. Without a word for it the peer would wait for ever.
        if answered.is_err_and(|error| error.code == "outcomes_full") {
            self.link.lose(now);
        }
        true
    }

    fn landed(&mut self, now: Instant, token: u64) {
        let Some(run) = self.runs.landed(token) else {
            return;
        };
        if self.is_transactional {
            if std::mem::take(&mut run.is_let_go) {
                self.let_go = self.let_go.saturating_sub(run.payload);
            }
            let (channel, through) = (run.channel.clone(), run.through);
            self.consume(now, &channel, through);
            return;
        }
        if !std::mem::replace(&mut run.is_let_go, true) {
            self.let_go = self.let_go.saturating_add(run.payload);
        }
    }

    fn stop(&mut self, _: Instant) {
        self.is_stopping = true;
    }

    fn unsettled(&self) -> usize {
        self.runs.unsettled()
    }
}

impl LinkHost for Intake {
    fn machine(&self) -> &Link {
        &self.link
    }

    fn machine_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn attach(&mut self, now: Instant, how: Attach) {
        self.offset = 0;
        self.fault = None;
        if matches!(how, Attach::New(_)) {
            self.is_known = !self.link.config().journal;
        }
        self.link.attach(now, how);
        self.take(now);
    }

    fn limits(&self, most_packet: u64) -> Vec<Hint> {
        let mut limits = self.link.limits(most_packet);
        if self.is_transactional {
            limits.push(Hint::TransactionBytes(to_u64(self.staged.most())));
        }
        limits
    }

    fn journaled(&mut self, now: Instant) {
        self.link.journaled(now);
        self.is_known = true;
    }
}

impl Connection for Intake {
    type Event = Run;
    type Kind = Kind;

    as_machine!(|it, now| it.take(now));

    fn receive(&mut self, now: Instant, input: &mut BytesMut) -> Result<Need, ProtocolError<Kind>> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if self.is_stopping {
            // It was not received: it comes again.
            input.clear();
            return Ok(Need::Input { at_least: 1 });
        }
        loop {
            if self.runs.is_full() {
                return Ok(Need::Room);
            }
            let before = input.len();
            let need = self.link.receive(now, input);
            let taken = before.saturating_sub(input.len());
            self.offset = self.offset.saturating_add(taken as u64);
            self.take(now);
            self.refuse_staged(now)?;
            match need {
                Ok(Need::Room) => {}
                other => return other,
            }
        }
    }

    fn poll_event(&mut self) -> Option<Run> {
        if !self.is_known {
            return None;
        }
        let (token, mut run) = self.runs.take(|run| {
            let is_commit = run.decision == Some(Operation::Commit);
            Waiting {
                channel: run.channel.clone(),
                through: run.through,
                outcome: is_commit.then_some(run.no_room.is_none()),
                payload: run.bytes.saturating_add(run.let_go),
                is_let_go: run.let_go > 0,
            }
        })?;
        run.token = token;
        Some(run)
    }

    fn lifecycle(&self) -> Lifecycle {
        if !self.is_stopping {
            return self.link.lifecycle();
        }
        match self.link.lifecycle() {
            Lifecycle::Open if self.unsettled() == 0 && !self.link.is_journaling() => {
                Lifecycle::Draining
            }
            other => other,
        }
    }

    fn held_bytes(&self) -> usize {
        let elsewhere = self.let_go.saturating_add(self.staged.payload_bytes());
        let payloads = self.link.held_bytes().saturating_sub(elsewhere);
        payloads
            .saturating_add(self.runs.extra())
            .saturating_add(self.staged.refused_bytes())
    }

    fn complete_bytes(&self) -> usize {
        let known = self.staged.refused_bytes();
        self.held_bytes().saturating_sub(known)
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.link.detached(now);
        self.take(now);
        goes_on && !self.is_stopping
    }
}

#[cfg(test)]
mod tests;
