//! One channel that this end sends on: the outstanding messages, and how far the peer has answered.
//!
//! Its rules: REQ-RELINK-42, REQ-RELINK-52, R-REL-12, R-RELINK-V12.

pub(super) mod close;

use std::collections::VecDeque;

use ackline_core::Sequence;

use super::transactions::Decisions;
use super::untold::UntoldChange;
use crate::Payload;
use close::{Close, Input};

/// Whether messages may be emitted on this transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// The channel was first used while there was no transport: the next one starts it from its first message.
    Fresh,
    /// The peer has not said yet how far it is.
    Shut,
    Open,
}

/// One life of an outgoing channel.
///
/// ```text
///   consumed <= received < next <= ready + 1 <= last + 1
///   messages: consumed + 1 ... last; emitted on this transport: ... next - 1
/// ```
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// All messages that were not acknowledged as consumed. A lost link hands them back.
    messages: VecDeque<Payload>,
    /// The last message acknowledged as consumed.
    consumed: Sequence,
    /// The last message acknowledged as received.
    received: Sequence,
    /// The next message to emit on this transport.
    next: Sequence,
    /// The last message that may be emitted: all, or those that the journal keeps.
    ready: Sequence,
    /// The last message ever emitted.
    sent: Sequence,
    /// Whether the peer has acknowledged a message in this life. The numbers do not tell, because they wrap.
    is_acknowledged: bool,
    close: Close,
    gate: Gate,
    pub(super) decisions: Option<Decisions>,
    /// The last message whose payload stayed with the process that handed the link over: it is not emitted
    /// again. `None` once all of them are consumed.
    handed: Option<Sequence>,
}

impl Outgoing {
    /// A channel whose next message has that number.
    pub(crate) fn new(next: Sequence, has_transactions: bool) -> Self {
        let last = before(next);
        Self {
            messages: VecDeque::new(),
            consumed: last,
            received: last,
            next,
            ready: last,
            sent: last,
            is_acknowledged: next != Sequence(0),
            close: Close::Open,
            gate: Gate::Open,
            decisions: has_transactions.then(|| Decisions::new(last)),
            handed: None,
        }
    }

    /// A channel that is first used while there is no transport.
    pub(crate) fn fresh(has_transactions: bool) -> Self {
        Self {
            gate: Gate::Fresh,
            ..Self::new(Sequence(0), has_transactions)
        }
    }

    pub(crate) const fn close(&self) -> Close {
        self.close
    }

    /// Moves the closing to its next state.
    pub(super) const fn advance(&mut self, input: Input) {
        self.close = self.close.after(input);
    }

    pub(crate) const fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Whether nothing may be emitted until the peer has said how far it is.
    pub(crate) const fn is_gated(&self) -> bool {
        matches!(self.gate, Gate::Shut)
    }

    /// The last message.
    pub(crate) fn last(&self) -> Sequence {
        self.consumed.plus(self.outstanding())
    }

    /// Messages not acknowledged as consumed.
    pub(crate) fn outstanding(&self) -> u32 {
        // The window is a 32-bit number.
        u32::try_from(self.messages.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = (Sequence, &Payload)> {
        let mut sequence = self.consumed;
        let handed = self.handed.map_or(0, |last| last.since(self.consumed));
        let numbered = self.messages.iter().map(move |payload| {
            sequence = sequence.next();
            (sequence, payload)
        });
        numbered.skip(usize::try_from(handed).unwrap_or(usize::MAX))
    }

    /// The last message whose payload is not here.
    pub(crate) const fn handed(&self) -> Option<Sequence> {
        self.handed
    }

    /// Whether everything that may be emitted was, on this transport.
    pub(crate) fn is_emitted(&self) -> bool {
        !self.is_gated() && self.waiting() == 0 && self.ready == self.last()
    }

    pub(crate) const fn consumed(&self) -> Sequence {
        self.consumed
    }

    pub(crate) fn push(&mut self, payload: Payload) -> Sequence {
        self.messages.push_back(payload);
        self.last()
    }

    /// Takes the last message back: its call is refused.
    pub(crate) fn unpush(&mut self) {
        self.messages.pop_back();
    }

    /// One more message may be emitted.
    pub(crate) fn publish(&mut self) {
        self.ready = self.ready.next();
    }

    /// Messages that may be emitted and were not, on this transport.
    pub(crate) fn waiting(&self) -> u32 {
        self.ready.next().since(self.next)
    }

    /// The next message to emit; it counts as emitted.
    pub(crate) fn emit(&mut self) -> Option<&Payload> {
        if self.waiting() == 0 {
            return None;
        }
        let at = usize::try_from(self.next.since(self.consumed.next())).ok()?;
        let payload = self.messages.get(at)?;
        if self.next.is_after(self.sent) {
            self.sent = self.next;
        }
        self.next = self.next.next();
        Some(payload)
    }

    /// Counts the message that was emitted last. Returns how the bytes of untold decisions change.
    pub(crate) fn carried(&mut self, payload_bytes: usize) -> UntoldChange {
        let sequence = self.emitted();
        match &mut self.decisions {
            Some(decisions) => decisions.carried(sequence, payload_bytes),
            None => UntoldChange::default(),
        }
    }

    /// Whether the next message to emit was emitted before a cut.
    pub(crate) const fn repeats(&self) -> bool {
        !self.next.is_after(self.sent)
    }

    /// The last message emitted on this transport, or known to be received.
    pub(crate) const fn emitted(&self) -> Sequence {
        before(self.next)
    }

    /// A new transport. A fresh channel starts at its first message, an older one when the peer has said
    /// how far it is.
    pub(crate) fn attached(&mut self, resumes: bool) {
        let is_older = resumes && self.gate != Gate::Fresh;
        self.gate = if is_older { Gate::Shut } else { Gate::Open };
        self.advance(Input::Attached);
        if let Some(decisions) = &mut self.decisions {
            decisions.attached(is_older);
        }
    }

    /// The peer has said how far it is, or that it does not know the channel: the messages that it has not received
    /// are emitted again.
    pub(crate) fn resume(&mut self) {
        self.gate = Gate::Open;
        let handed = self.handed.filter(|last| last.is_after(self.received));
        self.next = handed.unwrap_or(self.received).next();
    }

    /// The last message that the peer can have received.
    const fn limit(&self) -> Sequence {
        if self.is_gated() {
            self.sent
        } else {
            self.emitted()
        }
    }

    /// A `consumed` arrives. Returns the last message that it newly acknowledges.
    ///
    /// # Errors
    /// The number, if it is not one of an emitted and unconsumed message.
    pub(crate) fn acknowledge_consumed(
        &mut self,
        through: Option<Sequence>,
    ) -> Result<Option<Sequence>, Sequence> {
        let through = through.unwrap_or_else(|| self.consumed.next());
        let steps = through.since(self.consumed);
        if steps > self.limit().since(self.consumed) {
            return Err(through);
        }
        if steps == 0 {
            return Ok(None);
        }
        let count = usize::try_from(steps).unwrap_or(usize::MAX);
        self.messages.drain(..count.min(self.messages.len()));
        if self
            .handed
            .is_some_and(|last| last.since(self.consumed) <= steps)
        {
            self.handed = None;
        }
        if steps > self.received.since(self.consumed) {
            self.received = through;
        }
        self.set_consumed(through);
        Ok(Some(through))
    }

    /// A `received` arrives. Returns the last message that it newly acknowledges.
    ///
    /// # Errors
    /// The number, if it is not one of an emitted and unreceived message.
    pub(crate) fn acknowledge_received(
        &mut self,
        through: Option<Sequence>,
    ) -> Result<Option<Sequence>, Sequence> {
        let through = through.unwrap_or_else(|| self.received.next());
        let steps = through.since(self.received);
        if steps > self.limit().since(self.received) {
            return Err(through);
        }
        if steps == 0 {
            return Ok(None);
        }
        self.received = through;
        self.is_acknowledged = true;
        Ok(Some(through))
    }

    /// Whether every message is consumed, decided and answered.
    pub(crate) fn is_drained(&self) -> bool {
        let last = self.last();
        let is_decided = |decisions: &Decisions| decisions.is_settled(last);
        self.messages.is_empty() && self.decisions.as_ref().is_none_or(is_decided)
    }

    /// From a journal: every message in it may have been emitted.
    pub(crate) fn restored(&mut self) {
        self.ready = self.last();
        self.sent = self.last();
        self.next = self.last().next();
    }

    /// From a journal: the application has closed the channel.
    pub(crate) fn restore_close(&mut self) {
        self.advance(Input::Call);
        self.advance(Input::CallKept);
    }

    /// From a journal: the peer may know of the close.
    pub(crate) fn restore_emitted_close(&mut self) {
        self.restore_close();
        for input in [Input::Leave, Input::LeaveKept, Input::Plan, Input::Emit] {
            self.advance(input);
        }
    }

    /// From a journal: the messages up to `through` were consumed.
    pub(crate) fn restore_consumed(&mut self, through: Sequence) {
        let steps = through.since(self.consumed);
        let count = usize::try_from(steps).unwrap_or(usize::MAX);
        self.messages.drain(..count.min(self.messages.len()));
        self.set_consumed(through);
        self.received = through;
    }

    fn set_consumed(&mut self, through: Sequence) {
        self.consumed = through;
        self.is_acknowledged = true;
        if let Some(decisions) = &mut self.decisions {
            decisions.forget_ends(through);
        }
    }

    /// From another process: the peer has every message up to `through`, and the payloads are not here. Returns
    /// false if there cannot be so many.
    pub(crate) fn restore_handed(&mut self, through: Sequence, most: u32) -> bool {
        let count = through.since(self.consumed);
        if !self.messages.is_empty() || count > most {
            return false;
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.messages.resize(count, Payload::default());
        self.handed = (count > 0).then_some(through);
        // The peer has to know the channel.
        self.is_acknowledged = true;
        true
    }
}

/// Returns the number before.
pub(crate) const fn before(sequence: Sequence) -> Sequence {
    sequence.plus(u32::MAX)
}
