//! Events of a spool as Arrow columns: as they are stored, or projected to the columns of a schema.
//!
//! This crate joins the reader of a spool with the decoders of payloads ([`Projection`]), and reads the work of one
//! task of Spark ([`Task`]). It knows neither Python nor Java, and no protocol: its callers give it the layouts of blocks.

#![forbid(unsafe_code)]

mod element;
mod element_columns;
mod element_lines;
mod element_schema;
mod events;
mod json_lines;
mod portions;
mod projection;
mod refused;
mod task;
#[cfg(test)]
mod tests;

pub use element_columns::{ElementError, Malformed};
pub use element_lines::ElementShape;
pub use events::{Events, Failure};
pub use projection::{JsonColumns, Projection};
pub use refused::Refused;
pub use task::{Payloads, Piece, Reading, Spent, Task, TaskError};
