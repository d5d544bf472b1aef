//! The rules that can be dropped, one at a time, to see that a property notices.

use crate::packet::Count;

/// A rule of the reading. The model is right when none is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Resend from received + 1 (R-REL-19), not from consumed + 1.
    ResendAfterReceived,
    /// Nothing on an older channel before its announcement (REQ-RELINK-23).
    WaitForAnnouncement,
    /// The receiver announces what it received (REQ-RELINK-60, R-REL-17).
    Announce,
    /// Channels first used since the cut are not gated (R-RELINK-V3).
    NewChannelsAtOnce,
    /// Close is sent again with the retransmission (R-REL-19).
    RepeatClose,
    /// A close on the wire and no announcement: the channel is closed (R-REL-18).
    UnannouncedIsClosed,
    /// A repeated close is answered on the new transport only (R-RELINK-V7).
    ClosedAnswersClose,
    /// `closed` waits for the application (R-REL-22).
    ClosedWaits,
    /// Undelivered decisions go out again at the peer's resume (R-REL-16).
    RepeatDecisions,
    /// A decision at or below the pointer is ignored (R-RELINK-V13).
    IgnoreOldDecisions,
    /// Outcomes are replayed before the resume (R-REL-16).
    ReplayOutcomes,
    /// An outcome at or below the pointer is ignored (R-REL-14).
    IgnoreOldOutcomes,
    /// The first decision after a reconnect names its number (R-REL-13).
    NumberAfterReconnect,
    /// An outcome behind a rollback names its number or skips it (REQ-RELINK-57, R-RELINK-V14).
    SkipRolledBack,
    /// Shutdown waits until all own channels are closed (R-REL-26).
    ShutdownWaits,
    /// Shutdown is sent again on a new transport (R-REL-27).
    RepeatShutdown,
    /// A sender stops at the window (REQ-RELINK-54).
    StopAtWindow,
    /// A new link starts without the state of the old one (REQ-RELINK-22).
    DiscardOldLink,
    /// Sequence numbers start at 0 after a reopening (R-REL-24): the receiver forgets a closed channel.
    ForgetClosed,
    /// `consumed` goes out when the application consumes (REQ-RELINK-54).
    AcknowledgeConsumed,
}

/// The limits of both endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The one rule that is broken, in tests of the properties.
    pub dropped: Option<Rule>,
    /// Which direction uses transactions, by its sender: connector, listener.
    pub transactional: [bool; 2],
    /// Messages a sender may have unconsumed on a channel, and a receiver takes.
    pub window: Count,
    /// Close waits until everything is consumed, decided and answered (`close_when_consumed`).
    pub close_when_consumed: bool,
    /// A resume announces what was consumed, and drops what comes again (`resume_from_consumed`).
    pub resume_from_consumed: bool,
    /// Each decision goes out again behind its last message (R-RELINK-V25), not behind all messages.
    pub decide_between: bool,
}

impl Rules {
    /// The plain rules, without transactions.
    pub fn plain() -> Self {
        Self {
            dropped: None,
            transactional: [false; 2],
            window: 2,
            close_when_consumed: false,
            resume_from_consumed: false,
            decide_between: false,
        }
    }

    /// Whether the rule holds.
    pub fn keep(self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }
}
