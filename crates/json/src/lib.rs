//! JSON payloads and Arrow: events become typed columns by a schema, rows become JSON text.
//!
//! This crate decides the column that each member fills, the handling of values that do not fit,
//! and the text of each value. It does not decide where payloads come from or go to: it knows no
//! protocol and no spool, and does no I/O.

#![forbid(unsafe_code)]

mod column;
mod doubles;
mod encode;
mod escape;
#[doc(hidden)]
pub mod fuzzing;
mod infer;
mod leftover;
mod malformed;
mod number;
mod plan;
mod project;
mod scan;
mod scope;
mod text;
mod time;
mod value;
mod variant;

pub use encode::{EncodeError, Encoder, Nulls, Stamp, texts};
pub use infer::Inference;
pub use malformed::Malformed;
pub use plan::SchemaError;
pub use project::{Mode, Options, ProjectError, Projector, with_rescued};
pub use variant::is_variant;
