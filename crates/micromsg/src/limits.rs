//! The limits on a peer's frames.

use ackline_core::options::{bytes, count};

ackline_core::options! {
    /// The limits of a connection, judged as soon as the number in question has arrived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        options {
            /// Bytes of the payload of one frame.
            max_payload_bytes: u64 = 16 << 20, bytes(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Bytes of the payload of a message, whole or put together from fragments.
            max_message_bytes: u64 = 16 << 20, bytes(0..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Names in a list of extensions or in a command: those of extensions and of their properties, or of the
            /// command's.
            max_names: u64 = 1_024, count(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
    }
}
