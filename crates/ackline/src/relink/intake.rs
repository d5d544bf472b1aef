//! The machine of a link whose messages are landed: its messages come out as runs of one channel each, and a
//! run that is kept is consumed.
//!
//! ```text
//!                       plain direction
//! message ───────────────────────────────────────────────► run ─► block ─► kept: consumed
//!    └─ transactions: staged ─┬─ commit ─────────────────► run ─► block ─► kept: consumed, committed
//!                             ├─ rollback ─► empty run ──► block of none, in its turn: consumed
//!                             └─ commit of what found no room ─► empty run ─► ... : consumed, uncommitted
//! ```
//!
//! Decided here: which messages make a run, and what is told of it. A message that its sender has not
//! committed is never shown to anybody; it stands in memory, is not consumed, and comes again after a crash.
//! What of it finds no room there is let go, and its transaction refused ([`Staged`]); it is charged to what all
//! links may have undecided, and makes no other link wait.
//! With acknowledgements that wait for a consumer's commit, a transaction's messages are consumed when they
//! are durable, so that its sender's window moves, and its outcome waits; in a plain direction the
//! consumption waits.

use std::collections::HashMap;
use std::time::Instant;

use ackline_core::{
    Connection, Lifecycle, LimitHit, Need, Patience, ProtocolError, SendQueue, Sequence,
};
use ackline_link::Budget;
use ackline_relink::frame::{Hint, Operation};
use ackline_relink::{Attach, ChannelId, Event, Kind, Link, LinkState, Payload};
use bytes::BytesMut;

use super::carrier::{Carrier, limits_of};
use super::kept::most_staged;
use super::staged::{MESSAGE_BYTES, Over, Staged, to_u64};
use crate::runs::Runs;

/// Messages of one channel with consecutive numbers.
#[derive(Debug)]
pub struct Run {
    /// What settles it.
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
    /// What those would cost.
    pub(super) bytes: usize,
    /// The limit that they met.
    pub(super) over: Over,
}

impl Run {
    /// The run behind this one, decided alike.
    fn append(&mut self, mut next: Self) {
        self.payloads.append(&mut next.payloads);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.let_go = self.let_go.saturating_add(next.let_go);
        self.through = next.through;
    }
}

/// A run that was handed out and is not settled.
#[derive(Debug)]
struct Waiting {
    channel: ChannelId,
    through: Sequence,
    /// What its sender is told of its commit.
    outcome: Option<bool>,
    /// Payload bytes of its messages, which the link holds until they are consumed.
    payload: usize,
    /// They were let go before that.
    is_let_go: bool,
    /// Bytes that are charged for it beside them.
    held: usize,
}

/// A link's machine whose messages are landed.
#[derive(Debug)]
pub struct Intake {
    link: Link,
    /// Whether the peer decides on its messages.
    is_transactional: bool,
    staged: Staged,
    /// Runs that are not handed out, by their channel.
    ready: Runs<ChannelId, Run>,
    ready_bytes: usize,
    waiting: HashMap<u64, Waiting>,
    /// What is charged beside the payloads that the link holds.
    extra: usize,
    /// Payload bytes that the link holds and that were let go.
    let_go: usize,
    offset: u64,
    fault: Option<ProtocolError<Kind>>,
    is_stopping: bool,
    /// A restart would know the link: until then nothing of it is kept.
    is_known: bool,
}

impl Intake {
    /// Lands what comes over `link`; undecided messages may have an eighth of the budget, and their part of
    /// what all links may have.
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
            ready: Runs::default(),
            ready_bytes: 0,
            waiting: HashMap::new(),
            extra: 0,
            let_go: 0,
            offset: 0,
            fault: None,
            is_stopping: false,
            is_known: true,
        }
    }

    /// The run is kept as promised: what its sender waits for is told. Answers whether it can be.
    pub(super) fn settle(&mut self, now: Instant, token: u64) -> bool {
        let Some(run) = self.waiting.remove(&token) else {
            return false;
        };
        self.extra = self.extra.saturating_sub(run.held);
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

    /// The run is durable, but not yet all that was promised.
    pub(super) fn landed(&mut self, now: Instant, token: u64) {
        let Some(run) = self.waiting.get_mut(&token) else {
            return;
        };
        self.extra = self.extra.saturating_sub(std::mem::take(&mut run.held));
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

    /// Nothing more is taken from the peer; what is complete is still settled.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Runs that are not settled, handed out or not.
    pub(super) fn unsettled(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    /// Numbers that were consumed before are passed over.
    fn consume(&mut self, now: Instant, channel: &ChannelId, through: Sequence) {
        let _ = self.link.consume(now, channel, through);
    }

    /// Takes what the machine has to tell.
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
        let bytes = payload.bytes();
        self.ready_bytes = self.ready_bytes.saturating_add(bytes);
        self.extra = self.extra.saturating_add(MESSAGE_BYTES);
        if let Some(run) = self.last_run(&channel) {
            run.payloads.push(payload);
            run.bytes += bytes;
            run.through = sequence;
            return;
        }
        self.push(Run {
            token: 0,
            channel,
            first: sequence,
            payloads: vec![payload],
            bytes,
            no_room: None,
            through: sequence,
            decision: None,
            let_go: 0,
        });
    }

    fn stage(&mut self, channel: ChannelId, sequence: Sequence, payload: Payload) {
        let bytes = payload.bytes();
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
        let mut run = Run {
            token: 0,
            channel,
            first: through,
            payloads: Vec::new(),
            bytes: 0,
            no_room: None,
            through,
            decision: Some(operation),
            let_go: 0,
        };
        if is_commit && refused == 0 {
            let beside = taken.payloads.len().saturating_mul(MESSAGE_BYTES);
            self.extra = self.extra.saturating_add(beside);
            self.ready_bytes = self.ready_bytes.saturating_add(taken.bytes);
            run.first = taken.first.unwrap_or(through);
            run.payloads = taken.payloads;
            run.bytes = taken.bytes;
        } else {
            // Those that were not kept are let go already.
            self.let_go = self.let_go.saturating_add(taken.bytes);
            run.let_go = taken.bytes.saturating_add(refused_bytes);
            let messages = taken.payloads.len().saturating_add(refused);
            let over = taken.over.unwrap_or(Over::Link(self.staged.most()));
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
        if let Some(last) = self.last_run(&run.channel)
            && last.decision == run.decision
            && last.payloads.is_empty() == run.payloads.is_empty()
            && last.no_room.is_none()
            && run.no_room.is_none()
        {
            last.append(run);
        } else {
            self.push(run);
        }
    }

    /// The last run of a channel, if it is not handed out and may grow.
    fn last_run(&mut self, channel: &ChannelId) -> Option<&mut Run> {
        let run = self.ready.last(channel)?;
        (run.payloads.len() < RUN_MESSAGES && run.bytes < RUN_BYTES).then_some(run)
    }

    fn push(&mut self, run: Run) {
        self.extra = self.extra.saturating_add(RUN_COST);
        self.ready.push(run.channel.clone(), run);
    }

    /// Whether runs must be taken before more input is looked at.
    fn is_full(&self) -> bool {
        self.ready.len() >= READY_RUNS || self.ready_bytes >= READY_BYTES
    }

    /// A peer that goes on and on with what is refused loses its link.
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

impl Carrier for Intake {
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
        let mut limits = limits_of(&self.link, most_packet);
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
            if self.is_full() {
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

    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let ended = self.link.receive_eof(now);
        self.take(now);
        ended
    }

    fn poll_event(&mut self) -> Option<Run> {
        if !self.is_known {
            return None;
        }
        let (token, mut run) = self.ready.pop(|run| &run.channel)?;
        run.token = token;
        self.ready_bytes = self.ready_bytes.saturating_sub(run.bytes);
        let held = run.payloads.len().saturating_mul(MESSAGE_BYTES) + RUN_COST;
        let is_commit = run.decision == Some(Operation::Commit);
        let waiting = Waiting {
            channel: run.channel.clone(),
            through: run.through,
            outcome: is_commit.then_some(run.no_room.is_none()),
            payload: run.bytes.saturating_add(run.let_go),
            is_let_go: run.let_go > 0,
            held,
        };
        self.waiting.insert(run.token, waiting);
        Some(run)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        self.link.poll_transmit(now, out);
        self.take(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Kind>> {
        let handled = self.link.handle_timeout(now);
        self.take(now);
        handled
    }

    fn reading(&mut self, now: Instant, on: bool) {
        self.link.reading(now, on);
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
            .saturating_add(self.extra)
            .saturating_add(self.staged.refused_bytes())
    }

    fn complete_bytes(&self) -> usize {
        let known = self.staged.refused_bytes();
        self.held_bytes().saturating_sub(known)
    }

    fn step_bytes(&self) -> usize {
        self.link.step_bytes()
    }

    fn patience(&self) -> Patience {
        self.link.patience()
    }

    fn detached(&mut self, now: Instant) -> bool {
        let goes_on = self.link.detached(now);
        self.take(now);
        goes_on && !self.is_stopping
    }
}

/// What a run costs beside its messages, about.
const RUN_COST: usize = 256;
/// A run is cut here at the latest.
const RUN_MESSAGES: usize = 65_536;
const RUN_BYTES: usize = 4 << 20;
/// Runs, and bytes in them, that may wait to be taken before input stays where it is.
const READY_RUNS: usize = 1_024;
const READY_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use ackline_core::ErrorKind as _;
    use ackline_relink::frame::{Acknowledgement, Parameters, Role};
    use ackline_relink::{LinkConfig, LinkKey};
    use bytes::BufMut as _;

    use super::*;

    const KEY: LinkKey = LinkKey {
        epoch: 1,
        link_id: 1,
    };

    fn parameters(transactions: bool) -> Parameters {
        Parameters {
            connector_channel_id_size: 1,
            listener_channel_id_size: 1,
            connector_transactions: transactions,
            listener_transactions: false,
        }
    }

    /// An intake, and the link that sends to it.
    fn pair(now: Instant, transactions: bool, journal: bool) -> (Intake, Link) {
        let parameters = parameters(transactions);
        let config = LinkConfig {
            journal,
            ..LinkConfig::new(Role::Listener, parameters)
        };
        let budget = Budget::new(1 << 20);
        let mut intake = Intake::with_limit(Link::new(config, KEY), 10_000, &budget);
        intake.attach(now, Attach::New(KEY));
        let mut sender = Link::new(LinkConfig::new(Role::Connector, parameters), KEY);
        sender.attach(now, Attach::New(KEY));
        (intake, sender)
    }

    fn send(sender: &mut Link, now: Instant, channel: u8, text: &'static [u8]) {
        let channel = ChannelId::from(channel);
        sender.send_to(now, &channel, Payload::from(text)).unwrap();
    }

    /// Everything that the sender has to say.
    fn flow(sender: &mut Link, intake: &mut Intake, now: Instant) {
        let mut out = SendQueue::new();
        sender.poll_transmit(now, &mut out);
        let mut input = BytesMut::new();
        input.put(out);
        intake.receive(now, &mut input).unwrap();
    }

    /// First number, last number and messages of each run.
    fn runs(intake: &mut Intake) -> Vec<(String, u32, usize)> {
        let runs = std::iter::from_fn(|| intake.poll_event());
        runs.map(|run| (run.channel.to_string(), run.first.0, run.payloads.len()))
            .collect()
    }

    #[test]
    fn messages_that_wait_together_are_one_run_of_their_channel() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, false, false);
        for channel in [1, 2, 1, 1, 2] {
            send(&mut sender, now, channel, b"x");
        }
        flow(&mut sender, &mut intake, now);
        let run = |channel: &str, first, count| (channel.to_owned(), first, count);
        assert_eq!(runs(&mut intake), [run("01", 0, 3), run("02", 0, 2)]);
        send(&mut sender, now, 1, b"x");
        flow(&mut sender, &mut intake, now);
        assert_eq!(runs(&mut intake), [run("01", 3, 1)]);
        assert_eq!(intake.unsettled(), 3);
        for token in 0..3 {
            assert!(intake.settle(now, token));
        }
        assert!(!intake.settle(now, 0), "settled once");
        assert_eq!((intake.unsettled(), intake.held_bytes()), (0, 0));
    }

    #[test]
    fn decisions_cut_runs_and_what_is_rolled_back_is_an_empty_one() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, true, false);
        let channel = ChannelId::from(1_u8);
        for _ in 0..7 {
            send(&mut sender, now, 1, b"xyz");
        }
        flow(&mut sender, &mut intake, now);
        assert_eq!(runs(&mut intake), []);
        assert_eq!(intake.complete_bytes(), 0, "nothing of it can be settled");
        for (commits, through) in [(true, 0), (true, 2), (false, 4), (true, 5)] {
            let through = Some(Sequence(through));
            if commits {
                sender.commit(now, &channel, through).unwrap();
            } else {
                sender.rollback(now, &channel, through).unwrap();
            }
        }
        flow(&mut sender, &mut intake, now);
        let run = |first, count| ("01".to_owned(), first, count);
        assert_eq!(runs(&mut intake), [run(0, 3), run(4, 0), run(5, 1)]);
        for token in 0..3 {
            assert!(intake.settle(now, token));
        }
        // One message is undecided.
        assert_eq!(intake.held_bytes(), 0);
        assert_eq!(intake.staged.payload_bytes(), 3);
    }

    /// What the sender is told.
    fn answers(intake: &mut Intake, sender: &mut Link, now: Instant) -> Vec<Event> {
        let mut out = SendQueue::new();
        intake.poll_transmit(now, &mut out);
        let mut input = BytesMut::new();
        input.put(out);
        sender.receive(now, &mut input).unwrap();
        std::iter::from_fn(|| sender.poll_event()).collect()
    }

    #[test]
    fn a_transaction_without_room_is_let_go_and_uncommitted() {
        let now = Instant::now();
        // Its acknowledgement may wait for a consumer's commit, or not.
        for lands_first in [false, true] {
            let (mut intake, mut sender) = pair(now, true, false);
            let channel = ChannelId::from(1_u8);
            for _ in 0..5 {
                let payload = Payload::from(vec![0; 3_000]);
                sender.send_to(now, &channel, payload).unwrap();
            }
            flow(&mut sender, &mut intake, now);
            assert_eq!(intake.staged.payload_bytes(), 9_000, "two are not kept");
            assert_eq!(intake.held_bytes(), 2 * 32);
            assert_eq!(intake.complete_bytes(), 0);
            sender.commit(now, &channel, None).unwrap();
            // What is told together is one decision.
            flow(&mut sender, &mut intake, now);
            sender.commit(now, &channel, Some(Sequence(3))).unwrap();
            sender.rollback(now, &channel, None).unwrap();
            flow(&mut sender, &mut intake, now);
            let runs: Vec<Run> = std::iter::from_fn(|| intake.poll_event()).collect();
            let no_room = runs.iter().map(|run| run.no_room).collect::<Vec<_>>();
            let wanted = NoRoom {
                messages: 3,
                bytes: 3 * 3_064,
                over: Over::Link(10_000),
            };
            assert_eq!(no_room, [None, Some(wanted), None]);
            assert_eq!(intake.held_bytes(), 3_064 + 3 * RUN_COST);
            for token in 0..3 {
                if lands_first {
                    intake.landed(now, token);
                }
                assert!(intake.settle(now, token));
            }
            assert_eq!((intake.held_bytes(), intake.let_go), (0, 0));
            let outcomes: Vec<_> = answers(&mut intake, &mut sender, now)
                .into_iter()
                .filter_map(|event| match event {
                    Event::Acknowledged {
                        acknowledgement,
                        through,
                        ..
                    } => Some((acknowledgement, through.0)),
                    _ => None,
                })
                .filter(|(what, _)| *what != Acknowledgement::Consumed)
                .collect();
            let expected = [
                (Acknowledgement::Committed, 0),
                (Acknowledgement::Uncommitted, 3),
            ];
            assert_eq!(outcomes, expected);
        }
    }

    #[test]
    fn a_commit_of_what_was_kept_before_is_answered_beside_a_rollback() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, true, false);
        let channel = ChannelId::from(1_u8);
        send(&mut sender, now, 1, b"x");
        flow(&mut sender, &mut intake, now);
        // As after a restart: its messages are durable, and not here.
        intake.staged.clear();
        sender.commit(now, &channel, None).unwrap();
        send(&mut sender, now, 1, b"y");
        sender.rollback(now, &channel, None).unwrap();
        flow(&mut sender, &mut intake, now);
        assert_eq!(runs(&mut intake).len(), 2);
        for token in 0..2 {
            assert!(intake.settle(now, token));
        }
        let answers = answers(&mut intake, &mut sender, now);
        let committed = answers.iter().filter(|event| {
            let Event::Acknowledged {
                acknowledgement, ..
            } = event
            else {
                return false;
            };
            *acknowledgement == Acknowledgement::Committed
        });
        assert_eq!(committed.count(), 1);
        // Nor is one that finds no room the same.
        send(&mut sender, now, 1, b"z");
        flow(&mut sender, &mut intake, now);
        intake.staged.clear();
        sender.commit(now, &channel, None).unwrap();
        for _ in 0..4 {
            let payload = Payload::from(vec![0; 3_000]);
            sender.send_to(now, &channel, payload).unwrap();
        }
        flow(&mut sender, &mut intake, now);
        sender.commit(now, &channel, Some(Sequence(6))).unwrap();
        flow(&mut sender, &mut intake, now);
        let runs = std::iter::from_fn(|| intake.poll_event());
        let no_room: Vec<_> = runs.map(|run| run.no_room.is_some()).collect();
        assert_eq!(no_room, [false, true]);
    }

    #[test]
    fn a_peer_that_goes_on_and_on_without_room_loses_its_link() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, true, false);
        let channel = ChannelId::from(1_u8);
        let payload = Payload::from(vec![0; 9_930]);
        sender.send_to(now, &channel, payload).unwrap();
        // 32 bytes for each that is only known of.
        for _ in 0..312 {
            send(&mut sender, now, 1, b"");
            flow(&mut sender, &mut intake, now);
        }
        send(&mut sender, now, 1, b"");
        let mut out = SendQueue::new();
        sender.poll_transmit(now, &mut out);
        let mut input = BytesMut::new();
        input.put(out);
        let error = loop {
            match intake.receive(now, &mut input) {
                Ok(need) => assert_eq!(need, Need::Again),
                Err(error) => break error,
            }
        };
        let expected = LimitHit {
            value: 313 * 32,
            limit: 10_000,
            option: "--memory",
        };
        assert_eq!(error.kind.limit(), Some(expected));
        assert_eq!(
            error.kind.to_string(),
            "messages that are not decided, and have no room, take 10016 bytes; a link may have 10000 \
             for them now, of an eighth of --memory"
        );
        assert_eq!(intake.machine().state(), LinkState::Lost);
        assert_eq!(intake.receive(now, &mut input).unwrap_err(), error);
    }

    #[test]
    fn nothing_of_a_link_is_kept_before_its_journal_knows_it() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, false, true);
        send(&mut sender, now, 1, b"x");
        flow(&mut sender, &mut intake, now);
        assert!(intake.poll_event().is_none());
        while intake.machine_mut().poll_journal().is_some() {}
        assert!(intake.poll_event().is_none());
        intake.journaled(now);
        assert!(intake.poll_event().is_some());
    }

    #[test]
    fn a_stopping_link_takes_no_more_and_ends_when_all_is_settled() {
        let now = Instant::now();
        let (mut intake, mut sender) = pair(now, false, false);
        send(&mut sender, now, 1, b"x");
        flow(&mut sender, &mut intake, now);
        intake.stop();
        send(&mut sender, now, 1, b"y");
        flow(&mut sender, &mut intake, now);
        assert_eq!(runs(&mut intake).len(), 1);
        assert_eq!(intake.lifecycle(), Lifecycle::Open);
        let mut more = BytesMut::from(&b"more"[..]);
        let need = intake.receive(now, &mut more).unwrap();
        assert_eq!((need, more.len()), (Need::Input { at_least: 1 }, 0));
        intake.settle(now, 0);
        assert_eq!(intake.lifecycle(), Lifecycle::Draining);
        assert!(!intake.detached(now));
    }
}
