//! The contract between a link protocol and its driver.
//!
//! A protocol is a [`Connection`]: bytes go in, events and bytes come out, and it names the time of its next timer.
//! This crate decides the shape of that exchange and the small values that every protocol needs (sequence numbers,
//! credit, a checked reader, the send queue). A protocol also [describes](described) its verbs, events and frames
//! here, for tools. This crate does not know any protocol, any socket or any clock.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

mod answers;
mod block;
mod connection;
mod credit;
pub mod described;
mod end;
mod error;
mod handles;
mod inspect;
mod landable;
mod limits;
mod locked;
mod open_error;
pub mod options;
mod payload;
mod quota;
mod reader;
mod room;
mod runs;
mod send_queue;
mod sequence;
mod stall;
mod table;
mod timing;
mod value;
mod wakes;

pub use answers::{AnswerRoom, AnswerUsage, SlowAnswers};
pub use block::{Block, Shared, TOGETHER};
pub use connection::{Connection, Lifecycle, Need};
pub use credit::{Credit, CreditOverflow, Grant};
pub use end::End;
pub use error::{ErrorKind, LimitHit, ProtocolError, UsageError};
pub use handles::{Handles, Serial};
pub use inspect::{Inspect, Inspected, Span, Spans};
pub use landable::Landable;
pub use limits::{EVENTS_PER_CALL, INFLATED_PER_CALL, INFLATED_PER_STEP, SEND_QUEUE_BYTES};
pub use locked::locked;
pub use open_error::OpenError;
pub use payload::{PART_BYTES, Payload};
pub use quota::{Quota, Share};
pub use reader::Reader;
pub use room::{Promised, Room};
pub use runs::{OneRun, RUN_COST, RUN_MESSAGES, Runs};
pub use send_queue::SendQueue;
pub use sequence::Sequence;
pub use stall::{SEND_TIMEOUT, StallTimeouts};
pub use table::Table;
pub use timing::Timing;
pub use value::{Fraction, Members, Value};
pub use wakes::Wakes;
