//! The alphabet of the model: packets on the wire, what an application is told, what can go wrong.

/// How many messages, from the start of a channel's life, something covers: sequence number + 1, 0 = none.
pub type Count = u8;

/// A message of a channel over all its lives, counted from 0: the payload, as the model sees it.
pub type Message = u8;

/// The channels of one direction.
pub const CHANNELS: usize = 2;

/// The sender's decision about a message (REQ-RELINK-37).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The receiver is to process it.
    Commit,
    /// The receiver is to ignore it.
    Rollback,
}

/// The receiver's outcome of a commit (REQ-RELINK-38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Processed.
    Committed,
    /// Not processed.
    Uncommitted,
}

/// One packet. `through: None` is the channel form, the next message; `Some` the sequence form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    /// All has been announced (REQ-RELINK-60).
    Resume,
    /// A message of one channel.
    Message {
        /// Its channel.
        channel: usize,
        /// The message.
        message: Message,
    },
    /// One message for both channels (REQ-RELINK-55): what it is on each of them.
    Multicast([Message; CHANNELS]),
    /// `received`, announced on resume.
    Received(usize, Count),
    /// `consumed`.
    Consumed(usize, Count),
    /// A commit or a rollback.
    Decision(usize, Operation, Option<Count>),
    /// Its answer.
    Outcome(usize, Outcome, Option<Count>),
    /// The sender closes the channel.
    Close(usize),
    /// The receiver has done with it.
    Closed(usize),
    /// The sender opens no more channels.
    Shutdown,
}

/// An event for the application, in the vocabulary of the conformance vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The old link is gone, with everything on it.
    LinkLost,
    /// Both sides have shut down and nothing is left.
    LinkClosed,
    /// The peer opens no more channels.
    PeerShutdown,
    /// The peer's resume has arrived.
    Resumed,
    /// A message, with the count that includes it.
    Message(usize, Count, Message),
    /// The peer decided about all undecided messages through this one.
    Decided(usize, Operation, Count),
    /// The peer closes the channel.
    Closing(usize),
    /// `received` moved.
    Received(usize, Count),
    /// `consumed` moved.
    Consumed(usize, Count),
    /// Commits were answered.
    Answered(usize, Outcome, Count),
    /// The own channel is gone, so many messages never acknowledged as consumed.
    Closed(usize, Count),
}

/// The violations. The first seven are the protocol's own errors, which two right ends never see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A number outside what was sent or acknowledged (R-REL-12, R-RELINK-V13).
    OutOfRange,
    /// An acknowledgement for a channel nobody knows, on resume (R-REL-33).
    UnknownChannel,
    /// A message after close (R-REL-23).
    ChannelClosing,
    /// An acknowledged channel was not announced (R-REL-18).
    ResumeInconsistent,
    /// More unconsumed messages than the receive window (R-RELINK-V22).
    WindowExceeded,
    /// `closed` while something was unconsumed or unanswered (R-REL-22, R-RELINK-V6).
    ClosedEarly,
    /// A channel was opened after the peer's shutdown (R-REL-26).
    AfterShutdown,
    /// The same message delivered a second time.
    Duplicate,
    /// A message delivered before an earlier one of its channel.
    Gap,
    /// A message of a life that is over: its link was lost or its channel closed.
    SentAgain,
    /// A message acknowledged that its receiver has not consumed.
    FalseAcknowledgement,
    /// A closed channel names another number of unacknowledged messages than there are.
    Miscounted,
    /// A channel ended of which the receiver got something and did not consume all (R-RELINK-V5).
    HalfClosed,
    /// The receiver heard of a decision twice.
    DecidedTwice,
    /// The receiver heard of another decision than was made.
    DecidedOtherwise,
    /// A commit answered twice.
    AnsweredTwice,
    /// A commit answered otherwise than the receiver did, or not yet.
    AnsweredOtherwise,
    /// An outcome for a rolled back message.
    AnsweredRollback,
}

/// The answers of an endpoint to one call or packet: to the peer and to its application, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Written to the transport.
    pub packets: Vec<Packet>,
    /// Told to the application.
    pub events: Vec<Event>,
}
