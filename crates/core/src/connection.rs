//! The trait every protocol implements and every driver drives.

use std::time::Instant;

use bytes::BytesMut;

use crate::{ErrorKind, ProtocolError, SendQueue, StallTimeouts};

/// The condition for `receive` to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// More input: call again when `input` holds at least this many bytes. A hint for the driver's
    /// memory budget, never an allocation; calling earlier is allowed.
    Input {
        /// Bytes that `input` must hold before the next frame can take effect, at least 1.
        at_least: usize,
    },
    /// The application must take events (or settle them) first. Input stays where it is.
    Room,
    /// The work budget of one call is spent: flush, yield, call again without new input.
    Again,
}

/// The state of a connection in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// Both directions carry frames.
    Open,
    /// Send everything, shut down the write side, read and drop until the peer's end or the close
    /// deadline.
    Draining,
    /// Over: the transport may be dropped once everything emitted has been delivered.
    Closed,
    /// This machine's part is done: once everything emitted is written, the transport goes on with another
    /// machine, and input that was not taken is that machine's.
    Handover,
}

/// One end of one protocol over one ordered byte stream. No I/O, no clock, no tasks, no locks.
///
/// # The contract
///
/// 1. *Chunking is invisible*: any split of the same bytes gives the same events, output and error
///    offset.
/// 2. *Deterministic*: the same inputs at the same `now`s give the same outputs.
/// 3. *Errors are terminal but polite*: after `Err` events already queued are still handed out by
///    [`poll_event`](Self::poll_event), a goodbye may still be flushed, later calls return the same
///    error and verbs are refused `closed`, but for answers that are still
///    [owed](Self::owes_answers).
/// 4. *Bounded*: `receive` stops and leaves bytes in `input` at its event and byte limits. Nothing is
///    sized by a number from the wire.
/// 5. *Bounded work*: one call inflates [`INFLATED_PER_CALL`](crate::INFLATED_PER_CALL) bytes and ends the
///    step it is at, of [`INFLATED_PER_STEP`](crate::INFLATED_PER_STEP) at the most, or queues
///    [`EVENTS_PER_CALL`](crate::EVENTS_PER_CALL) events, then answers [`Need::Again`].
/// 6. *The send queue is scratch*: frames that may have to be sent again stay in the machine until they are
///    acknowledged.
/// 7. *Late encoding*: acknowledgements and credit are state until `poll_transmit`.
///
/// `now` never goes back from one call to the next.
pub trait Connection {
    /// The events that the application is told.
    type Event;
    /// The protocol's own error kinds.
    type Kind: ErrorKind;

    /// Takes whole frames from the front of `input`; a frame that is not whole yet stays there.
    ///
    /// # Errors
    /// The peer broke the protocol or a limit; the connection is over.
    fn receive(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
    ) -> Result<Need, ProtocolError<Self::Kind>>;

    /// The peer has ended its direction; nothing more will arrive.
    ///
    /// # Errors
    /// The end came where the protocol does not allow one.
    fn receive_eof(&mut self, now: Instant) -> Result<(), ProtocolError<Self::Kind>>;

    /// The next event, if any. May be called in any state, also after an error.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Encodes the waiting output, until nothing is left or `out.room()` is 0.
    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue);

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called. May change after any call.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Every timer due at `now` fires. Calling early is harmless.
    ///
    /// # Errors
    /// A deadline of the peer has passed; the connection is over.
    fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Self::Kind>>;

    /// The driver stopped (`false`) or resumed (`true`) reading. While reading is off, timers on the
    /// peer's silence stand still.
    fn reading(&mut self, now: Instant, on: bool);

    /// Returns the state of the connection in its life.
    fn lifecycle(&self) -> Lifecycle;

    /// Bytes of the peer that this connection holds, or has handed out and that were not settled: the memory budget
    /// charges them beside the input buffer.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Those of [`held_bytes`](Self::held_bytes) that need no more input to be let go, only the
    /// application: while others wait for memory, a connection that holds such bytes waits for them first.
    fn complete_bytes(&self) -> usize {
        0
    }

    /// Those of [`held_bytes`](Self::held_bytes) that wait for more of the peer's input: the part of a window or
    /// message that has come. A peer that is too slow with it loses it while others wait for memory.
    fn coming_bytes(&self) -> usize {
        0
    }

    /// The number of frames, windows or messages that have come whole so far. When it grows, the driver knows that
    /// another one begins to come, whose time begins anew.
    fn finished(&self) -> u64 {
        0
    }

    /// Bytes that the next call of [`receive`](Self::receive) may add to [`held_bytes`](Self::held_bytes) beyond the
    /// input that it takes, where arrived bytes count more than once. After [`Need::Again`] and
    /// [`Need::Room`] the driver calls only when so much is granted.
    fn step_bytes(&self) -> usize {
        0
    }

    /// The time for which its peer may leave bytes untaken; then the driver ends the transport, without a
    /// goodbye. There is no limit, unless a protocol sets one.
    fn stall_timeouts(&self) -> StallTimeouts {
        StallTimeouts::default()
    }

    /// Whether, after an error or the peer's end, answers to frames before it are still to be sent by a
    /// connection that is [`Closed`](Lifecycle::Closed). The driver then holds our end back for a while and
    /// reads nothing meanwhile.
    fn owes_answers(&self) -> bool {
        false
    }

    /// After an error or the peer's end, ours is sent now: an answer that comes later is refused.
    fn hang_up(&mut self) {}

    /// Returns the next key of waits that may be over since the last call. Waits without a key of their own (key 0) are
    /// checked after each change anyway; where many wait for different things, the key names the waits to check.
    fn poll_wake(&mut self) -> Option<u64> {
        None
    }

    /// The transport is gone: its end, an error, or a newer transport in its place. Bytes that were emitted, and a frame
    /// that was half received, are void. Answers whether the machine goes on without a transport, until it is given
    /// a new one; `false` is the end of the link.
    fn detached(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }
}
