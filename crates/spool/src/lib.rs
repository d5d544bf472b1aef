//! stub
mod block;
mod error;
mod events;
mod layout;
mod spool;
mod writer;

pub use block::{Block, BlockInfo, Settle, StoredBlock};
pub use error::SpoolError;
pub use events::{COLUMNS, Rows};
pub use layout::{Layout, LayoutError, Layouts};
pub use spool::{Mark, ReadOptions, Reader, Report, Slice, Spool};
pub use writer::{Recovered, Writer, WriterOptions, WriterState, WriterStats};
