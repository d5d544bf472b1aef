//! The rules that a test can drop, one at a time, to check that a property notices.

use crate::packet::Count;

/// A rule of our reading. The model is right if none is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Resend from received + 1 (R-REL-19), not from consumed + 1.
    ResendAfterReceived,
    /// No packet on an older channel before its announcement (REQ-RELINK-23).
    WaitForAnnouncement,
    /// The receiver announces the messages that it has received (REQ-RELINK-60, R-REL-17).
    Announce,
    /// Channels first used since the cut are not gated (R-RELINK-V3).
    NewChannelsAtOnce,
    /// Close is sent again with the retransmission (R-REL-19).
    RepeatClose,
    /// If a close was written and the channel is not announced, it is closed (R-REL-18).
    UnannouncedIsClosed,
    /// A repeated close is answered on the new transport only (R-RELINK-V7).
    ClosedAnswersClose,
    /// `closed` waits until the application is done (R-REL-22).
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
    /// A new link begins without the state of the old one (REQ-RELINK-22).
    DiscardOldLink,
    /// The receiver forgets a closed channel, so that the numbers of its next life begin at 0 (R-REL-24).
    ForgetClosed,
    /// `consumed` goes out when the application consumes (REQ-RELINK-54).
    AcknowledgeConsumed,
}

/// The limits of both endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The one rule that is broken, in tests of the properties.
    pub dropped: Option<Rule>,
    /// Whether a direction uses transactions, by its sender: connector, listener.
    pub transactional: [bool; 2],
    /// The window of a channel: the most unconsumed messages of a sender, and of a receiver.
    pub window: Count,
    /// Whether a close waits until all messages are consumed, decided and answered (`close_when_consumed`).
    pub close_when_consumed: bool,
    /// Whether a resume announces only consumed messages as received, and drops the repeated ones
    /// (`resume_from_consumed`).
    pub resume_from_consumed: bool,
    /// Whether each decision goes out again after its last message (R-RELINK-V25), not after all messages.
    pub decide_between: bool,
}

impl Rules {
    /// The rules without transactions and options.
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
