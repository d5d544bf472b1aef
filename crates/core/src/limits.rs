//! The limits that belong to the contract itself; each protocol adds its own.

/// Bytes inflated by one `receive` call before it ends, so that one connection cannot hold a thread.
pub const INFLATED_PER_CALL: usize = 1 << 20;

/// Bytes inflated by one step of a `receive` call at the most: a step that begins below
/// [`INFLATED_PER_CALL`] may end that much above it.
pub const INFLATED_PER_STEP: usize = 2 << 20;

/// Events queued by one `receive` call at the most.
pub const EVENTS_PER_CALL: usize = 256;

/// Bytes a [`SendQueue`](crate::SendQueue) takes before `room` is 0: acks and credit are encoded late.
pub const SEND_QUEUE_BYTES: usize = 256 * 1024;
