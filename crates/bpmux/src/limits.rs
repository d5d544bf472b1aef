//! What a peer may send. All limits are inclusive and bind only what is received; none is ever used to
//! allocate.

/// The limits of a connection, judged as soon as the number in question has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a payload, whole or put together from parts (`--max-payload-bytes`), 16 MiB.
    pub payload: u64,
    /// Sinks, streams and duplexes of the peer's that are open at once (`--max-entities`), 65,536.
    pub entities: u32,
    /// Requests of the peer's that are not over (`--max-requests`), 65,536.
    pub requests: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload: 16 << 20,
            entities: 1 << 16,
            requests: 1 << 16,
        }
    }
}
