//! The contract between a machine that answers requests and the memory that waiting answers of all links share.

use std::time::Instant;

/// A link's bytes in the budget now.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerUsage {
    /// Bytes of requests that are accepted and not answered.
    pub accepted: u64,
    /// Bytes of answers that wait for the peer.
    pub answers: u64,
    /// Bytes of answers that have left since the link began.
    pub left: u64,
}

impl AnswerUsage {
    /// The bytes that are charged.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.accepted.saturating_add(self.answers)
    }
}

/// The speed of a peer that is slow with answers for whose bytes others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowAnswers {
    /// Bytes that it took.
    pub taken: u64,
    /// The seconds in which it took them.
    pub seconds: u64,
}

/// The room of one link for answers that wait for its peer.
pub trait AnswerRoom: Send {
    /// Whether a request of so many bytes may be handed out. If not, and the link holds nothing, it
    /// waits in the queue, if an answer could begin to leave (`can_begin`): a peer that gives no
    /// credit waits for nothing.
    fn ask(&mut self, now: Instant, request: u64, can_begin: bool) -> bool;

    /// Marks the request as handed out.
    fn handed_out(&mut self);

    /// Marks a request as answered with so many bytes, or given up.
    fn answered(&mut self, bytes: u64);

    /// Sets the link's bytes. Returns whether its request was granted.
    fn settle(&mut self, now: Instant, kept: AnswerUsage) -> bool;

    /// Marks the link as ended: no other link waits for its bytes.
    fn end(&mut self);

    /// When the link is checked again.
    fn due(&self) -> Option<Instant>;

    /// The peer's speed, if it is too slow while others wait for the budget: below the default of
    /// `--min-rate`, or of `--frame-timeout`.
    fn slow(&self) -> Option<SlowAnswers>;
}
