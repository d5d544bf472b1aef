//! A task's orders as JSON: the columns of each event, and the pieces of segments.

use std::path::{Path, PathBuf};

use ackline_spool::Slice;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::projection::{JsonColumns, Projection};
use crate::refused::Refused;

/// The columns that a query has of each event, and the limits of reading.
#[derive(Debug, Clone, Deserialize)]
pub struct Reading {
    /// The query's columns, in their order.
    pub names: Vec<String>,
    /// Without a projection, the names that these columns have in an event, in the same order; `None` or empty if
    /// they are the same.
    #[serde(default)]
    pub of_events: Option<Vec<String>>,
    /// The columns that payloads are projected to; `None` if events are read as they are stored.
    #[serde(default)]
    pub projection: Option<Payloads>,
    /// Whether events that were sent before are left out.
    pub skip_repeats: bool,
    /// Bytes that the task's reader holds at once; at least 4 MiB.
    pub memory: u64,
}

/// The content of payloads. A schema is a message of Arrow's IPC format, in base64.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Payloads {
    /// JSON objects.
    Json {
        /// The columns.
        schema: String,
        /// The handling of members and of malformed events.
        #[serde(flatten)]
        columns: JsonColumns,
    },
    /// Elements of a fixed size.
    Elements {
        /// Their description, such as `time:u64,value:f32`.
        element: String,
        /// The columns; `None` for all of them.
        schema: Option<String>,
        /// `PERMISSIVE`, `DROPMALFORMED` or `FAILFAST`, in any case.
        mode: String,
        /// The column for malformed payloads.
        corrupt_record: String,
    },
}

/// A run of blocks in one segment, and the positions wanted of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Piece {
    /// The segment's file.
    pub path: PathBuf,
    /// The spool that the file must belong to.
    pub uuid: String,
    /// Offset of the first block's group in the file.
    pub byte_start: u64,
    /// Offset of the end of the last block's group.
    pub byte_end: u64,
    /// First position wanted.
    pub start: u64,
    /// First position not wanted.
    pub end: u64,
}

impl Reading {
    /// The projection that is asked for.
    pub(super) fn projection(&self) -> Result<Option<Projection>, Refused> {
        let made = match &self.projection {
            None => return Ok(None),
            Some(Payloads::Json { schema, columns }) => {
                Projection::json(&decoded(schema)?, columns.clone())
            }
            Some(Payloads::Elements {
                element,
                schema,
                mode,
                corrupt_record,
            }) => {
                let schema = schema.as_deref().map(decoded).transpose()?;
                Projection::elements(element, schema.as_deref(), mode, corrupt_record)
            }
        };
        made.map(Some)
    }

    /// The names in an event of columns of the query.
    pub(super) fn event_names<'a>(&'a self, wanted: &[String]) -> Result<Vec<&'a str>, Refused> {
        let of_events = self.of_events.as_deref().unwrap_or_default();
        let of_events = if of_events.is_empty() {
            &self.names
        } else {
            of_events
        };
        if of_events.len() != self.names.len() {
            let text = format!(
                "of_events has {} names, and names has {}",
                of_events.len(),
                self.names.len()
            );
            return Err(Refused::new("reading", text));
        }
        let of_event = |name: &String| {
            let mut pairs = self.names.iter().zip(of_events);
            let (_, own) = pairs.find(|(named, _)| *named == name)?;
            Some(own.as_str())
        };
        Ok(wanted.iter().filter_map(of_event).collect())
    }
}

impl Piece {
    /// The directory of the spool: segments lie in a folder of the spool.
    pub fn spool(&self) -> &Path {
        let spool = self.path.parent().and_then(Path::parent);
        spool.unwrap_or_else(|| Path::new(""))
    }

    pub(super) fn slice(&self) -> Slice {
        Slice {
            path: self.path.clone(),
            uuid: self.uuid.clone(),
            byte_start: self.byte_start,
            byte_end: self.byte_end,
            start: self.start,
            end: self.end,
        }
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, Refused> {
    let wrong = |error| Refused::new("reading", format!("schema is no base64: {error}"));
    STANDARD.decode(text).map_err(wrong)
}
