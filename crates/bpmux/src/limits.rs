//! Limits on a peer's chunks. All limits are inclusive and bind received chunks alone; none is ever
//! used to allocate.

use ackline_core::options::{bytes, count};

ackline_core::options! {
    /// The limits of a connection, judged as soon as the number in question has arrived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits {
        options {
            /// Bytes of a message or request, whole or put together from parts.
            max_payload_bytes: u64 = 16 << 20, bytes(1..=u64::MAX), CONNECT | LISTEN | RECEIVE | URL | MACHINE | DECODE;
            /// Sinks, streams and duplexes of a connection.
            max_entities: u32 = 1 << 16, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
            /// Requests of a connection that wait.
            max_requests: u32 = 1 << 16, count(1..=0xffff_ffff), CONNECT | LISTEN | RECEIVE | URL | MACHINE;
        }
    }
}
