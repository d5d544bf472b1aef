//! The alphabet of the model: packets on the wire, events of an application, and faults.

/// A number of messages from the start of a channel's life: sequence number + 1, 0 for none.
pub type Count = u8;

/// A message of a channel, counted from 0 over all its lives. It stands for the payload.
pub type Message = u8;

/// The channels of one direction.
pub const CHANNELS: usize = 2;

/// The sender's decision about a message (REQ-RELINK-37).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The receiver shall process it.
    Commit,
    /// The receiver shall ignore it.
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
    /// The sender has announced everything (REQ-RELINK-60).
    Resume,
    /// A message of one channel.
    Message {
        /// Its channel.
        channel: usize,
        /// The message.
        message: Message,
    },
    /// One message for both channels (REQ-RELINK-55), with its identity on each.
    Multicast([Message; CHANNELS]),
    /// `received`, announced on resume.
    Received(usize, Count),
    /// `consumed`.
    Consumed(usize, Count),
    /// A commit or a rollback.
    Decision(usize, Operation, Option<Count>),
    /// The answer to a commit.
    Outcome(usize, Outcome, Option<Count>),
    /// The sender closes the channel.
    Close(usize),
    /// The receiver is done with the channel.
    Closed(usize),
    /// The sender opens no more channels.
    Shutdown,
}

/// An event for the application, in the vocabulary of the conformance vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The old link is lost, with all its messages.
    LinkLost,
    /// Both sides have shut down and nothing is left.
    LinkClosed,
    /// The peer opens no more channels.
    PeerShutdown,
    /// The peer's resume has arrived.
    Resumed,
    /// A message, with the count up to it.
    Message(usize, Count, Message),
    /// The peer decided on all undecided messages up to this one.
    Decided(usize, Operation, Count),
    /// The peer closes the channel.
    Closing(usize),
    /// `received` moved.
    Received(usize, Count),
    /// `consumed` moved.
    Consumed(usize, Count),
    /// Commits were answered.
    Answered(usize, Outcome, Count),
    /// The own channel is gone, with so many messages never acknowledged as consumed.
    Closed(usize, Count),
}

/// The violations. The first seven are errors of the protocol, which two correct ends never see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A number that was not sent, or was acknowledged before (R-REL-12, R-RELINK-V13).
    OutOfRange,
    /// An acknowledgement for an unknown channel during a resume (R-REL-33).
    UnknownChannel,
    /// A message after close (R-REL-23).
    ChannelClosing,
    /// An acknowledged channel was not announced (R-REL-18).
    ResumeInconsistent,
    /// More unconsumed messages than the receive window (R-RELINK-V22).
    WindowExceeded,
    /// `closed` while a message was unconsumed or unanswered (R-REL-22, R-RELINK-V6).
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
    /// A closed channel with a wrong number of unacknowledged messages.
    Miscounted,
    /// A channel ended after its receiver had got a message and not consumed all (R-RELINK-V5).
    HalfClosed,
    /// The receiver heard of a decision twice.
    DecidedTwice,
    /// The receiver heard of a decision that was not made.
    DecidedOtherwise,
    /// A commit answered twice.
    AnsweredTwice,
    /// A commit answered unlike the receiver's outcome, or before it.
    AnsweredOtherwise,
    /// An outcome for a rolled back message.
    AnsweredRollback,
}

/// The output of an endpoint for one call or packet: packets and events, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Written to the transport.
    pub packets: Vec<Packet>,
    /// Told to the application.
    pub events: Vec<Event>,
}
