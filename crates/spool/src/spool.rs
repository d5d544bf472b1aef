//! stub
use crate::{BlockInfo, Layouts, SpoolError};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

/// What is read, and how.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The columns to build, of [`COLUMNS`](crate::COLUMNS); all when none are named.
    pub columns: Option<Vec<String>>,
    /// Threads that expand blocks, 1.
    pub threads: usize,
    /// Events in a batch, 10,000.
    pub batch_rows: usize,
}
impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            columns: None,
            threads: 1,
            batch_rows: 10_000,
        }
    }
}
/// A part of one segment that can be read without listing the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The segment's file.
    pub path: PathBuf,
    /// The spool's UUID.
    pub uuid: String,
    /// Where its first group begins in the file.
    pub byte_start: u64,
    /// Where its last group ends in the file.
    pub byte_end: u64,
    /// The first position.
    pub start: u64,
    /// The position after the last one.
    pub end: u64,
}
/// A consumer's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The consumer's name.
    pub name: String,
    /// Every event below this position is done with.
    pub committed: u64,
    /// When the mark was written, RFC 3339 in UTC.
    pub updated: String,
}
/// What [`Spool::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments looked at.
    pub segments: u64,
    /// Group commits looked at.
    pub groups: u64,
    /// Blocks looked at.
    pub blocks: u64,
    /// Events counted.
    pub events: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is wrong, empty when nothing is.
    pub problems: Vec<String>,
}
/// Event batches of a range.
#[derive(Debug)]
pub struct Reader(SchemaRef);
impl Reader {
    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.0.clone()
    }
}
impl Iterator for Reader {
    type Item = Result<RecordBatch, SpoolError>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
/// A spool, for reading: in any process, also beside a writer.
#[derive(Debug)]
pub struct Spool;
impl Spool {
    /// stub
    pub fn open(_dir: &Path) -> Result<Self, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn uuid(&self) -> &str {
        ""
    }
    /// stub
    pub fn first_kept(&self) -> Result<u64, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn durable(&self) -> Result<u64, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn read(
        &self,
        _layouts: &Layouts,
        _range: Range<u64>,
        _options: &ReadOptions,
    ) -> Result<Reader, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn read_slice(
        _layouts: &Layouts,
        _slice: &Slice,
        _options: &ReadOptions,
    ) -> Result<Reader, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn end_for(
        &self,
        _start: u64,
        _max_rows: Option<u64>,
        _max_bytes: Option<u64>,
    ) -> Result<u64, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn slices(
        &self,
        _range: Range<u64>,
        _max_slices: usize,
        _min_bytes: u64,
    ) -> Result<Vec<Slice>, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn consumers(&self) -> Result<Vec<Mark>, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn commit_mark(&self, _name: &str, _position: u64) -> Result<(), SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn remove_consumer(&self, _name: &str) -> Result<bool, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn blocks(
        &self,
        _range: Range<u64>,
    ) -> Result<std::vec::IntoIter<Result<BlockInfo, SpoolError>>, SpoolError> {
        Err(SpoolError::Closed)
    }
    /// stub
    pub fn verify(&self, _progress: &mut dyn FnMut(u64, u64)) -> Result<Report, SpoolError> {
        Err(SpoolError::Closed)
    }
}
