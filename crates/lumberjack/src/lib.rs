//! Lumberjack v1 and v2 as deployed, without I/O: the [`Reader`] takes windows of events and
//! acknowledges them, the [`Writer`] sends windows and waits for their acknowledgements. A
//! [`Pool`](pool::Pool) holds a sender's events for the writers of several hosts.
//!
//! Both are a [`Connection`](ackline_core::Connection). This crate decides whether a frame is
//! sound, when a window is complete and which acknowledgement answers it; it does not read events,
//! open a socket or read a clock.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]

mod config;
mod deflate;
mod describe;
mod envelope;
mod error;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod inflate;
mod inspect;
mod landable;
mod limits;
mod out;
mod partial;
mod pending;
pub mod pool;
mod reader;
mod record;
mod slow_start;
mod timing;
mod walker;
mod window;
mod wire;
mod writer;

pub use config::{NoWindow, OnInvalid, ReaderConfig, SequenceMode, WriterConfig};
pub use describe::Description;
pub use error::Kind;
pub use inspect::Inspector;
pub use limits::Limits;
pub use out::OutRecord;
pub use reader::{Event, Reader, ReaderStats};
pub use record::{Expander, Pairs, Record};
pub use window::{Invalid, Piece, Window};
pub use wire::Version;
pub use writer::{Allowance, Writer, WriterEvent};
