//! The contract between a machine that sorts its input by handles and the links that serve these handles.

use crate::{Connection, End};

/// The number of something that has a handle. Unlike an id on the wire, a number is never used again.
pub type Serial = u64;

/// A machine whose application holds handles, each with a number. A verb that is blocked has changed nothing, and is
/// called again when its wait is woken ([`Connection::poll_wake`]).
pub trait Handles: Connection {
    /// The error of a verb.
    type Error: From<End<Self::Kind>>;
    /// The kinds of waits of verbs, each with a key of its own.
    type Wait: Copy;
    /// A condition of a handle.
    type Interest: Copy + Send;

    /// Whether a verb has failed because it would have to wait.
    fn is_blocked(error: &Self::Error) -> bool;

    /// The key of a wait.
    fn wait_key(wait: Self::Wait) -> u64;

    /// The key of the waits for a condition of a handle.
    fn interest_key(interest: Self::Interest, serial: Serial) -> u64;

    /// Whether the condition is true of a handle; takes nothing.
    fn is_there(&mut self, serial: Serial, interest: Self::Interest) -> bool;
}
